//! `docs/errors.md` has every error that the sources define, and nothing that they do not say.

use hrr_tests::{built, sources};

/// Source text with literals in one line, as they are printed, and `…` for what is put into them.
fn as_printed(source: &str) -> String {
    let mut joined = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("\\\n") {
        joined.push_str(&rest[..at]);
        rest = rest[at + 2..].trim_start();
    }
    joined.push_str(rest);
    let joined = joined.replace("\\\"", "\u{1}").replace("\\n", "\u{2}");
    let mut text = String::with_capacity(joined.len());
    let mut rest = joined.as_str();
    while let Some(at) = rest.find('{') {
        text.push_str(&rest[..at]);
        let inside = &rest[at + 1..];
        let end = inside.find(|c: char| !(c.is_ascii_alphanumeric() || "_:.?#$<>".contains(c))).unwrap_or(inside.len());
        if inside[end..].starts_with('}') {
            text.push('…');
            rest = &inside[end + 1..];
        } else {
            text.push('{');
            rest = inside;
        }
    }
    text.push_str(rest);
    text
}

/// The messages of `#[error("...")]` in source text that was made as it is printed.
fn defined(text: &str) -> Vec<&str> {
    let literals = text.split("#[error(").skip(1).filter_map(|attribute| attribute.trim_start().strip_prefix('"'));
    let messages = literals.filter_map(|literal| Some(&literal[..literal.find('"')?]));
    // What passes another error on says nothing of its own; the parts of a report behind a line are not on the page.
    let own = messages.map(|message| message.split('\u{2}').next().unwrap_or(message));
    own.filter(|message| !message.chars().all(|c| "…: ".contains(c))).collect()
}

/// The first column of the page's tables of messages.
fn told(page: &str) -> Vec<String> {
    let mut messages = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        match line {
            "| says | what to do |" => inside = true,
            _ if !line.starts_with('|') => inside = false,
            _ => {}
        }
        let Some(cell) = line.strip_prefix("| `").filter(|_| inside) else { continue };
        let (fence, cell) = cell.strip_prefix("` ").map_or(("` |", cell), |cell| (" `` |", cell));
        let end = cell.find(fence).unwrap_or_else(|| panic!("no end of the message in {line}"));
        messages.push(cell[..end].replace("\\|", "|"));
        assert!(cell[end + fence.len()..].trim_end_matches('|').trim().len() > 10, "no remedy: {line}");
    }
    messages
}

#[test]
fn every_error_is_on_the_page_and_the_other_way_round() {
    let page = std::fs::read_to_string(built::repository().join("docs/errors.md")).unwrap();
    let told = told(&page);
    let mut said = String::new();
    let mut missing = Vec::new();
    for (path, source) in sources::installed() {
        let text = as_printed(&source);
        for message in defined(&text) {
            if !told.iter().any(|told| told.as_str() == message) {
                missing.push(format!("{}: {message}", path.display()));
            }
        }
        said.push_str(&text);
    }
    assert!(told.len() > 120, "{} messages", told.len());
    assert!(missing.is_empty(), "docs/errors.md lacks, with what to do about it:\n{}", missing.join("\n"));
    let never: Vec<&String> = told.iter().filter(|message| !said.contains(message.as_str())).collect();
    assert!(never.is_empty(), "docs/errors.md has what nothing says:\n{never:#?}");
}
