use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use rustix::fs::{CWD, mkfifoat};
use tempfile::TempDir;

use super::*;
use lfn_core::transfer::keep::Keep;

fn keep() -> Listing {
    Listing { keep: Keep { links: true, ..Keep::default() }, ..Listing::default() }
}

fn here(path: impl Into<PathBuf>) -> Source {
    Source::File { base: Arc::new(Base::Here), path: path.into() }
}

/// Each step in a line: directories end in a slash, files tell their length, links where they lead, `!` what is missed.
fn steps(walk: Walk) -> Vec<String> {
    let line = |step| {
        Some(match step {
            Step::Entry(Entry { name, kind, .. }, item) => {
                assert_eq!(item.is_some(), matches!(kind, Kind::File { .. }));
                match kind {
                    Kind::Directory => format!("{name}/"),
                    Kind::File { length } => format!("{name} {}", length.0),
                    Kind::Symlink { target } => format!("{name} -> {target}"),
                    Kind::HardLink { to } => format!("{name} = {to}"),
                }
            }
            Step::Missed { name, what } => format!("! {name}: {what}"),
            Step::LinkLeftOut(_) => "a link".to_owned(),
            Step::SpecialLeftOut(_) => "a pipe".to_owned(),
            Step::Excluded => return None,
        })
    };
    walk.filter_map(line).collect()
}

fn list(path: impl Into<PathBuf>, how: Listing) -> Vec<String> {
    steps(Walk::new(here(path), how))
}

/// `d` with files, directories and links that lead to themselves, up and out.
fn plant() -> TempDir {
    let home = TempDir::new().unwrap();
    let d = home.path().join("d");
    fs::create_dir_all(d.join("b/empty")).unwrap();
    for (name, length) in [("z", 3), ("a", 0), ("b/x", 10), ("b.c", 1)] {
        fs::write(d.join(name), vec![7; length]).unwrap();
    }
    for (target, link) in [("self", "self"), ("..", "b/up"), ("/etc", "out"), ("z", "to z")] {
        symlink(target, d.join(link)).unwrap();
    }
    fs::write(d.join(OsStr::from_bytes(b"odd \xff\n")), b"odd").unwrap();
    home
}

#[test]
fn a_tree_is_listed_in_order_and_no_link_is_followed() {
    let home = plant();
    let kept = list(home.path().join("d"), keep());
    let expected = [
        "d/",
        "d/a 0",
        "d/b/",
        "d/b/empty/",
        "d/b/up -> ..",
        "d/b/x 10",
        "d/b.c 1",
        "d/odd \\xff\\n 3",
        "d/out -> /etc",
        "d/self -> self",
        "d/to z -> z",
        "d/z 3",
    ];
    assert_eq!(kept, expected);
    let left_out = list(home.path().join("d"), Listing::default());
    assert_eq!(left_out.iter().filter(|line| *line == "a link").count(), 4);
    let others = |line: &&String| !line.contains(" -> ");
    assert!(left_out.iter().filter(|line| *line != "a link").eq(kept.iter().filter(others)), "{left_out:?}");
}

#[test]
fn the_slash_behind_a_directory_means_what_rsync_means() {
    let home = plant();
    let b = home.path().join("d/b");
    let (inside, itself) = (["./", "empty/", "a link", "x 10"], ["b/", "b/empty/", "a link", "b/x 10"]);
    let typed = |end: &str| list(format!("{}{end}", b.display()), Listing::default());
    assert_eq!(typed(""), itself);
    for end in ["/", "//", "/.", "/./", "/empty/.."] {
        assert_eq!(typed(end), inside, "{end}");
    }
    assert_eq!(list(home.path().join("d/z"), keep()), ["z 3"]);
    let served = |path: &str| {
        let base = Base::root(&home.path().join("d")).unwrap();
        steps(Walk::new(Source::File { base: Arc::new(base), path: path.into() }, Listing::default()))
    };
    assert_eq!(served("b"), itself);
    assert_eq!(served("b/"), inside);
    assert_eq!(served("").len(), 12);
    assert_eq!(served("")[..2], ["./", "a 0"]);
    assert_eq!(served(".."), ["! .: leads out of the served directory (..)"]);
    assert_eq!(served("out"), ["! out: leads out of the served directory"]);
    assert_eq!(served("b/up/z"), ["z 3"]);
}

