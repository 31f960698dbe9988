use lfn_base::units::Bytes;
use proptest::prelude::*;

use super::*;
use crate::wire::copy::entry::Modified;

fn entry(name: &str, kind: EntryKind) -> Entry {
    Entry::new(Name::new(name).unwrap(), kind, 0o644, Modified::default()).unwrap()
}

/// Creates a directory if the name ends in a slash, otherwise a file.
fn listed(name: &str) -> Entry {
    match name.strip_suffix('/') {
        Some(name) => entry(name, EntryKind::Directory),
        None => entry(name, EntryKind::File { length: Bytes(1) }),
    }
}

fn path(path: &str) -> RemoteSource {
    RemoteSource::File { path: path.into() }
}

fn excluding(patterns: &[&str]) -> Selection {
    let mut rules = FilterRules::default();
    patterns.iter().for_each(|pattern| rules.push(Decision::Exclude, pattern.as_bytes()).unwrap());
    Selection { rules, ..Selection::default() }
}

fn naming(names: &[&str]) -> Selection {
    let names = names.iter().map(|name| Name::new(*name).unwrap()).collect();
    Selection { names: Some(names), ..Selection::default() }
}

/// Checks each name alone, then all names in order: earlier entries must not change the result.
#[track_caller]
fn holds(from: &[RemoteSource], selection: &Selection, has: &[&str], lacks: &[&str]) {
    for name in has {
        assert!(RequestedEntries::new(from, selection).allows(&listed(name)), "{name}");
    }
    for name in lacks {
        assert!(!RequestedEntries::new(from, selection).allows(&listed(name)), "{name}");
    }
    let mut requested = RequestedEntries::new(from, selection);
    assert!(
        has.iter().all(|name| requested.allows(&listed(name)))
            && !lacks.iter().any(|name| requested.allows(&listed(name)))
    );
}

#[test]
fn source_permits_its_name_and_contents() {
    for typed in ["runs", "a/runs", "/a/runs", "./runs", "../runs", "a/../runs", "a//runs"] {
        let lacks = ["./", ".ssh/", ".ssh/authorized_keys", "run", "runs2", "runs2/x", "x/runs", "a/", "a/runs"];
        holds(&[path(typed)], &Selection::default(), &["runs/", "runs", "runs/x", "runs/x/", "runs/x/y"], &lacks);
    }
    let odd = RemoteSource::File { path: (&b"d/\xff\n"[..]).into() };
    let named =
        |name: &[u8]| Entry::new(Name::new(name).unwrap(), EntryKind::Directory, 0o755, Modified::default()).unwrap();
    let mut requested = RequestedEntries::new(&[odd], &Selection::default());
    assert!(
        requested.allows(&named(b"\xff\n"))
            && requested.allows(&named(b"\xff\n/x"))
            && !requested.allows(&named(b"\xfe\n"))
    );
}

#[test]
fn directory_contents_may_have_any_name() {
    for typed in ["", ".", "/", "runs/", "runs//", "runs/.", "..", "a/..", "*/", "[a]/.."] {
        holds(&[path("x"), path(typed)], &Selection::default(), &["./", "a", "a/", "a/b", ".profile"], &[]);
    }
}

#[test]
fn pattern_permits_matching_names() {
    let none = Selection::default();
    holds(&[path("d*/*.nc")], &none, &["a.nc", "a.nc/", "a.nc/.b"], &["a.n", ".a.nc", "./", "d/", "d/a.nc"]);
    holds(&[path("*/runs")], &none, &["runs", "runs/x"], &["a", "a/runs"]);
    holds(&[path(r"\[1\]*")], &none, &["[1]", "[1]x", r"\[1\]*"], &["1", "x"]);
    holds(&[path(r"d/\*")], &none, &["*", r"\*"], &["a", ".a"]);
    holds(&[path(r"d/a\b")], &none, &[r"a\b"], &["ab"]);
    // The source may be a file with these wildcard characters in its name.
    holds(&[path("d/[ab]")], &none, &["a", "b", "[ab]"], &["c", "ab"]);
    holds(&[path("d/[a")], &none, &["[a"], &["a"]);
    holds(&[path(".*")], &none, &[".bashrc"], &["bashrc", "./"]);
}

#[test]
fn generated_source_permits_one_file() {
    let (random, zero) = (RemoteSource::Random { bytes: Bytes(1) }, RemoteSource::Zero { bytes: Bytes(1) });
    holds(std::slice::from_ref(&random), &Selection::default(), &["random"], &["random/", "random/x", "zero", "./"]);
    holds(&[zero.clone(), path("a")], &Selection::default(), &["zero", "a"], &["random", "zero/"]);
    // Filter rules and lists of names do not apply to generated files.
    holds(&[random], &excluding(&["*"]), &["random"], &["a"]);
    holds(&[zero], &naming(&["a"]), &["zero", "a"], &["b"]);
}

