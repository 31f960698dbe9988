use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use lfn_session::wire::copy::filter::Decision;
use lfn_session::wire::copy::preserve::Preserve;
use rustix::fs::{CWD, Mode, OFlags, mkfifoat, openat};
use tempfile::TempDir;

use super::super::source_file::ListedFile;
use super::*;

fn with_links() -> Listing {
    Listing { preserve: Preserve { links: true, ..Preserve::default() }, ..Listing::default() }
}

fn local(path: impl Into<PathBuf>) -> Source {
    Source::File { base: Arc::new(BaseDir::Local), path: path.into() }
}

/// Formats each step as a line: `name/` for directories, length for files, target for links, `!` for failures.
fn steps(walk: Walk) -> Vec<String> {
    let line = |step| {
        Some(match step {
            WalkStep::Entry(Entry { name, kind, .. }, listed_file) => {
                assert_eq!(listed_file.is_some(), matches!(kind, EntryKind::File { .. }));
                match kind {
                    EntryKind::Directory => format!("{name}/"),
                    EntryKind::File { length } => format!("{name} {}", length.0),
                    EntryKind::Symlink { target } => format!("{name} -> {target}"),
                    EntryKind::HardLink { to } => format!("{name} = {to}"),
                }
            }
            WalkStep::Failed { name, reason } => format!("! {name}: {reason}"),
            WalkStep::SkippedLink(_) => "a link".to_owned(),
            WalkStep::SkippedSpecial(_) => "a pipe".to_owned(),
            WalkStep::Excluded => return None,
        })
    };
    walk.filter_map(line).collect()
}

fn list(path: impl Into<PathBuf>, listing: Listing) -> Vec<String> {
    steps(Walk::new(local(path), listing))
}

