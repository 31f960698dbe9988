//! The layer check: the permitted dependencies between crates, no import cycle between modules, and pure modules.
//!
//! `lfn-layers [ROOT]` reads `ROOT/Cargo.toml`, the crates in `ROOT/crates`, and the rules in `ROOT/.ci/layers.toml`. The
//! program prints each violation. The exit code is 0 without violations, 1 with violations, and 2 if a file cannot be
//! read.
//! `lfn-layers --edges [ROOT]` prints every use that is part of a cycle, with file and line, and checks nothing.
//!
//! Rules for crates: a crate depends on exactly the crates of the workspace that `layers.toml` lists for it.
//! Dependencies of tests do not count.
//!
//! Rules for modules. A module is a file; an inline module belongs to its file.
//! - A path in the code is a use of the module that defines the first item on this path. `super::X` is a use of the
//!   child if the parent only contains `pub use child::X`. A re-export is therefore no use, and a `mod.rs` that only
//!   re-exports is in no cycle.
//! - A private `use` of an item is a use, because the item may be a trait whose methods are called. A `pub(…) use` is
//!   one too, except for the items of child modules. A `use` of a module is none; the paths that begin with the module
//!   are. A `use` of `module::*` is a use if the module defines items.
//! - A single name in lower case, which may be a local variable, counts only in a call.
//! - Paths in macro calls and in attributes count. Code for tests and doc comments do not.
//! - The attributes `path` and `macro_use` of a module, and the macro `include!`, are errors: the check cannot read
//!   such code.
//! - Modules that use each other, directly or through others, are a cycle. A cycle is permitted only if `layers.toml`
//!   lists exactly its modules.
//!
//! Rules for pure modules, which `layers.toml` lists: no path to files, sockets, the environment, threads, processes,
//! clocks or random sources, and no use of a module of the workspace that is not pure. A path to `lfn_sys` or to a crate
//! of system calls is impure too. The root file of a crate counts as pure.
//!
//! The check does not see these uses:
//! - the call of a method, except for the `use` of its trait. After `pub use` of a trait of another module, and after a
//!   `use` of `module::*` where the module re-exports the trait, no `use` shows the call;
//! - a function as a value, by a single name in lower case, if `module::*` of a re-exporting module imports the name;
//! - a macro of a parent module that a child calls by a single name;
//! - the paths in the expansion of a macro, except in the file that defines the macro.
#![forbid(unsafe_code)]

mod crates;
mod cycles;
mod module_tree;
mod purity;
mod rules;
mod uses;

use std::path::PathBuf;
use std::process::ExitCode;

use cycles::UseGraph;
use module_tree::ModuleTree;
use purity::Libraries;
use rules::Rules;

fn main() -> ExitCode {
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let print_edges = arguments.first().is_some_and(|argument| argument == "--edges");
    if print_edges {
        arguments.remove(0);
    }
    let root = PathBuf::from(arguments.into_iter().next().unwrap_or_else(|| ".".into()));
    match run(&root, print_edges) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(count) => {
            eprintln!("layers: {count} violations; the rules are in ARCHITECTURE.md and .ci/layer-check/src/main.rs");
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("layers: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Prints the violations, or the uses within cycles. Returns the number of violations.
fn run(root: &std::path::Path, print_edges: bool) -> anyhow::Result<usize> {
    let packages = crates::read(root)?;
    let mut trees = Vec::new();
    for package in &packages {
        for (name, path) in &package.roots {
            trees.push(ModuleTree::read(name, path)?);
        }
    }
    let graphs: Vec<UseGraph> = trees.iter().map(UseGraph::new).collect();
    if print_edges {
        graphs.iter().flat_map(UseGraph::cycle_edges).for_each(|edge| println!("{edge}"));
        return Ok(0);
    }
    let rules = Rules::read(&root.join(".ci/layers.toml"))?;
    let mut violations = rules.check_crates(&packages);
    violations.extend(rules.check_cycles(&graphs));
    let names = trees.iter().flat_map(|tree| (0..tree.files.len()).map(|file| tree.name_of_file(file).to_owned()));
    violations.extend(rules.check_pure_names(&names.collect()));
    let libraries = libraries(&packages, &trees);
    violations.extend(trees.iter().flat_map(|tree| purity::check(tree, &libraries, &rules.pure)));
    for violation in &violations {
        println!("layers: {violation}");
    }
    Ok(violations.len())
}

/// Returns the module trees of the libraries, by the name of the library in a path.
fn libraries<'a>(packages: &[crates::Package], trees: &'a [ModuleTree]) -> Libraries<'a> {
    let roots = packages.iter().flat_map(|package| package.roots.iter().map(move |(_, path)| (&package.name, path)));
    let of_libraries = roots.zip(trees).filter(|((_, path), _)| path.ends_with("lib.rs"));
    of_libraries.map(|((name, _), tree)| (name.replace('-', "_"), tree)).collect()
}
