//! The permitted dependencies and cycles of `.ci/layers.toml`, and the comparison with the tree.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

use crate::crates::Package;
use crate::cycles::{Cycle, UseGraph};

/// Contents of the file `layers.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rules {
    /// Crates of the workspace that each crate depends on.
    crates: BTreeMap<String, BTreeSet<String>>,
    /// Crates, by the name of their folder, and modules that read no clock, file or socket.
    #[serde(default)]
    pub(crate) pure: BTreeSet<String>,
    #[serde(default)]
    cycle: Vec<PermittedCycle>,
}

/// Cycle that exists and is permitted for a reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PermittedCycle {
    reason: String,
    modules: BTreeSet<String>,
}

impl Rules {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Rules> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let rules: Rules = toml::from_str(&text).with_context(|| format!("cannot read {}", path.display()))?;
        let is_explained = rules.cycle.iter().all(|cycle| !cycle.reason.trim().is_empty());
        anyhow::ensure!(is_explained, "a cycle without a reason in {}", path.display());
        Ok(rules)
    }

    /// Compares the dependencies between the crates with the permitted ones.
    pub(crate) fn check_crates(&self, packages: &[Package]) -> Vec<String> {
        let ours: BTreeSet<&String> = packages.iter().map(|package| &package.name).collect();
        let mut violations = Vec::new();
        for package in packages {
            let name = &package.name;
            let Some(permitted) = self.crates.get(name) else {
                violations.push(format!("the crate {name} is not listed"));
                continue;
            };
            let used: BTreeSet<&String> = package.dependencies.iter().filter(|name| ours.contains(name)).collect();
            for dependency in used.iter().filter(|dependency| !permitted.contains(**dependency)) {
                violations.push(format!("{name} depends on {dependency}, which is not permitted"));
            }
            for dependency in permitted.iter().filter(|dependency| !used.contains(dependency)) {
                violations.push(format!("{name} is listed with {dependency}, and does not depend on it"));
            }
        }
        let missing = self.crates.keys().filter(|name| !ours.contains(name));
        violations.extend(missing.map(|name| format!("the listed crate {name} does not exist")));
        violations
    }

    /// Returns a violation for each pure module that does not exist.
    pub(crate) fn check_pure_names(&self, names: &BTreeSet<String>) -> Vec<String> {
        let missing = self.pure.iter().filter(|name| !names.contains(*name));
        missing.map(|name| format!("the pure module {name} does not exist")).collect()
    }

    /// Compares the cycles between modules with the permitted ones.
    pub(crate) fn check_cycles(&self, graphs: &[UseGraph]) -> Vec<String> {
        let cycles: Vec<Cycle> = graphs.iter().flat_map(UseGraph::cycles).collect();
        let mut violations = Vec::new();
        for cycle in &cycles {
            if self.cycle.iter().any(|listed| listed.modules == cycle.modules) {
                continue;
            }
            let listed = self.cycle.iter().find(|listed| !listed.modules.is_disjoint(&cycle.modules));
            let new: Vec<&str> = match listed {
                Some(listed) => cycle.modules.difference(&listed.modules).map(String::as_str).collect(),
                None => cycle.modules.iter().map(String::as_str).collect(),
            };
            if !new.is_empty() {
                let kind = if listed.is_some() { "a listed cycle has new modules" } else { "new cycle" };
                violations.push(format!("{kind}: {}\n  {}", new.join(", "), cycle.example.join("\n  ")));
            }
        }
        for listed in &self.cycle {
            // The modules of one entry are one cycle.
            let found = cycles.iter().max_by_key(|cycle| cycle.modules.intersection(&listed.modules).count());
            let found = found.map(|cycle| &cycle.modules).into_iter().flatten().collect::<BTreeSet<_>>();
            let stale: Vec<&str> =
                listed.modules.iter().filter(|module| !found.contains(module)).map(String::as_str).collect();
            if stale.len() == listed.modules.len() {
                violations.push(format!("listed, and no cycle any more: {}", stale.join(", ")));
            } else if !stale.is_empty() {
                violations.push(format!("listed, and not in the cycle any more: {}", stale.join(", ")));
            }
        }
        violations
    }
}
