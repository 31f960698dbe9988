//! `lfn verify`: reads every file of a manifest again and says which are not what it says.
//!
//! Lines are read one by one and files by several threads, so that neither the length of the manifest nor that of a file is
//! a matter of memory; only `--extra` holds eight bytes for each line. What is wrong is told as it is found.

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::BuildHasher;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use indicatif::{ProgressBar, ProgressDrawTarget};
use lfn_core::transfer::blocks::{DEFAULT_BLOCK, Layout};
use lfn_core::transfer::digest::{Digest, HashTree, hash_block};
use lfn_core::transfer::manifest::{Line, Lines, MAX_LINE};
use lfn_core::transfer::raw::Raw;
use lfn_core::units::Bytes;
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::print;

/// Check files against a manifest, as `b3sum --check` does, several at a time
///
/// MANIFEST is what `lfn copy --manifest` or b3sum has written; - is standard input. Names in it are relative to DIRECTORY.
#[derive(clap::Args, Debug)]
#[command(after_help = "Each file that is not as the manifest says is a line: changed, missing or unreadable, then its
name; with --extra also unlisted. Exit codes: 0 everything is as listed, 1 something is not, or a line cannot be read,
2 usage.")]
pub struct Args {
    /// Lines of a digest and a name
    manifest: PathBuf,
    /// Where the names begin
    #[arg(default_value = ".")]
    directory: PathBuf,
    /// Name files of the directory that the manifest does not list; symbolic links are none
    #[arg(long)]
    extra: bool,
    /// One JSON object a line: each file that is not as listed, then the sums
    #[arg(long)]
    json: bool,
}

/// What is wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Fault {
    Changed,
    Missing,
    Unreadable,
    Unlisted,
}

impl Fault {
    fn word(self) -> &'static str {
        match self {
            Fault::Changed => "changed",
            Fault::Missing => "missing",
            Fault::Unreadable => "unreadable",
            Fault::Unlisted => "unlisted",
        }
    }
}

/// One file that is not as it should be.
#[derive(Serialize)]
struct Wrong {
    name: Raw,
    fault: Fault,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// What came of it.
#[derive(Debug, Default, Serialize)]
struct Sums {
    whole: u64,
    changed: u64,
    missing: u64,
    unreadable: u64,
    unlisted: u64,
    bad_lines: u64,
    bytes: Bytes,
}

#[derive(Serialize)]
struct Json<'a> {
    schema: &'static str,
    #[serde(flatten)]
    sums: &'a Sums,
}

/// Runs the command.
pub fn run(args: Args) -> Result<Exit, Failure> {
    let (mut input, own) = open(&args.manifest)?;
    let about = fs::metadata(&args.directory).map_err(|error| read_error(&args.directory, &error))?;
    if !about.is_dir() {
        return Err(Failure::msg(format_args!("{} is no directory", args.directory.display()))
            .hint("lfn verify MANIFEST DIRECTORY"));
    }
    let report = Report::new(args.json);
    let mut listed = Listed::new(args.extra);
    let workers = thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
    let (sender, lines) = sync_channel(4 * workers);
    let lines = Mutex::new(lines);
    let read = thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| check_all(&lines, &args.directory, &report));
        }
        read(&mut input, sender, &args.manifest, &mut listed, &report)
    });
    read?;
    if args.extra {
        listed.sort();
        look_for_more(&args.directory, own, &listed, &report);
    }
    report.end()
}

/// A manifest, and which file it is.
type Manifest = (Box<dyn BufRead>, Option<(u64, u64)>);

fn open(path: &Path) -> Result<Manifest, Failure> {
    if path.as_os_str() == "-" {
        return Ok((Box::new(BufReader::new(io::stdin())), None));
    }
    let file = File::open(path).map_err(|error| read_error(path, &error))?;
    let about = file.metadata().map_err(|error| read_error(path, &error))?;
    if about.is_dir() {
        return Err(read_error(path, &io::ErrorKind::IsADirectory.into()));
    }
    Ok((Box::new(BufReader::new(file)), Some((about.dev(), about.ino()))))
}

fn read_error(path: &Path, error: &io::Error) -> Failure {
    Failure::msg(format_args!("cannot read {}: {error}", path.display())).hint("lfn verify MANIFEST [DIRECTORY]")
}

/// Most lines that are told one by one as no lines of a manifest; those after them are counted.
const MOST_BAD_LINES: u64 = 10;

