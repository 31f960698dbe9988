//! The check on small workspaces: each violation fails, and code that keeps the rules passes.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// Permits what [`Workspace::new`] contains.
const RULES: &str = "[crates]\na = []\nb = [\"a\"]\n";
const PARENT: &str = "mod child;\npub use child::Child;\n";

struct Workspace(tempfile::TempDir);

impl Workspace {
    /// Creates the crates `a` and `b`, where `b` depends on `a`, without cycles.
    fn new() -> Workspace {
        let workspace = Workspace(tempfile::tempdir().unwrap());
        workspace.write(".ci/layers.toml", RULES);
        workspace.write("Cargo.toml", "[workspace]\nmembers = [\"crates/*\"]\n");
        workspace.write("crates/a/Cargo.toml", "[package]\nname = \"a\"\n[dependencies]\nserde = \"1\"\n");
        workspace.write("crates/a/src/lib.rs", "mod parent;\nmod other;\n");
        workspace.write("crates/a/src/parent/mod.rs", PARENT);
        workspace.write("crates/a/src/parent/child.rs", "pub struct Child;\n");
        workspace.write("crates/a/src/other.rs", "use crate::parent::Child;\npub struct Other(Child);\n");
        workspace.write("crates/b/Cargo.toml", "[package]\nname = \"b\"\n[dependencies]\na = { path = \"../a\" }\n");
        workspace.write("crates/b/src/main.rs", "fn main() {}\n");
        workspace
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Adds a cycle of the modules `a::left` and `a::right`.
    fn add_cycle(&self) {
        self.write("crates/a/src/lib.rs", "mod parent;\nmod other;\nmod left;\nmod right;\n");
        self.write("crates/a/src/left.rs", "pub struct Left;\npub fn f(_: crate::right::Right) {}\n");
        self.write("crates/a/src/right.rs", "use super::left::Left;\npub struct Right(Left);\n");
    }

    fn permit(&self, modules: &[&str]) {
        self.write(".ci/layers.toml", &format!("{RULES}[[cycle]]\nreason = \"old\"\nmodules = {modules:?}\n"));
    }

    /// Runs the check and returns its exit code and its output.
    fn check(&self) -> (i32, String) {
        run(self.0.path())
    }

    fn assert_passes(&self) {
        assert_eq!(self.check(), (0, String::new()));
    }

    fn assert_fails(&self, message: &str) {
        let (code, output) = self.check();
        assert_eq!(code, 1, "{output}");
        assert!(output.contains(message), "{output}");
    }
}

fn run(root: &Path) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_lfn-layers")).arg(root).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn workspace_without_cycles_passes() {
    Workspace::new().assert_passes();
}

#[test]
fn new_module_cycle_fails_with_places() {
    let workspace = Workspace::new();
    workspace.add_cycle();
    workspace.assert_fails("new cycle: a::left, a::right");
    workspace.assert_fails("left.rs:2: a::left uses crate::right::Right of a::right");
    workspace.assert_fails("right.rs:1: a::right uses super::left::Left of a::left");
}

#[test]
fn listed_cycle_passes() {
    let workspace = Workspace::new();
    workspace.add_cycle();
    workspace.permit(&["a::left", "a::right"]);
    workspace.assert_passes();
}

#[test]
fn larger_cycle_than_the_listed_one_fails() {
    let workspace = Workspace::new();
    workspace.add_cycle();
    workspace
        .write("crates/a/src/left.rs", "pub struct Left;\nfn f(_: crate::right::Right, _: crate::other::Other) {}\n");
    workspace.write("crates/a/src/other.rs", "pub struct Other(crate::left::Left);\n");
    workspace.permit(&["a::left", "a::right"]);
    workspace.assert_fails("a listed cycle has new modules: a::other");
}

#[test]
fn listed_cycle_that_is_gone_fails() {
    let workspace = Workspace::new();
    workspace.permit(&["a::left", "a::right"]);
    workspace.assert_fails("listed, and no cycle any more: a::left, a::right");
}

