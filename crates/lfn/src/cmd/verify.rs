//! `lfn verify`: reads every file of a manifest and reports the files that differ.
//!
//! Lines are read one by one and files by several threads. So memory does not grow with the manifest or with the files.
//! Only `--unlisted` needs eight bytes per line. Differences are printed as they are found.

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::BuildHasher;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use lfn_api::documents::{FileDifference, FileStatus, VerifyCounts, VerifyDocument, VerifySchema};
use lfn_base::units::Bytes;
use lfn_copy::proto::manifest::{MAX_LINE, ManifestLine, ManifestReader};
use lfn_session::wire::copy::blocks::{DEFAULT_BLOCK, Layout};
use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::digest::{Digest, HashTree, hash_block};
use parking_lot::Mutex;

use crate::cli::output::{OutputArgs, TextOrLines};
use crate::exit::{Exit, Failure, without_error_number};
use crate::print;
use crate::print::output::{Output, OutputFormat, print_document};
use crate::print::progress::{Figures, Progress, ProgressPrinter};
use crate::print::settings::is_quiet;

/// Check files against a manifest, like `b3sum --check`, several files at a time
///
/// MANIFEST is the output of `lfn copy --manifest` or of b3sum; - reads standard input. Its names are relative to
/// DIRECTORY.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Prints one line for each file that differs: changed, missing or unreadable (with --unlisted also unlisted), then \
its name. Exit codes: 0 all files match, 1 a file differs or a line is invalid, 2 usage."
)]
pub struct VerifyArgs {
    /// File with one digest and one name per line
    manifest: PathBuf,
    /// Directory of the files
    #[arg(default_value = ".")]
    directory: PathBuf,
    /// Report files in DIRECTORY that the manifest does not list, too; symbolic links are ignored
    #[arg(long)]
    unlisted: bool,
    #[command(flatten)]
    output: OutputArgs<TextOrLines>,
}

/// Runs `lfn verify` and returns its exit code.
pub fn run(args: VerifyArgs) -> Result<Exit, Failure> {
    let output = args.output.open()?;
    let (mut input, manifest_id) = open(&args)?;
    let metadata = fs::metadata(&args.directory).map_err(|error| {
        let what = format!("cannot read {}: {}", args.directory.display(), without_error_number(&error.to_string()));
        Failure::msg(what).hint("give the directory with the files of the manifest; without it, the current directory")
    })?;
    if !metadata.is_dir() {
        return Err(
            Failure::msg(format_args!("{} is not a directory", args.directory.display())).hint(directory_hint(&args))
        );
    }
    let report = Report::new(&output, args.output.report().is_some());
    let mut listed = ListedNames::new(args.unlisted);
    let workers = thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
    let (sender, lines) = sync_channel(4 * workers);
    let lines = Mutex::new(lines);
    let read = thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| check_all(&lines, &args.directory, &report));
        }
        read_manifest(&mut input, sender, &args.manifest, &mut listed, &report)
    });
    read?;
    if args.unlisted {
        listed.sort();
        report_unlisted(&args.directory, manifest_id, &listed, &report);
    }
    report.end(output)
}

/// Reader of a manifest, and the device and inode of its file.
type Manifest = (Box<dyn BufRead>, Option<(u64, u64)>);

fn open(args: &VerifyArgs) -> Result<Manifest, Failure> {
    let path = &args.manifest;
    if path.as_os_str() == "-" {
        return Ok((Box::new(BufReader::new(io::stdin())), None));
    }
    let file = File::open(path).map_err(|error| read_error(path, &error))?;
    let metadata = file.metadata().map_err(|error| read_error(path, &error))?;
    if metadata.is_dir() {
        let failure = read_error(path, &io::ErrorKind::IsADirectory.into());
        let is_swapped = args.directory.is_file();
        let (directory, manifest) = (path.display(), args.directory.display());
        return Err(if is_swapped { failure.hint(format!("lfn verify {manifest} {directory}")) } else { failure });
    }
    Ok((Box::new(BufReader::new(file)), Some((metadata.dev(), metadata.ino()))))
}

fn read_error(path: &Path, error: &io::Error) -> Failure {
    let cause = without_error_number(&error.to_string());
    Failure::msg(format_args!("cannot read {}: {cause}", path.display())).hint(match error.kind() {
        io::ErrorKind::PermissionDenied => "check the permissions of the manifest",
        _ => "give the manifest that `lfn copy --manifest` or b3sum wrote",
    })
}

/// Returns the hint if DIRECTORY is a file.
fn directory_hint(args: &VerifyArgs) -> String {
    let above = args.directory.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    format!("lfn verify {} {}", args.manifest.display(), above.display())
}

