//! Pure modules: they get their inputs as arguments, so that tests run in virtual time.

use std::collections::BTreeSet;

use proc_macro2::Span;
use syn::visit::{self, Visit};

use crate::module_tree::{self, ModuleTree};
use crate::uses;

/// First segments of paths that a pure module must not have: files, sockets, the environment, threads, processes,
/// clocks and random sources. Addresses are in `core::net`.
const IMPURE: &[&[&str]] = &[
    &["std", "fs"],
    &["std", "net"],
    &["std", "env"],
    &["std", "thread"],
    &["std", "process"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
    &["getrandom"],
    &["lfn_sys"],
    &["libc"],
    &["rustix"],
    &["socket2"],
];

/// Returns the violations in the pure modules of one crate. `pure` has names of crates and modules.
pub(crate) fn check(tree: &ModuleTree, pure: &BTreeSet<String>) -> Vec<String> {
    let is_pure = |name: &str| {
        pure.iter()
            .any(|pure| name.strip_prefix(pure.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with("::")))
    };
    let mut violations = Vec::new();
    for (number, file) in tree.files.iter().enumerate() {
        let name = tree.name_of_file(number);
        if !is_pure(name) {
            continue;
        }
        let mut finder = Finder { impure: Vec::new() };
        finder.visit_file(&file.syntax);
        for Found { path, span } in finder.impure {
            violations.push(format!("{}:{}: {name} is pure, and uses {path}", file.path.display(), span.start().line));
        }
        for found in uses::find(tree, number) {
            let definer = tree.name_of_file(found.definer);
            if !is_pure(definer) && definer.contains("::") {
                let place = format!("{}:{}", file.path.display(), found.line);
                violations.push(format!("{place}: {name} is pure, and uses {} of {definer}, which is not", found.path));
            }
        }
    }
    violations
}

struct Found {
    path: String,
    span: Span,
}

struct Finder {
    impure: Vec<Found>,
}

impl Finder {
    fn record(&mut self, path: &[String], span: Span) {
        let starts_with = |start: &&&[&str]| start.len() <= path.len() && start.iter().zip(path).all(|(a, b)| a == b);
        if IMPURE.iter().any(|start| starts_with(&start)) {
            self.impure.push(Found { path: path.join("::"), span });
        }
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !module_tree::is_for_tests(module_tree::attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for import in module_tree::imports(&item.tree) {
            self.record(&import.path, import.span);
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