#[test]
fn listed_module_outside_of_the_cycle_fails() {
    let workspace = Workspace::new();
    workspace.add_cycle();
    workspace.permit(&["a::left", "a::other", "a::right"]);
    workspace.assert_fails("listed, and not in the cycle any more: a::other");
}

#[test]
fn cycle_without_a_reason_is_refused() {
    let workspace = Workspace::new();
    workspace.write(".ci/layers.toml", &format!("{RULES}[[cycle]]\nreason = \"\"\nmodules = []\n"));
    assert_eq!(workspace.check().0, 2);
}

#[test]
fn reexport_of_a_used_sibling_is_no_cycle() {
    let workspace = Workspace::new();
    workspace
        .write("crates/a/src/parent/mod.rs", "mod child;\nmod second;\npub use child::Child;\npub use second::*;\n");
    workspace.write("crates/a/src/parent/second.rs", "use super::Child;\npub struct Second(Child);\n");
    workspace.write("crates/a/src/parent/child.rs", "pub struct Child;\n");
    workspace.assert_passes();
}

#[test]
fn parent_and_child_that_use_each_other_fail() {
    let workspace = Workspace::new();
    workspace.write("crates/a/src/parent/mod.rs", &format!("{PARENT}pub struct Parent(Child);\n"));
    workspace.write("crates/a/src/parent/child.rs", "pub struct Child;\nfn f(_: super::Parent) {}\n");
    workspace.assert_fails("new cycle: a::parent, a::parent::child");
}

#[test]
fn uses_in_macros_and_attributes_count() {
    for code in [
        "fn f() { println!(\"{}\", crate::right::MAX); }",
        "#[serde(default = \"crate::right::max\")] struct Field;",
        "mod inner { pub use crate::right::*; } fn f(_: inner::Right) {}",
        "fn f() { use crate::right; right::max(); }",
        "fn f() { let _ = vec![0..crate::right::MAX]; }",
        "fn f() { crate::total!() }",
        "#[cfg(all(testing, unix))] fn f(_: crate::right::Right) {}",
    ] {
        assert_use_of_right(code);
    }
}

/// Asserts that `code` in the module `left` is a use of the module `right`.
#[track_caller]
fn assert_use_of_right(code: &str) {
    let workspace = Workspace::new();
    workspace.add_cycle();
    let right = "pub struct Right(super::left::Left);
pub const MAX: u8 = 1;
pub fn max() {}
pub trait Size { fn size(&self) {} }
impl Size for u8 {}
#[macro_export]
macro_rules! total { () => {} }
";
    workspace.write("crates/a/src/right.rs", right);
    workspace.write("crates/a/src/left.rs", &format!("pub struct Left;\n{code}\n"));
    let (code, output) = workspace.check();
    assert!(code == 1 && output.contains("new cycle: a::left, a::right"), "{output}");
}

#[test]
fn imported_traits_count_without_a_path() {
    for import in [
        "use crate::right::Size;",
        "pub(self) use crate::right::Size;",
        "pub(crate) use crate::right::Size;",
        "use crate::right::*;",
        "pub(crate) use crate::right::*;",
    ] {
        assert_use_of_right(&format!("{import} fn f() {{ 1u8.size() }}"));
    }
}

#[test]
fn limited_reexport_of_a_child_is_no_use() {
    let workspace = Workspace::new();
    workspace.write("crates/a/src/parent/mod.rs", "mod child;\npub(crate) use child::Child;\npub struct Parent;\n");
    workspace.write("crates/a/src/parent/child.rs", "pub struct Child;\nfn f(_: super::Parent) {}\n");
    workspace.assert_passes();
}