/// Reads the manifest and deals its lines out.
fn read(
    input: &mut dyn BufRead,
    lines: SyncSender<Line>,
    path: &Path,
    listed: &mut Listed,
    report: &Report,
) -> Result<(), Failure> {
    let mut parser = Lines::default();
    let mut bytes = Vec::new();
    let (mut some, mut good) = (false, false);
    loop {
        bytes.clear();
        // Of a line that is too long no more is held than shows that it is.
        let most = MAX_LINE as u64 + 2;
        let read = input.take(most).read_until(b'\n', &mut bytes).map_err(|error| read_error(path, &error))?;
        if read == 0 {
            break;
        }
        if bytes.last() != Some(&b'\n') && read as u64 == most {
            skip_line(input).map_err(|error| read_error(path, &error))?;
        }
        some = true;
        match parser.next(&bytes) {
            Ok(line) => {
                good = true;
                listed.add(line.name.as_bytes());
                if lines.send(line).is_err() {
                    break;
                }
            }
            Err(error) => {
                let bad = report.bad_line();
                if bad <= MOST_BAD_LINES {
                    print::talk(format_args!("lfn: {}: {error}\n", path.display()));
                } else if !good {
                    return Err(Failure::msg(format_args!("{} is no manifest", path.display()))
                        .hint("one has lines as b3sum prints them: lfn copy --manifest writes such"));
                }
            }
        }
    }
    if some { Ok(()) } else { Err(Failure::msg(format_args!("{} lists no files", path.display()))) }
}

fn skip_line(input: &mut dyn BufRead) -> io::Result<()> {
    loop {
        let held = input.fill_buf()?;
        let end = held.iter().position(|byte| *byte == b'\n');
        let (length, over) = (end.map_or(held.len(), |at| at + 1), end.is_some() || held.is_empty());
        input.consume(length);
        if over {
            return Ok(());
        }
    }
}

/// What one thread does.
fn check_all(lines: &Mutex<Receiver<Line>>, directory: &Path, report: &Report) {
    let mut buffer = Vec::new();
    loop {
        let next = lines.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(line) = next else { return };
        let path = directory.join(std::ffi::OsStr::from_bytes(line.name.as_bytes()));
        match digest(&path, &mut buffer) {
            Ok((found, bytes)) if found == Some(line.digest) => report.whole(bytes),
            Ok(_) => report.wrong(Wrong { name: line.name, fault: Fault::Changed, why: None }),
            Err(error) => {
                let missing = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
                let fault = if missing { Fault::Missing } else { Fault::Unreadable };
                let why = (!missing).then(|| error.to_string());
                report.wrong(Wrong { name: line.name, fault, why });
            }
        }
    }
}

/// The digest of a file, unless its length changes meanwhile.
fn digest(path: &Path, buffer: &mut Vec<u8>) -> io::Result<(Option<Digest>, Bytes)> {
    // What is no file could keep the reader waiting.
    let about = fs::metadata(path)?;
    if !about.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let file = File::open(path)?;
    let layout = Layout::new(Bytes(file.metadata()?.len()), DEFAULT_BLOCK).map_err(io::Error::other)?;
    buffer.resize(DEFAULT_BLOCK.0 as usize, 0);
    let mut tree = HashTree::new(layout);
    for block in (0..layout.blocks()).filter_map(|index| layout.block(index)) {
        let bytes = &mut buffer[..block.length as usize];
        match file.read_exact_at(bytes, block.offset) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok((None, layout.bytes())),
            result => result?,
        }
        tree.insert(block.index, hash_block(&layout, block, bytes));
    }
    Ok((tree.digest(), layout.bytes()))
}

/// The names of a manifest, by a hash each.
struct Listed {
    hashes: Option<Vec<u64>>,
    hasher: RandomState,
}

impl Listed {
    fn new(wanted: bool) -> Self {
        Listed { hashes: wanted.then(Vec::new), hasher: RandomState::new() }
    }

    fn add(&mut self, name: &[u8]) {
        let hash = self.hash(name);
        if let Some(hashes) = &mut self.hashes {
            hashes.push(hash);
        }
    }

    fn sort(&mut self) {
        if let Some(hashes) = &mut self.hashes {
            hashes.sort_unstable();
        }
    }

