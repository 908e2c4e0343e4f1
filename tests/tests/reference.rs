//! `docs/reference.md` is what the programs say of themselves, and every variable that the sources read is in it.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use hrr_tests::process::run;
use hrr_tests::{built, sources};

const LIMIT: Duration = Duration::from_secs(60);

/// Names of our variables that stand in string literals.
fn variables_in(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).filter_map(|literal| {
        let end = literal.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
        let name = &literal[..end.unwrap_or(literal.len())];
        (name.starts_with("HIP_HRR_") || name.starts_with("HRR_REPLAY_")).then_some(name)
    })
}

#[test]
fn the_page_is_current() {
    let script = built::repository().join("scripts/gen-reference");
    run(Command::new(script).arg("--check").env("HRR_OUT", built::folder()), LIMIT).expect_code(0);
}

#[test]
fn every_variable_that_is_read_is_on_the_page_and_the_other_way_round() {
    let page = std::fs::read_to_string(built::repository().join("docs/reference.md")).unwrap();
    let (mut read, mut told) = (BTreeSet::new(), BTreeSet::new());
    for (path, text) in sources::installed() {
        let table = path.file_name().is_some_and(|name| name == "variables.rs");
        let names = variables_in(&text).map(str::to_owned);
        if table { told.extend(names) } else { read.extend(names) }
    }
    assert!(read.len() > 30 && told.len() > 20, "{read:?}\n{told:?}");
    for name in &read {
        let row = [format!("| `{name}=",), format!("| `{name}` ")];
        assert!(
            row.iter().any(|row| page.contains(row.as_str())),
            "{name} is read, and no table of variables.rs has it"
        );
    }
    for name in &told {
        assert!(read.contains(name), "{name} is told of, and nothing reads it");
    }
}