#[test]
fn code_that_the_check_cannot_read_is_refused() {
    for code in [
        "#[path = \"hidden.rs\"]\nmod right;",
        "#[cfg_attr(unix, path = \"hidden.rs\")]\nmod right;",
        "#[macro_use]\nmod right;",
        "mod right;\ninclude!(\"hidden.rs\");",
        "mod right;\nconst VALUE: u8 = include!(\"hidden.rs\");",
    ] {
        let workspace = Workspace::new();
        workspace.add_cycle();
        workspace.write("crates/a/src/lib.rs", &format!("mod parent;\nmod other;\nmod left;\n{code}\n"));
        workspace.permit(&["a::left", "a::right"]);
        assert_eq!(workspace.check(), (2, String::new()), "{code}");
    }
}

#[test]
fn uses_in_tests_and_comments_do_not_count() {
    for code in [
        "#[cfg(test)] mod tests { use crate::right::Right; fn f(_: Right) {} }",
        "#[cfg(test)] use crate::right::Right;",
        "#[cfg(all(unix, test))] use crate::right::Right;",
        "/// See [`crate::right::Right`].\nfn f() {}",
        "use crate::right as _;",
    ] {
        let workspace = Workspace::new();
        workspace.add_cycle();
        workspace.write("crates/a/src/left.rs", &format!("pub struct Left;\n{code}\n"));
        workspace.assert_passes();
    }
}

#[test]
fn local_variable_with_the_name_of_a_reexport_is_no_use() {
    let workspace = Workspace::new();
    workspace.add_cycle();
    workspace.write("crates/a/src/right.rs", "pub struct Right(super::left::Left);\npub fn max() {}\n");
    let code = "pub struct Left;\npub use crate::right::max;\nfn f(max: u8) -> u8 { dbg!(max); max }\n";
    workspace.write("crates/a/src/left.rs", code);
    workspace.assert_passes();
    workspace.write("crates/a/src/left.rs", &format!("{code}fn g() {{ max() }}\n"));
    workspace.assert_fails("new cycle: a::left, a::right");
}

#[test]
fn forbidden_crate_dependency_fails() {
    for table in ["dependencies", "build-dependencies", "target.'cfg(unix)'.dependencies"] {
        let workspace = Workspace::new();
        workspace
            .write("crates/a/Cargo.toml", &format!("[package]\nname = \"a\"\n[{table}]\nb = {{ path = \"../b\" }}\n"));
        workspace.assert_fails("a depends on b, which is not permitted");
    }
}

#[test]
fn renamed_forbidden_dependency_fails() {
    let workspace = Workspace::new();
    workspace.write(
        "crates/a/Cargo.toml",
        "[package]\nname = \"a\"\n[dependencies]\nx = { package = \"b\", path = \"../b\" }\n",
    );
    workspace.assert_fails("a depends on b, which is not permitted");
}

#[test]
fn dependency_renamed_by_the_workspace_fails() {
    let workspace = Workspace::new();
    workspace.write("Cargo.toml", "[workspace.dependencies]\nother = { path = \"crates/b\", package = \"b\" }\n");
    let manifest = "[package]\nname = \"a\"\n[dependencies]\nother.workspace = true\n";
    workspace.write("crates/a/Cargo.toml", manifest);
    workspace.assert_fails("a depends on b, which is not permitted");
}

#[test]
fn dependency_of_tests_is_permitted() {
    let workspace = Workspace::new();
    workspace.write("crates/a/Cargo.toml", "[package]\nname = \"a\"\n[dev-dependencies]\nb = { path = \"../b\" }\n");
    workspace.assert_passes();
}

#[test]
fn crate_that_is_not_listed_fails() {
    let workspace = Workspace::new();
    workspace.write("crates/c/Cargo.toml", "[package]\nname = \"c\"\n");
    workspace.write("crates/c/src/lib.rs", "");
    workspace.assert_fails("the crate c is not listed");
}

#[test]
fn listed_dependency_that_is_gone_fails() {
    let workspace = Workspace::new();
    workspace.write("crates/b/Cargo.toml", "[package]\nname = \"b\"\n");
    workspace.assert_fails("b is listed with a, and does not depend on it");
}