/// Creates `d` with files, directories, and links to themselves, upwards and out of the tree.
fn create_tree() -> TempDir {
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
fn tree_is_listed_in_order_without_following_links() {
    let home = create_tree();
    let kept = list(home.path().join("d"), with_links());
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
fn trailing_slash_works_as_in_rsync() {
    let home = create_tree();
    let b = home.path().join("d/b");
    let (inside, itself) = (["./", "empty/", "a link", "x 10"], ["b/", "b/empty/", "a link", "b/x 10"]);
    let typed = |end: &str| list(format!("{}{end}", b.display()), Listing::default());
    assert_eq!(typed(""), itself);
    for end in ["/", "//", "/.", "/./", "/empty/.."] {
        assert_eq!(typed(end), inside, "{end}");
    }
    assert_eq!(list(home.path().join("d/z"), with_links()), ["z 3"]);
    let served = |path: &str| {
        let base = BaseDir::root(&home.path().join("d")).unwrap();
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
fn typed_link_is_followed_unless_links_are_copied() {
    let home = create_tree();
    let link = home.path().join("d/to z");
    assert_eq!(list(&link, Listing::default()), ["to z 3"]);
    assert_eq!(list(&link, with_links()), ["to z -> z"]);
    symlink("d/b", home.path().join("to b")).unwrap();
    assert_eq!(list(home.path().join("to b"), Listing::default()), ["to b/", "to b/empty/", "a link", "to b/x 10"]);
    assert_eq!(list(home.path().join("to b/"), with_links()), ["./", "empty/", "up -> ..", "x 10"]);
    assert_eq!(list(home.path().join("to b"), with_links()), ["to b -> d/b"]);
}

#[test]
fn special_and_missing_files_are_reported() {
    let home = TempDir::new().unwrap();
    let at = |name: &str| home.path().join(name);
    mkfifoat(CWD, at("fifo"), Mode::RWXU).unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();
    fs::write(at("z"), "").unwrap();
    let expected = ["./", "a pipe", "a pipe", "z 0"];
    assert_eq!(list(format!("{}/", home.path().display()), with_links()), expected);
    let one = |path: PathBuf| list(path, with_links()).pop().unwrap();
    assert_eq!(one("/dev/null".into()), "! null: is a device, not a regular file (/dev/null)");
    let gone = format!("! gone: no such file or directory ({})", at("gone").display());
    assert_eq!(one(at("gone")), gone);
    assert!(one(at("z/")).starts_with("! .: cannot open: Not a directory"), "{}", one(at("z/")));
}

#[test]
fn unreadable_entries_do_not_stop_the_walk() {
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
    assert_eq!(list(&d, with_links()), expected);
    fs::set_permissions(d.join("closed"), Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn deep_tree_keeps_few_directories_open() {
    let home = TempDir::new().unwrap();
    let mut at = rustix::fs::open(home.path(), OFlags::PATH, Mode::empty()).unwrap();
    let component = "n".repeat(100);
    for _ in 0..50 {
        // Each level also has a file that comes after the next directory.
        openat(&at, "z", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
        rustix::fs::mkdirat(&at, component.as_str(), Mode::RWXU).unwrap();
        at = openat(&at, component.as_str(), OFlags::PATH, Mode::empty()).unwrap();
    }
    let mut walk = Walk::new(local(format!("{}/", home.path().display())), with_links());
    let (mut files, mut directories, mut missed, mut max_open) = (0, 0, 0, 0);
    let name_of = |file: &ListedFile| file.storage_name().unwrap();
    while let Some(step) = walk.next() {
        max_open = max_open.max(walk.levels.iter().filter(|level| level.unread.is_some()).count());
        match step {
            WalkStep::Entry(entry, None) => directories += usize::from(entry.kind == EntryKind::Directory),
            WalkStep::Entry(_, Some(listed_file)) => {
                // The recorded path leads to the file, however deep.
                assert!(listed_file.storage().open_file(&name_of(&listed_file)).is_ok());
                files += 1;
            }
            WalkStep::Failed { reason, .. } => {
                assert!(reason.contains("longer than 4096 bytes"), "{reason}");
                missed += 1;
            }
            WalkStep::SkippedLink(_) | WalkStep::SkippedSpecial(_) | WalkStep::Excluded => panic!(),
        }
    }
    // 40 levels of 101 bytes fit. The directories below them are not entered.
    assert_eq!((files, directories, missed), (41, 41, 1));
    assert!(max_open <= 1, "{max_open}");
}

#[test]
fn large_directory_is_listed_in_sorted_runs() {
    let home = TempDir::new().unwrap();
    let count = NAMES_PER_RUN * 5 / 2;
    (0..count).for_each(|number| fs::write(home.path().join(number.to_string()), "").unwrap());
    let names = list(format!("{}/", home.path().display()), with_links()).split_off(1);
    let run = |names: &[String]| names.is_sorted();
    assert!(names.chunks(NAMES_PER_RUN).all(run));
    let numbers: std::collections::BTreeSet<_> = names.into_iter().collect();
    assert_eq!(numbers, (0..count).map(|number| format!("{number} 0")).collect());
}

#[test]
fn directory_replaced_by_a_link_is_not_followed() {
    let home = create_tree();
    let mut walk = Walk::new(local(home.path().join("d")), with_links());
    while let Some(WalkStep::Entry(entry, _)) = walk.next() {
        if entry.name.as_bytes() == b"d/b" {
            break;
        }
    }
    fs::rename(home.path().join("d/b"), home.path().join("elsewhere")).unwrap();
    symlink("/etc", home.path().join("d/b")).unwrap();
    let rest = steps(walk);
    assert_eq!(rest[..2], ["! d/b: changed during the copy", "d/b.c 1"]);
}

fn with_rules(rules: &[(Decision, &str)]) -> Listing {
    let mut all = lfn_session::wire::copy::filter::FilterRules::default();
    rules.iter().for_each(|(decision, pattern)| all.push(*decision, pattern.as_bytes()).unwrap());
    Listing { rules: Arc::new(all), ..with_links() }
}

#[test]
fn excluded_entries_are_neither_listed_nor_entered() {
    let home = create_tree();
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
fn names_from_a_list_include_parent_directories() {
    let home = create_tree();
    let selection = |names: &[&str], listing| {
        let names = names.iter().map(|name| Name::new(*name).unwrap()).collect();
        steps(Walk::new(Source::FilesFrom { base: Arc::new(BaseDir::Local), path: home.path().into(), names }, listing))
    };
    assert_eq!(selection(&["d/z", "d/b/x", "d/b/x"], with_links()), ["d/", "d/b/", "d/b/x 10", "d/z 3"]);
    // The contents of a named directory are already included.
    assert_eq!(
        selection(&["d/b", "d/b/x", "d/b.c"], with_links()),
        ["d/", "d/b/", "d/b/empty/", "d/b/up -> ..", "d/b/x 10", "d/b.c 1"]
    );
    let gone = "no such file or directory";
    assert_eq!(
        selection(&["d/gone", "d/z/y", "gone/x", "d/out/passwd", "d/z"], with_links()),
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
    assert_eq!(selection(&["d/b/x", "d/z"], rules), ["d/", "d/b/", "d/b/x 10"]);
    // A parent directory without an included name is not listed.
    let rules = || with_rules(&[(Decision::Exclude, "x"), (Decision::Exclude, "z")]);
    assert_eq!(selection(&["d/b/x", "d/z"], rules()), [""; 0]);
    assert_eq!(selection(&["d/b/x", "d/b.c"], rules()), ["d/", "d/b.c 1"]);
    assert_eq!(selection(&["."], with_links()).len(), 12);
    assert!(selection(&[], with_links()).is_empty());
    let names = vec![Name::new("x").unwrap()];
    let file = Source::FilesFrom { base: Arc::new(BaseDir::Local), path: home.path().join("d/z"), names };
    assert_eq!(steps(Walk::new(file, with_links())).len(), 1);
}

#[test]
fn patterns_match_existing_names() {
    let home = create_tree();
    let d = home.path().join("d");
    fs::write(d.join("b/*"), "star").unwrap();
    fs::write(d.join(".hidden"), "").unwrap();
    let base = BaseDir::root(&d).unwrap();
    let found = |pattern: &str| -> Vec<String> {
        let found =
            super::super::expand(&base, pattern.as_bytes(), &mut super::super::ExpansionBudget::new(&|| Ok(())));
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
    assert_eq!(found("*.nc"), ["no file matches *.nc"]);
    assert_eq!(found("out/p*"), ["no file matches out/p*"]);
    assert_eq!(found("../*"), ["no file matches ../*"]);
}

/// A copy that looks at a very large number of excluded entries must not count as stalled.
#[test]
fn excluded_entries_produce_steps() {
    let home = TempDir::new().unwrap();
    (0..300).for_each(|n| fs::write(home.path().join(n.to_string()), "").unwrap());
    let listing = with_rules(&[(Decision::Exclude, "*")]);
    let excluded = |walk: Walk| walk.filter(|step| matches!(step, WalkStep::Excluded)).count();
    assert_eq!(excluded(Walk::new(local(format!("{}/", home.path().display())), listing.clone())), 300);
    let names = (0..300).map(|n| Name::new(n.to_string()).unwrap()).collect();
    let some = Source::FilesFrom { base: Arc::new(BaseDir::Local), path: home.path().into(), names };
    assert_eq!(excluded(Walk::new(some, listing)), 300);
}

#[test]
fn dangling_link_differs_from_a_missing_file() {
    let home = TempDir::new().unwrap();
    let (root, link) = (home.path(), home.path().join("link"));
    symlink("gone", &link).unwrap();
    let error = |source, listing| Walk::try_new(source, listing).unwrap_err().to_string();
    let leads_nowhere = "is a symbolic link to a missing file";
    assert_eq!(error(local(&link), Listing::default()), leads_nowhere);
    assert_eq!(list(&link, Listing::default()), [format!("! link: {leads_nowhere} ({})", link.display())]);
    assert_eq!(list(&link, with_links()), ["link -> gone"]);
    assert_eq!(error(local(root.join("gone")), Listing::default()), "no such file or directory");
    let base = || Arc::new(BaseDir::root(root).unwrap());
    let served = |path: &str| Source::File { base: base(), path: path.into() };
    assert_eq!(error(served("link"), Listing::default()), leads_nowhere);
    assert_eq!(error(served("link/x"), with_links()), "no such file or directory");
    let some = Source::FilesFrom { base: base(), path: "link".into(), names: Vec::new() };
    assert_eq!(error(some, Listing::default()), leads_nowhere);
    // A client must not learn the target of a link out of the root, or whether the target exists.
    symlink("/no/such/file", root.join("out")).unwrap();
    assert_eq!(error(served("out"), Listing::default()), "leads out of the served directory");
}

/// Files of /proc have length 0 and contain data.
#[test]
fn proc_file_with_size_zero_is_reported() {
    let error = Walk::try_new(local("/proc/self/status"), Listing::default()).unwrap_err();
    assert!(matches!(error, ReadError::UnknownLength), "{error}");
    let names = vec![Name::new("status").unwrap()];
    let some = Source::FilesFrom { base: Arc::new(BaseDir::Local), path: "/proc/self".into(), names };
    assert_eq!(
        steps(Walk::new(some, Listing::default())),
        ["! status: size is reported as 0 but reading returns data (a /proc or /sys file?)"]
    );
    let home = TempDir::new().unwrap();
    fs::write(home.path().join("empty"), "").unwrap();
    assert_eq!(list(home.path().join("empty"), Listing::default()), ["empty 0"]);
}