    fn has(&self, name: &[u8]) -> bool {
        let hash = self.hash(name);
        self.hashes.as_ref().is_some_and(|hashes| hashes.binary_search(&hash).is_ok())
    }

    /// `./a//b` is `a/b`.
    fn hash(&self, name: &[u8]) -> u64 {
        let parts = name.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
        self.hasher.hash_one(parts.collect::<Vec<_>>())
    }
}

/// Names what is in the directory and not in the manifest, which may stand there itself.
fn look_for_more(directory: &Path, own: Option<(u64, u64)>, listed: &Listed, report: &Report) {
    let mut left = vec![PathBuf::new()];
    while let Some(inside) = left.pop() {
        let name = |path: &Path| Raw::from(path.as_os_str().as_bytes());
        let unreadable = |error: io::Error| {
            report.wrong(Wrong { name: name(&inside), fault: Fault::Unreadable, why: Some(error.to_string()) })
        };
        let entries = match fs::read_dir(directory.join(&inside)) {
            Ok(entries) => entries,
            Err(error) => {
                unreadable(error);
                continue;
            }
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    unreadable(error);
                    break;
                }
            };
            let path = inside.join(entry.file_name());
            let kind = entry.file_type();
            if kind.as_ref().is_ok_and(fs::FileType::is_dir) {
                left.push(path);
                continue;
            }
            // Nothing is in it that a manifest could say.
            if kind.is_ok_and(|kind| kind.is_symlink()) {
                continue;
            }
            let is_manifest = entry.metadata().is_ok_and(|about| Some((about.dev(), about.ino())) == own);
            if !is_manifest && !listed.has(path.as_os_str().as_bytes()) {
                report.wrong(Wrong { name: name(&path), fault: Fault::Unlisted, why: None });
            }
        }
    }
}

/// What is told, and counted, by all threads.
struct Report {
    json: bool,
    sums: Mutex<Sums>,
    bar: ProgressBar,
}

impl Report {
    fn new(json: bool) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        Report { json, sums: Mutex::default(), bar }
    }

    fn whole(&self, bytes: Bytes) {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        sums.whole += 1;
        sums.bytes = Bytes(sums.bytes.0.saturating_add(bytes.0));
        if !self.bar.is_hidden() {
            self.bar.set_message(format!("{} files, {}", sums.whole, sums.bytes));
            self.bar.tick();
        }
    }

    /// Counts a line that is none of a manifest, and says how many there were.
    fn bad_line(&self) -> u64 {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        sums.bad_lines += 1;
        sums.bad_lines
    }

    fn wrong(&self, wrong: Wrong) {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        *match wrong.fault {
            Fault::Changed => &mut sums.changed,
            Fault::Missing => &mut sums.missing,
            Fault::Unreadable => &mut sums.unreadable,
            Fault::Unlisted => &mut sums.unlisted,
        } += 1;
        // A reader that closed the pipe has read enough; the bar makes room meanwhile.
        let _ = self.bar.suspend(|| self.say(wrong));
    }

    fn say(&self, wrong: Wrong) -> io::Result<()> {
        if self.json {
            let mut out = print::json();
            serde_json::to_writer(&mut out, &wrong)?;
            return writeln!(out);
        }
        let why = wrong.why.map(|why| format!(" ({why})")).unwrap_or_default();
        writeln!(print::out(), "{:<12}{}{why}", wrong.fault.word(), wrong.name)
    }

    fn end(self) -> Result<Exit, Failure> {
        self.bar.finish_and_clear();
        let sums = self.sums.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Sums { whole, changed, missing, unreadable, unlisted, bad_lines, bytes } = sums;
        if self.json {
            let mut out = print::json();
            serde_json::to_writer(&mut out, &Json { schema: "lfn.verify/1", sums: &sums })?;
            writeln!(out)?;
        } else {
            let others = [
                (changed, "changed"),
                (missing, "missing"),
                (unreadable, "unreadable"),
                (unlisted, "unlisted"),
                (bad_lines, "lines not understood"),
            ];
            let others = others.iter().filter(|(count, _)| *count > 0);
            let others: String = others.map(|(count, what)| format!(", {count} {what}")).collect();
            writeln!(print::out(), "{whole} files whole ({bytes}){others}")?;
        }
        Ok(if changed + missing + unreadable + unlisted + bad_lines == 0 { Exit::Ok } else { Exit::Failed })
    }
}
