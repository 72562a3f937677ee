// SPDX-License-Identifier: Apache-2.0
//! What functions print: as it comes, and as its readers get it.

use std::borrow::Cow;
use std::time::Instant;

use serde::ser::SerializeTuple as _;
use serde::{Deserialize, Serialize, Serializer};

/// What a call printed, in the order in which it came.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Printed {
    /// All of it, by whichever stream.
    pub bytes: Vec<u8>,
    /// What that consists of, in the same order: their lengths are together its own.
    pub pieces: Vec<Piece>,
}

/// A call that runs and has printed something.
#[derive(Debug, Clone)]
pub struct Printing {
    /// When its instance came to it.
    pub since: Instant,
    /// What it printed so far.
    pub printed: Printed,
}

/// How much a call that runs has printed so far.
#[derive(Debug, Clone, Copy)]
pub struct SoFar {
    /// Lines that have an end.
    pub lines: usize,
    /// Bytes of all.
    pub bytes: usize,
}

/// A part of what was printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Bytes of it.
    pub len: usize,
    /// When it came.
    pub at: Instant,
    /// To standard error, and not to standard output.
    pub is_error: bool,
}

impl Printed {
    /// What came at once, to standard error.
    pub(crate) fn error(bytes: Vec<u8>) -> Self {
        let piece = Piece { len: bytes.len(), at: Instant::now(), is_error: true };
        Self { bytes, pieces: vec![piece] }
    }
}

/// The same as a text, with the time of day: what is no UTF-8 is replaced.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Log {
    pub(crate) text: String,
    /// In the order of their places.
    marks: Vec<Mark>,
    /// Lines that had their ends before this begins, and are in it no more.
    lines_left_out: usize,
}

/// From this byte of the text on it is of this stream, and came then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(from = "(usize, u64, u8)")]
pub(crate) struct Mark {
    place: usize,
    /// In microseconds since 1970.
    time_us: u64,
    is_error: bool,
}

impl From<(usize, u64, u8)> for Mark {
    fn from((place, time_us, stream): (usize, u64, u8)) -> Self {
        Self { place, time_us, is_error: stream == 2 }
    }
}

impl Serialize for Mark {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut mark = serializer.serialize_tuple(3)?;
        mark.serialize_element(&self.place)?;
        mark.serialize_element(&self.time_us)?;
        mark.serialize_element(&if self.is_error { 2 } else { 1 })?;
        mark.end()
    }
}

/// A line of it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Line<'a> {
    /// When it was begun, in microseconds since 1970.
    pub(crate) time_us: u64,
    /// `out` or `err`.
    pub(crate) stream: &'static str,
    /// Without its end.
    pub(crate) text: Cow<'a, str>,
}

impl Log {
    /// Of what was printed, at this moment, which is so many microseconds after 1970.
    pub(crate) fn of(printed: Printed, (now, now_us): (Instant, u64)) -> Self {
        let Printed { bytes, pieces } = printed;
        if bytes.is_empty() {
            return Self::default();
        }
        let time_us = |piece: &Piece| {
            let ago = now.saturating_duration_since(piece.at).as_micros();
            now_us.saturating_sub(u64::try_from(ago).unwrap_or(u64::MAX))
        };
        let mut marks = Vec::with_capacity(pieces.len());
        match String::from_utf8(bytes) {
            Ok(text) => {
                let mut place = 0;
                for piece in &pieces {
                    // A character may have come in two pieces.
                    let place_of_text = text.ceil_char_boundary(place);
                    let mark =
                        Mark { place: place_of_text, time_us: time_us(piece), is_error: piece.is_error };
                    marks.push(mark);
                    place += piece.len;
                }
                Self { text, marks, lines_left_out: 0 }
            }
            Err(error) => {
                let mut text = String::new();
                let mut rest = error.as_bytes();
                for piece in &pieces {
                    let (bytes, after) = rest.split_at(piece.len.min(rest.len()));
                    marks.push(Mark { place: text.len(), time_us: time_us(piece), is_error: piece.is_error });
                    text.push_str(&String::from_utf8_lossy(bytes));
                    rest = after;
                }
                text.push_str(&String::from_utf8_lossy(rest));
                Self { text, marks, lines_left_out: 0 }
            }
        }
    }