/// Maximum number of invalid lines that are printed. Further ones are only counted.
const MAX_REPORTED_LINES: u64 = 10;

/// Reads the manifest and sends its lines to the threads.
fn read_manifest(
    input: &mut dyn BufRead,
    lines: SyncSender<ManifestLine>,
    path: &Path,
    listed: &mut ListedNames,
    report: &Report,
) -> Result<(), Failure> {
    let mut parser = ManifestReader::default();
    let mut bytes = Vec::new();
    let (mut has_lines, mut has_valid_line) = (false, false);
    // A file without any valid line is one error, not one for each line.
    let mut held_back = Vec::new();
    loop {
        bytes.clear();
        // Of a line that is too long, only the part that shows this is kept.
        let max_bytes = MAX_LINE as u64 + 2;
        let read = input.take(max_bytes).read_until(b'\n', &mut bytes).map_err(|error| read_error(path, &error))?;
        if read == 0 {
            break;
        }
        if bytes.last() != Some(&b'\n') && read as u64 == max_bytes {
            skip_line(input).map_err(|error| read_error(path, &error))?;
        }
        has_lines = true;
        match parser.next(&bytes) {
            Ok(line) => {
                has_valid_line = true;
                held_back.drain(..).for_each(|text: String| print::message(text));
                listed.add(line.name.as_bytes());
                if lines.send(line).is_err() {
                    break;
                }
            }
            Err(error) => {
                let bad = report.bad_line();
                let text = format!("lfn: {}: {error}\n", path.display());
                match has_valid_line {
                    true if bad <= MAX_REPORTED_LINES => print::error(text),
                    false if bad <= MAX_REPORTED_LINES => held_back.push(text),
                    false => return Err(not_a_manifest(path)),
                    true => {}
                }
            }
        }
    }
    if !held_back.is_empty() {
        return Err(not_a_manifest(path));
    }
    if has_lines { Ok(()) } else { Err(Failure::msg(format_args!("{} lists no files", path.display()))) }
}

fn not_a_manifest(path: &Path) -> Failure {
    Failure::msg(format_args!("{} is not a manifest file", path.display()))
        .hint("give a file that `lfn copy --manifest` or b3sum wrote")
}

fn skip_line(input: &mut dyn BufRead) -> io::Result<()> {
    loop {
        let buffered = input.fill_buf()?;
        let end = buffered.iter().position(|byte| *byte == b'\n');
        let (length, is_end) = (end.map_or(buffered.len(), |at| at + 1), end.is_some() || buffered.is_empty());
        input.consume(length);
        if is_end {
            return Ok(());
        }
    }
}

/// Checks files until no line is left. Runs in each thread.
fn check_all(lines: &Mutex<Receiver<ManifestLine>>, directory: &Path, report: &Report) {
    let mut buffer = Vec::new();
    loop {
        let next = lines.lock().recv();
        let Ok(line) = next else { return };
        let path = directory.join(std::ffi::OsStr::from_bytes(line.name.as_bytes()));
        match digest(&path, &mut buffer) {
            Ok((found, bytes)) if found == Some(line.digest) => report.add_match(bytes),
            Ok(_) => {
                report.report_difference(FileDifference { name: line.name, status: FileStatus::Changed, reason: None })
            }
            Err(error) => {
                let missing = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
                let status = if missing { FileStatus::Missing } else { FileStatus::Unreadable };
                let reason = (!missing).then(|| without_error_number(&error.to_string()));
                report.report_difference(FileDifference { name: line.name, status, reason });
            }
        }
    }
}

