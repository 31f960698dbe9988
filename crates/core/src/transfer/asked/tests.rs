use proptest::prelude::*;

use super::*;
use crate::transfer::entry::Modified;
use crate::units::Bytes;

fn entry(name: &str, kind: Kind) -> Entry {
    Entry::new(Name::new(name).unwrap(), kind, 0o644, Modified::default()).unwrap()
}

/// A directory, if there is a slash behind it.
fn listed(name: &str) -> Entry {
    match name.strip_suffix('/') {
        Some(name) => entry(name, Kind::Directory),
        None => entry(name, Kind::File { length: Bytes(1) }),
    }
}

fn path(path: &str) -> From {
    From::File { path: path.into() }
}

fn excluding(patterns: &[&str]) -> Pick {
    let mut rules = Rules::default();
    patterns.iter().for_each(|pattern| rules.push(Decision::Exclude, pattern.as_bytes()).unwrap());
    Pick { rules, ..Pick::default() }
}

fn naming(names: &[&str]) -> Pick {
    let names = names.iter().map(|name| Name::new(*name).unwrap()).collect();
    Pick { names: Some(names), ..Pick::default() }
}

/// Each by itself: what was listed before it is to make no difference.
#[track_caller]
fn holds(from: &[From], pick: &Pick, has: &[&str], lacks: &[&str]) {
    for name in has {
        assert!(Asked::of(from, pick).has(&listed(name)), "{name}");
    }
    for name in lacks {
        assert!(!Asked::of(from, pick).has(&listed(name)), "{name}");
    }
    let mut asked = Asked::of(from, pick);
    assert!(has.iter().all(|name| asked.has(&listed(name))) && !lacks.iter().any(|name| asked.has(&listed(name))));
}

#[test]
fn a_source_brings_its_own_name_and_what_is_below() {
    for typed in ["runs", "a/runs", "/a/runs", "./runs", "../runs", "a/../runs", "a//runs"] {
        let lacks = ["./", ".ssh/", ".ssh/authorized_keys", "run", "runs2", "runs2/x", "x/runs", "a/", "a/runs"];
        holds(&[path(typed)], &Pick::default(), &["runs/", "runs", "runs/x", "runs/x/", "runs/x/y"], &lacks);
    }
    let odd = From::File { path: (&b"d/\xff\n"[..]).into() };
    let named =
        |name: &[u8]| Entry::new(Name::new(name).unwrap(), Kind::Directory, 0o755, Modified::default()).unwrap();
    let mut asked = Asked::of(&[odd], &Pick::default());
    assert!(asked.has(&named(b"\xff\n")) && asked.has(&named(b"\xff\n/x")) && !asked.has(&named(b"\xfe\n")));
}

#[test]
fn what_is_in_a_directory_has_any_name() {
    for typed in ["", ".", "/", "runs/", "runs//", "runs/.", "..", "a/..", "*/", "[a]/.."] {
        holds(&[path("x"), path(typed)], &Pick::default(), &["./", "a", "a/", "a/b", ".profile"], &[]);
    }
}

#[test]
fn a_pattern_brings_what_it_matches() {
    let none = Pick::default();
    holds(&[path("d*/*.nc")], &none, &["a.nc", "a.nc/", "a.nc/.b"], &["a.n", ".a.nc", "./", "d/", "d/a.nc"]);
    holds(&[path("*/runs")], &none, &["runs", "runs/x"], &["a", "a/runs"]);
    holds(&[path(r"\[1\]*")], &none, &["[1]", "[1]x", r"\[1\]*"], &["1", "x"]);
    holds(&[path(r"d/\*")], &none, &["*", r"\*"], &["a", ".a"]);
    holds(&[path(r"d/a\b")], &none, &[r"a\b"], &["ab"]);
    // It may be there as it was typed.
    holds(&[path("d/[ab]")], &none, &["a", "b", "[ab]"], &["c", "ab"]);
    holds(&[path("d/[a")], &none, &["[a"], &["a"]);
    holds(&[path(".*")], &none, &[".bashrc"], &["bashrc", "./"]);
}

#[test]
fn what_is_made_is_a_file_of_that_name() {
    let (random, zero) = (From::Random { bytes: Bytes(1) }, From::Zero { bytes: Bytes(1) });
    holds(std::slice::from_ref(&random), &Pick::default(), &["random"], &["random/", "random/x", "zero", "./"]);
    holds(&[zero.clone(), path("a")], &Pick::default(), &["zero", "a"], &["random", "zero/"]);
    // Rules are asked about files, and a list of names is of files.
    holds(&[random], &excluding(&["*"]), &["random"], &["a"]);
    holds(&[zero], &naming(&["a"]), &["zero", "a"], &["b"]);
}

