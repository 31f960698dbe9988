//! `lfn copy`: turns the command line into one upload, download or third-party copy, and predicts its time.

mod args;
mod clean;
mod flags;
mod interrupt;
mod manifest;

use std::mem::take;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use clap::{Args as _, Command};
use lfn_api::copy::ends::EndNames;
use lfn_api::copy::places::{Direction, PLACES_HINT, without_secrets};
use lfn_api::copy::{CopyError, CopyEvent, CopyRequest, CopyResult, PreparedCopy, find_direction, prepare};
use lfn_api::documents::{CopyDocument, FailedCopy, FinishedCopy, QueueReport};
use lfn_api::pictures::of_copy;
use lfn_copy::{CopyOutcome, EntryListener, LocalDestination, RankBoard};
use lfn_queue::Queue;
use lfn_results::diagnose::bottleneck::RecentSamples;
use lfn_session::wire::copy::options::TransferOptions;
use lfn_session::wire::copy::preserve::{SkippedEntries, Unpreserved};
use lfn_session::wire::copy::{EntryEvent, MAX_FAILURES};
use lfn_sys::process::raise_open_file_limit;
use parking_lot::Mutex;

use crate::exit::{Exit, Failure};
use crate::print::{
    self,
    copy::{CopyProgress, CopyReport, ProgressMode, print_entry},
    output::{Output, OutputFormat, print_document},
    report_file::ReportFile,
    settings::{is_quiet, is_verbose},
};
use crate::repeat::typed_flags;
pub use args::CopyArgs;
use interrupt::interrupt_flag;
use manifest::Manifest;

/// Runs `lfn copy` and returns its exit code.
pub fn run(args: CopyArgs) -> Result<Exit, Failure> {
    if args.clean.clean {
        return clean::run(&args);
    }
    if args.queue.queue_delete {
        return delete_queue(&args);
    }
    let mut is_printed = false;
    run_copy(&args, &mut is_printed).inspect_err(|failure| {
        let format = args.output.format();
        if format.is_json() && !is_printed {
            let places: Vec<_> = args.places.iter().map(|place| without_secrets(place)).collect();
            let (error, hint) = failure.lines();
            let failed = FailedCopy::new(&places, error, hint, failure.exit().code());
            // The failure itself is reported after this.
            let _ = print_document(&CopyDocument::Failed(failed), format);
        }
    })
}

/// Deletes a queue on its server.
fn delete_queue(args: &CopyArgs) -> Result<Exit, Failure> {
    let Some(options) = args.queue.options(args.ranks.patience)? else { return Ok(Exit::Ok) };
    let address = options.address.clone();
    let has_existed = Queue::delete(options, &interrupt_flag()?).map_err(CopyError::from)?;
    if !has_existed {
        return Err(Failure::msg(format_args!("there is no queue {address}")).hint("check the name and the server"));
    }
    print::result(&format!("deleted the queue {address}\n"))?;
    Ok(Exit::Ok)
}

