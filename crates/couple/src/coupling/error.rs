//! Problems of a coupling file.

use std::fmt;

/// One problem of a coupling file.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CouplingProblem {
    /// The text is not TOML, or a key has the wrong type or is unknown. The text names the line and the key.
    #[error("{0}")]
    Toml(String),
    #[error("the file is larger than {max} bytes")]
    TooLarge { max: usize },
    #[error("[component] has {found} components; a coupling has 2")]
    ComponentCount { found: usize },
    #[error("[{table}.{name}]: the name has characters other than letters, digits, '_' and '-', or is longer than 64")]
    Name { table: &'static str, name: String },
    #[error("[{table}] {key} = {value}: {expected}")]
    Value { table: String, key: &'static str, value: String, expected: &'static str },
    #[error("the file has {found} variables; the maximum is {max}")]
    VariableCount { found: usize, max: usize },
    #[error("[variable.{variable}] {key} = \"{value}\": there is no such {what}")]
    Unknown { variable: String, key: &'static str, value: String, what: &'static str, similar: Option<String> },
    #[error("[variable.{variable}]: from and to are the same component, {component}")]
    ToItself { variable: String, component: String },
    #[error("[variable.{variable}]: lag {lag} needs `initial`")]
    NoInitial { variable: String, lag: u64 },
    #[error("[variable.{variable}]: a field has {bytes} bytes; the maximum is {max}")]
    FieldSize { variable: String, bytes: u64, max: u64 },
    #[error("the file has no variable")]
    NoVariable,
}

impl CouplingProblem {
    /// Returns an action that fixes the problem.
    pub fn hint(&self) -> Option<String> {
        match self {
            CouplingProblem::Unknown { similar: Some(similar), .. } => Some(format!("did you mean \"{similar}\"?")),
            CouplingProblem::NoInitial { variable, .. } => Some(format!(
                "add the value of the steps before the partner's first field: initial = 0.0 in [variable.{variable}]"
            )),
            CouplingProblem::NoVariable => {
                Some("add a table [variable.NAME] with from, to, grid, type, units and lag".into())
            }
            _ => None,
        }
    }
}

/// All problems of a coupling file.
#[derive(Debug, Clone, PartialEq)]
pub struct CouplingErrors(pub Vec<CouplingProblem>);

impl fmt::Display for CouplingErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for CouplingErrors {}
