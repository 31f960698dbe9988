//! Writes the table of `proto::zeros` to standard output: the BLAKE3 chaining values of zeros, one for each GiB.
//!
//!   cargo run --release --package lfn-copy --example zero_table >crates/copy/src/proto/zeros.table
//!
//! Takes 10 to 30 minutes of processor time.

use std::io::{self, Write};

use blake3::Hasher;
use blake3::hazmat::HasherExt;

/// Number of values: 4 TiB.
const VALUES: u64 = 4 << 10;

const GIB: u64 = 1 << 30;

fn main() -> io::Result<()> {
    let zeros = vec![0; 64 << 10];
    let mut out = io::stdout().lock();
    for number in 0..VALUES {
        let mut hasher = Hasher::new();
        hasher.set_input_offset(number * GIB);
        for _ in 0..GIB / zeros.len() as u64 {
            hasher.update(&zeros);
        }
        out.write_all(&hasher.finalize_non_root())?;
    }
    Ok(())
}
