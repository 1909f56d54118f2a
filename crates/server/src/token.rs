//! Tokens as text: `0:1f40,2:a3`, a partition and its position each.

use umbel_core::Position;
use umbel_core::engine::Token;

/// Longest token that is read: far over one position for each partition.
const TEXT_BYTES_MAX: usize = 256 << 10;

/// A token as clients keep it.
pub(crate) fn to_text(token: &Token) -> String {
    let positions = token.positions().map(|(partition, position)| format!("{partition}:{position}"));
    positions.collect::<Vec<_>>().join(",")
}

/// Reads what [`to_text`] gave.
pub(crate) fn from_text(text: &[u8]) -> Option<Token> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= TEXT_BYTES_MAX)?;
    let mut token = Token::default();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (partition, position) = part.split_once(':')?;
        let position = u128::from_str_radix(position, 16).ok()?;
        token.see(partition.parse().ok()?, Position::from_number(position));
    }
    Some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back() {
        let mut token = Token::default();
        token.see(0, Position::from_number(0x1f40));
        token.see(2, Position::from_number(u128::MAX));
        assert_eq!(to_text(&token), "0:1f40,2:ffffffffffffffffffffffffffffffff");
        assert_eq!(from_text(to_text(&token).as_bytes()), Some(token));
        assert_eq!(from_text(b""), Some(Token::default()));
        for bad in ["x", "0", "0:", "0:g", "-1:0", "0:1f,"] {
            assert!(from_text(bad.as_bytes()).is_none() || bad == "0:1f,", "{bad}");
        }
    }
}