#[test]
fn a_link_that_was_typed_stands_for_what_it_leads_to_unless_links_are_copied() {
    let home = plant();
    let link = home.path().join("d/to z");
    assert_eq!(list(&link, Listing::default()), ["to z 3"]);
    assert_eq!(list(&link, keep()), ["to z -> z"]);
    symlink("d/b", home.path().join("to b")).unwrap();
    assert_eq!(list(home.path().join("to b"), Listing::default()), ["to b/", "to b/empty/", "a link", "to b/x 10"]);
    assert_eq!(list(home.path().join("to b/"), keep()), ["./", "empty/", "up -> ..", "x 10"]);
    assert_eq!(list(home.path().join("to b"), keep()), ["to b -> d/b"]);
}

#[test]
fn what_is_no_file_and_what_is_not_there_is_said() {
    let home = TempDir::new().unwrap();
    let at = |name: &str| home.path().join(name);
    mkfifoat(CWD, at("fifo"), Mode::RWXU).unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();
    fs::write(at("z"), "").unwrap();
    let expected = ["./", "a pipe", "a pipe", "z 0"];
    assert_eq!(list(format!("{}/", home.path().display()), keep()), expected);
    let one = |path: PathBuf| list(path, keep()).pop().unwrap();
    assert_eq!(one("/dev/null".into()), "! null: is a device, not a regular file (/dev/null)");
    let gone = format!("! gone: no such file or directory ({})", at("gone").display());
    assert_eq!(one(at("gone")), gone);
    assert!(one(at("z/")).starts_with("! .: cannot open: Not a directory"), "{}", one(at("z/")));
}

