// SPDX-License-Identifier: Apache-2.0
//! What a node and an instance say to each other of functions that are called
//! within it. Integers are little-endian.
//!
//! ```text
//! ask within:  number u32 of the function that asks, head length u16, its head; a u8: 1 if
//!              the function is not to be called within the instance, or else 0; id u32 of
//!              the line on which it was begun; number u32 of the function that was called
//!              here, running u32 in µs, failure length u32, failure: a kind u8, 6 or 7, and
//!              what such a frame has, or 14 for what took too long; and an ask
//! ```
//!
//! A number, or id, is 0 where there is none: it is the call of the turn that asks, or
//! nothing was begun.

use std::time::Duration;

use adapter::frame::{AskId, BAD_RESULT, LEFT, LINE_HEAD_MAX, RAISED, TEXT_LEN_MAX};

use super::channel::{ASK_HEAD_LEN, ASK_LEN_MAX, Answer, asked as ask_of, raised};
use crate::nested::NestedCall;
use crate::within::Within;

/// Both numbers, the mark, the id, both lengths and the time.
const FIXED_LEN: usize = 23;
const FAILURE_LEN_MAX: usize = 1 + 3 * (4 + TEXT_LEN_MAX);
/// Of the whole.
pub(super) const ASK_BYTES_MIN: usize = FIXED_LEN + ASK_HEAD_LEN;
pub(super) const ASK_BYTES_MAX: usize = FIXED_LEN + LINE_HEAD_MAX + FAILURE_LEN_MAX + ASK_LEN_MAX;

/// An ask that has to do with functions that are called within an instance.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AskWithin {
    /// The function that asks, and what it was told.
    pub(crate) asker: Option<(u32, Vec<u8>)>,
    /// The instance has something to do already, and another one is to be asked.
    pub(crate) is_for_others: bool,
    /// It was begun on this line.
    pub(crate) again: Option<u32>,
    /// The function that is asked ran here, for so long, and gave this instead of an answer; nothing: it took too
    /// long.
    pub(crate) ended: Option<(u32, Duration, Option<Answer>)>,
    pub(crate) id: AskId,
    pub(crate) nested: NestedCall,
}

/// What an instance is told of a function.
pub(super) fn told(id: AskId, number: u32, within: &Within) -> Vec<u8> {
    let Within { function, version, timeout, handler, .. } = within;
    let mut told = Vec::with_capacity(64);
    told.extend(id.to_le_bytes());
    told.extend(number.to_le_bytes());
    told.extend(version.to_le_bytes());
    told.extend((timeout.as_millis() as u64).to_le_bytes());
    told.extend((function.len() as u16).to_le_bytes());
    told.extend(function.as_bytes());
    told.extend(handler.as_deref().unwrap_or_default().as_bytes());
    told
}

/// Reads an ask; `None` if it is none.
pub(super) fn asked(payload: &[u8]) -> Option<AskWithin> {
    let (number, rest) = word(payload)?;
    let (len, rest) = rest.split_first_chunk()?;
    let (head, rest) = rest.split_at_checked(u16::from_le_bytes(*len).into())?;
    let asker = (number != 0).then(|| (number, head.to_vec()));
    let (&mark, rest) = rest.split_first()?;
    let (line, rest) = word(rest)?;
    let again = (line != 0).then_some(line);
    let (number, rest) = word(rest)?;
    let (running, rest) = word(rest)?;
    let (len, rest) = word(rest)?;
    let (failure, rest) = rest.split_at_checked(len as usize)?;
    let ended = match number {
        0 => None,
        _ => Some((number, Duration::from_micros(running.into()), failed(failure)?)),
    };
    let (id, nested) = ask_of(rest)?;
    let is_right = head.len() <= LINE_HEAD_MAX && mark <= 1;
    is_right.then_some(AskWithin { asker, is_for_others: mark == 1, again, ended, id, nested })
}

fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*word), rest))
}

fn failed(failure: &[u8]) -> Option<Option<Answer>> {
    match failure.split_first()? {
        (&RAISED, texts) => raised(texts).ok().map(|raised| Some(Answer::Raised(raised))),
        (&BAD_RESULT, why) if why.len() <= TEXT_LEN_MAX => {
            Some(Some(Answer::BadResult(String::from_utf8_lossy(why).into_owned())))
        }
        (&LEFT, []) => Some(None),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn anything_is_an_ask_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0..40usize) {
            asked(&bytes);
            let mut whole = ask(&[BAD_RESULT, b'x']);
            let end = whole.len().min(at + bytes.len());
            whole[at..end].copy_from_slice(&bytes[..end - at]);
            asked(&whole);
        }
    }

    /// An ask by the function 3 for `g`, whose call as the function 4 has ended so.
    fn ask(failure: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(3u32.to_le_bytes());
        bytes.extend(4u16.to_le_bytes());
        bytes.extend(b"head");
        bytes.push(1);
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(if failure.is_empty() { 0u32 } else { 4 }.to_le_bytes());
        bytes.extend(250u32.to_le_bytes());
        bytes.extend((failure.len() as u32).to_le_bytes());
        bytes.extend(failure);
        bytes.extend(9u32.to_le_bytes());
        bytes.extend([1, 0, b'g', 0, 0]);
        bytes.extend(b"body");
        bytes
    }

    #[test]
    fn an_ask_says_who_asks_and_how_what_was_called_has_ended() {
        let read = asked(&ask(&[])).unwrap();
        assert_eq!((read.asker, read.is_for_others), (Some((3, b"head".to_vec())), true));
        assert_eq!((read.ended, read.id, read.nested.function.as_str()), (None, 9, "g"));
        assert_eq!(read.nested.body, b"body");
        let mut raising = vec![RAISED];
        for text in ["ValueError", "no", ""] {
            raising.extend((text.len() as u32).to_le_bytes());
            raising.extend(text.as_bytes());
        }
        let Some((4, running, Some(Answer::Raised(raised)))) = asked(&ask(&raising)).unwrap().ended else {
            panic!("it says how it ended");
        };
        assert_eq!(
            (running.as_micros(), raised.kind.as_str(), raised.message.as_str()),
            (250, "ValueError", "no")
        );
        let bad = asked(&ask(&[BAD_RESULT, b'x'])).unwrap().ended.unwrap();
        assert_eq!(bad.2, Some(Answer::BadResult("x".to_owned())));
        assert_eq!(asked(&ask(&[LEFT])).unwrap().ended.unwrap().2, None, "it took too long");
    }

    #[test]
    fn half_an_ask_is_none_and_neither_is_a_failure_of_another_kind() {
        let whole = ask(&[BAD_RESULT, b'x']);
        let body = whole.len() - b"body".len();
        assert!((0..body).all(|length| asked(&whole[..length]).is_none()));
        for failure in [&[5u8, b'x'][..], &[RAISED, 1], &[0], &[LEFT, 1]] {
            assert!(asked(&ask(failure)).is_none(), "{failure:?}");
        }
        let too_long = [vec![BAD_RESULT], vec![b'x'; TEXT_LEN_MAX + 1]].concat();
        assert!(asked(&ask(&too_long)).is_none());
    }
}