    /// Only the end of it, from about so many bytes before, behind a mark that says so.
    pub(crate) fn shorten(&mut self, most: usize) {
        /// Stands for what was left out.
        const LEFT_OUT: &str = "…";
        if self.text.len() <= most {
            return;
        }
        let start = self.text.ceil_char_boundary(self.text.len() - most);
        self.lines_left_out += self.text[..start].matches('\n').count();
        // Of a long one the memory is more than the text.
        let rest = &self.text[start..];
        let mut kept = String::with_capacity(LEFT_OUT.len() + rest.len());
        kept.push_str(LEFT_OUT);
        kept.push_str(rest);
        self.text = kept;
        let gone = self.marks.partition_point(|mark| mark.place <= start).saturating_sub(1);
        self.marks.drain(..gone);
        for mark in &mut self.marks {
            mark.place = if mark.place <= start { 0 } else { mark.place - start + LEFT_OUT.len() };
        }
        self.marks.shrink_to_fit();
    }

    /// What it takes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.text.capacity() + self.marks.capacity() * size_of::<Mark>()
    }

    /// Lines that are in it no more.
    pub(crate) fn lines_left_out(&self) -> usize {
        self.lines_left_out
    }

    pub(crate) fn marks(&self) -> &[Mark] {
        &self.marks
    }

    pub(crate) fn lines(&self) -> Vec<Line<'_>> {
        lines(&self.text, &self.marks, true)
    }

    /// Those that have an end: the others may go on.
    pub(crate) fn whole_lines(&self) -> Vec<Line<'_>> {
        lines(&self.text, &self.marks, false)
    }
}

