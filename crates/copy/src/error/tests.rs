//! Tests of codes, retries and hints of copy errors.

use super::*;

fn write_error(errno: Errno) -> TransferError {
    TransferError::File { doing: "write", path: "a".into(), source: errno.into() }
}

#[test]
fn disk_full_and_quota_are_out_of_space() {
    for errno in [Errno::NOSPC, Errno::DQUOT] {
        assert!(write_error(errno).is_out_of_space(), "{errno}");
        assert!(write_error(errno).hint().is_some_and(|hint| hint.starts_with("free disk space")), "{errno}");
    }
    // Other files may succeed, so the copy continues.
    let of_one_file = [
        (Errno::IO, "check the file system"),
        (Errno::NAMETOOLONG, "shorter"),
        (Errno::NOTDIR, "not a directory"),
        (Errno::FBIG, "check the file system"),
        (Errno::ROFS, "not read-only"),
        (Errno::ACCESS, "check the permissions"),
        (Errno::PERM, "check the permissions"),
    ];
    for (errno, remedy) in of_one_file {
        let error = write_error(errno);
        assert!(!error.is_out_of_space(), "{errno}");
        assert!(error.hint().is_some_and(|hint| hint.contains(remedy)), "{errno}: {:?}", error.hint());
    }
    for errno in [Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::NAMETOOLONG, Errno::FBIG, Errno::ROFS] {
        let (error, said) = (write_error(errno), system_error_text(&errno.into()));
        assert!(!said.contains("os error"), "{said}");
        assert_eq!(error.entry_message(), format!("cannot write it: {said}"));
        // The error is reported to the other end. It is neither resumable nor an error of the path.
        assert_eq!((error.code(), error.is_resumable(), error.is_retryable()), (RefusalCode::Io, false, false));
        assert!(!error.is_stream_error());
    }
}

#[test]
fn each_reason_has_the_hint_of_its_cause() {
    let rows = [
        (ForbiddenReason::OutsideRoot, Some("relative to the served directory")),
        (ForbiddenReason::SourceNotDirectory, Some("one source directory")),
        (ForbiddenReason::NotFileName, Some("the name of the file")),
        (ForbiddenReason::LinkInPath, Some("replace the link")),
        (ForbiddenReason::FileInPath, Some("move the file away")),
        (ForbiddenReason::ReservedName, None),
        (ForbiddenReason::DirectoryNotEmpty, Some("move the directory")),
        (ForbiddenReason::ReplacedEntryRemains, Some("lfn copy --clean")),
        (ForbiddenReason::TooManyPartials, Some("reduce --streams")),
        (ForbiddenReason::PartialReplaced, Some("no other program")),
        (ForbiddenReason::PartialRemoved, Some("no other program")),
        (ForbiddenReason::PartialHasTwoNames, Some("remove one")),
        (ForbiddenReason::PartialNotRegular(FileKind::Directory), Some("move this entry away")),
        (ForbiddenReason::TooManyDirectories, Some("one after the other")),
        (ForbiddenReason::SameNameInEarlierSource, Some("different destinations")),
        (ForbiddenReason::WrittenByOtherSource, Some("different destinations")),
        (ForbiddenReason::TooManySourceNames, Some("one after the other")),
        (ForbiddenReason::LinkTargetMissing, Some("again")),
        (ForbiddenReason::LinkTargetReplaced, Some("no other program")),
        (ForbiddenReason::LinkTargetNewer, Some("without --hard-links")),
        (ForbiddenReason::DeletionFromSeveralSources, Some("omit --delete")),
        (ForbiddenReason::TooManyNamesToDelete, Some("omit --delete")),
    ];
    for (reason, remedy) in rows {
        let error = TransferError::Forbidden { path: "a".into(), reason };
        let hint = error.hint();
        assert_eq!(hint.is_some(), remedy.is_some(), "{error}");
        assert!(
            remedy.is_none_or(|remedy| hint.clone().is_some_and(|hint| hint.contains(remedy))),
            "{error}: {hint:?}"
        );
        // The line of an entry has no hint of its own.
        let line = hint.map_or(reason.to_string(), |hint| format!("{reason}: {hint}"));
        assert_eq!((error.to_string(), error.entry_message()), (format!("a: {reason}"), line));
        assert!(!error.to_string().contains("--"), "{error}");
    }
}

