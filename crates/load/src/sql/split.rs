//! Where a table may be cut: values between its first key and its last.

use super::value::Value;

/// Bytes of a text that are looked at behind what all have in common.
const DIGITS: usize = 8;

/// So many guesses, in order, that cut the way from the first value to the last into pieces of about the same length. There
/// is no promise that rows are spread like that: the guesses are only asked for, and what is found there is where a cut is made.
pub(super) fn guesses(first: &Value, last: &Value, count: usize) -> Vec<Value> {
    match (number(first), number(last)) {
        (Some(first), Some(last)) => between(first, last, count).filter_map(value_of).collect(),
        _ => match (first, last) {
            (Value::Text(first), Value::Text(last)) => {
                let numbers = first.parse::<i64>().ok().zip(last.parse::<i64>().ok());
                if let Some((first, last)) = numbers.filter(|(first, last)| first <= last) {
                    let cuts = between(first.into(), last.into(), count);
                    return cuts.map(|cut| Value::Text(cut.to_string())).collect();
                }
                if let Some((first, last)) = identifier(first).zip(identifier(last)) {
                    // One bit less, so that nothing overflows.
                    let cuts = between((first >> 1) as i128, (last >> 1) as i128, count);
                    return cuts.map(|cut| Value::Text(identifier_text((cut as u128) << 1))).collect();
                }
                texts(first, last, count)
            }
            _ => Vec::new(),
        },
    }
}

/// The number in a UUID: a text between two of them would be none.
fn identifier(text: &str) -> Option<u128> {
    let is_dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    let is_formed =
        text.len() == 36 && text.bytes().enumerate().all(|(at, byte)| (byte == b'-') == is_dash(at));
    u128::from_str_radix(&text.replace('-', ""), 16).ok().filter(|_| is_formed)
}

fn identifier_text(number: u128) -> String {
    let hex = format!("{number:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn number(value: &Value) -> Option<i128> {
    match value {
        Value::Int(number) => Some((*number).into()),
        Value::Uint(number) => Some((*number).into()),
        Value::Text(_) | Value::Blob(_) => None,
    }
}

fn value_of(number: i128) -> Option<Value> {
    i64::try_from(number).map(Value::Int).or_else(|_| u64::try_from(number).map(Value::Uint)).ok()
}

fn between(first: i128, last: i128, count: usize) -> impl Iterator<Item = i128> {
    let pieces = count as i128 + 1;
    let cuts = (1..pieces)
        .map(move |cut| first + (last - first) / pieces * cut + (last - first) % pieces * cut / pieces);
    let mut before = None;
    cuts.filter(move |cut| *cut > first && *cut < last && before.replace(*cut) != Some(*cut))
}

/// Texts are numbers whose digits are those characters that keys are mostly made of. The result is ASCII, whatever the ends are.
fn texts(first: &str, last: &str, count: usize) -> Vec<Value> {
    const LOW: i128 = 0x20;
    const BASE: i128 = 0x7f - LOW;
    let same = first.bytes().zip(last.bytes()).take_while(|(one, two)| one == two && one.is_ascii()).count();
    let digits = |text: &str| {
        let bytes = text.as_bytes().get(same..).unwrap_or_default();
        (0..DIGITS).fold(0_i128, |number, at| {
            let byte = bytes.get(at).map_or(0, |byte| (i128::from(*byte) - LOW).clamp(0, BASE - 1));
            number * BASE + byte
        })
    };
    let text_of = |mut number: i128| {
        let mut text = [b' '; DIGITS];
        for place in text.iter_mut().rev() {
            *place = (LOW + number % BASE) as u8;
            number /= BASE;
        }
        // The last digits only tell apart what nobody needs to.
        let digits = String::from_utf8_lossy(&text[..DIGITS / 2]).into_owned();
        format!("{}{digits}", &first[..same])
    };
    let mut found: Vec<Value> =
        between(digits(first), digits(last), count).map(|cut| Value::Text(text_of(cut))).collect();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ascending(values: &[Value]) -> bool {
        values.windows(2).all(|pair| match (&pair[0], &pair[1]) {
            (Value::Text(one), Value::Text(two)) => one < two,
            (one, two) => number(one) < number(two),
        })
    }

    #[test]
    fn numbers_are_cut_evenly_without_overflow() {
        assert_eq!(guesses(&Value::Int(0), &Value::Int(100), 3), [25, 50, 75].map(Value::Int));
        let wide = guesses(&Value::Int(i64::MIN), &Value::Uint(u64::MAX), 7);
        assert!(wide.len() == 7 && ascending(&wide));
        assert!(guesses(&Value::Int(5), &Value::Int(5), 3).is_empty());
        assert_eq!(guesses(&Value::Int(5), &Value::Int(7), 63), [Value::Int(6)]);
        let text = |text: &str| Value::Text(text.into());
        assert_eq!(guesses(&text("1"), &text("1001"), 1), [text("501")]);
    }

    #[test]
    fn texts_are_cut_behind_what_they_have_in_common() {
        let text = |text: &str| Value::Text(text.into());
        let found = guesses(&text("https://a"), &text("https://z"), 3);
        assert!(found.len() == 3 && ascending(&found), "{found:?}");
        for value in &found {
            let Value::Text(text) = value else { panic!("{value:?}") };
            assert!(text.starts_with("https://") && &**text > "https://a" && &**text < "https://z", "{text}");
        }
        for (first, last) in [("", ""), ("a", "a"), ("é", "ü"), ("éa", "éb"), ("", "\u{10ffff}"), ("b", "a")]
        {
            assert!(ascending(&guesses(&text(first), &text(last), 5)), "{first} {last}");
        }
        let ends = ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"];
        let found = guesses(&text(ends[0]), &text(ends[1]), 1);
        assert_eq!(found, [text("7fffffff-ffff-ffff-ffff-fffffffffffe")]);
        assert!(guesses(&Value::Blob(vec![0]), &Value::Blob(vec![9]), 3).is_empty());
    }
}
