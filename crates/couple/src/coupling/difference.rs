//! Differences between the coupling files of two sites.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::model::Coupling;

/// Maximum characters of a key or a value. The file of the partner may have any names.
const MAX_SHOWN: usize = 200;

/// A key with different values at the two sites.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Difference {
    /// Key in the coupling file, for example `variable.wind.lag`.
    pub key: String,
    /// Value at this site; null if the key is absent.
    pub here: Option<String>,
    /// Value at the partner's site; null if the key is absent.
    pub there: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
        write!(f, "{}: {} here, {} at the partner", self.key, shown(&self.here), shown(&self.there))
    }
}

/// Returns the keys with different values. The path and the compute times serve only the plan, and may differ.
pub fn differences(here: &Coupling, there: &Coupling) -> Vec<Difference> {
    let (here, there) = (flatten(here), flatten(there));
    let keys: std::collections::BTreeSet<&String> = here.keys().chain(there.keys()).collect();
    let differing = keys.into_iter().filter(|key| here.get(*key) != there.get(*key));
    let text = |value: &String| -> String {
        value.chars().filter(|character| !character.is_control()).take(MAX_SHOWN).collect()
    };
    let difference =
        |key: &String| Difference { key: text(key), here: here.get(key).map(text), there: there.get(key).map(text) };
    differing.map(difference).collect()
}

/// Returns the values of the file by their keys.
fn flatten(coupling: &Coupling) -> BTreeMap<String, String> {
    let compared = Coupling { path: None, ..coupling.clone() };
    let mut values = BTreeMap::new();
    let tables = serde_json::to_value(&compared).unwrap_or_default();
    for (table, content) in tables.as_object().into_iter().flatten() {
        // The names of the keys in the file.
        let (name, is_table) = match table.as_str() {
            "components" => ("component", true),
            "grids" => ("grid", true),
            "variables" => ("variable", true),
            "model_step_seconds" => ("coupling.model_step", false),
            "name" => ("coupling.name", false),
            "steps" => ("coupling.steps", false),
            other => (other, false),
        };
        if !is_table {
            values.extend(shown(content).map(|value| (name.to_owned(), value)));
            continue;
        }
        for (entry, keys) in content.as_object().into_iter().flatten() {
            // An empty table exists, too.
            for (key, value) in keys.as_object().into_iter().flatten().filter(|(key, _)| *key != "compute_seconds") {
                values.extend(shown(value).map(|value| (format!("{name}.{entry}.{key}"), value)));
            }
        }
    }
    values
}

/// Returns a value as in the file; none for an absent value.
fn shown(value: &Value) -> Option<String> {
    let is_absent = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    (!is_absent).then(|| value.to_string())
}
