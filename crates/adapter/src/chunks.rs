// SPDX-License-Identifier: Apache-2.0
//! A body that comes in chunks, as HTTP/1.1 has them.

/// Bytes of the line with a chunk's length.
const LINE_MAX: usize = 4 << 10;

/// Where in a chunk what comes next is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Chunks {
    /// In the line with its length.
    #[default]
    Length,
    /// Before so many bytes of it.
    Data(usize),
    /// In the end of its last line.
    End,
    /// Behind the line of the last one, which has no bytes. Trailers and an empty line follow.
    Over,
}

/// Why a body is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    NoLength,
    NoEnd,
    TooLong,
}

impl Chunks {
    /// Takes what is whole of these bytes, and puts it behind the body, which may have so many bytes more; how many were
    /// taken.
    pub(crate) fn take(&mut self, bytes: &[u8], body: &mut Vec<u8>, room: usize) -> Result<usize, Broken> {
        let (mut at, most) = (0, body.len().saturating_add(room));
        loop {
            let rest = &bytes[at..];
            match *self {
                Self::Length => {
                    let Some(line) = rest.windows(2).position(|two| two == b"\r\n") else {
                        return if rest.len() > LINE_MAX { Err(Broken::NoEnd) } else { Ok(at) };
                    };
                    let text = std::str::from_utf8(&rest[..line]).unwrap_or("?");
                    let size = text.split(';').next().unwrap_or_default().trim();
                    let size = usize::from_str_radix(size, 16).map_err(|_| Broken::NoLength)?;
                    if body.len().saturating_add(size) > most {
                        return Err(Broken::TooLong);
                    }
                    at += line + 2;
                    *self = if size == 0 { Self::Over } else { Self::Data(size) };
                }
                Self::Data(0) => *self = Self::End,
                Self::Data(_) if rest.is_empty() => return Ok(at),
                Self::Data(size) => {
                    let len = size.min(rest.len());
                    body.extend(&rest[..len]);
                    at += len;
                    *self = Self::Data(size - len);
                }
                Self::End if rest.len() < 2 => return Ok(at),
                Self::End if rest.starts_with(b"\r\n") => {
                    at += 2;
                    *self = Self::Length;
                }
                Self::End => return Err(Broken::NoEnd),
                Self::Over => return Ok(at),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of a body that comes in pieces of so many bytes, and what was not taken.
    fn taken(whole: &[u8], step: usize, room: usize) -> Result<(Vec<u8>, Vec<u8>, Chunks), Broken> {
        let (mut chunks, mut body, mut held) = (Chunks::default(), Vec::new(), Vec::new());
        for piece in whole.chunks(step) {
            held.extend(piece);
            let left = room - body.len();
            let used = chunks.take(&held, &mut body, left)?;
            held.drain(..used);
        }
        Ok((body, held, chunks))
    }

    #[test]
    fn chunks_are_put_together_however_they_come() {
        let whole = b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nX: y\r\n\r\n";
        for step in 1..whole.len() {
            let (body, rest, chunks) = taken(whole, step, 13).unwrap();
            assert_eq!(
                (body.as_slice(), rest.as_slice()),
                (&b"abc0123456789"[..], &b"X: y\r\n\r\n"[..]),
                "{step}"
            );
            assert_eq!(chunks, Chunks::Over);
        }
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        let long = vec![b'1'; LINE_MAX + 1];
        for (bytes, why) in [
            (&b"x\r\n"[..], Broken::NoLength),
            (b"-1\r\n", Broken::NoLength),
            (b"1\r\nab\r\n", Broken::NoEnd),
            (&long, Broken::NoEnd),
            (b"8\r\n", Broken::TooLong),
            (b"4\r\n0123\r\n4\r\n", Broken::TooLong),
            (b"ffffffffffffffff\r\n", Broken::TooLong),
        ] {
            assert_eq!(taken(bytes, 64 << 10, 7).unwrap_err(), why, "{:?}", String::from_utf8_lossy(bytes));
        }
    }
}