/// Copies, and sets `is_printed` when the report is printed.
fn run_copy(args: &CopyArgs, is_printed: &mut bool) -> Result<Exit, Failure> {
    if let [only] = args.places.as_slice() {
        let only = without_secrets(only);
        return Err(Failure::usage(format!("only one place is given ({only}): give a SOURCE and a DESTINATION"))
            .hint(PLACES_HINT));
    }
    let output = args.output.open()?;
    let pictures = args.plot.create()?;
    let selection = args.tree.selection()?;
    let resolver = args.resolver();
    let mut request = CopyRequest {
        places: args.places.clone(),
        overwrite: args.overwrite.allowed(),
        streams: args.stripes.add_to(args.streams.options()),
        rank: args.ranks.request()?,
        queue: args.queue.options(args.ranks.patience)?,
        selection,
        typed_flags: typed_flags(&CopyArgs::augment_args(Command::new("copy"))),
        ..CopyRequest::default()
    };
    if request.queue.is_some() && args.integrity.manifest.is_some() {
        return Err(CopyError::QueueOption("--manifest").into());
    }
    if request.queue.is_some() && pictures.is_some() {
        return Err(CopyError::QueueOption("--plot").into());
    }
    let direction = find_direction(&request, &resolver)?;
    // A copy opens streams, files and their directories. A limit of 1,024 descriptors is too low.
    raise_open_file_limit();
    request.transfer = args.integrity.transfer_options(&args.overwrite, &request.selection)?;
    let interrupted = interrupt_flag()?;
    let manifest = args.integrity.manifest.as_deref().map(Manifest::create).transpose()?.map(Arc::new);
    let report_path = args.output.report().map(|typed| (typed, output.report().and_then(ReportFile::hidden_path)));
    let manifest_path = args.integrity.manifest.as_deref().zip(manifest.as_deref().map(Manifest::hidden_path));
    let pictures_path = pictures.as_ref().map(|pictures| (pictures.path(), pictures.hidden_path()));
    let written_files = report_path.into_iter().chain(manifest_path).chain(pictures_path);
    protect_written_files(written_files, &direction, &mut request.transfer)?;
    let ends = EndNames::new(&direction);
    let mut prepared = prepare(direction, &request, &resolver, &interrupted)?;
    print_found_stripes(args, &prepared);
    let predictor = prepared.predictor.clone();
    let mode = ProgressMode { ndjson: output.format() == OutputFormat::Ndjson, requested: args.progress.progress };
    let live = CopyProgress::new(&predictor, prepared.near_sends(), mode);
    let entries = Arc::new(Mutex::new(Vec::new()));
    prepared.options.listener = event_listener(args, &live, &entries, manifest.clone());
    let mut recent = RecentSamples::default();
    // Rank 0 shows all ranks together.
    let board = prepared.options.rank.as_ref().filter(|rank| rank.request.rank == 0).map(|rank| rank.board.clone());
    let result = prepared.run(&interrupted, &mut |event| match event {
        CopyEvent::Progress { totals, sample, stripes } => {
            let current = recent.update(sample, live.streams(), live.predicted_goodput(totals, sample));
            match board.as_ref().and_then(RankBoard::figures) {
                Some(figures) => live.show_ranks(&figures, sample),
                None => live.show(totals, sample, stripes, current),
            }
        }
        CopyEvent::Queue(queue) => live.show_queue(queue),
        CopyEvent::Stripe(event) => live.stripe_changed(event),
        CopyEvent::Streams(change) => live.streams_changed(change),
        CopyEvent::Connection(connection) => live.connection_changed(connection),
    });
    live.finish(result.as_ref().ok().map(|result| &result.outcome));
    let result = result.map_err(|error| {
        // Threads that still dial hold the manifest too, and are not waited for.
        manifest.iter().for_each(|manifest| manifest.abandon());
        let interrupted = matches!(error, CopyError::Interrupted) && !args.overwrite.dry_run;
        let failure = Failure::from(error);
        if interrupted { failure.hint("run the same command again: it resumes") } else { failure }
    })?;
    let (manifest_files, manifest_error) = match manifest.map(|manifest| manifest.finish()) {
        Some(Err(failure)) => (None, Some(failure)),
        manifest_files => (manifest_files.and_then(Result::ok), None),
    };
    *is_printed = true;
    let mut document = result.document();
    document.manifest_files = manifest_files;
    document.entries = keeps_entries(args).then(|| take(&mut *entries.lock()));
    let album = pictures.is_some().then(|| of_copy(&result, &document));
    let exit = print_result(&result, &document, &ends, output)?;
    if let Some((pictures, album)) = pictures.zip(album) {
        let drawn = pictures.write_one(album, "nothing was copied");
        // An incomplete copy is the more important result.
        drawn.map_err(|failure| if exit == Exit::Ok { failure } else { failure.with_exit(exit) })?;
    }
    manifest_error.map_or(Ok(exit), Err)
}

/// Prints the stripes that `--stripe auto` found, and the pairs that failed.
fn print_found_stripes(args: &CopyArgs, prepared: &PreparedCopy) {
    if !args.stripes.is_auto() || is_quiet() {
        return;
    }
    for failed in &prepared.failed_pairs {
        print::message(format_args!("lfn: not a stripe: {failed}\n"));
    }
    for stripe in prepared.options.stripes.stripes() {
        print::message(format_args!("lfn: stripe {}\n", stripe.name));
    }
}

/// Prints the result and its failures, and returns the exit code.
fn print_result(
    result: &CopyResult,
    document: &FinishedCopy,
    ends: &EndNames,
    output: Output,
) -> Result<Exit, Failure> {
    let outcome = &result.outcome;
    // If the only entry failed, its error line is the complete text output.
    let is_single = outcome.tally.entries() == 1 && result.queue.is_none();
    let only_failure = outcome.failures.first().filter(|_| is_single);
    CopyReport { document }.print(output, || of_copy(result, document), only_failure.is_some())?;
    if let Some(failure) = only_failure {
        let exit = if failure.disk_full { Exit::Incomplete } else { Exit::Failed };
        return Err(Failure::msg(ends.describe(failure)).with_exit(exit));
    }
    print_failures(outcome, ends, document.ranks.is_some());
    print_skipped(outcome);
    if result.prepared.options.selection.preserve.owners {
        print_unused_account_sources();
    }
    // A full disk or an exhausted quota exits with 3: with more space the same command resumes.
    if let Some(queue) = result.queue.as_ref().filter(|queue| !queue.complete) {
        return Err(incomplete_queue(queue));
    }
    Ok(match &outcome.tally {
        tally if tally.disk_full || outcome.failures.iter().any(|failure| failure.disk_full) => Exit::Incomplete,
        tally if tally.failed > 0 || tally.deletion_skipped || !outcome.failures.is_empty() => Exit::Failed,
        _ => Exit::Ok,
    })
}

/// Returns the failure of a mover that can do nothing more although the queue is incomplete.
fn incomplete_queue(queue: &QueueReport) -> Failure {
    let QueueReport { name, done_entries, failed_entries, entries, .. } = queue;
    let left = entries.saturating_sub(*done_entries);
    let failed = if *failed_entries > 0 { format!(", {failed_entries} of them failed") } else { String::new() };
    Failure::msg(format!("the queue {name} is incomplete: {left} of {entries} entries are left{failed}"))
        .hint("run the same command again: it resumes; --patience waits longer")
        .with_exit(Exit::Incomplete)
}

