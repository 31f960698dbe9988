//! Pieces of one file that different ranks hold: the check that they make the whole.

use crate::rank_group::error::RankError;

/// The bytes that one rank holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PieceRange {
    pub(super) rank: u16,
    /// Offset of the first byte.
    pub(super) start: u64,
    /// The byte behind the last one.
    pub(super) end: u64,
}

/// Checks that the pieces cover a file from its first byte without gaps and overlaps. Equal pieces are copies of each
/// other. Returns the length of the file.
pub(super) fn joined_length(pieces: &[PieceRange]) -> Result<u64, RankError> {
    let mut sorted: Vec<PieceRange> = pieces.to_vec();
    // Empty pieces come before others at the same place.
    sorted.sort_by_key(|piece| (piece.start, piece.end, piece.rank));
    let mut before: Option<PieceRange> = None;
    for piece in sorted {
        let end = before.map_or(0, |before| before.end);
        let is_copy = before.is_some_and(|before| (before.start, before.end) == (piece.start, piece.end));
        if !is_copy && piece.start > end {
            return Err(RankError::Gap { from: end, to: piece.start, rank: piece.rank });
        }
        if let Some(before) = before.filter(|before| !is_copy && piece.start < before.end) {
            let PieceRange { rank, start, end } = piece;
            let PieceRange { rank: other, start: other_start, end: other_end } = before;
            return Err(RankError::Overlap { rank, start, end, other, other_start, other_end });
        }
        before = Some(piece);
    }
    Ok(before.map_or(0, |last| last.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(pieces: &[(u64, u64)]) -> Result<u64, String> {
        let numbered = pieces.iter().zip(0..);
        let pieces: Vec<_> =
            numbered.map(|((start, end), rank)| PieceRange { rank, start: *start, end: *end }).collect();
        joined_length(&pieces).map_err(|error| error.to_string())
    }

    #[test]
    fn pieces_must_make_the_whole() {
        assert_eq!(joined(&[(5, 9), (0, 5), (9, 9)]), Ok(9));
        assert_eq!(joined(&[(0, 5), (0, 5), (5, 6)]), Ok(6), "equal pieces are copies");
        assert_eq!(joined(&[]), Ok(0));
        let gap = "no rank has the bytes from 5 to 6: the next piece is that of rank 0";
        assert_eq!(joined(&[(6, 9), (0, 5)]), Err(gap.into()));
        assert_eq!(
            joined(&[(1, 9)]),
            Err("no rank has the bytes from 0 to 1: the next piece is that of rank 0".into())
        );
        let overlap = "the pieces of rank 0 (4 to 9) and rank 1 (0 to 5) overlap";
        assert_eq!(joined(&[(4, 9), (0, 5)]), Err(overlap.into()));
        assert!(joined(&[(0, 5), (0, 6)]).is_err());
    }
}
