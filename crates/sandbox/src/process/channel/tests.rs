// SPDX-License-Identifier: Apache-2.0
//! What the node makes of what an instance may send.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use super::*;

const BOUNDS: Bounds = Bounds { result_bytes_max: 1 << 20, log_bytes_max: 1 << 10 };

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_le_bytes().to_vec();
    bytes.push(kind);
    bytes.extend(payload);
    bytes
}

/// What the node gets of a peer that says `words` and closes.
fn heard(words: &[u8]) -> Vec<Result<Frame, Broken>> {
    let (own, mut peer) = UnixStream::pair().unwrap();
    let words = words.to_vec();
    let speaker = std::thread::spawn(move || {
        // It fails when the node has hung up on a liar.
        _ = peer.write_all(&words);
    });
    let mut channel = Channel::new(own, BOUNDS);
    let mut frames = Vec::new();
    loop {
        let answer = channel.answer(soon());
        let over = answer.is_err();
        frames.push(answer);
        if over {
            drop(channel);
            speaker.join().unwrap();
            return frames;
        }
    }
}

#[test]
fn frames_are_told_apart() {
    let mut words = frame(HELLO, b"SNWP\x02\x00\x00\x00\x00\x00");
    words.extend(frame(LOADED, b""));
    words.extend(frame(LOG, b"\x01hello"));
    words.extend(frame(RESULT, b"bytes"));
    words.extend(frame(RAISED, b"\x01\0\0\0E\0\0\0\0\x02\0\0\0tb"));
    words.extend(frame(BAD_RESULT, b"why"));
    let raised = Raised { kind: "E".into(), message: String::new(), traceback: "tb".into() };
    assert_eq!(
        heard(&words),
        [
            Ok(Frame::Hello { version: 2 }),
            Ok(Frame::Loaded),
            Ok(Frame::Result(b"bytes".to_vec())),
            Ok(Frame::Raised(raised)),
            Ok(Frame::BadResult("why".into())),
            Err(Broken::Closed),
        ]
    );
}

#[test]
fn lies_are_noticed_before_anything_is_allocated() {
    for (kind, len) in
        [(RESULT, u32::MAX), (RESULT, (1 << 20) + 1), (HELLO, 11), (LOADED, 1), (RAISED, 1 << 20), (LOG, 0)]
    {
        let mut words = len.to_le_bytes().to_vec();
        words.push(kind);
        assert!(matches!(heard(&words)[..], [Err(Broken::Lie(_))]), "kind {kind}, {len} bytes");
    }
    for words in [frame(0, b""), frame(10, b""), frame(CALL, b"1234"), frame(RAISED, b"\xff\xff\xff\xff")] {
        assert!(matches!(heard(&words)[..], [Err(Broken::Lie(_))]), "{words:?}");
    }
    let flood = frame(LOG, &[b'x'; 1000]).repeat(200);
    assert!(matches!(heard(&flood)[..], [Err(Broken::Lie(_))]), "a flood of log lines");
}

#[test]
fn a_peer_that_stalls_is_late() {
    let (own, mut peer) = UnixStream::pair().unwrap();
    peer.write_all(&frame(RESULT, b"whole")[..7]).unwrap();
    let mut channel = Channel::new(own, BOUNDS);
    assert_eq!(channel.answer(Instant::now() + Duration::from_millis(30)), Err(Broken::Late));
    // Nor is one waited for that does not read.
    let big = vec![0; 8 << 20];
    assert_eq!(channel.call(&[&big], Instant::now() + Duration::from_millis(30)), Err(Broken::Late));
}

/// Pseudo-random, the same on every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

#[test]
fn whatever_is_sent_ends_in_frames_or_a_fault() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for _ in 0..2000 {
        let mut words = Vec::new();
        for _ in 0..dice.roll(6) {
            let payload: Vec<u8> = (0..dice.roll(40)).map(|_| dice.roll(256) as u8).collect();
            words.extend(frame(dice.roll(11) as u8, &payload));
        }
        for _ in 0..dice.roll(4) {
            if !words.is_empty() {
                let at = dice.roll(words.len() as u64) as usize;
                words[at] = dice.roll(256) as u8;
            }
        }
        let frames = heard(&words);
        assert!(frames.len() <= 7 + words.len() / HEADER_LEN);
        assert!(matches!(frames.last(), Some(Err(Broken::Closed | Broken::Lie(_)))));
    }
}