#[test]
fn what_may_not_be_read_does_not_hold_up_the_rest() {
    if rustix::process::geteuid().is_root() {
        return;
    }
    let home = TempDir::new().unwrap();
    let d = home.path().join("d");
    fs::create_dir_all(d.join("closed")).unwrap();
    for name in ["empty", "closed/f", "z"] {
        fs::write(d.join(name), "").unwrap();
    }
    for name in ["empty", "closed"] {
        fs::set_permissions(d.join(name), Permissions::from_mode(0o0)).unwrap();
    }
    let denied = "cannot open: Permission denied (os error 13)";
    let expected = [
        "d/".to_owned(),
        "d/closed/".into(),
        format!("! d/closed: {denied}"),
        format!("! d/empty: {denied}"),
        "d/z 0".into(),
    ];
    assert_eq!(list(&d, keep()), expected);
    fs::set_permissions(d.join("closed"), Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_deep_tree_holds_few_directories_open_and_a_long_name_is_missed_alone() {
    let home = TempDir::new().unwrap();
    let mut at = rustix::fs::open(home.path(), OFlags::PATH, Mode::empty()).unwrap();
    let component = "n".repeat(100);
    for _ in 0..50 {
        // Behind the way down there is something at every level.
        openat(&at, "z", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
        rustix::fs::mkdirat(&at, component.as_str(), Mode::RWXU).unwrap();
        at = openat(&at, component.as_str(), OFlags::PATH, Mode::empty()).unwrap();
    }
    let mut walk = Walk::new(here(format!("{}/", home.path().display())), keep());
    let (mut files, mut directories, mut missed, mut most_open) = (0, 0, 0, 0);
    while let Some(step) = walk.next() {
        most_open = most_open.max(walk.levels.iter().filter(|level| level.dir.is_some()).count());
        match step {
            Step::Entry(entry, None) => directories += usize::from(entry.kind == Kind::Directory),
            Step::Entry(_, Some(item)) => {
                let Origin::Found { folder, name, .. } = item.origin() else { panic!("{item:?}") };
                // Where it says it is, however long the way.
                assert!(openat(folder.open(OFlags::PATH).unwrap(), name.as_os_str(), READ, Mode::empty()).is_ok());
                files += 1;
            }
            Step::Missed { what, .. } => {
                assert!(what.contains("longer than 4096 bytes"), "{what}");
                missed += 1;
            }
            Step::LinkLeftOut(_) | Step::SpecialLeftOut(_) | Step::Excluded => panic!(),
        }
    }
    // 40 times 101 bytes fit; what is below is not entered.
    assert_eq!((files, directories, missed), (41, 41, 1));
    assert!(most_open <= OPEN_LEVELS + 2, "{most_open}");
}

#[test]
fn a_directory_of_many_names_is_listed_in_runs_and_whole() {
    let home = TempDir::new().unwrap();
    let count = SORTED_AT_ONCE * 5 / 2;
    (0..count).for_each(|number| fs::write(home.path().join(number.to_string()), "").unwrap());
    let names = list(format!("{}/", home.path().display()), keep()).split_off(1);
    let run = |names: &[String]| names.is_sorted();
    assert!(names.chunks(SORTED_AT_ONCE).all(run));
    let numbers: std::collections::BTreeSet<_> = names.into_iter().collect();
    assert_eq!(numbers, (0..count).map(|number| format!("{number} 0")).collect());
}

#[test]
fn what_is_swapped_for_a_link_is_not_followed() {
    let home = plant();
    let mut walk = Walk::new(here(home.path().join("d")), keep());
    while let Some(Step::Entry(entry, _)) = walk.next() {
        if entry.name.as_bytes() == b"d/b" {
            break;
        }
    }
    fs::rename(home.path().join("d/b"), home.path().join("elsewhere")).unwrap();
    symlink("/etc", home.path().join("d/b")).unwrap();
    let rest = steps(walk);
    assert_eq!(rest[..2], ["! d/b: changed while it was copied", "d/b.c 1"]);
}

fn with_rules(rules: &[(Decision, &str)]) -> Listing {
    let mut all = lfn_core::transfer::filter::Rules::default();
    rules.iter().for_each(|(decision, pattern)| all.push(*decision, pattern.as_bytes()).unwrap());
    Listing { rules: Arc::new(all), ..keep() }
}

#[test]
fn what_is_excluded_is_neither_listed_nor_entered() {
    let home = plant();
    let d = home.path().join("d");
    let rules =
        [(Decision::Include, "b/x"), (Decision::Exclude, "x"), (Decision::Exclude, "self"), (Decision::Exclude, "e*/")];
    let listed = list(&d, with_rules(&rules));
    assert!(listed.contains(&"d/b/x 10".into()) && !listed.iter().any(|line| line.contains("self")), "{listed:?}");
    assert!(!listed.contains(&"d/b/empty/".into()));
    assert_eq!(list(&d, with_rules(&[(Decision::Exclude, "d")])), Vec::<String>::new());
    let inside = list(format!("{}/", d.display()), with_rules(&[(Decision::Include, "*.c"), (Decision::Exclude, "*")]));
    assert_eq!(inside, ["./", "b.c 1"]);
}

#[test]
fn names_from_a_list_come_with_the_directories_on_the_way() {
    let home = plant();
    let pick = |names: &[&str], how| {
        let names = names.iter().map(|name| Name::new(*name).unwrap()).collect();
        steps(Walk::new(Source::Some { base: Arc::new(Base::Here), path: home.path().into(), names }, how))
    };
    assert_eq!(pick(&["d/z", "d/b/x", "d/b/x"], keep()), ["d/", "d/b/", "d/b/x 10", "d/z 3"]);
    // What is named in a directory that is named is in that.
    assert_eq!(
        pick(&["d/b", "d/b/x", "d/b.c"], keep()),
        ["d/", "d/b/", "d/b/empty/", "d/b/up -> ..", "d/b/x 10", "d/b.c 1"]
    );
    let gone = "no such file or directory";
    assert_eq!(
        pick(&["d/gone", "d/z/y", "gone/x", "d/out/passwd", "d/z"], keep()),
        [
            &format!("! d/gone: {gone}"),
            &format!("! d/out/passwd: {gone}"),
            "d/",
            "d/z 3",
            &format!("! d/z/y: {gone}"),
            &format!("! gone/x: {gone}")
        ]
    );
    let rules = with_rules(&[(Decision::Exclude, "b"), (Decision::Exclude, "z")]);
    assert_eq!(pick(&["d/b/x", "d/z"], rules), ["d/", "d/b/", "d/b/x 10"]);
    // A directory in which no name is taken is not on the way to any.
    let rules = || with_rules(&[(Decision::Exclude, "x"), (Decision::Exclude, "z")]);
    assert_eq!(pick(&["d/b/x", "d/z"], rules()), [""; 0]);
    assert_eq!(pick(&["d/b/x", "d/b.c"], rules()), ["d/", "d/b.c 1"]);
    assert_eq!(pick(&["."], keep()).len(), 12);
    assert!(pick(&[], keep()).is_empty());
    let names = vec![Name::new("x").unwrap()];
    let file = Source::Some { base: Arc::new(Base::Here), path: home.path().join("d/z"), names };
    assert_eq!(steps(Walk::new(file, keep())).len(), 1);
}

#[test]
fn patterns_stand_for_what_is_there() {
    let home = plant();
    let d = home.path().join("d");
    fs::write(d.join("b/*"), "star").unwrap();
    fs::write(d.join(".hidden"), "").unwrap();
    let base = Base::root(&d).unwrap();
    let found = |pattern: &str| -> Vec<String> {
        let found = super::super::expand(&base, pattern.as_bytes(), &mut super::super::Budget::new(&|| Ok(())));
        found.map_or_else(
            |error| vec![error.to_string()],
            |found| found.paths.iter().map(|p| p.display().to_string()).collect(),
        )
    };
    assert_eq!(found("*.c"), ["b.c"]);
    assert_eq!(found("?/x"), ["b/x"]);
    assert_eq!(found("[ab]"), ["a", "b"]);
    assert_eq!(found("b/*"), ["b/*"]);
    assert_eq!(found("*/*"), ["b/*", "b/empty", "b/up", "b/x"]);
    assert_eq!(found("b*/"), ["b/"]);
    assert_eq!(found("b/\\*"), ["b/*"]);
    assert_eq!(found(".h*"), [".hidden"]);
    assert_eq!(found("gone"), ["gone"]);
    assert_eq!(found("*.nc"), ["nothing matches *.nc"]);
    assert_eq!(found("out/p*"), ["nothing matches out/p*"]);
    assert_eq!(found("../*"), ["nothing matches ../*"]);
}

/// A copy is not given up as stalled while it looks at a great many things that are left out.
#[test]
fn whatever_is_looked_at_is_a_step() {
    let home = TempDir::new().unwrap();
    (0..300).for_each(|n| fs::write(home.path().join(n.to_string()), "").unwrap());
    let how = with_rules(&[(Decision::Exclude, "*")]);
    let excluded = |walk: Walk| walk.filter(|step| matches!(step, Step::Excluded)).count();
    assert_eq!(excluded(Walk::new(here(format!("{}/", home.path().display())), how.clone())), 300);
    let names = (0..300).map(|n| Name::new(n.to_string()).unwrap()).collect();
    let some = Source::Some { base: Arc::new(Base::Here), path: home.path().into(), names };
    assert_eq!(excluded(Walk::new(some, how)), 300);
}

#[test]
fn a_link_that_was_named_and_leads_nowhere_is_told_from_what_is_not_there() {
    let home = TempDir::new().unwrap();
    let (root, link) = (home.path(), home.path().join("link"));
    symlink("gone", &link).unwrap();
    let error = |source, how| Walk::try_new(source, how).unwrap_err().to_string();
    let leads_nowhere = "is a symbolic link that leads nowhere";
    assert_eq!(error(here(&link), Listing::default()), leads_nowhere);
    assert_eq!(list(&link, Listing::default()), [format!("! link: {leads_nowhere} ({})", link.display())]);
    assert_eq!(list(&link, keep()), ["link -> gone"]);
    assert_eq!(error(here(root.join("gone")), Listing::default()), "no such file or directory");
    let base = || Arc::new(Base::root(root).unwrap());
    let served = |path: &str| Source::File { base: base(), path: path.into() };
    assert_eq!(error(served("link"), Listing::default()), leads_nowhere);
    assert_eq!(error(served("link/x"), keep()), "no such file or directory");
    let some = Source::Some { base: base(), path: "link".into(), names: Vec::new() };
    assert_eq!(error(some, Listing::default()), leads_nowhere);
    // What a link out of the root leads to is nobody's to know, also that it is nothing.
    symlink("/no/such/file", root.join("out")).unwrap();
    assert_eq!(error(served("out"), Listing::default()), "leads out of the served directory");
}

/// Files of /proc have no length, and bytes all the same.
#[test]
fn a_file_that_is_not_as_empty_as_it_is_listed_is_missed() {
    let error = Walk::try_new(here("/proc/self/status"), Listing::default()).unwrap_err();
    assert!(matches!(error, Unsent::Lengthless), "{error}");
    let names = vec![Name::new("status").unwrap()];
    let some = Source::Some { base: Arc::new(Base::Here), path: "/proc/self".into(), names };
    assert_eq!(steps(Walk::new(some, Listing::default())), ["! status: is listed as empty, and is not"]);
    let home = TempDir::new().unwrap();
    fs::write(home.path().join("empty"), "").unwrap();
    assert_eq!(list(home.path().join("empty"), Listing::default()), ["empty 0"]);
}
