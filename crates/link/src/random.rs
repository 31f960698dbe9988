//! One random generator per place that draws, all from one seed.
//!
//! Direction, hop and stage identify each generator. A new stage, or traffic in the other direction, therefore does not
//! change the draws of the existing generators.

use rand_pcg::Pcg64;

use super::hop_context::{HopContext, LinkDirection};

/// Returns the generator of the stage `label` in the hop and direction of `context`.
pub(super) fn generator(context: &HopContext, label: &str) -> Pcg64 {
    let direction = match context.direction {
        LinkDirection::Forward => "forward",
        LinkDirection::Return => "return",
    };
    let hop = context.hop.to_be_bytes();
    let stream = direction.bytes().chain([b'/']).chain(hop).chain(label.bytes()).fold(FNV_BASIS, fnv);
    // Neighbouring seeds must not give neighbouring states, because the first outputs of PCG would then be similar.
    let state = u128::from(mix(context.seed)) << 64 | u128::from(mix(context.seed ^ stream));
    Pcg64::new(state, u128::from(stream))
}

/// FNV-1a, 64 bits: spreads the few labels, and stays the same in every release.
const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
}

/// Finaliser of SplitMix64 (Steele, Lea and Flood, 2014): every bit of the seed changes half the bits of the result.
fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