/// Permits what [`Workspace::new`] contains, and lists pure modules.
fn with_pure(modules: &[&str]) -> Workspace {
    let workspace = Workspace::new();
    workspace.write(".ci/layers.toml", &format!("pure = {modules:?}\n{RULES}"));
    workspace
}

#[test]
fn pure_module_with_a_clock_fails() {
    let workspace = with_pure(&["a::other"]);
    workspace.write("crates/a/src/other.rs", "pub fn now() -> std::time::Instant { std::time::Instant::now() }\n");
    workspace.assert_fails("crates/a/src/other.rs:1: a::other is pure, and uses std::time::Instant");
}

#[test]
fn pure_module_with_imported_files_fails() {
    let workspace = with_pure(&["a"]);
    workspace.write("crates/a/src/parent/child.rs", "use std::{fmt, fs::File};\npub struct Child(File);\n");
    workspace.assert_fails("a::parent::child is pure, and uses std::fs::File");
}

#[test]
fn impure_paths_in_macros_and_under_other_names_are_found() {
    for (code, path) in [
        ("fn f() { assert!(std::fs::read(\"/a\").is_ok()); }", "std::fs::read"),
        ("fn f() { println!(\"{:?}\", (1, std::time::Instant::now())); }", "std::time::Instant::now"),
        ("macro_rules! m { () => { std::env::var(\"A\") }; }", "std::env::var"),
        ("use std as s;", "std as a whole"),
        ("use std::{self as s};", "std as a whole"),
        ("use std::*;", "std as a whole"),
        ("use std::os::unix::net::UnixStream;", "std::os::unix::net::UnixStream"),
        ("fn f() -> u8 { rand::random() }", "rand::random"),
    ] {
        let workspace = with_pure(&["a::other"]);
        workspace.write("crates/a/src/other.rs", code);
        workspace.assert_fails(&format!("crates/a/src/other.rs:1: a::other is pure, and uses {path}"));
    }
}

#[test]
fn pure_module_that_uses_an_impure_one_fails() {
    let workspace = with_pure(&["a::other"]);
    workspace.assert_fails("a::other is pure, and uses crate::parent::Child of a::parent::child, which is not");
}

#[test]
fn pure_crate_that_uses_an_impure_one_fails() {
    let workspace = with_pure(&["b"]);
    workspace.write("crates/b/src/main.rs", "use a::parent::Child;\nfn main() {\n let _ = Child;\n}\n");
    workspace
        .assert_fails("crates/b/src/main.rs:1: b is pure, and uses a::parent::Child of a::parent::child, which is not");
    workspace.write("crates/b/src/main.rs", "fn main() {\n let _ = a::other::Other;\n}\n");
    workspace.assert_fails("crates/b/src/main.rs:2: b is pure, and uses a::other::Other of a::other, which is not");
    workspace.write("crates/b/src/main.rs", "use a::parent;\nfn main() {\n let _ = parent::Child;\n}\n");
    workspace.assert_fails("crates/b/src/main.rs:1: b is pure, and uses a::parent of a::parent, which is not");
}

#[test]
fn pure_crate_may_use_pure_modules_and_roots() {
    let workspace = with_pure(&["a::parent", "b"]);
    workspace.write("crates/a/src/lib.rs", "pub mod parent;\nmod other;\npub struct Root;\n");
    workspace.write("crates/b/src/main.rs", "use a::{Root, parent::Child};\nfn main() {\n let _ = (Root, Child);\n}\n");
    workspace.assert_passes();
}

#[test]
fn tests_of_a_pure_module_may_do_anything() {
    let workspace = with_pure(&["a::parent"]);
    workspace.write("crates/a/src/parent/child.rs", "pub struct Child;\n#[cfg(test)]\nmod tests {\n use std::fs;\n}\n");
    workspace.assert_passes();
}

#[test]
fn pure_module_that_does_not_exist_fails() {
    with_pure(&["a::gone"]).assert_fails("the pure module a::gone does not exist");
}