/// Excludes the manifest, the report and the pictures of this copy, and the directories around them, from --delete. Each file has its
/// path as typed, and its present path if this is another one.
fn protect_written_files<'a>(
    written_files: impl Iterator<Item = (&'a Path, Option<&'a Path>)>,
    direction: &Direction,
    transfer_options: &mut TransferOptions,
) -> Result<(), Failure> {
    let Direction::Download(_, _, LocalDestination::File { path: destination, .. }) = direction else { return Ok(()) };
    if !transfer_options.delete {
        return Ok(());
    }
    for path in written_files.flat_map(|(typed, hidden)| manifest::paths_below(typed, hidden, destination)) {
        transfer_options.protect.exclude_first(path.as_os_str().as_bytes()).map_err(Failure::usage)?;
    }
    Ok(())
}

/// Reports whether the document of the copy contains its entries.
fn keeps_entries(args: &CopyArgs) -> bool {
    let is_document = args.output.format() == OutputFormat::Json || args.output.report().is_some();
    is_document && (args.overwrite.dry_run || is_verbose())
}

/// Creates the listener for events of the copy. Adds the events to `entries` if the document contains them.
fn event_listener(
    args: &CopyArgs,
    live: &CopyProgress<'_>,
    entries: &Arc<Mutex<Vec<EntryEvent>>>,
    manifest: Option<Arc<Manifest>>,
) -> EntryListener {
    let format = args.output.format();
    let prints_events = format != OutputFormat::Json && ((args.overwrite.dry_run && !is_quiet()) || is_verbose());
    let kept = keeps_entries(args).then(|| Arc::clone(entries));
    if !prints_events && kept.is_none() && manifest.is_none() && !live.shows_name() {
        return EntryListener::default();
    }
    let (printer, current) = (live.progress(), live.progress());
    let restarted = manifest.clone();
    let record = move |event: &EntryEvent| {
        if let Some(manifest) = &manifest {
            manifest.add(event);
        }
        // An event with a digest is only for the manifest.
        if event.digest.is_some() {
            return;
        }
        if let Some(entries) = &kept {
            entries.lock().push(event.clone());
        }
        if prints_events {
            printer.print(|| print_entry(event, format));
        }
    };
    let restart = move || restarted.iter().for_each(|manifest| manifest.restart());
    EntryListener::new(record, restart, move |started| current.update(|line| line.set_name(started)))
}

/// Prints the entries that could not be copied, one line each.
fn print_failures(outcome: &CopyOutcome, ends: &EndNames, has_ranks: bool) {
    for failure in &outcome.failures {
        print::error(format_args!("lfn: {}\n", ends.describe(failure)));
    }
    if outcome.tally.deletion_skipped {
        print::error("lfn: skipped --delete: the source could not be listed completely\n");
    }
    let unreported = outcome.tally.failed.saturating_sub(outcome.failures.len() as u64);
    if unreported > 0 {
        // Entries in a directory that failed are not reported one by one.
        let suffix = match outcome.failures.len() {
            _ if has_ranks => ": other ranks name them",
            MAX_FAILURES.. => "",
            _ => " (in directories that failed)",
        };
        let more = if outcome.failures.is_empty() { "" } else { " more" };
        let entries = if unreported == 1 { "entry" } else { "entries" };
        print::error(format_args!("lfn: {unreported}{more} {entries} failed{suffix}\n"));
    }
}

/// Prints the sources of user names on this host that this binary cannot use, if there are any.
fn print_unused_account_sources() {
    let sources = lfn_sys::accounts::unused_sources();
    if !sources.is_empty() {
        print::message(format_args!(
            "lfn: owners without a name in /etc/passwd and /etc/group were copied by number: this static binary cannot use \
             '{}' of /etc/nsswitch.conf\n",
            sources.join("' and '")
        ));
    }
}

/// Prints the numbers of skipped entries and of attributes that could not be preserved, one line for each kind.
fn print_skipped(outcome: &CopyOutcome) {
    let SkippedEntries { links, special } = outcome.skipped;
    let Unpreserved { owners, xattrs, acls } = outcome.tally.not_preserved;
    let or_none = "not permitted at the destination, or not supported by its file system";
    let entry = ["entry", "entries"];
    let lines = [
        (links, ["symbolic link", "symbolic links"], "skipped; use --links to copy links".to_owned()),
        (
            special,
            ["device, FIFO or socket", "devices, FIFOs or sockets"],
            "skipped; special files are never copied".to_owned(),
        ),
        (owners, entry, "without the original owner or group: only root can set other owners".to_owned()),
        (xattrs, entry, format!("without some extended attributes: {or_none}")),
        (acls, entry, format!("without the access control list: {or_none}")),
    ];
    for (count, [one, more], what) in lines.iter().filter(|(count, ..)| *count > 0) {
        print::message(format_args!("lfn: {count} {} {what}\n", if *count == 1 { one } else { more }));
    }
}
