//! Reasons why a capture has no result.

use std::io;
use std::path::PathBuf;

use lfn_packet::capture::{CaptureError, Compression};

use crate::error_kind::ErrorKind;

/// Reasons why a capture has no result.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("{}: {source}", .file.display())]
    Open { file: PathBuf, source: io::Error },
    #[error("{}: is a directory", .file.display())]
    Directory { file: PathBuf },
    #[error("{}: {source}", .file.display())]
    Capture { file: PathBuf, source: CaptureError },
    /// Decompressing fails at the first bytes.
    #[error("{}: cannot decompress: {source}", .file.display())]
    Decompress { file: PathBuf, source: io::Error },
    #[error("{}: the capture has no packets", .file.display())]
    NoPackets { file: PathBuf },
    #[error("- cannot be combined with other files")]
    StandardInputAmongFiles,
    #[error("{}: the file is named twice", .file.display())]
    SameFile { file: PathBuf },
    #[error("{}: begins before the end of {}, so they are not parts of one capture", .file.display(), .before.display())]
    Overlap { file: PathBuf, before: PathBuf },
    #[error("{} and {} have no packet in common", .near.display(), .far.display())]
    NothingInCommon { near: PathBuf, far: PathBuf },
    #[error("{host}: {source}")]
    UnknownHost { host: String, source: io::Error },
    #[error("cannot capture on {interface}: {source}")]
    Live { interface: String, source: io::Error },
}

impl TraceError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        let shown = |file: &PathBuf| shell_words::quote(&file.display().to_string()).into_owned();
        Some(match self {
            TraceError::Open { file, source } => match source.kind() {
                io::ErrorKind::PermissionDenied => format!("read it as its owner: sudo lfn trace {}", shown(file)),
                _ => "check the path; `tcpdump -i eth0 -s 128 -w capture.pcap tcp` creates a capture".to_owned(),
            },
            TraceError::Directory { file } => format!("name its files: lfn trace {}/*.pcap", shown(file)),
            TraceError::Capture { file, source } => return capture_hint(&shown(file), source),
            TraceError::Decompress { .. } => "copy the file again: its compressed data are damaged".to_owned(),
            TraceError::NoPackets { .. } => {
                "check the filter of the capture, for example: tcpdump -i eth0 -s 128 -w capture.pcap tcp".to_owned()
            }
            TraceError::SameFile { .. } => {
                "name each file once; for two captures of the same packets: lfn trace --near FILE --far FILE".to_owned()
            }
            TraceError::StandardInputAmongFiles => "name only files, or only -".to_owned(),
            TraceError::Overlap { file, before } => format!(
                "for two captures of the same packets: lfn trace --near {} --far {}; else analyse each file alone",
                shown(before),
                shown(file)
            ),
            TraceError::NothingInCommon { .. } => {
                "capture the same transfer at the same time at both ends, without translation of addresses between them"
                    .to_owned()
            }
            TraceError::UnknownHost { .. } => "use the address of the host".to_owned(),
            TraceError::Live { interface, source } => match source.kind() {
                io::ErrorKind::PermissionDenied => format!(
                    "capture as root: sudo lfn trace --live {interface}; or permit it once: sudo setcap cap_net_raw+ep {}",
                    std::env::current_exe().map_or("lfn".to_owned(), |program| shown(&program))
                ),
                io::ErrorKind::NetworkDown => format!("sudo ip link set {interface} up"),
                _ => "list the interfaces with: ip link".to_owned(),
            },
        })
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        match self {
            TraceError::StandardInputAmongFiles | TraceError::SameFile { .. } => ErrorKind::Usage,
            _ => ErrorKind::Failed,
        }
    }
}

fn capture_hint(file: &str, error: &CaptureError) -> Option<String> {
    Some(match error {
        CaptureError::Empty | CaptureError::TruncatedHeader => {
            "wait until the capture is complete; tcpdump writes packets late without -U".to_owned()
        }
        CaptureError::NotACapture { .. } => {
            "capture with tcpdump -w, dumpcap or Wireshark; pcap and pcapng are supported".to_owned()
        }
        CaptureError::Compressed(Compression::Xz) if file == "-" => "unxz < FILE | lfn trace -".to_owned(),
        CaptureError::Compressed(Compression::Xz) => format!("unxz --keep {file}"),
        CaptureError::Compressed(_) => "decompress the file first".to_owned(),
        CaptureError::Truncated { .. }
        | CaptureError::TooLong { .. }
        | CaptureError::Damaged { .. }
        | CaptureError::Read { .. } => return None,
    })
}
