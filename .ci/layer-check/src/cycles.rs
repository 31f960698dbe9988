//! The graph of uses between the files of one crate, and its cycles.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::module_tree::ModuleTree;
use crate::uses;

/// Uses between the modules of one crate that have their own file.
pub(crate) struct UseGraph {
    /// Names of the modules.
    names: Vec<String>,
    /// First use for each module that a module uses, as text.
    edges: Vec<BTreeMap<usize, String>>,
}

/// Modules that use each other, directly or through others.
pub(crate) struct Cycle {
    pub(crate) modules: BTreeSet<String>,
    /// One closed way of uses through some of the modules.
    pub(crate) example: Vec<String>,
}

impl UseGraph {
    pub(crate) fn new(tree: &ModuleTree) -> UseGraph {
        let names: Vec<String> = (0..tree.files.len()).map(|file| tree.name_of_file(file).to_owned()).collect();
        let mut edges = vec![BTreeMap::new(); names.len()];
        for (file, edges) in edges.iter_mut().enumerate() {
            for found in uses::find(tree, file) {
                edges.entry(found.definer).or_insert_with(|| {
                    let place = format!("{}:{}", tree.files[file].path.display(), found.line);
                    format!("{place}: {} uses {} of {}", names[file], found.path, names[found.definer])
                });
            }
        }
        UseGraph { names, edges }
    }

    /// Returns every cycle, the largest first.
    pub(crate) fn cycles(&self) -> Vec<Cycle> {
        let mut cycles: Vec<Cycle> = self
            .components()
            .iter()
            .map(|component| Cycle {
                modules: component.iter().map(|module| self.names[*module].clone()).collect(),
                example: self.shortest_way_round(component),
            })
            .collect();
        cycles.sort_by_key(|cycle| std::cmp::Reverse(cycle.modules.len()));
        cycles
    }

    /// Returns the text of every use between two modules of one cycle.
    pub(crate) fn cycle_edges(&self) -> Vec<&str> {
        let mut found = Vec::new();
        for component in self.components() {
            for from in &component {
                let inside = self.edges[*from].iter().filter(|(to, _)| component.contains(to));
                found.extend(inside.map(|(_, text)| text.as_str()));
            }
        }
        found
    }

    /// Returns the strongly connected components with more than one module. Two modules are in one component if each
    /// reaches the other.
    fn components(&self) -> Vec<BTreeSet<usize>> {
        let reached: Vec<BTreeSet<usize>> = (0..self.edges.len()).map(|module| self.reachable(module)).collect();
        let mut components = BTreeSet::new();
        for module in 0..self.edges.len() {
            let component: BTreeSet<usize> =
                reached[module].iter().copied().filter(|other| reached[*other].contains(&module)).collect();
            if component.len() > 1 {
                components.insert(component);
            }
        }
        components.into_iter().collect()
    }

    /// Returns the modules that `module` uses, directly or through others. `module` is one of them only in a cycle.
    fn reachable(&self, module: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut next = vec![module];
        while let Some(module) = next.pop() {
            next.extend(self.edges[module].keys().filter(|to| reached.insert(**to)));
        }
        reached
    }

    /// Returns the uses of the shortest cycle through any module of the component.
    fn shortest_way_round(&self, component: &BTreeSet<usize>) -> Vec<String> {
        let ways = component.iter().filter_map(|module| self.way_round(*module, component));
        ways.min_by_key(Vec::len).unwrap_or_default()
    }

    fn way_round(&self, start: usize, component: &BTreeSet<usize>) -> Option<Vec<String>> {
        let mut came_from = BTreeMap::new();
        let mut next = VecDeque::from([start]);
        while let Some(module) = next.pop_front() {
            for (to, text) in self.edges[module].iter().filter(|(to, _)| component.contains(to)) {
                if *to == start {
                    let mut way = vec![text.clone()];
                    let mut at = module;
                    while at != start {
                        let (before, text): &(usize, String) = came_from.get(&at)?;
                        way.push(text.clone());
                        at = *before;
                    }
                    way.reverse();
                    return Some(way);
                }
                if !came_from.contains_key(to) {
                    came_from.insert(*to, (module, text.clone()));
                    next.push_back(*to);
                }
            }
        }
        None
    }
}
