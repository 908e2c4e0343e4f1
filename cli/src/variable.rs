//! Environment variables of a program, as its help, manual page and reference tell them.

/// A variable that a program, or what it starts, reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it is set to, such as `DIR` or `1`.
    pub value: &'static str,
    /// What that does, and what holds where it is not set.
    pub meaning: &'static str,
    /// For whom it is.
    pub audience: Audience,
}

/// For whom a variable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Whoever uses the program.
    Users,
    /// Whoever tests it: in the reference only.
    Tests,
    /// Whoever knows it from a program that this one stands for: it is refused, and the meaning says what there is instead. In
    /// the reference only.
    Refused,
    /// The programs among themselves: in the reference only, so that nobody else takes the name.
    Internal,
}

impl Variable {
    /// A variable for users.
    pub const fn new(name: &'static str, value: &'static str, meaning: &'static str) -> Self {
        Variable { name, value, meaning, audience: Audience::Users }
    }

    /// The same for another audience.
    pub const fn only_for(self, audience: Audience) -> Self {
        Variable { audience, ..self }
    }
}

/// Those that users set.
pub(crate) fn for_users(variables: &[Variable]) -> impl Iterator<Item = &Variable> {
    variables.iter().filter(|variable| variable.audience == Audience::Users)
}

/// The variables as a part of a help text, in lines of at most 100 columns.
pub(crate) fn help_text(variables: &[Variable]) -> String {
    let mut text = String::new();
    for variable in for_users(variables) {
        text.push_str(&format!("\n  {}={}\n", variable.name, variable.value));
        let mut line = String::from("         ");
        for word in variable.meaning.split_whitespace() {
            if line.len() + 1 + word.len() > 100 {
                text.push_str(&line);
                text.push('\n');
                line = String::from("         ");
            }
            line.push(' ');
            line.push_str(word);
        }
        text.push_str(&line);
    }
    text
}
