//! Where a file may be cut.

/// A piece that is smaller than this is not worth a reader of its own.
const PIECE_BYTES_MIN: u64 = 8 << 20;

/// Cuts so many bytes into about so many pieces of about the same size: from, and up to.
pub(super) fn pieces(bytes: u64, wanted: usize) -> Vec<(u64, u64)> {
    let count = (bytes / PIECE_BYTES_MIN).clamp(1, wanted.max(1) as u64);
    let cut = |number: u64| (u128::from(bytes) * u128::from(number) / u128::from(count)) as u64;
    (0..count).map(|number| (cut(number), cut(number + 1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_all_without_a_gap() {
        for bytes in [0, 1, PIECE_BYTES_MIN, 3 * PIECE_BYTES_MIN - 1, 100 << 30, u64::MAX] {
            for wanted in [0, 1, 2, 7, 64] {
                let pieces = pieces(bytes, wanted);
                assert!(!pieces.is_empty() && pieces.len() <= wanted.max(1));
                assert_eq!((pieces[0].0, pieces[pieces.len() - 1].1), (0, bytes));
                assert!(pieces.windows(2).all(|pair| pair[0].1 == pair[1].0));
            }
        }
        assert_eq!(pieces(3 * PIECE_BYTES_MIN - 1, 64).len(), 2);
    }
}
