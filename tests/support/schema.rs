//! Whether a JSON value is what a JSON schema says: the keywords that our schemas use, and no other.

use serde_json::Value;

/// Keywords that say something to people alone.
const FOR_PEOPLE: [&str; 3] = ["$schema", "title", "description"];

/// Panics unless `value` is what the schema of this name in the repository says.
///
/// # Panics
/// As said; also where there is no such schema.
#[track_caller]
pub fn expect(name: &str, value: &Value) {
    let path = crate::built::repository().join(name);
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let schema: Value = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(faults(&schema, value), Vec::<String>::new(), "{name}");
}

/// What is wrong with `value`, place by place; empty where nothing is.
///
/// # Panics
/// The schema has a keyword that is not known here.
pub fn faults(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, value, "$", &mut found);
    found
}

fn check(schema: &Value, value: &Value, place: &str, found: &mut Vec<String>) {
    let rules = schema.as_object().expect("a schema is an object");
    for (keyword, rule) in rules {
        match keyword.as_str() {
            "type" => {
                let allowed = rule.as_array().cloned().unwrap_or_else(|| vec![rule.clone()]);
                if !allowed.iter().filter_map(Value::as_str).any(|name| has_type(name, value)) {
                    found.push(format!("{place} is {value} and not {rule}"));
                }
            }
            "enum" => {
                if !rule.as_array().expect("an enum is a list").contains(value) {
                    found.push(format!("{place} is {value}, which is not one of {rule}"));
                }
            }
            "minimum" => {
                if value.as_f64().is_some_and(|number| number < rule.as_f64().expect("a minimum is a number")) {
                    found.push(format!("{place} is {value}, which is below {rule}"));
                }
            }
            "items" => {
                for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(rule, item, &format!("{place}[{number}]"), found);
                }
            }
            "properties" => {
                for (name, schema) in rule.as_object().expect("properties are an object") {
                    if let Some(value) = value.get(name) {
                        check(schema, value, &format!("{place}.{name}"), found);
                    }
                }
            }
            "required" => {
                let missing = |name: &&str| value.is_object() && value.get(*name).is_none();
                let names = rule.as_array().expect("required is a list").iter().filter_map(Value::as_str);
                found.extend(names.filter(missing).map(|name| format!("{place} has no {name}")));
            }
            "additionalProperties" => {
                let known = rules.get("properties").and_then(Value::as_object);
                for name in value.as_object().into_iter().flat_map(|object| object.keys()) {
                    if *rule == Value::Bool(false) && known.is_none_or(|known| !known.contains_key(name)) {
                        found.push(format!("{place} has {name}, which the schema does not know"));
                    }
                }
            }
            keyword => assert!(FOR_PEOPLE.contains(&keyword), "unknown keyword {keyword} in the schema"),
        }
    }
}

fn has_type(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        name => panic!("unknown type {name} in the schema"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn faults_are_found() {
        let schema = json!({"type": "object", "additionalProperties": false, "required": ["a"], "properties": {
            "a": {"type": ["integer", "null"], "minimum": 0}, "b": {"type": "array", "items": {"enum": ["x"]}}}});
        assert!(faults(&schema, &json!({"a": null, "b": ["x"]})).is_empty());
        for bad in [
            json!([]),
            json!({}),
            json!({"a": -1}),
            json!({"a": 1.5}),
            json!({"a": 1, "b": ["y"]}),
            json!({"a": 1, "c": 0}),
        ] {
            assert_eq!(faults(&schema, &bad).len(), 1, "{bad}");
        }
    }
}
