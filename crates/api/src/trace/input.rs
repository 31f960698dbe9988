//! Files of a capture: opens and decompresses them, and puts the parts of one capture in order.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flate2::bufread::MultiGzDecoder;
use lfn_base::time::Instant;
use lfn_packet::capture::{CaptureError, CaptureReader, Compression};
use lfn_sys::clock::wait_readable;

use super::error::TraceError;
use super::zstd::{ZstdReader, ends_early};

/// Bytes that are read at once from a compressed file.
const BUFFER_BYTES: usize = 256 << 10;

/// Interval at which a reader of a pipe looks at the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Bytes of a file after decompression.
pub type Bytes<'a> = Box<dyn Read + 'a>;

/// A file that was looked at, but is not open.
#[derive(Debug, Clone)]
pub struct CaptureFile {
    pub path: PathBuf,
    /// Time of the first packet, since 1970; none for standard input, and for a file without packets.
    pub first: Option<Instant>,
}

/// Reader of a capture whose header was read.
pub struct OpenCapture<'a> {
    pub reader: CaptureReader<Bytes<'a>>,
    pub compression: Option<Compression>,
}

/// Puts the parts of one capture in the order of their first packets. A part without packets comes last.
///
/// One file is not opened here, because it may be a pipe that can be read only once.
pub fn in_time_order(paths: &[PathBuf], stop: &AtomicBool) -> Result<Vec<CaptureFile>, TraceError> {
    if let [path] = paths {
        return Ok(vec![single(path)?]);
    }
    if paths.iter().any(|path| is_standard_input(path)) {
        return Err(TraceError::StandardInputAmongFiles);
    }
    refuse_same_file(&paths.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    let files = paths.iter().map(|path| Ok(CaptureFile { path: path.clone(), first: first_time(path, stop)? }));
    let mut files = files.collect::<Result<Vec<_>, TraceError>>()?;
    files.sort_by_key(|file| (file.first.is_none(), file.first));
    Ok(files)
}

/// Returns one file without a look at its contents.
pub fn single(path: &Path) -> Result<CaptureFile, TraceError> {
    Ok(CaptureFile { path: path.to_owned(), first: None })
}

/// Returns the time of the first packet. Damage after the header is reported when the packets are read.
fn first_time(path: &Path, stop: &AtomicBool) -> Result<Option<Instant>, TraceError> {
    let mut capture = open(path, stop)?;
    Ok(capture.reader.next().ok().flatten().map(|frame| Instant::from_nanos(frame.at)))
}

/// Returns an error if two paths are the same file.
pub fn refuse_same_file(paths: &[&Path]) -> Result<(), TraceError> {
    let mut seen = HashSet::new();
    for path in paths {
        // A file that cannot be read has its own error.
        if let Ok(metadata) = std::fs::metadata(path)
            && !seen.insert((metadata.dev(), metadata.ino()))
        {
            return Err(TraceError::SameFile { file: (*path).to_owned() });
        }
    }
    Ok(())
}

/// Opens a capture and reads its header. `stop` ends the wait for the next bytes of a pipe.
pub fn open<'a>(path: &Path, stop: &'a AtomicBool) -> Result<OpenCapture<'a>, TraceError> {
    let open_error = |source| TraceError::Open { file: path.to_owned(), source };
    let file = match is_standard_input(path) {
        true => io::stdin().as_fd().try_clone_to_owned().map(File::from),
        false => File::open(path),
    };
    let file = file.map_err(open_error)?;
    let kind = file.metadata().map_err(open_error)?.file_type();
    if kind.is_dir() {
        return Err(TraceError::Directory { file: path.to_owned() });
    }
    let file: Bytes<'a> = if kind.is_file() { Box::new(file) } else { Box::new(PipeReader { file, stop }) };
    let (bytes, compression) = decompress(file).map_err(open_error)?;
    match CaptureReader::new(bytes) {
        Ok(reader) => Ok(OpenCapture { reader, compression }),
        Err(CaptureError::Read { source, .. }) if compression.is_some() => {
            Err(TraceError::Decompress { file: path.to_owned(), source })
        }
        Err(CaptureError::Read { source, .. }) => Err(open_error(source)),
        Err(source) => Err(TraceError::Capture { file: path.to_owned(), source }),
    }
}

/// Returns true for `-`.
pub fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Recognizes the compression by the first bytes. A format that is not supported is left for the reader of captures,
/// which names it.
fn decompress(mut file: Bytes<'_>) -> io::Result<(Bytes<'_>, Option<Compression>)> {
    let mut first = Vec::with_capacity(Compression::MAGIC_LENGTH);
    (&mut file).take(Compression::MAGIC_LENGTH as u64).read_to_end(&mut first)?;
    let compression = Compression::of(&first);
    let whole = io::Cursor::new(first).chain(file);
    let buffered = |whole| BufReader::with_capacity(BUFFER_BYTES, whole);
    Ok(match compression {
        Some(Compression::Gzip) => (Box::new(GzipReader(MultiGzDecoder::new(buffered(whole)))), compression),
        Some(Compression::Zstandard) => (Box::new(ZstdReader::new(buffered(whole))), compression),
        Some(Compression::Xz) | None => (Box::new(whole), None),
    })
}

/// Bytes of a pipe, a terminal or a socket. They end when `stop` is set.
struct PipeReader<'a> {
    file: File,
    stop: &'a AtomicBool,
}

impl Read for PipeReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !self.stop.load(Ordering::Relaxed) {
            if wait_readable([self.file.as_fd()], Some(POLL_INTERVAL))? == [true] {
                return self.file.read(out);
            }
        }
        Ok(0)
    }
}

/// Decompressed bytes of a gzip file. The error of a file that is cut off names the end.
struct GzipReader<R>(MultiGzDecoder<R>);

impl<R: BufRead> Read for GzipReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ends_early(),
            _ => error,
        })
    }
}
