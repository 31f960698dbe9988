//! One generator for each place that draws, all from one seed.
//!
//! Each is named by direction, hop and stage, so that adding a stage, or traffic in the other direction, does not change
//! what an existing one draws.

use rand_pcg::Pcg64;

use super::{Direction, LinkConfig};

/// The generator of the stage called `label` in the hop and direction of `config`.
pub(super) fn generator(config: &LinkConfig, label: &str) -> Pcg64 {
    let direction = match config.direction {
        Direction::Forward => "forward",
        Direction::Return => "return",
    };
    let hop = config.hop.to_be_bytes();
    let stream = direction.bytes().chain([b'/']).chain(hop).chain(label.bytes()).fold(FNV_BASIS, fnv);
    // Neighbouring seeds must not give neighbouring states: PCG's first outputs would be alike.
    let state = u128::from(mix(config.seed)) << 64 | u128::from(mix(config.seed ^ stream));
    Pcg64::new(state, u128::from(stream))
}

/// FNV-1a, 64 bits: spreads the few labels there are, and stays what it is from release to release.
const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): every bit of the seed moves half the bits of the result.
fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
