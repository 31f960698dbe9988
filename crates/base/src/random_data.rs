//! Random bytes from a seed and a position, so that any stream can generate any block: the source `random:SIZE` of a
//! copy, and the payload of a test.
//!
//! Word `i` is output `i` of SplitMix64 (Steele, Lea, Flood 2014). The generator jumps to any position with one
//! multiplication and produces several GB/s on one core. The bytes do not compress and do not repeat. They are not
//! secret.

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Fills `buffer` with the bytes at `offset` of the random stream of `seed`.
pub fn fill_random(seed: u64, offset: u64, buffer: &mut [u8]) {
    let mut word = offset / 8;
    let skip = (offset % 8) as usize;
    let (head, body) = buffer.split_at_mut(buffer.len().min((8 - skip) % 8));
    if !head.is_empty() {
        head.copy_from_slice(&word_at(seed, word)[skip..skip + head.len()]);
        word = word.wrapping_add(1);
    }
    let mut chunks = body.chunks_exact_mut(8);
    for chunk in &mut chunks {
        chunk.copy_from_slice(&word_at(seed, word));
        word = word.wrapping_add(1);
    }
    let tail = chunks.into_remainder();
    tail.copy_from_slice(&word_at(seed, word)[..tail.len()]);
}

/// Compares `bytes` with the output of [`fill_random`] at this offset. Returns the position of the first wrong byte and
/// the count of wrong bytes, or `None` if all bytes match.
pub fn compare_random(seed: u64, offset: u64, bytes: &[u8]) -> Option<(usize, usize)> {
    let mut expected = [0; 4096];
    let mut found: Option<(usize, usize)> = None;
    for (number, part) in bytes.chunks(expected.len()).enumerate() {
        let expected = &mut expected[..part.len()];
        let at = number * 4096;
        fill_random(seed, offset.wrapping_add(at as u64), expected);
        if part != expected {
            let wrong = part.iter().zip(expected).enumerate().filter(|(_, (a, b))| a != b).map(|(place, _)| place);
            let (first, count) = wrong.fold((None, 0), |(first, count), place| (first.or(Some(place)), count + 1));
            let before = found.map_or((at + first.unwrap_or(0), 0), |found| found);
            found = Some((before.0, before.1 + count));
        }
    }
    found
}

fn word_at(seed: u64, index: u64) -> [u8; 8] {
    let mut z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(GOLDEN_GAMMA));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_split_gives_the_same_bytes() {
        let mut whole = [0; 100];
        fill_random(1, 3, &mut whole);
        for from in 0..100 {
            for to in from..=100 {
                let mut part = vec![0; to - from];
                fill_random(1, 3 + from as u64, &mut part);
                assert_eq!(part, whole[from..to], "{from}..{to}");
            }
        }
        let mut other = [0; 100];
        fill_random(2, 3, &mut other);
        assert_ne!(other, whole);
    }

    #[test]
    fn differences_are_located_and_counted() {
        let mut bytes = vec![0; 10_000];
        fill_random(7, 123, &mut bytes);
        assert_eq!(compare_random(7, 123, &bytes), None);
        // If data is lost, duplicated or misplaced, nearly all later bytes are wrong.
        let (_, wrong) = compare_random(7, 124, &bytes).unwrap();
        assert!(wrong > 9_900, "{wrong}");
        for place in [4999, 5000, 9999] {
            bytes[place] ^= 1;
        }
        assert_eq!(compare_random(7, 123, &bytes), Some((4999, 3)));
        assert_eq!(compare_random(7, 123 + 5000, &bytes[5000..]), Some((0, 2)));
        assert_eq!(compare_random(7, 0, &[]), None);
    }

    #[test]
    fn first_word_matches_splitmix64() {
        // First output for seed 0, as published with the generator.
        assert_eq!(u64::from_le_bytes(word_at(0, 0)), 0xe220_a839_7b1d_cdaf);
    }
}
