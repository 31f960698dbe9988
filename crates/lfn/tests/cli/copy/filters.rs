//! Selection of files compared with rsync: patterns, lists of names, far wildcards, and names of any bytes.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use super::{Pair, finish, text, write};
use crate::support::missing_program;
use crate::support::skip::skip;

fn create_files(root: &Path) {
    for directory in ["src/lib/deep", "src/bin", "target/debug", "doc", "empty", "src/target"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    for name in [
        "a.o",
        "b.c",
        "core",
        "src/a.o",
        "src/main.c",
        "src/lib/x.o",
        "src/lib/x.c",
        "src/lib/deep/y.c",
        "src/bin/core",
        "target/debug/run",
        "target/list",
        "doc/[odd]",
        "doc/#1",
        "doc/star*",
        "src/target/z.c",
        ".hidden",
    ] {
        write(&root.join(name), name.len());
    }
}

/// Returns all paths below a directory.
fn paths(root: &Path) -> BTreeSet<String> {
    fn walk(root: &Path, at: &Path, paths: &mut BTreeSet<String>) {
        for entry in fs::read_dir(at).into_iter().flatten() {
            let path = entry.unwrap().path();
            paths.insert(format!("{:?}", path.strip_prefix(root).unwrap()));
            if path.is_dir() {
                walk(root, &path, paths);
            }
        }
    }
    let mut all = BTreeSet::new();
    walk(root, root, &mut all);
    all
}

/// Copies `source` with both tools and the same arguments. `list` is a file of this name for both.
#[track_caller]
fn alike(test: &str, pair: &Pair, number: usize, source: &str, words: &[&str]) {
    let oracle = pair.home.path().join(format!("oracle{number}"));
    let near = pair.home.path().join("near");
    if let Some(missing) = missing_program(&["rsync"]) {
        return skip(test, &missing);
    }
    let rsync = Command::new("rsync").arg("-r").args(words).args([source]).arg(&oracle).current_dir(&near).output();
    let rsync = rsync.unwrap();
    assert!(rsync.status.success(), "{words:?}: {}", text(&rsync.stderr));
    pair.copies(&[words, &[source, &format!("far:{number}/")]].concat());
    assert_eq!(paths(&pair.far(&number.to_string())), paths(&oracle), "{words:?} {source}");
    // A far sender lists in the same way.
    let back = format!("back{number}");
    pair.copies(&[words, &[&format!("far:{source}"), &back]].concat());
    assert_eq!(paths(&pair.near(&back)), paths(&oracle), "{words:?} far:{source}");
}

#[test]
fn patterns_select_the_same_files_as_rsync() {
    let pair = Pair::new();
    create_files(&pair.near("tree"));
    create_files(&pair.far("tree"));
    fs::write(pair.near("patterns"), "# comment\n*.o\n\n; another\n/target\ncore\n").unwrap();
    fs::write(pair.near("wanted"), "*/\0*.c\0").unwrap();
    let cases: [(&str, &[&str]); 12] = [
        ("tree", &["--exclude", "*.o"]),
        ("tree/", &["--exclude", "/target", "--exclude=core"]),
        ("tree", &["--exclude", "/target"]),
        ("tree", &["--exclude", "tree/target/"]),
        ("tree/", &["--include", "*/", "--include", "*.c", "--exclude", "*"]),
        ("tree/", &["--exclude", "*.c", "--include", "x.c"]),
        ("tree/", &["--include", "x.c", "--exclude", "*.c"]),
        ("tree/", &["--exclude", "src/**/x.*", "--exclude", "[.]*"]),
        ("tree/", &["--include=src/***", "--exclude=*"]),
        ("tree/", &["--exclude-from", "patterns", "--exclude", "doc/[[]*"]),
        ("tree/", &["-0", "--include-from=wanted", "--exclude=*"]),
        ("tree", &["--exclude", "tree"]),
    ];
    for (number, (source, words)) in cases.iter().enumerate() {
        if number < cases.len() - 1 {
            fs::create_dir(pair.far(&number.to_string())).unwrap();
            alike("patterns_select_the_same_files_as_rsync", &pair, number, source, words);
        }
    }
    // If all names are excluded, nothing is created.
    let nothing = pair.copies(&["tree", "far:none", "--exclude", "tree"]);
    assert_eq!((&nothing["counts"]["files"], pair.far("none").exists()), (&0.into(), false));
    for (words, what) in [
        (&["--exclude", "- a"][..], "rules with a prefix"),
        (&["--exclude", ""], "empty pattern"),
        (&["--exclude-from", "gone"], "lfn: --exclude-from gone: No such file"),
        (&["--files-from", "gone"], "hint: check the spelling"),
        (&["--files-from", "patterns", "tree/doc"], "exactly one source directory, but 2 sources"),
    ] {
        pair.refuses(&[words, &["tree", "far:x"]].concat(), 2, what);
    }
}

#[test]
fn files_from_selects_the_same_files_as_rsync() {
    let pair = Pair::new();
    create_files(&pair.near("tree"));
    create_files(&pair.far("tree"));
    fs::write(pair.near("list"), "src/lib/x.c\n# no\n/a.o\n./doc\nsrc/lib\nsrc//bin/core\nempty\n").unwrap();
    // All names in src are excluded, and so are its parent directories.
    fs::write(pair.near("deep"), "src/main.c\nsrc/lib/x.c\ndoc/#1\n").unwrap();
    fs::write(pair.near("list0"), "doc/#1\0doc/star*\0target\0").unwrap();
    fs::write(pair.near("nothing"), "\n").unwrap();
    for (number, words) in [
        &["--files-from=list"][..],
        &["--files-from", "list0", "--from0"],
        &["--files-from=list", "--exclude=lib"],
        &["--files-from=list", "--exclude=*.c"],
        &["--files-from=deep", "--exclude=*.c"],
    ]
    .iter()
    .enumerate()
    {
        fs::create_dir(pair.far(&number.to_string())).unwrap();
        alike("files_from_selects_the_same_files_as_rsync", &pair, number, "tree", words);
    }
    let mut child = pair.command(&["--files-from", "-", "tree", "far:stdin", "--json"]);
    let mut child = child.stdin(std::process::Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"b.c\nsrc/main.c\n").unwrap();
    assert!(finish(child).status.success());
    assert_eq!(paths(&pair.far("stdin")), ["\"b.c\"", "\"src\"", "\"src/main.c\""].map(String::from).into());
    let output = pair.copy(&["--files-from", "list0", "-0", "--exclude=target", "tree/doc", "far:x"]);
    let errors = text(&output.stderr);
    assert_eq!((output.status.code(), errors.matches("no such file or directory").count()), (Some(1), 3), "{errors}");
    fs::write(pair.near("up"), "a.o\n../near/list\n").unwrap();
    pair.refuses(&["--files-from=up", "tree", "far:x"], 2, "up:2: name '../near/list': has a component '..'");
    let long: String = (0..10_000).map(|n| format!("some/directory/file-{n}\n")).collect();
    fs::write(pair.near("long"), long).unwrap();
    pair.refuses(&["--files-from=long", "far:tree", "x"], 1, "but a request holds at most 61440 B");
}

#[test]
fn far_wildcards_are_expanded_by_the_server() {
    let pair = Pair::new();
    create_files(&pair.far("tree"));
    let cases: [(&str, &[&str]); 5] = [
        ("tree/*.?", &["a.o", "b.c"]),
        ("tree/src/*/x.c", &["x.c"]),
        ("tree/doc/star*", &["star*"]),
        ("tree/doc/\\[odd\\]", &["[odd]"]),
        ("tree/.h*", &[".hidden"]),
    ];
    for (number, (pattern, names)) in cases.iter().enumerate() {
        let to = format!("to{number}");
        pair.copies(&[&format!("far:{pattern}"), &to]);
        let expected: BTreeSet<_> = names.iter().map(|name| format!("{name:?}")).collect();
        assert_eq!(paths(&pair.near(&to)), expected, "{pattern}");
    }
    let slash = pair.copies(&["far:tree/d*/", "contents"]);
    assert_eq!((slash["counts"]["files"].as_u64(), pair.near("contents/#1").is_file()), (Some(3), true));
    pair.refuses(&["far:tree/*.nc", "x"], 1, "no file matches far:tree/*.nc");
    pair.refuses(&["far:../*", "x"], 1, "no file matches far:../*");
}

#[test]
fn far_paths_can_have_any_bytes() {
    let pair = Pair::new();
    let odd = OsStr::from_bytes(b"odd \xff\n");
    fs::write(pair.home.path().join("far").join(odd), "odd").unwrap();
    let place = |before: &str| [before.as_bytes(), odd.as_bytes()].concat();
    let run = |from: &[u8], to: &[u8]| {
        let output = finish(pair.command(&[]).args([OsStr::from_bytes(from), OsStr::from_bytes(to)]).spawn().unwrap());
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    run(&place("far:"), b"plain");
    run(b"plain", &place("far:again "));
    run(&place("far:"), &place("./"));
    assert_eq!(fs::read(pair.home.path().join("far").join(OsStr::from_bytes(&place("again ")))).unwrap(), b"odd");
    assert_eq!(fs::read(pair.home.path().join("near").join(odd)).unwrap(), b"odd");
}
