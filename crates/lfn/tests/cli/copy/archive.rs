//! `--archive` compared with rsync: both copy the same tree, and modes, owners, times, attributes, names and holes must
//! match.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags, lgetxattr, llistxattr, setxattr, utimensat};
use serde_json::json;

use super::{Pair, is_root, text, write};
use crate::support::missing_program;
use crate::support::skip::{Missing, skip};

/// Mode of a set-user-ID file in the tree, and its mode without this bit.
const SET_ID: (&str, &str) = ("104775 ", "100775 ");

/// Creates one entry of every type and attribute.
fn create_files(root: &Path) {
    let at = |name: &str| root.join(name);
    for name in ["", "plain", "passes on", "closed", "plain/deep"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    for (name, length) in
        [("empty", 0), ("small", 1000), ("plain/large", 3_000_001), ("plain/read only", 5), ("closed/x", 70_000)]
    {
        write(&at(name), length);
    }
    write(&root.join(OsStr::from_bytes(b"odd \xff\n\\")), 10);
    for (target, link) in [("small", "link"), ("/nowhere", "plain/dangling"), ("..", "plain/up")] {
        symlink(target, at(link)).unwrap();
    }
    for (file, name) in
        [("plain/large", "again"), ("small", "plain/deep/again"), ("small", "closed/again"), ("empty", "nothing")]
    {
        fs::hard_link(at(file), at(name)).unwrap();
    }
    let holes = File::create(at("holes")).unwrap();
    holes.set_len(9_000_000).unwrap();
    for offset in [0, 4_000_000, 8_000_001] {
        holes.write_all_at(b"data", offset).unwrap();
    }
    File::create(at("plain/only a hole")).unwrap().set_len(50_000).unwrap();
    for (name, value) in [("small", "red"), ("plain", "green"), ("plain/read only", "blue"), ("empty", "")] {
        set(&at(name), "user.color", value);
    }
    if is_root() {
        set(&at("small"), "trusted.lfn", "of root");
        chown(at("small"), Some(12_345), Some(54_321)).unwrap();
        chown(at("plain/deep"), Some(1), Some(1)).unwrap();
        lchown(at("link"), Some(2), Some(2)).unwrap();
    }
    if let Some(missing) = missing_program(&["setfacl"]) {
        skip("access control lists of copy::archive", &missing);
    } else {
        for (entry, acl) in [("plain/large", "u:1:rwx"), ("passes on", "g:1:r-x"), ("passes on", "d:u:2:rwx")] {
            let status = Command::new("setfacl").args(["-m", acl]).arg(at(entry)).status();
            assert!(status.unwrap().success(), "{entry}: {acl}");
        }
    }
    for (name, mode) in
        [("small", 0o666), ("plain/read only", 0o444), ("closed", 0o2555), ("plain/large", 0o4775), ("plain", 0o1777)]
    {
        fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
    }
    let mut seconds = 1_000_000_000;
    for name in [
        "link",
        "plain/dangling",
        "plain/up",
        "small",
        "plain/large",
        "holes",
        "plain/deep",
        "plain",
        "closed",
        "passes on",
        "",
    ] {
        seconds += 1000;
        let time = Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, at(name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

fn set(path: &Path, name: &str, value: &str) {
    setxattr(path, name, value.as_bytes(), XattrFlags::empty()).unwrap();
}

/// Returns the compared properties of every entry by path.
fn facts(root: &Path) -> BTreeMap<String, String> {
    let (mut facts, mut first_names) = (BTreeMap::new(), BTreeMap::new());
    look(root, root, &mut facts, &mut first_names);
    facts
}

fn look(root: &Path, path: &Path, facts: &mut BTreeMap<String, String>, first: &mut BTreeMap<u64, String>) {
    let meta = fs::symlink_metadata(path).unwrap();
    let name = format!("{:?}", path.strip_prefix(root).unwrap());
    let mut fact = format!("{:o} {}:{} {}.{}", meta.mode(), meta.uid(), meta.gid(), meta.mtime(), meta.mtime_nsec());
    if meta.is_file() {
        let first = first.entry(meta.ino()).or_insert_with(|| name.clone());
        fact += &format!(" {} B, is {first}, blake3 {}", meta.len(), blake3::hash(&fs::read(path).unwrap()));
    }
    if meta.is_symlink() {
        fact += &format!(" to {:?}", fs::read_link(path).unwrap());
    }
    let (mut list, mut value) = (vec![0; 65_536], vec![0; 65_536]);
    let length = llistxattr(path, &mut list[..]).unwrap();
    let mut names: Vec<_> = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort();
    for name in names {
        let length = lgetxattr(path, name, &mut value[..]).unwrap();
        fact += &format!(" {}={:?}", String::from_utf8_lossy(name), &value[..length]);
    }
    facts.insert(name, fact);
    if meta.is_dir() {
        let mut entries: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        entries.iter().for_each(|entry| look(root, entry, facts, first));
    }
}

#[track_caller]
fn same(ours: &Path, theirs: &Path, lost: &[(&str, &str)]) {
    let (ours, mut theirs) = (facts(ours), facts(theirs));
    for fact in theirs.values_mut() {
        if let Some((mode, without)) = lost.iter().find(|(mode, _)| fact.starts_with(mode)) {
            *fact = fact.replacen(mode, without, 1);
        }
    }
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    for (name, fact) in ours {
        assert_eq!(fact, theirs[&name], "{name}");
    }
}

/// Sparse files use as little space as with rsync, except for one page at each end of the written data.
#[track_caller]
fn assert_as_sparse(ours: &Path, theirs: &Path) {
    for name in ["holes", "plain/only a hole"] {
        let [ours, theirs] = [ours, theirs].map(|root| fs::metadata(root.join(name)).unwrap().blocks());
        assert!(ours <= theirs + 64, "{name}: {ours} blocks of 512 B, rsync's has {theirs}");
    }
}

fn rsync(test: &str, args: &[&str], from: &Path, to: &Path) -> bool {
    if let Some(missing) = missing_program(&["rsync"]) {
        skip(test, &missing);
        return false;
    }
    let from = format!("{}/", from.display());
    let output = Command::new("rsync").args(args).arg(from).arg(to).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    to.exists()
}

/// A temporary directory cannot be removed while it has read-only directories.
fn make_removable(root: &Path) {
    for name in ["closed", "tree/closed"] {
        if root.join(name).exists() {
            fs::set_permissions(root.join(name), Permissions::from_mode(0o755)).unwrap();
        }
    }
}

#[test]
fn archive_preserves_what_rsync_preserves() {
    let pair = Pair::new();
    create_files(&pair.near("tree"));
    let oracle = pair.home.path().join("oracle");
    if !rsync("archive_preserves_what_rsync_preserves", &["-aHAXS"], &pair.near("tree"), &oracle) {
        return;
    }
    let up = pair.copies(&["-a", "tree", "far:", "--block-size", "64KiB"]);
    // A server drops set-ID bits from peers, and does not let peers set root's own attributes.
    let unkept = if is_root() {
        json!({"owners": 0, "xattrs": 1, "acls": 0})
    } else {
        json!({"owners": 0, "xattrs": 0, "acls": 0})
    };
    assert_eq!(up["counts"]["not_preserved"], unkept, "{up}");
    if is_root() {
        setxattr(pair.far("tree/small"), "trusted.lfn", b"of root", XattrFlags::empty()).unwrap();
    }
    same(&pair.far("tree"), &oracle, &[SET_ID, ("42555 ", "40555 ")]);
    assert_as_sparse(&pair.far("tree"), &oracle);
    for (name, mode) in [("plain/large", 0o4775), ("closed", 0o2555)] {
        fs::set_permissions(pair.far("tree").join(name), Permissions::from_mode(mode)).unwrap();
    }
    // They are preserved on one's own host, except the set-user-ID bit without root.
    let lost: &[_] = if is_root() { &[] } else { &[SET_ID] };
    let down = pair.copies(&["-a", "far:tree/", "back", "--block-size", "64KiB"]);
    assert_eq!(down["counts"]["not_preserved"], json!({"owners": 0, "xattrs": 0, "acls": 0}));
    same(&pair.near("back"), &oracle, lost);
    assert_as_sparse(&pair.near("back"), &oracle);
    // Changed attributes of an existing file are corrected without sending the file.
    fs::set_permissions(pair.near("back/small"), Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(pair.near("back/plain"), Permissions::from_mode(0o700)).unwrap();
    set(&pair.near("back/empty"), "user.color", "another");
    let again = pair.copies(&["-a", "far:tree/", "back"]);
    assert_eq!(again["counts"]["files"], 0);
    same(&pair.near("back"), &oracle, lost);
    ["near/tree", "near/back", "far", "oracle"].iter().for_each(|root| make_removable(&pair.home.path().join(root)));
}

/// Without an option, no attribute is preserved.
#[test]
fn each_attribute_option_works_alone() {
    let pair = Pair::new();
    let tree = pair.near("tree");
    fs::create_dir_all(tree.join("d")).unwrap();
    for name in ["a", "d/own"] {
        write(&tree.join(name), 100_000);
        fs::set_permissions(tree.join(name), Permissions::from_mode(0o666)).unwrap();
        set(&tree.join(name), "user.color", "red");
    }
    fs::hard_link(tree.join("a"), tree.join("b")).unwrap();
    symlink("a", tree.join("l")).unwrap();
    File::create(tree.join("h")).unwrap().set_len(3_000_000).unwrap();
    if is_root() {
        chown(tree.join("a"), Some(12_345), Some(12_345)).unwrap();
    }
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::open(tree.join("d")).unwrap().set_modified(old).unwrap();
    for flags in [&[][..], &["-l"], &["-H"], &["-p"], &["-o"], &["-X"], &["-A"], &["-S"]] {
        let to = format!("to{}", flags.concat());
        let output = pair.copy(&[&["tree/", &format!("far:{to}")], flags].concat());
        assert!(output.status.success(), "{flags:?}: {}", text(&output.stderr));
        let meta = |name: &str| fs::symlink_metadata(pair.far(&to).join(name));
        let has = |flag: &str| flags.contains(&flag);
        assert_eq!(meta("l").is_ok(), has("-l"), "{flags:?}");
        assert_eq!(text(&output.stderr).contains("1 symbolic link skipped"), !has("-l"), "{flags:?}");
        assert_eq!(meta("a").unwrap().ino() == meta("b").unwrap().ino(), has("-H"), "{flags:?}");
        assert_eq!(meta("a").unwrap().mode() & 0o777 == 0o666, has("-p"), "{flags:?}");
        assert_eq!(meta("a").unwrap().uid() == 12_345, has("-o") && is_root(), "{flags:?}");
        let color = lgetxattr(pair.far(&to).join("a"), "user.color", &mut [0; 10][..]);
        assert_eq!(color.is_ok(), has("-X"), "{flags:?}");
        assert_eq!(meta("h").unwrap().blocks() < 100, has("-S"), "{flags:?}");
        assert_eq!((meta("h").unwrap().len(), meta("d").unwrap().mtime()), (3_000_000, 1_000_000_000));
    }
    // For `null:`, holes need no option.
    for null in ["far:null:", "null:"] {
        assert_eq!(pair.copies(&["-S", "tree/h", null])["counts"]["files"], 1);
    }
}

#[test]
fn special_files_are_skipped_and_counted() {
    let pair = Pair::new();
    fs::create_dir(pair.near("tree")).unwrap();
    write(&pair.near("tree/a"), 10);
    for name in ["one", "two"] {
        assert!(Command::new("mkfifo").arg(pair.near("tree").join(name)).status().unwrap().success());
    }
    let output = pair.copy(&["-a", "tree", "far:"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stderr), "lfn: 2 devices, FIFOs or sockets skipped; special files are never copied\n");
    // The far end counts them too.
    assert!(Command::new("mkfifo").arg(pair.far("tree/p")).status().unwrap().success());
    let down = pair.copies(&["far:tree/", "missing"]);
    assert_eq!(down["not_copied"], json!({"links": 0, "special": 1}));
    assert!(pair.near("missing/a").is_file());
}

/// The attributes exceed the limit that both ends hold at a time.
#[test]
fn tree_with_many_attributes_is_copied() {
    const FILES: usize = 9_500;
    let pair = Pair::new();
    let (rich, value) = (pair.near("rich"), "x".repeat(3_700));
    fs::create_dir(&rich).unwrap();
    for n in 0..FILES {
        let path = rich.join(n.to_string());
        fs::write(&path, "1").unwrap();
        set(&path, "user.color", &format!("{n} {value}"));
    }
    let report = pair.copies(&["--archive", "--fsync", "none", "rich", "far:"]);
    assert_eq!((&report["counts"]["files"], &report["counts"]["failed"]), (&FILES.into(), &0.into()));
    let mut color = [0; 10_000];
    for n in [0, 7, FILES / 2, FILES - 1] {
        let length = lgetxattr(pair.far("rich").join(n.to_string()), "user.color", &mut color[..]).unwrap();
        assert_eq!(text(&color[..length]), format!("{n} {value}"));
    }
}

/// Existing files lose attributes that the source does not have. Without the option they keep them.
#[test]
fn surplus_attributes_are_removed_like_rsync() {
    for up in [true, false] {
        let pair = Pair::new();
        let (source, there) =
            if up { (pair.near("src"), pair.far("dst")) } else { (pair.far("src"), pair.near("dst")) };
        let rival = pair.near("rival");
        fs::create_dir_all(source.join("d")).unwrap();
        for name in ["a", "newer"] {
            write(&source.join(name), 10);
        }
        set(&source.join("a"), "user.kept", "1");
        for copy in [&there, &rival] {
            assert!(Command::new("cp").arg("-a").arg(&source).arg(copy).status().unwrap().success());
            set(&copy.join("a"), "user.kept", "2");
            for name in ["a", "d", "newer"] {
                set(&copy.join(name), "user.surplus", "x");
            }
            // A server's root belongs to the server, so its attributes stay.
            if is_root() && !up {
                set(&copy.join("a"), "trusted.surplus", "x");
            }
            write(&copy.join("newer"), 11);
            let later = SystemTime::now() + Duration::from_secs(3600);
            File::open(copy.join("newer")).unwrap().set_modified(later).unwrap();
        }
        let [from, to] = if up { ["src/", "far:dst"] } else { ["far:src/", "dst"] };
        let before = facts(&there);
        pair.copies(&["-u", "-p", from, to]);
        assert!(facts(&there)["\"a\""].contains("user.surplus") && before.len() == 4);
        pair.copies(&["-u", "-p", "-X", from, to]);
        if rsync("surplus_attributes_are_removed_like_rsync", &["-u", "-rltpX"], &source, &rival) {
            let attributes = |root: &Path| {
                let facts = facts(root).into_iter();
                facts.map(|(name, fact)| (name, fact.split(" user.").skip(1).map(str::to_owned).collect())).collect()
            };
            let [ours, theirs]: [BTreeMap<String, Vec<String>>; 2] = [attributes(&there), attributes(&rival)];
            assert_eq!(ours, theirs);
        }
        let facts = facts(&there);
        assert!(facts["\"a\""].contains("user.kept=[49]") && !facts["\"a\""].contains("surplus"), "{facts:?}");
        assert!(!facts["\"d\""].contains("surplus") && facts["\"newer\""].contains("surplus"), "{facts:?}");
    }
}

/// A directory without search permission for its owner still gets its attributes.
#[test]
fn directories_without_owner_rights_are_copied() {
    let pair = Pair::new();
    let modes = [("a", 0o400), ("b", 0o600), ("c", 0o200)];
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for (name, _) in modes {
        let path = pair.near("src").join(name);
        fs::create_dir_all(&path).unwrap();
        File::open(&path).unwrap().set_modified(old).unwrap();
    }
    let close = |root: &Path, open: bool| {
        for (name, mode) in modes {
            fs::set_permissions(root.join(name), Permissions::from_mode(if open { 0o700 } else { mode })).unwrap();
        }
    };
    close(&pair.near("src"), false);
    // For an ordinary user, only the unreadable directory is reported.
    let reported = if is_root() { 0 } else { 1 };
    for (flags, round) in [(&["-p"][..], 1), (&["-p"], 2), (&[], 3)] {
        let output = pair.copy(&[flags, &["src/", "dst"]].concat());
        let errors = text(&output.stderr);
        assert_eq!(
            (output.status.code(), errors.lines().count()),
            (Some(reported), reported as usize),
            "{round}: {errors}"
        );
        for (name, mode) in modes {
            let facts = fs::metadata(pair.near("dst").join(name)).unwrap();
            assert_eq!((facts.mtime(), facts.mode() & 0o7777), (1_000_000_000, mode), "{round} {name}");
        }
    }
    [pair.near("src"), pair.near("dst")].iter().for_each(|root| close(root, true));
}

/// A dataset that is read-only and still grows and shrinks: as with rsync, the next copy makes closed directories
/// writable and restores them.
#[test]
fn read_only_directories_are_writable_for_next_copy() {
    let close = |root: &Path, mode| {
        let many = (0..80).map(|n| format!("sub/n{n}"));
        for path in ["", "sub", "extra"].map(str::to_owned).into_iter().chain(many).map(|name| root.join(name)) {
            if path.exists() {
                fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            }
        }
    };
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    for (flags, to) in [(&["-a"][..], "far:p"), (&[], "far:q"), (&["-a"], "here"), (&[], "there")] {
        let pair = Pair::new();
        let (tree, there) = (pair.near("tree"), to.strip_prefix("far:").map_or(pair.near(to), |far| pair.far(far)));
        let copy = |more: &[&str]| {
            close(&tree, 0o555);
            let output = pair.copy(&[flags, more, &["tree/", to]].concat());
            close(&tree, 0o755);
            assert!(output.status.success() && output.stderr.is_empty(), "{to}: {}", text(&output.stderr));
            assert_eq!((mode(&there), mode(&there.join("sub"))), (0o555, 0o555), "{to}");
        };
        fs::create_dir_all(tree.join("sub")).unwrap();
        write(&tree.join("sub/a"), 10);
        let many: Vec<_> = (0..80).map(|n| format!("sub/n{n}")).collect();
        for name in &many {
            fs::create_dir(tree.join(name)).unwrap();
            write(&tree.join(name).join("gone"), 10);
        }
        fs::create_dir(tree.join("extra")).unwrap();
        write(&tree.join("extra/e"), 10);
        set(&tree.join("sub/a"), "user.color", "red");
        fs::set_permissions(tree.join("sub/a"), Permissions::from_mode(0o444)).unwrap();
        copy(&[]);
        write(&tree.join("b"), 10);
        write(&tree.join("sub/b"), 3_000_000);
        fs::remove_dir_all(tree.join("extra")).unwrap();
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        for name in &many {
            fs::remove_file(tree.join(name).join("gone")).unwrap();
            File::open(tree.join(name)).unwrap().set_modified(old).unwrap();
        }
        copy(&["--delete"]);
        for path in many.iter().map(|name| there.join(name)) {
            let facts = fs::metadata(&path).unwrap();
            let seen = (facts.mtime(), mode(&path), fs::read_dir(&path).unwrap().count());
            assert_eq!(seen, (1_000_000_000, 0o555, 0), "{to}: {}", path.display());
        }
        assert!(there.join("b").is_file() && there.join("sub/b").is_file() && !there.join("extra").exists(), "{to}");
        // Another program removed the permission of a directory that is writable at the source.
        write(&tree.join("sub/c"), 10);
        close(&there, 0o555);
        let output = pair.copy(&["tree/", to]);
        assert_eq!(output.status.code(), Some(if is_root() { 0 } else { 1 }), "{to}: {}", text(&output.stderr));
        assert_eq!((mode(&there.join("sub")), there.join("sub/c").exists()), (0o555, is_root()), "{to}");
        close(&there, 0o755);
    }
}

#[test]
fn checksum_sets_time_of_equal_files() {
    for flags in [&[][..], &["-p"], &["-X"], &["-o"], &["-A"], &["-a"]] {
        let pair = Pair::new();
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        for root in ["src", "dst"] {
            fs::create_dir(pair.near(root)).unwrap();
            write(&pair.near(root).join("a"), 10);
        }
        File::options().write(true).open(pair.near("src/a")).unwrap().set_modified(old).unwrap();
        let report = pair.copies(&[flags, &["--checksum", "src/", "dst"]].concat());
        assert_eq!(report["counts"]["files"], 0, "{report}");
        assert_eq!(fs::metadata(pair.near("dst/a")).unwrap().mtime(), 1_000_000_000, "{flags:?}");
    }
}

/// A file with several hard links at the source, where some names are newer files at the destination. The newer files
/// stay, as with rsync.
#[test]
fn newer_file_is_not_replaced_by_a_hard_link() {
    const OLD: u64 = 1_000_000_000;
    let dated = |path: &Path, content: &str, seconds: u64| {
        fs::write(path, content).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    };
    // The existing entries, and whether the rest can be copied. Data that rsync sends twice is not sent here.
    for (there, whole) in [
        (&[("y", "newer", OLD + 1)][..], true),
        (&[("z", "newer", OLD + 1)], true),
        (&[("y", "newer", OLD + 1), ("z", "older", OLD - 1)], true),
        (&[("x", "older", OLD - 1), ("y", "newer one", OLD + 1)], true),
        (&[("x", "newer", OLD + 1), ("y", "source", OLD), ("z", "source", OLD)], true),
        (&[("x", "newer", OLD + 1), ("y", "newer", OLD + 2), ("z", "another", OLD + 1)], true),
        (&[("x", "newer", OLD + 1)], false),
        (&[("x", "newer", OLD + 1), ("y", "older", OLD - 1), ("z", "newer", OLD + 1)], false),
    ] {
        let pair = Pair::new();
        for root in ["src", "dst", "rival"] {
            fs::create_dir(pair.near(root)).unwrap();
        }
        dated(&pair.near("src/x"), "source", OLD);
        fs::hard_link(pair.near("src/x"), pair.near("src/y")).unwrap();
        fs::hard_link(pair.near("src/x"), pair.near("src/z")).unwrap();
        for (name, content, seconds) in there {
            dated(&pair.near("dst").join(name), content, *seconds);
            dated(&pair.near("rival").join(name), content, *seconds);
        }
        for flags in [&["-n"][..], &["--manifest", "m"]] {
            let output = pair.copy(&[flags, &["-a", "-u", "src/", "dst"]].concat());
            let errors = text(&output.stderr);
            assert_eq!(output.status.code(), Some(if whole { 0 } else { 1 }), "{there:?}: {errors}");
            assert!(whole || errors.contains("the target of the hard link is newer at the destination"));
        }
        let all = |root: &str| ["x", "y", "z"].map(|name| fs::read_to_string(pair.near(root).join(name)).ok());
        for (name, content, seconds) in there {
            let stays = *seconds > OLD || !whole;
            assert!(!stays || fs::read_to_string(pair.near("dst").join(name)).unwrap() == *content, "{there:?} {name}");
        }
        if whole {
            let manifest = fs::read_to_string(pair.near("m")).unwrap();
            for line in manifest.lines() {
                let (digest, name) = line.split_once("  ").unwrap();
                let bytes = fs::read(pair.near("dst").join(name)).unwrap();
                assert_eq!(digest, blake3::hash(&bytes).to_hex().as_str(), "{there:?} {manifest}");
            }
            // Here rsync replaces the newer file: a replacement of the first name also replaces the others.
            if rsync("newer_file_is_not_replaced_by_a_hard_link", &["-aHu"], &pair.near("src"), &pair.near("rival"))
                && there[0] != ("x", "older", OLD - 1)
            {
                assert_eq!(all("dst"), all("rival"), "{there:?}");
            }
        }
    }
}

#[test]
fn existing_symlink_gets_preserved_attributes() {
    let pair = Pair::new();
    for (place, seconds) in [(pair.near("t"), 1000), (pair.far("t"), 2000)] {
        fs::create_dir(&place).unwrap();
        symlink("nowhere", place.join("l")).unwrap();
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, place.join("l"), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
    if is_root() {
        lchown(pair.near("t/l"), Some(2), Some(2)).unwrap();
    }
    let report = pair.copies(&["-a", "t/", "far:t"]);
    assert_eq!(report["counts"]["links"], 0, "{report}");
    let facts = |path| fs::symlink_metadata(path).map(|stat| (stat.mtime(), stat.uid(), stat.gid())).unwrap();
    assert_eq!(facts(pair.far("t/l")), facts(pair.near("t/l")));
}

/// An ACL with a user that this user namespace does not have cannot be set. The file must still be copied.
#[test]
fn acl_with_unknown_users_is_counted_not_fatal() {
    let pair = Pair::new();
    fs::create_dir(pair.near("t")).unwrap();
    let content = write(&pair.near("t/a"), 10);
    if let Some(missing) = missing_program(&["setfacl", "unshare"]) {
        return skip("acl_with_unknown_users_is_counted_not_fatal", &missing);
    }
    let set = Command::new("setfacl").args(["-m", "u:1:rwx"]).arg(pair.near("t/a")).status();
    if !set.is_ok_and(|status| status.success()) {
        let missing = Missing::Feature("access control lists in the temporary directory");
        return skip("acl_with_unknown_users_is_counted_not_fatal", &missing);
    }
    let script = "ip link set lo up && exec \"$0\" copy --json -A t u";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "sh", "-c", script]).arg(crate::support::lfn_path());
    command.env("PATH", crate::support::path_with_servers());
    let output = command.current_dir(pair.near("")).output().unwrap();
    let errors = text(&output.stderr);
    if errors.starts_with("unshare: ") {
        return skip("acl_with_unknown_users_is_counted_not_fatal", &Missing::Feature("namespaces"));
    }
    assert!(output.status.success(), "{errors}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["counts"]["not_preserved"]["acls"], 1, "{report}");
    assert_eq!(fs::read(pair.near("u/t/a")).or_else(|_| fs::read(pair.near("u/a"))).unwrap(), content);
}

/// A copy that read, hashed or wrote the zeros would run into the time limit of the test.
#[test]
fn holes_of_a_tebibyte_are_not_read() {
    let pair = Pair::new();
    let (middle, length) = ((600 << 30) + 77, 1 << 40);
    let file = File::create(pair.near("t")).unwrap();
    file.set_len(length).unwrap();
    file.write_all_at(b"middle", middle).unwrap();
    file.write_all_at(b"end", length - 3).unwrap();
    for verify in ["blake3", "xxh3", "off"] {
        for places in [["t", "far:t"], ["far:t", "back"], ["t", "local"]] {
            let report = pair.copies(&[&["-aS", "--verify", verify], &places[..]].concat());
            assert_eq!(report["bytes"], length, "{report}");
            // The rest of their blocks is data.
            assert_eq!(report["moved_bytes"], 2 << 20, "{report}");
        }
        for copy in [pair.far("t"), pair.near("back"), pair.near("local")] {
            let copy = File::open(copy).unwrap();
            let (mut read, meta) = ([0; 9], copy.metadata().unwrap());
            copy.read_exact_at(&mut read[..6], middle).unwrap();
            copy.read_exact_at(&mut read[6..], length - 3).unwrap();
            assert_eq!((meta.len(), &read), (length, b"middleend"));
            assert!(meta.blocks() < 10_000, "{}", meta.blocks());
        }
        for copy in [pair.far("t"), pair.near("back"), pair.near("local")] {
            fs::remove_file(copy).unwrap();
        }
    }
}