/// Returns the digest and the size of a file. The digest is `None` if the file became shorter.
fn digest(path: &Path, buffer: &mut Vec<u8>) -> io::Result<(Option<Digest>, Bytes)> {
    // Reading a device or a pipe could block.
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
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

/// Hashes of the names in a manifest.
struct ListedNames {
    hashes: Option<Vec<u64>>,
    hasher: RandomState,
}

impl ListedNames {
    fn new(enabled: bool) -> Self {
        ListedNames { hashes: enabled.then(Vec::new), hasher: RandomState::new() }
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

    fn contains(&self, name: &[u8]) -> bool {
        let hash = self.hash(name);
        self.hashes.as_ref().is_some_and(|hashes| hashes.binary_search(&hash).is_ok())
    }

    /// Hashes a name. `./a//b` is the same as `a/b`.
    fn hash(&self, name: &[u8]) -> u64 {
        let parts = name.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
        self.hasher.hash_one(parts.collect::<Vec<_>>())
    }
}

/// Reports files in the directory that the manifest does not list. The manifest itself may be in the directory.
fn report_unlisted(directory: &Path, manifest_id: Option<(u64, u64)>, listed: &ListedNames, report: &Report) {
    let mut left = vec![PathBuf::new()];
    while let Some(inside) = left.pop() {
        let name = |path: &Path| ByteString::from(path.as_os_str().as_bytes());
        let unreadable = |error: io::Error| {
            report.report_difference(FileDifference {
                name: name(&inside),
                status: FileStatus::Unreadable,
                reason: Some(without_error_number(&error.to_string())),
            })
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
            // Manifests do not list symbolic links.
            if kind.is_ok_and(|kind| kind.is_symlink()) {
                continue;
            }
            let is_manifest =
                entry.metadata().is_ok_and(|metadata| Some((metadata.dev(), metadata.ino())) == manifest_id);
            if !is_manifest && !listed.contains(path.as_os_str().as_bytes()) {
                report.report_difference(FileDifference {
                    name: name(&path),
                    status: FileStatus::Unlisted,
                    reason: None,
                });
            }
        }
    }
}

/// Results of all threads.
struct Report {
    format: OutputFormat,
    /// Differences for the document, if one is needed.
    differences: Option<Mutex<Vec<FileDifference>>>,
    progress: Progress<VerifyCounts>,
}

impl Figures for VerifyCounts {
    fn lines(&mut self, _now: Duration, _columns: usize, _rows: usize) -> Vec<String> {
        vec![format!("{} files, {}", self.matching, self.bytes)]
    }
}

impl Report {
    fn new(output: &Output, has_report: bool) -> Self {
        let printer = if is_quiet() { ProgressPrinter::Hidden } else { ProgressPrinter::stderr() };
        let format = output.format();
        let differences = (format == OutputFormat::Json || has_report).then(Mutex::default);
        Report { format, differences, progress: Progress::new(VerifyCounts::default(), printer) }
    }

    fn add_match(&self, bytes: Bytes) {
        self.progress.update(|totals| {
            totals.matching += 1;
            totals.bytes = Bytes(totals.bytes.0.saturating_add(bytes.0));
        });
        self.progress.show();
    }

    /// Counts an invalid line, and returns the number of invalid lines.
    fn bad_line(&self) -> u64 {
        self.progress.update(|totals| {
            totals.bad_lines += 1;
            totals.bad_lines
        })
    }

    fn report_difference(&self, difference: FileDifference) {
        self.progress.update(|totals| {
            *match difference.status {
                FileStatus::Changed => &mut totals.changed,
                FileStatus::Missing => &mut totals.missing,
                FileStatus::Unreadable => &mut totals.unreadable,
                FileStatus::Unlisted => &mut totals.unlisted,
            } += 1;
        });
        // The reader may close the pipe early.
        let _ = self.progress.print(|| self.print_difference(&difference));
        if let Some(all) = &self.differences {
            all.lock().push(difference);
        }
    }

    fn print_difference(&self, difference: &FileDifference) -> io::Result<()> {
        match self.format {
            OutputFormat::Json => Ok(()),
            OutputFormat::Ndjson => {
                let mut out = print::json();
                serde_json::to_writer(&mut out, &difference)?;
                writeln!(out)
            }
            _ => {
                let reason = difference.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
                writeln!(print::out(), "{:<12}{}{reason}", difference.status.word(), difference.name)
            }
        }
    }

    fn end(self, mut output: Output) -> Result<Exit, Failure> {
        self.progress.finish();
        let totals = self.progress.update(std::mem::take);
        let VerifyCounts { matching, changed, missing, unreadable, unlisted, bad_lines, bytes } = totals;
        let differences = self.differences.map(Mutex::into_inner);
        let document = VerifyDocument { schema: VerifySchema::Current, counts: totals, differences };
        if self.format == OutputFormat::Ndjson {
            output.write_report(&document)?;
            // The lines before have the differences.
            print_document(&VerifyDocument { differences: None, ..document }, self.format)?;
        } else {
            output.finish(&document, || {
                if is_quiet() {
                    return Ok(());
                }
                let others = [
                    (changed, "changed"),
                    (missing, "missing"),
                    (unreadable, "unreadable"),
                    (unlisted, "unlisted"),
                    (bad_lines, "invalid lines"),
                ];
                let others = others.iter().filter(|(count, _)| *count > 0);
                let others: String = others.map(|(count, what)| format!(", {count} {what}")).collect();
                writeln!(print::out(), "{matching} files match ({bytes}){others}")
            })?;
        }
        Ok(if changed + missing + unreadable + unlisted + bad_lines == 0 { Exit::Ok } else { Exit::Failed })
    }
}
