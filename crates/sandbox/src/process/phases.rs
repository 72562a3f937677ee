// SPDX-License-Identifier: Apache-2.0
//! What an instance says of a step, as it comes on its channel.

use std::time::Duration;

use adapter::frame::{PICKLED_NAME_MAX, PICKLED_TYPES_MAX};

use crate::spent::Phases;

/// The three times.
pub(super) const HEAD_BYTES: usize = 24;
/// Count and length of a name.
const TYPE_HEAD_BYTES: usize = 5;
/// The longest that there is: one type more stands for all others.
pub(super) const BYTES_MAX: usize =
    HEAD_BYTES + (PICKLED_TYPES_MAX + 1) * (TYPE_HEAD_BYTES + PICKLED_NAME_MAX);

/// `None` if it is none, or says more than it may.
pub(super) fn read(payload: &[u8]) -> Option<Phases> {
    let mut rest = payload;
    let [taking, running, giving] = [micros(&mut rest)?, micros(&mut rest)?, micros(&mut rest)?];
    let mut pickled = Vec::new();
    while !rest.is_empty() {
        let (count, after) = rest.split_first_chunk()?;
        let (len, after) = after.split_first()?;
        let (name, after) = after.split_at_checked(usize::from(*len))?;
        if name.len() > PICKLED_NAME_MAX || pickled.len() > PICKLED_TYPES_MAX {
            return None;
        }
        pickled.push((shown(name), u32::from_le_bytes(*count)));
        rest = after;
    }
    Some(Phases { taking, running, giving, pickled })
}

fn micros(rest: &mut &[u8]) -> Option<Duration> {
    let (us, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(Duration::from_micros(u64::from_le_bytes(*us)))
}

/// A name, which can be put between quotes in a line of text.
fn shown(name: &[u8]) -> String {
    let is_odd = |letter: char| letter.is_control() || matches!(letter, '"' | '\\');
    String::from_utf8_lossy(name).replace(is_odd, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Vec<u8> {
        [1_u64, 20, 300].iter().flat_map(|us| us.to_le_bytes()).collect()
    }

    fn of_type(count: u32, name: &[u8]) -> Vec<u8> {
        [&count.to_le_bytes()[..], &[name.len() as u8], name].concat()
    }

    #[test]
    fn the_parts_of_a_step_and_what_it_pickled_are_read() {
        let us = Duration::from_micros;
        let plain = Phases { taking: us(1), running: us(20), giving: us(300), pickled: Vec::new() };
        assert_eq!(read(&head()), Some(plain.clone()));
        let told = [head(), of_type(3, b"datetime.date"), of_type(9, b"a\n\"\\b")].concat();
        let pickled = vec![("datetime.date".to_owned(), 3), ("a\u{fffd}\u{fffd}\u{fffd}b".to_owned(), 9)];
        assert_eq!(read(&told), Some(Phases { pickled, ..plain }));
    }

    #[test]
    fn half_of_it_and_more_than_it_may_be_is_none() {
        let named = |count: usize, len: usize| [head(), of_type(1, &vec![b'a'; len]).repeat(count)].concat();
        let longest = named(PICKLED_TYPES_MAX + 1, PICKLED_NAME_MAX);
        assert!(longest.len() == BYTES_MAX && read(&longest).is_some());
        assert!(read(&named(1, PICKLED_NAME_MAX + 1)).is_none());
        assert!(read(&named(PICKLED_TYPES_MAX + 2, 1)).is_none());
        let told = named(1, 9);
        for end in [0, 23, 26, 28, 30, told.len() - 1] {
            assert!(read(&told[..end]).is_none(), "{end}");
        }
    }
}