#[test]
fn hint_fits_the_kind_of_an_irregular_file() {
    let hint = |kind| TransferError::NotRegular { path: "a".into(), kind }.hint();
    assert_eq!(hint(FileKind::Directory).as_deref(), Some("give the name of one file in it"));
    assert!(hint(FileKind::Device).is_some_and(|hint| hint.contains("random:SIZE")));
    assert!(hint(FileKind::Pipe).is_some_and(|hint| hint.contains("cat PIPE")));
    for kind in [FileKind::SymbolicLink, FileKind::Socket, FileKind::Unknown] {
        assert_eq!(hint(kind), None, "{kind}");
    }
}

#[test]
fn hint_of_a_stall_fits_its_cause() {
    use lfn_session::wire::copy::progress::StallCause;
    let rows = [
        (StallCause::SourceDisk, true, "near disk", "check this disk"),
        (StallCause::SourceDisk, false, "far disk", "check this disk"),
        (StallCause::DestinationDisk, true, "far disk", "check this disk"),
        (StallCause::DestinationDisk, false, "near disk", "check this disk"),
        (StallCause::Network, true, "the network", "check the network path"),
        (StallCause::Deadlock, true, "the far receiver", "run the same command again"),
        (StallCause::Deadlock, false, "the receiver on this host", "run the same command again"),
    ];
    for (cause, is_upload, text, remedy) in rows {
        let stall = Stall { cause, is_upload };
        let error = TransferError::Stalled { after: Duration::from_secs(60), stall };
        assert!(error.to_string().contains(text), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.starts_with(remedy)), "{error}: {:?}", error.hint());
    }
}

#[test]
fn hint_of_a_denied_action_fits_the_action() {
    for (action, remedy) in [
        (DeniedAction::Upload, "the right 'write'"),
        (DeniedAction::Download, "the right 'read'"),
        (DeniedAction::DryRun, "omit --dry-run"),
        (DeniedAction::Delete, "omit --delete"),
        (DeniedAction::Manifest, "omit --manifest"),
        (DeniedAction::ReportUnchanged, "-v instead of -vv"),
    ] {
        let hint = TransferError::NotAllowed(action).hint();
        assert!(hint.clone().is_some_and(|hint| hint.contains(remedy)), "{action}: {hint:?}");
    }
}

#[test]
fn protocol_violations_have_no_hint() {
    for violation in [SenderViolation::BlockHash, SenderViolation::ListGap, SenderViolation::TooManyLostBlocks] {
        let error = TransferError::SenderViolation(violation);
        assert_eq!((error.hint(), error.code()), (None, RefusalCode::BadMessage));
        assert_eq!(error.to_string(), format!("the sender {violation}"));
    }
}

#[test]
fn missing_descriptors_are_not_retried() {
    for errno in [Errno::MFILE, Errno::NFILE] {
        let stream = TransferError::Stream { stream: 1, source: errno.into() };
        assert!(!stream.is_stream_error() && !stream.is_retryable(), "{errno}");
        let dial = SessionError::Unreachable { address: "a".into(), source: errno.into() };
        assert!(!TransferError::from(dial).is_retryable(), "{errno}");
        for error in [stream, write_error(errno)] {
            assert!(error.hint().is_some_and(|hint| hint.contains("ulimit -n")), "{error}: {:?}", error.hint());
        }
    }
    let reset = TransferError::Stream { stream: 1, source: Errno::CONNRESET.into() };
    assert!(reset.is_stream_error() && reset.is_retryable());
}

#[test]
fn hint_for_open_files_of_a_server_fits_the_number() {
    let error = |max_streams| TransferError::ServerOpenFiles { needed: 170, limit: 64, max_streams };
    assert_eq!(error(5).hint().as_deref(), Some("--streams 5"));
    assert!(error(0).hint().is_some_and(|hint| hint.ends_with("ulimit -n 170")));
    assert_eq!((error(0).code(), error(5).is_retryable()), (RefusalCode::Limit, false));
}
