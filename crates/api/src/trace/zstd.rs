//! Decompression of zstd files with any number of frames.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Maximum window of a frame: that of `zstd --long=27`, the largest that zstd decompresses without a flag.
const MAX_WINDOW: u64 = 128 << 20;

/// Reader of the decompressed bytes.
pub struct ZstdReader<R> {
    source: R,
    decoder: FrameDecoder,
    /// A frame has begun. Its rest and the next frame follow.
    is_in_frame: bool,
}

impl<R: BufRead> ZstdReader<R> {
    /// Creates a reader before the first frame.
    pub fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_WINDOW);
        ZstdReader { source, decoder, is_in_frame: false }
    }

    /// Begins the next frame; returns false at the end of the file.
    fn begin_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let length = u64::from(length);
                    let skipped = io::copy(&mut (&mut self.source).take(length), &mut io::sink())?;
                    if skipped < length {
                        return Err(ends_early());
                    }
                }
                Err(error) => return Err(self.explain(error)),
            }
        }
        Ok(false)
    }

    /// Returns the error of a decoder, which does not name the end of the file.
    fn explain(&mut self, error: FrameDecoderError) -> io::Error {
        match self.source.fill_buf() {
            Ok([]) => ends_early(),
            Ok(_) => io::Error::new(io::ErrorKind::InvalidData, error),
            Err(error) => error,
        }
    }
}

/// Returns the error of a compressed file that is cut off.
pub fn ends_early() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the compressed data end early")
}

impl<R: BufRead> Read for ZstdReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(out);
            }
            if !self.is_in_frame || self.decoder.is_finished() {
                self.is_in_frame = self.begin_frame()?;
                if !self.is_in_frame {
                    return Ok(0);
                }
                continue;
            }
            let decoded = self.decoder.decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1));
            if let Err(error) = decoded {
                self.is_in_frame = false;
                return Err(self.explain(error));
            }
        }
    }
}