#[test]
fn a_list_brings_its_names_and_the_way_to_them() {
    let pick = naming(&["a/b/c", "d", "a-b", "e/f", "a/b"]);
    let has = ["a/", "a/b/", "a/b", "a/b/c", "a/b/x/y", "d", "d/", "d/x", "a-b", "e/", "e/f/", "e/f/g"];
    let lacks = ["./", "a", "a/c", "a/c/", "b", "e", "e/g", "a-b-c", "src", "src/", "x/"];
    holds(&[path("src")], &pick, &has, &lacks);
    holds(&[path("*/")], &pick, &has, &lacks);
    holds(&[path("src")], &naming(&["a/b", "."]), &["./", "a", "x/y", ".z"], &[]);
    holds(&[path("src")], &naming(&[]), &[], &["./", "a", "src"]);
}

#[test]
fn what_rules_leave_out_is_not_asked_for() {
    let tree = [path("tree")];
    holds(&tree, &excluding(&["*.o"]), &["tree/", "tree/a"], &["tree/a.o", "tree/x/a.o", "tree/a.o/", "tree/a.o/b"]);
    holds(&tree, &excluding(&["secret/"]), &["tree/secret"], &["tree/secret/", "tree/secret/x", "tree/a/secret/x"]);
    holds(&tree, &excluding(&["/tree"]), &[], &["tree/", "tree/x"]);
    holds(&[path("tree/")], &excluding(&["/a"]), &["./", "b", "b/a"], &["a", "a/", "a/b"]);
    // Not about the way to a name, and about a name alone where one that it is below is left out.
    let pick = Pick { names: naming(&["d/x", "d/x/y", "z"]).names, ..excluding(&["/d", "/d/x", "w"]) };
    holds(&[path(".")], &pick, &["d/", "d/x/", "d/x/y", "d/x/y/", "d/x/y/v", "z"], &["d", "d/x", "d/x/v", "z/w"]);
}

#[test]
fn the_way_to_an_entry_is_looked_at_to_a_bound() {
    let deep = |count: usize| format!("tree/{}x", "d/".repeat(count));
    let mut asked = Asked::of(&[path("tree")], &excluding(&["*.o"]));
    assert!(asked.has(&listed(&deep(MOST_SKIPPED - 2))) && asked.has(&listed(&deep(MOST_SKIPPED))));
    let mut asked = Asked::of(&[path("tree")], &excluding(&["*.o"]));
    assert!(!asked.has(&listed(&deep(MOST_SKIPPED))));
    // Listed in order it may be as deep as names are.
    for count in 0..1000 {
        assert!(asked.has(&listed(deep(count).trim_end_matches('x'))), "{count}");
    }
}

/// What an honest sender lists of a tree, in its order.
fn list(tree: &[String], from: &[From], pick: &Pick) -> Vec<Entry> {
    let mut list = Vec::new();
    let kind = |path: &str| match tree.iter().any(|other| other.starts_with(&format!("{path}/"))) {
        true => Kind::Directory,
        false => Kind::File { length: Bytes(1) },
    };
    let there = |path: &str| tree.iter().any(|other| other == path || other.starts_with(&format!("{path}/")));
    fn walk(list: &mut Vec<Entry>, at: &str, name: &str, pick: &Pick, inside: &dyn Fn(&str) -> Vec<(String, Kind)>) {
        for (own, kind) in inside(at) {
            let join = |a: &str| if a.is_empty() { own.clone() } else { format!("{a}/{own}") };
            let (at, name) = (join(at), join(name));
            if pick.rules.decide(name.as_bytes(), kind == Kind::Directory) == Decision::Include {
                list.push(entry(&name, kind.clone()));
                walk(list, &at, &name, pick, inside);
            }
        }
    }
    let inside = |at: &str| -> Vec<(String, Kind)> {
        let below = |path: &String| {
            let rest = if at.is_empty() { Some(path.as_str()) } else { path.strip_prefix(at)?.strip_prefix('/') };
            rest.map(|rest| rest.split('/').next().unwrap().to_owned())
        };
        let mut names: Vec<String> = tree.iter().filter_map(below).collect();
        names.sort();
        names.dedup();
        let path = |own: &str| if at.is_empty() { own.to_owned() } else { format!("{at}/{own}") };
        names.iter().map(|own| (own.clone(), kind(&path(own)))).collect()
    };
    let included =
        |name: &str, kind: &Kind| pick.rules.decide(name.as_bytes(), *kind == Kind::Directory) == Decision::Include;
    let mut whole: Option<String> = None;
    let mut named: Vec<_> = pick.names.iter().flatten().map(Name::to_string).collect();
    named.sort_by(|a, b| a.split('/').cmp(b.split('/')));
    for name in named.iter().filter(|name| there(name)) {
        if whole.as_ref().is_some_and(|whole| name.starts_with(&format!("{whole}/"))) {
            continue;
        }
        for (at, _) in name.match_indices('/') {
            list.push(entry(&name[..at], Kind::Directory));
        }
        if included(name, &kind(name)) {
            list.push(entry(name, kind(name)));
            walk(&mut list, name, name, pick, &inside);
            whole = (kind(name) == Kind::Directory).then(|| name.clone());
        }
    }
    for source in from.iter().filter(|_| pick.names.is_none()) {
        let From::File { path } = source else { continue };
        let typed = path.to_string();
        let at = typed.trim_end_matches('/');
        match own_name(typed.as_bytes()).map(|own| String::from_utf8(own.to_vec()).unwrap()) {
            None => {
                list.push(entry(".", Kind::Directory));
                walk(&mut list, at, "", pick, &inside);
            }
            Some(own) if there(at) && included(&own, &kind(at)) => {
                list.push(entry(&own, kind(at)));
                walk(&mut list, at, &own, pick, &inside);
            }
            Some(_) => {}
        }
    }
    list
}

