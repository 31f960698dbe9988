//! Pure modules: they get their inputs as arguments, so that tests run in virtual time.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::Span;
use syn::visit::{self, Visit};

use crate::module_tree::{self, ModuleTree, Target};
use crate::uses;

/// First segments of paths that a pure module must not have: files, sockets, the environment, threads, processes,
/// clocks and random sources. Addresses are in `core::net`.
const IMPURE: &[&[&str]] = &[
    &["std", "fs"],
    &["std", "net"],
    &["std", "os", "fd"],
    &["std", "os", "unix", "fs"],
    &["std", "os", "unix", "net"],
    &["std", "env"],
    &["std", "thread"],
    &["std", "process"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
    &["std", "time", "UNIX_EPOCH"],
    &["std", "io", "stdin"],
    &["std", "io", "stdout"],
    &["std", "io", "stderr"],
    &["getrandom"],
    &["lfn_sys"],
    &["libc"],
    &["rand", "random"],
    &["rand", "rng"],
    &["rustix"],
    &["socket2"],
    &["tempfile"],
];

/// Libraries of the workspace, by the first segment of a path to them.
pub(crate) type Libraries<'a> = BTreeMap<String, &'a ModuleTree>;

/// Returns the violations in the pure modules of one crate. `pure` has names of crates and modules. The items in the
/// root file of a crate count as pure.
pub(crate) fn check(tree: &ModuleTree, libraries: &Libraries<'_>, pure: &BTreeSet<String>) -> Vec<String> {
    let is_listed = |name: &str| {
        pure.iter()
            .any(|pure| name.strip_prefix(pure.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with("::")))
    };
    let is_root = |name: &str| !name.contains("::");
    let mut violations = Vec::new();
    for (number, file) in tree.files.iter().enumerate() {
        let name = tree.name_of_file(number);
        if !is_listed(name) {
            continue;
        }
        let mut finder = Finder { libraries, impure: Vec::new(), foreign: Vec::new() };
        finder.visit_file(&file.syntax);
        let place = |line: usize| format!("{}:{line}: {name} is pure, and uses", file.path.display());
        for Found { path, line } in finder.impure {
            violations.push(format!("{} {path}", place(line)));
        }
        let own = uses::find(tree, number)
            .into_iter()
            .map(|found| (found.path, found.line, tree.name_of_file(found.definer)));
        let foreign = finder.foreign.into_iter().map(|(found, definer)| (found.path, found.line, definer));
        for (path, line, definer) in own.chain(foreign) {
            if !is_listed(definer) && !is_root(definer) {
                violations.push(format!("{} {path} of {definer}, which is not", place(line)));
            }
        }
    }
    violations
}

struct Found {
    path: String,
    line: usize,
}

struct Finder<'a> {
    libraries: &'a Libraries<'a>,
    impure: Vec<Found>,
    /// Paths to other libraries of the workspace, each with the module that defines the path.
    foreign: Vec<(Found, &'a str)>,
}

impl Finder<'_> {
    fn record(&mut self, path: &[String], span: Span) {
        let starts_with = |start: &&&[&str]| start.len() <= path.len() && start.iter().zip(path).all(|(a, b)| a == b);
        let found = || Found { path: path.join("::"), line: span.start().line };
        if IMPURE.iter().any(|start| starts_with(&start)) {
            return self.impure.push(found());
        }
        let Some((first, rest)) = path.split_first().filter(|(_, rest)| !rest.is_empty()) else { return };
        let Some(library) = self.libraries.get(first) else { return };
        let path_in_library: Vec<String> = std::iter::once("crate".to_owned()).chain(rest.iter().cloned()).collect();
        for target in library.resolve(0, &path_in_library) {
            let (Target::ItemIn(module) | Target::Module(module)) = target;
            self.foreign.push((found(), library.name_of_file(library.file_of(module))));
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !module_tree::is_for_tests(module_tree::attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for import in module_tree::imports(&item.tree) {
            // Under another name, or without one, the paths below it would not be found.
            if import.path == ["std"] {
                self.impure.push(Found { path: "std as a whole".into(), line: import.span.start().line });
            }
            self.record(&import.path, import.span);
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        for (path, span) in uses::paths_in(call.tokens.clone()) {
            self.record(&path, span);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let Some(first) = path.segments.first() {
            let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.record(&segments, first.ident.span());
        }
        visit::visit_path(self, path);
    }
}