/// The lines of a text, in the order in which they were ended; `with_rest`: also what was begun and has no end.
/// What nothing is known of is told as begun in 1970.
pub(crate) fn lines<'a>(text: &'a str, marks: &[Mark], with_rest: bool) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    // Of each stream, what has no end yet.
    let mut begun: [Option<Line<'a>>; 2] = [None, None];
    let first = marks.first().filter(|mark| mark.place == 0).is_none();
    let before = first.then_some(Mark { place: 0, time_us: 0, is_error: false });
    let mut starts = before.iter().chain(marks).peekable();
    while let Some(mark) = starts.next() {
        let end = starts.peek().map_or(text.len(), |next| next.place);
        let piece = text.get(mark.place..end).unwrap_or_default();
        for part in piece.split_inclusive('\n') {
            let pending = &mut begun[usize::from(mark.is_error)];
            let line = pending.get_or_insert_with(|| Line {
                time_us: mark.time_us,
                stream: if mark.is_error { "err" } else { "out" },
                text: Cow::Borrowed(""),
            });
            let whole = part.strip_suffix('\n');
            line.text += whole.unwrap_or(part);
            if whole.is_some() {
                lines.extend(pending.take());
            }
        }
    }
    let [out, error] = begun;
    let mut rest: Vec<Line<'a>> = out.into_iter().chain(error).filter(|_| with_rest).collect();
    rest.sort_by_key(|line| line.time_us);
    lines.extend(rest);
    lines
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const NOW_US: u64 = 1_000_000;

    /// Of pieces that each came a millisecond after the one before, the last one now.
    fn log(pieces: &[(bool, &[u8])]) -> Log {
        let now = Instant::now();
        let ago = |at: usize| Duration::from_millis((pieces.len() - 1 - at) as u64);
        let of = |(at, &(is_error, bytes)): (usize, &(bool, &[u8]))| Piece {
            len: bytes.len(),
            at: now.checked_sub(ago(at)).unwrap_or(now),
            is_error,
        };
        let bytes = pieces.iter().flat_map(|(_, bytes)| *bytes).copied().collect();
        Log::of(Printed { bytes, pieces: pieces.iter().enumerate().map(of).collect() }, (now, NOW_US))
    }

    fn told<'a>(lines: &'a [Line<'_>]) -> Vec<(u64, &'a str, &'a str)> {
        lines.iter().map(|line| (NOW_US - line.time_us, line.stream, &*line.text)).collect()
    }

    #[test]
    fn lines_have_the_time_of_their_beginning_and_the_order_of_their_ends() {
        let log = log(&[(false, b"one\ntw"), (true, b"wrong\nwor"), (false, b"o\n\nthree"), (true, b"se")]);
        let lines = log.lines();
        assert_eq!(
            told(&lines),
            [
                (3000, "out", "one"),
                (2000, "err", "wrong"),
                (3000, "out", "two"),
                (1000, "out", ""),
                (2000, "err", "worse"),
                (1000, "out", "three"),
            ]
        );
        assert_eq!(log.whole_lines(), lines[..4]);
        assert_eq!(log.text, "one\ntwwrong\nworo\n\nthreese", "as it came");
    }

    #[test]
    fn what_is_no_text_is_replaced_where_it_stood() {
        let log = log(&[(false, b"a\xff\n"), (true, b"\xc3"), (true, b"\xa9b\n")]);
        assert_eq!(told(&log.lines()), [(2000, "out", "a\u{fffd}"), (1000, "err", "\u{fffd}\u{fffd}b")]);
        let whole = self::log(&[(true, b"\xc3"), (true, b"\xa9b\n")]);
        assert_eq!(told(&whole.lines()), [(1000, "err", "éb")]);
    }

    #[test]
    fn of_a_long_one_the_end_is_kept_with_its_marks() {
        let mut log = log(&[(false, b"begin\n"), (true, "éééé\n".as_bytes()), (false, b"end\n")]);
        let whole = log.clone();
        log.shorten(100);
        assert_eq!(log, whole);
        log.shorten(8);
        assert_eq!(told(&log.lines()), [(1000, "err", "…é"), (0, "out", "end")]);
        assert_eq!(
            (log.lines_left_out(), whole.lines().len()),
            (1, 3),
            "lines have the numbers that they had"
        );
        log.shorten(4);
        assert_eq!(told(&log.lines()), [(0, "out", "…end")]);
        assert_eq!(log.marks().len(), 1);
    }

    #[test]
    fn marks_are_read_as_they_are_written() {
        let log = log(&[(false, b"a"), (true, b"b")]);
        let text = serde_json::to_string(log.marks()).unwrap_or_default();
        assert_eq!(text, "[[0,999000,1],[1,1000000,2]]");
        assert_eq!(serde_json::from_str::<Vec<Mark>>(&text).ok().as_deref(), Some(log.marks()));
    }

    proptest! {
        #[test]
        fn anything_that_is_printed_has_lines(
            parts in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..12)), 1..12),
            most in 1..60_usize,
        ) {
            let parts: Vec<(bool, &[u8])> = parts.iter().map(|(is, part)| (*is, part.as_slice())).collect();
            let mut log = log(&parts);
            let of = |log: &Log| log.lines().iter().map(|line| line.text.len()).sum::<usize>();
            let ends = |log: &Log| log.text.matches('\n').count();
            prop_assert_eq!(of(&log) + ends(&log), log.text.len(), "nothing is lost");
            let all = log.lines().len();
            log.shorten(most);
            prop_assert_eq!(of(&log) + ends(&log), log.text.len());
            // Those that are whole have the numbers from behind that they had before.
            let ended = log.whole_lines().len();
            prop_assert!(log.lines_left_out() + ended <= all && log.lines_left_out() + log.lines().len() + 1 >= all);
            prop_assert!(log.text.len() <= most + "…".len());
        }

        #[test]
        fn any_marks_of_any_text_do_no_harm(
            text in "\\PC{0,20}",
            marks in prop::collection::vec((0..30_usize, any::<u64>(), 0..4_u8), 0..6),
        ) {
            let marks: Vec<Mark> = marks.into_iter().map(Mark::from).collect();
            lines(&text, &marks, true);
        }
    }
}
