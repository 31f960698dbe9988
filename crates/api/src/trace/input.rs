//! Files of a capture: opens and decompresses them, and puts the parts of one capture in order.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use lfn_base::time::Instant;
use lfn_packet::capture::{CaptureError, CaptureReader, Compression};

use super::error::TraceError;
use super::zstd::{ZstdReader, ends_early};

/// Bytes that are read at once from a compressed file.
const BUFFER_BYTES: usize = 256 << 10;

/// Bytes of a file after decompression.
pub type Bytes = Box<dyn Read>;

/// A file that was looked at, but is not open.
#[derive(Debug, Clone)]
pub struct CaptureFile {
    pub path: PathBuf,
    /// Time of the first packet, since 1970; none for standard input, and for a file without packets.
    pub first: Option<Instant>,
}

/// Reader of a capture whose header was read.
pub struct OpenCapture {
    pub reader: CaptureReader<Bytes>,
    pub compression: Option<Compression>,
}

/// Puts the parts of one capture in the order of their first packets. A part without packets comes last.
///
/// One file is not opened here, because it may be a pipe that can be read only once.
pub fn in_time_order(paths: &[PathBuf]) -> Result<Vec<CaptureFile>, TraceError> {
    if let [path] = paths {
        return Ok(vec![single(path)?]);
    }
    if paths.iter().any(|path| is_standard_input(path)) {
        return Err(TraceError::StandardInputAmongFiles);
    }
    let files = paths.iter().map(|path| Ok(CaptureFile { path: path.clone(), first: first_time(path)? }));
    let mut files = files.collect::<Result<Vec<_>, TraceError>>()?;
    files.sort_by_key(|file| (file.first.is_none(), file.first));
    Ok(files)
}

/// Returns one file without a look at its contents.
pub fn single(path: &Path) -> Result<CaptureFile, TraceError> {
    Ok(CaptureFile { path: path.to_owned(), first: None })
}

/// Returns the time of the first packet. Damage after the header is reported when the packets are read.
fn first_time(path: &Path) -> Result<Option<Instant>, TraceError> {
    let mut capture = open(path)?;
    Ok(capture.reader.next().ok().flatten().map(|frame| Instant::from_nanos(frame.at)))
}

/// Opens a capture and reads its header.
pub fn open(path: &Path) -> Result<OpenCapture, TraceError> {
    let open_error = |source| TraceError::Open { file: path.to_owned(), source };
    let file: Box<dyn Read> = if is_standard_input(path) {
        Box::new(io::stdin())
    } else {
        let file = File::open(path).map_err(open_error)?;
        if file.metadata().map_err(open_error)?.is_dir() {
            return Err(TraceError::Directory { file: path.to_owned() });
        }
        Box::new(file)
    };
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
fn decompress(mut file: Box<dyn Read>) -> io::Result<(Bytes, Option<Compression>)> {
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
