// SPDX-License-Identifier: Apache-2.0
//! Base64 with padding (RFC 4648, section 4), as logs and events use it.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(crate) fn encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let all =
            three.iter().fold(0_u32, |all, byte| all << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for at in 0..4 {
            let digit = DIGITS[(all >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// `None` for what [`encoded`] does not give.
pub(crate) fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let fours = text.as_bytes().chunks(4);
    let last = fours.len();
    for (number, four) in fours.enumerate() {
        let padding = four.iter().rev().take_while(|digit| **digit == b'=').count();
        if four.len() != 4 || padding > 2 || (padding > 0 && number + 1 != last) {
            return None;
        }
        let mut all = 0;
        for digit in &four[..4 - padding] {
            let value = DIGITS.iter().position(|other| other == digit)?;
            all = all << 6 | u32::try_from(value).ok()?;
        }
        all <<= 6 * padding;
        let three = all.to_be_bytes();
        let (kept, over) = three[1..].split_at(3 - padding);
        if over.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend(kept);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for (plain, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(encoded(plain.as_bytes()), text);
            assert_eq!(decoded(text).as_deref(), Some(plain.as_bytes()));
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decoded(&encoded(&all)), Some(all));
        for wrong in ["Zg", "Zg=", "Zh==", "Z===", "Zg==Zg==", "Zm9-", "====", "Zm 9"] {
            assert_eq!(decoded(wrong), None, "{wrong}");
        }
    }
}
