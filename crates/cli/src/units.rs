//! Numbers as people write and read them.

/// Reads `30e9`, `30_000M`, `30_000_000_000` or `30000000000`: whole numbers only.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let plain = text.replace('_', "");
    if let Ok(count) = plain.parse() {
        return Ok(count);
    }
    let (number, factor) = match plain.strip_suffix('K').map(|number| (number, 1e3)) {
        Some(thousands) => thousands,
        None => plain.strip_suffix('M').map_or((&*plain, 1.0), |number| (number, 1e6)),
    };
    match number.parse::<f64>().map(|number| number * factor) {
        // Past 2^53 a float no longer holds every whole number.
        Ok(count) if count >= 0.0 && count < 2_f64.powi(53) && count.fract() == 0.0 => Ok(count as u64),
        _ => Err(format!("{text:?} is no whole number, such as 1000000, 1_000_000, 1e6 or 1M")),
    }
}

const UNITS: [(&str, u32); 5] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("PiB", 50)];

/// Reads `64GiB`, `512 MiB` or a plain number of bytes.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let unknown = || format!("{text:?} is no size, such as 64GiB, 512MiB or 1073741824");
    let (number, shift) = match UNITS.iter().find(|(unit, _)| text.ends_with(unit)) {
        Some((unit, shift)) => (text.trim_end_matches(unit).trim_end(), *shift),
        None => (text, 0),
    };
    let number: u64 = number.parse().map_err(|_| unknown())?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).ok_or_else(unknown)
}

/// `55.2 GiB`.
pub(crate) fn bytes(bytes: u128) -> String {
    let largest = UNITS.iter().rev().find(|(_, shift)| bytes >> shift > 0);
    match largest {
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / 2_f64.powi(*shift as i32)),
        None => format!("{bytes} bytes"),
    }
}

/// `30,000,000,000`.
pub(crate) fn grouped(number: u128) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_whole() {
        assert_eq!(parse_count("30e9"), Ok(30_000_000_000));
        assert_eq!(parse_count("1_000"), Ok(1000));
        assert_eq!(parse_count("2.5e3"), Ok(2500));
        assert_eq!((parse_count("100M"), parse_count("2.5K")), (Ok(100_000_000), Ok(2500)));
        assert_eq!(parse_count("18446744073709551615"), Ok(u64::MAX));
        for text in ["", "-1", "1.5", "1e300", "nan", "inf", "ten", "1e-3", "M", "1MM"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_bytes("64GiB"), Ok(64 << 30));
        assert_eq!(parse_bytes("512 MiB"), Ok(512 << 20));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        for text in ["", "GiB", "0", "64GB", "-1KiB", "99999999PiB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_printed_for_people() {
        assert_eq!(grouped(30_000_000_000), "30,000,000,000");
        assert_eq!(grouped(7), "7");
        assert_eq!(bytes(1023), "1023 bytes");
        assert_eq!(bytes(59_270_000_000), "55.2 GiB");
    }
}
