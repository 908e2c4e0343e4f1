//! The programs that are recorded, as `tests/workloads/list.tsv` lists them.

use std::path::PathBuf;
use std::process::Command;

use crate::built;
use crate::process::with_clean_environment;

/// A program to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Name of the program and of its source.
    pub name: String,
    /// Variables that it, and its replay, need.
    pub environment: Vec<(String, String)>,
    /// Its arguments.
    pub arguments: Vec<String>,
}

impl Workload {
    /// A program with no variables of its own.
    pub fn new(name: &str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Workload { name: name.to_owned(), environment: Vec::new(), arguments }
    }

    /// All programs of the list.
    ///
    /// # Panics
    /// The list cannot be read.
    pub fn all() -> Vec<Workload> {
        let path = built::repository().join("tests/workloads/list.tsv");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(Self::parse).collect()
    }

    /// The program of this name in the list.
    ///
    /// # Panics
    /// There is none.
    pub fn listed(name: &str) -> Workload {
        let found = Self::all().into_iter().find(|workload| workload.name == name);
        found.unwrap_or_else(|| panic!("tests/workloads/list.tsv has no {name}"))
    }

    fn parse(line: &str) -> Workload {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, environment, arguments] = fields[..] else {
            panic!("tests/workloads/list.tsv: {} columns instead of 3: {line:?}", fields.len());
        };
        let words = |text: &str| match text {
            "-" => Vec::new(),
            text => text.split_whitespace().map(str::to_owned).collect(),
        };
        let environment = words(environment).into_iter().map(|word| {
            let (variable, value) = word.split_once('=').unwrap_or_else(|| panic!("{word:?} is not KEY=VALUE"));
            (variable.to_owned(), value.to_owned())
        });
        Workload { name: name.to_owned(), environment: environment.collect(), arguments: words(arguments) }
    }

    /// The built program.
    pub fn program(&self) -> PathBuf {
        built::output(&format!("workloads/{}", self.name))
    }

    /// The program on minihip, not recorded.
    pub fn command(&self) -> Command {
        let mut command = Command::new(self.program());
        with_clean_environment(&mut command);
        command.args(&self.arguments).env("LD_LIBRARY_PATH", built::libraries());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}