#[test]
fn name_list_permits_names_and_parents() {
    let selection = naming(&["a/b/c", "d", "a-b", "e/f", "a/b"]);
    let has = ["a/", "a/b/", "a/b", "a/b/c", "a/b/x/y", "d", "d/", "d/x", "a-b", "e/", "e/f/", "e/f/g"];
    let lacks = ["./", "a", "a/c", "a/c/", "b", "e", "e/g", "a-b-c", "src", "src/", "x/"];
    holds(&[path("src")], &selection, &has, &lacks);
    holds(&[path("*/")], &selection, &has, &lacks);
    holds(&[path("src")], &naming(&["a/b", "."]), &["./", "a", "x/y", ".z"], &[]);
    holds(&[path("src")], &naming(&[]), &[], &["./", "a", "src"]);
}

#[test]
fn excluded_names_are_not_permitted() {
    let tree = [path("tree")];
    holds(&tree, &excluding(&["*.o"]), &["tree/", "tree/a"], &["tree/a.o", "tree/x/a.o", "tree/a.o/", "tree/a.o/b"]);
    holds(&tree, &excluding(&["secret/"]), &["tree/secret"], &["tree/secret/", "tree/secret/x", "tree/a/secret/x"]);
    holds(&tree, &excluding(&["/tree"]), &[], &["tree/", "tree/x"]);
    holds(&[path("tree/")], &excluding(&["/a"]), &["./", "b", "b/a"], &["a", "a/", "a/b"]);
    // Rules do not apply to parents of a listed name. A nested listed name is checked from the longest match.
    let selection = Selection { names: naming(&["d/x", "d/x/y", "z"]).names, ..excluding(&["/d", "/d/x", "w"]) };
    holds(&[path(".")], &selection, &["d/", "d/x/", "d/x/y", "d/x/y/", "d/x/y/v", "z"], &["d", "d/x", "d/x/v", "z/w"]);
}

#[test]
fn checked_parents_are_limited() {
    let deep = |count: usize| format!("tree/{}x", "d/".repeat(count));
    let mut requested = RequestedEntries::new(&[path("tree")], &excluding(&["*.o"]));
    assert!(
        requested.allows(&listed(&deep(MAX_UNLISTED_PARENTS - 2)))
            && requested.allows(&listed(&deep(MAX_UNLISTED_PARENTS)))
    );
    let mut requested = RequestedEntries::new(&[path("tree")], &excluding(&["*.o"]));
    assert!(!requested.allows(&listed(&deep(MAX_UNLISTED_PARENTS))));
    // In list order, entries may be as deep as names allow.
    for count in 0..1000 {
        assert!(requested.allows(&listed(deep(count).trim_end_matches('x'))), "{count}");
    }
}