/// The same, told of each name alone, however often that asks the same.
fn may_be(name: &str, is_directory: bool, from: &[From], pick: &Pick) -> bool {
    let all: Vec<&str> = ends(name.as_bytes()).map(|end| &name[..end]).collect();
    let is_start = |at: usize| match &pick.names {
        Some(names) => names.iter().any(|known| known.as_bytes() == all[at].as_bytes()),
        None => {
            let own = |source: &From| match source {
                From::File { path } => own_name(path.as_bytes()).is_none_or(|own| own == all[0].as_bytes()),
                _ => false,
            };
            at == 0 && from.iter().any(own)
        }
    };
    let included = |at: usize| {
        let directory = at + 1 < all.len() || is_directory;
        pick.rules.decide(all[at].as_bytes(), directory) == Decision::Include
    };
    let below = |known: &Name| known.to_string().starts_with(&format!("{name}/"));
    (0..all.len()).any(|start| is_start(start) && (start..all.len()).all(included))
        || (is_directory && pick.names.iter().flatten().any(below))
}

fn some_path() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop_oneof!["[abc]", "[ab]-", "\\.[ab]"], 1..5).prop_map(|parts| parts.join("/"))
}

fn some_request() -> impl Strategy<Value = (Vec<From>, Pick)> {
    let source = prop_oneof![some_path(), some_path().prop_map(|path| path + "/"), Just(String::new())];
    let rule = (any::<bool>(), prop_oneof![some_path(), Just("a/".into()), Just("/a".into()), Just("**/b".into())]);
    let names = proptest::option::of(proptest::collection::vec(some_path(), 0..6));
    (proptest::collection::vec(source, 1..4), proptest::collection::vec(rule, 0..4), names).prop_map(
        |(sources, listed, names)| {
            let mut rules = Rules::default();
            for (include, pattern) in listed {
                let decision = if include { Decision::Include } else { Decision::Exclude };
                rules.push(decision, pattern.as_bytes()).unwrap();
            }
            let named = |names: Vec<String>| names.into_iter().map(|name| Name::new(name).unwrap()).collect();
            let sources = sources.iter().take(if names.is_some() { 1 } else { 3 }).map(|typed| path(typed));
            (sources.collect(), Pick { rules, names: names.map(named), ..Pick::default() })
        },
    )
}

proptest! {
    #[test]
    fn whatever_an_honest_sender_lists_was_asked_for(
        tree in proptest::collection::vec(some_path(), 1..30),
        (from, pick) in some_request(),
    ) {
        let mut asked = Asked::of(&from, &pick);
        for entry in list(&tree, &from, &pick) {
            prop_assert!(asked.has(&entry), "{} of {from:?} {pick:?}", entry.name);
        }
    }

    #[test]
    fn nothing_depends_on_what_came_before(
        names in proptest::collection::vec((some_path(), any::<bool>()), 1..60),
        (from, pick) in some_request(),
        sorted: bool,
    ) {
        let mut names = names;
        if sorted {
            names.sort();
        }
        let mut asked = Asked::of(&from, &pick);
        for (name, is_directory) in names {
            let kind = if is_directory { Kind::Directory } else { Kind::File { length: Bytes(1) } };
            let has = asked.has(&entry(&name, kind));
            prop_assert_eq!(has, may_be(&name, is_directory, &from, &pick), "{} of {:?} {:?}", name, from, pick);
        }
    }
}