/// Returns the list of a correct sender for a tree, in order.
fn list(tree: &[String], from: &[RemoteSource], selection: &Selection) -> Vec<Entry> {
    let mut list = Vec::new();
    let kind = |path: &str| match tree.iter().any(|other| other.starts_with(&format!("{path}/"))) {
        true => EntryKind::Directory,
        false => EntryKind::File { length: Bytes(1) },
    };
    let there = |path: &str| tree.iter().any(|other| other == path || other.starts_with(&format!("{path}/")));
    fn walk(
        list: &mut Vec<Entry>,
        at: &str,
        name: &str,
        selection: &Selection,
        inside: &dyn Fn(&str) -> Vec<(String, EntryKind)>,
    ) {
        for (own, kind) in inside(at) {
            let join = |a: &str| if a.is_empty() { own.clone() } else { format!("{a}/{own}") };
            let (at, name) = (join(at), join(name));
            if selection.rules.decide(name.as_bytes(), kind == EntryKind::Directory) == Decision::Include {
                list.push(entry(&name, kind.clone()));
                walk(list, &at, &name, selection, inside);
            }
        }
    }
    let inside = |at: &str| -> Vec<(String, EntryKind)> {
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
    let included = |name: &str, kind: &EntryKind| {
        selection.rules.decide(name.as_bytes(), *kind == EntryKind::Directory) == Decision::Include
    };
    let mut whole: Option<String> = None;
    let mut named: Vec<_> = selection.names.iter().flatten().map(Name::to_string).collect();
    named.sort_by(|a, b| a.split('/').cmp(b.split('/')));
    for name in named.iter().filter(|name| there(name)) {
        if whole.as_ref().is_some_and(|whole| name.starts_with(&format!("{whole}/"))) {
            continue;
        }
        for (at, _) in name.match_indices('/') {
            list.push(entry(&name[..at], EntryKind::Directory));
        }
        if included(name, &kind(name)) {
            list.push(entry(name, kind(name)));
            walk(&mut list, name, name, selection, &inside);
            whole = (kind(name) == EntryKind::Directory).then(|| name.clone());
        }
    }
    for source in from.iter().filter(|_| selection.names.is_none()) {
        let RemoteSource::File { path } = source else { continue };
        let typed = path.to_string();
        let at = typed.trim_end_matches('/');
        match final_name(typed.as_bytes()).map(|own| String::from_utf8(own.to_vec()).unwrap()) {
            None => {
                list.push(entry(".", EntryKind::Directory));
                walk(&mut list, at, "", selection, &inside);
            }
            Some(own) if there(at) && included(&own, &kind(at)) => {
                list.push(entry(&own, kind(at)));
                walk(&mut list, at, &own, selection, &inside);
            }
            Some(_) => {}
        }
    }
    list
}

/// Decides for one name alone, without caching.
fn may_be(name: &str, is_directory: bool, from: &[RemoteSource], selection: &Selection) -> bool {
    let all: Vec<&str> = component_ends(name.as_bytes()).map(|end| &name[..end]).collect();
    let is_start = |at: usize| match &selection.names {
        Some(names) => names.iter().any(|known| known.as_bytes() == all[at].as_bytes()),
        None => {
            let own = |source: &RemoteSource| match source {
                RemoteSource::File { path } => final_name(path.as_bytes()).is_none_or(|own| own == all[0].as_bytes()),
                _ => false,
            };
            at == 0 && from.iter().any(own)
        }
    };
    let included = |at: usize| {
        let directory = at + 1 < all.len() || is_directory;
        selection.rules.decide(all[at].as_bytes(), directory) == Decision::Include
    };
    let below = |known: &Name| known.to_string().starts_with(&format!("{name}/"));
    (0..all.len()).any(|start| is_start(start) && (start..all.len()).all(included))
        || (is_directory && selection.names.iter().flatten().any(below))
}

fn some_path() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop_oneof!["[abc]", "[ab]-", "\\.[ab]"], 1..5).prop_map(|parts| parts.join("/"))
}

fn some_request() -> impl Strategy<Value = (Vec<RemoteSource>, Selection)> {
    let source = prop_oneof![some_path(), some_path().prop_map(|path| path + "/"), Just(String::new())];
    let rule = (any::<bool>(), prop_oneof![some_path(), Just("a/".into()), Just("/a".into()), Just("**/b".into())]);
    let names = proptest::option::of(proptest::collection::vec(some_path(), 0..6));
    (proptest::collection::vec(source, 1..4), proptest::collection::vec(rule, 0..4), names).prop_map(
        |(sources, listed, names)| {
            let mut rules = FilterRules::default();
            for (include, pattern) in listed {
                let decision = if include { Decision::Include } else { Decision::Exclude };
                rules.push(decision, pattern.as_bytes()).unwrap();
            }
            let named = |names: Vec<String>| names.into_iter().map(|name| Name::new(name).unwrap()).collect();
            let sources = sources.iter().take(if names.is_some() { 1 } else { 3 }).map(|typed| path(typed));
            (sources.collect(), Selection { rules, names: names.map(named), ..Selection::default() })
        },
    )
}

proptest! {
    #[test]
    fn correct_lists_are_permitted(
        tree in proptest::collection::vec(some_path(), 1..30),
        (from, selection) in some_request(),
    ) {
        let mut requested = RequestedEntries::new(&from, &selection);
        for entry in list(&tree, &from, &selection) {
            prop_assert!(requested.allows(&entry), "{} of {from:?} {selection:?}", entry.name);
        }
    }

    #[test]
    fn result_does_not_depend_on_earlier_entries(
        names in proptest::collection::vec((some_path(), any::<bool>()), 1..60),
        (from, selection) in some_request(),
        sorted: bool,
    ) {
        let mut names = names;
        if sorted {
            names.sort();
        }
        let mut requested = RequestedEntries::new(&from, &selection);
        for (name, is_directory) in names {
            let kind = if is_directory { EntryKind::Directory } else { EntryKind::File { length: Bytes(1) } };
            let has = requested.allows(&entry(&name, kind));
            prop_assert_eq!(has, may_be(&name, is_directory, &from, &selection), "{} of {:?} {:?}", name, from, selection);
        }
    }
}
