// SPDX-License-Identifier: Apache-2.0
//! What the node makes of what an instance may send.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::time::Duration;

use adapter::frame::{
    ASK, ASK_AGAIN, BAD_RESULT, DROPPED, HELLO, LEAVING, LINE_HEAD_MAX, LOADED, LOG, PHASES, PIECE,
    PIECE_MAX, RAISED, RESULT, SERVED, SERVING, WAITED, WANTS,
};

use super::*;
use crate::line::{LineAsk, Nowhere};
use crate::process::phases;

const BOUNDS: Bounds = Bounds { result_bytes_max: 1 << 20, log_bytes_max: 1 << 10 };

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    frame_of(kind, 7, payload)
}

fn frame_of(kind: u8, turn: Turn, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_le_bytes().to_vec();
    bytes.push(kind);
    bytes.extend(turn.to_le_bytes());
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
    let mut channel = Channel::new(own, BOUNDS).unwrap();
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
    let mut words = frame(HELLO, &[b"SNWP", &VERSION.to_le_bytes()[..], &[0; 4]].concat());
    words.extend(frame(LOADED, b""));
    words.extend(frame(LOG, b"\x01hello"));
    words.extend(frame(PIECE, b"by"));
    words.extend(frame(WANTS, b"\x05\x01\0\0"));
    words.extend(frame(RESULT, b"bytes"));
    words.extend(frame(RAISED, b"\x01\0\0\0E\0\0\0\0\x02\0\0\0tb"));
    words.extend(frame(BAD_RESULT, b"why"));
    let raised = Raised { kind: "E".into(), message: String::new(), traceback: "tb".into() };
    assert_eq!(
        heard(&words),
        [
            Ok(Frame::Hello { version: VERSION, pid: 0 }),
            Ok(Frame::Loaded),
            Ok(Frame::Piece(7, b"by".to_vec())),
            Ok(Frame::Wants(7, 0x105)),
            Ok(Frame::Answer(7, Answer::Result(b"bytes".to_vec()))),
            Ok(Frame::Answer(7, Answer::Raised(raised))),
            Ok(Frame::Answer(7, Answer::BadResult("why".into()))),
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
        words.extend([kind, 0, 0, 0, 0]);
        assert!(matches!(heard(&words)[..], [Err(Broken::Lie(_))]), "kind {kind}, {len} bytes");
    }
    for words in [
        frame(0, b""),
        frame(BODY, b"to the node"),
        frame(BODY_LOST, b""),
        frame(WANTS, b"123"),
        frame(WANTS, b"12345"),
        frame(18, b""),
        frame(PIECE, &[0; PIECE_MAX + 1]),
        frame(ROOM, b"1234"),
        frame(TOLD, b"\0\0\0\0\0\0\0\0"),
        frame(CALL, b"1234"),
        frame(RAISED, b"\xff\xff\xff\xff"),
    ] {
        assert!(matches!(heard(&words)[..], [Err(Broken::Lie(_))]), "{words:?}");
    }
    let flood = frame(LOG, &[b'x'; 1000]).repeat(200);
    assert!(matches!(heard(&flood)[..], [Err(Broken::Lie(_))]), "a flood of log lines");
}

fn ask(id: u32, name_len: u16, name: &[u8], type_len: u16, rest: &[u8]) -> Vec<u8> {
    let head = [&id.to_le_bytes()[..], &name_len.to_le_bytes(), name, &type_len.to_le_bytes(), rest].concat();
    frame(ASK, &head)
}

#[test]
fn asks_are_taken_apart_and_their_lengths_are_believed_nowhere() {
    let channel_of = |words: Vec<u8>| heard(&words).swap_remove(0);
    let nested = NestedCall {
        function: "g".into(),
        content_type: "t/p".into(),
        body: b"body".to_vec(),
        line: LineAsk::default(),
    };
    assert_eq!(channel_of(ask(5, 1, b"g", 3, b"t/pbody")), Ok(Frame::Ask(7, 5, nested)));
    let empty = NestedCall {
        function: String::new(),
        content_type: String::new(),
        body: Vec::new(),
        line: LineAsk::default(),
    };
    assert_eq!(channel_of(ask(0, 0, b"", 0, b"")), Ok(Frame::Ask(7, 0, empty)));
    for wrong in [
        ask(1, 2, b"g", 0, b""),
        ask(1, 1, b"g", 1, b""),
        ask(1, u16::MAX, b"g", u16::MAX, b"t"),
        ask(1, 129, &[b'g'; 129], 0, b""),
        ask(1, 1, b"g", 257, &[b't'; 300]),
        frame(ASK, b"1234567"),
        // More than any payload may have is refused before it comes.
        frame(ASK, b"")
            .iter()
            .enumerate()
            .map(|(at, byte)| if at < 4 { u32::MAX.to_le_bytes()[at] } else { *byte })
            .collect(),
    ] {
        assert!(matches!(channel_of(wrong.clone()), Err(Broken::Lie(_))), "{wrong:?}");
    }
}

#[test]
fn a_peer_that_stalls_is_late() {
    let (own, mut peer) = UnixStream::pair().unwrap();
    peer.write_all(&frame(RESULT, b"whole")[..11]).unwrap();
    let mut channel = Channel::new(own, BOUNDS).unwrap();
    assert_eq!(channel.answer(Instant::now() + Duration::from_millis(30)), Err(Broken::Late));
    // Nor is one waited for that does not read.
    let big = vec![0; 8 << 20];
    channel.call(1, &[Argument::of(&big)], None, false).unwrap();
    assert_eq!(channel.flush(), Ok(false));
    assert!(channel.is_sending());
    assert_eq!(channel.answer(Instant::now() + Duration::from_millis(30)), Err(Broken::Late));
}

#[test]
fn nothing_waits_for_what_has_not_come() {
    let (own, mut peer) = UnixStream::pair().unwrap();
    let mut channel = Channel::new(own, BOUNDS).unwrap();
    assert_eq!(channel.read(), Ok(None));
    let long = vec![b'x'; 300_000];
    let words = [frame_of(LOG, 1, b"\x01a"), frame_of(RESULT, 2, &long), frame_of(RESULT, 1, b"b")].concat();
    let (sent, rest) = words.split_at(HEADER_LEN + 2 + HEADER_LEN - 1);
    peer.write_all(sent).unwrap();
    assert_eq!(channel.read(), Ok(None), "nothing was looked for anew");
    channel.may_read();
    assert_eq!(channel.read(), Ok(Some(Frame::Log(1, false, b"a".to_vec()))));
    assert_eq!(channel.read(), Ok(None), "half a header");
    let (sent, rest) = rest.split_at(100_000);
    peer.write_all(sent).unwrap();
    channel.may_read();
    assert_eq!(channel.read(), Ok(None), "half a result");
    let writer = std::thread::spawn({
        let rest = rest.to_vec();
        move || peer.write_all(&rest).unwrap()
    });
    let mut frames = Vec::new();
    while frames.len() < 2 {
        channel.wait(soon()).unwrap();
        frames.extend(channel.read().unwrap());
    }
    writer.join().unwrap();
    let results = [(2, long), (1, b"b".to_vec())].map(|(turn, it)| Frame::Answer(turn, Answer::Result(it)));
    assert_eq!(frames, results);
}

#[test]
fn calls_arrive_whole_and_in_order() {
    let (own, mut peer) = UnixStream::pair().unwrap();
    let mut channel = Channel::new(own, BOUNDS).unwrap();
    let big = vec![3; 2 << 20];
    channel.call(1, &[Argument::of(b"a"), Argument::of(&big)], None, false).unwrap();
    channel.call(2, &[Argument::of(b""), Argument::of(b"b")], None, false).unwrap();
    assert_eq!(channel.flush(), Ok(false));
    let expected = [
        frame_of(CALL, 1, &[&[2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 32, 0], b"a".as_slice(), &big].concat()),
        frame_of(CALL, 2, &[2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, b'b']),
    ]
    .concat();
    let reader = std::thread::spawn(move || {
        let mut came = vec![0; expected.len()];
        peer.read_exact(&mut came).unwrap();
        assert!(came == expected);
    });
    while !channel.flush().unwrap() {
        std::thread::yield_now();
    }
    reader.join().unwrap();
    assert_eq!(channel.outgoing.capacity(), 0, "what was long is not kept");
    let many = [Argument::of(b"x"); 1000];
    channel.call(3, &many, None, false).unwrap();
    assert_eq!(channel.unsent_len(), 9 + 4 + 1000 * 4 + 1000, "a step may be given the results of many");
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

#[test]
fn descriptors_come_with_their_frame_whatever_waits_before_it() {
    let (own, peer) = UnixStream::pair().unwrap();
    let mut channel = Channel::new(own, BOUNDS).unwrap();
    let terms = LineTerms {
        caller: "caller".to_owned(),
        function: "callee".to_owned(),
        version: 3,
        timeout: Duration::from_millis(77),
    };
    let line = Line::new(5, terms, std::sync::Arc::new(Nowhere)).unwrap();
    // Who does not read is given a few.
    let (unread, _peer) = UnixStream::pair().unwrap();
    let mut silent = Channel::new(unread, BOUNDS).unwrap();
    let given = (0..100).filter(|_| silent.line(&line).is_ok()).count();
    assert_eq!(given, ATTACHED_MAX);
    // More than a socket takes at once.
    let long = vec![1; 600_000];
    channel.body(7, &long).unwrap();
    channel.serve(8, &line).unwrap();
    channel.line(&line).unwrap();
    channel.body(7, &long).unwrap();
    let (mut bytes, mut places) = (Vec::new(), Vec::new());
    loop {
        let is_sent = channel.flush().unwrap();
        // Anything at all is there, unless all of it was read before.
        let (piece, fds) = linux::receive_message(&peer).unwrap().unwrap();
        if !fds.is_empty() {
            places.push((bytes.len(), fds.len(), piece.len()));
            let (one, other) = (linux::SharedMemory::open(&fds[0]), linux::SharedMemory::open(&fds[1]));
            assert!(one.is_ok() && other.is_ok());
        }
        bytes.extend(piece);
        if is_sent && bytes.len() >= 2 * (HEADER_LEN + long.len()) + 2 * HEADER_LEN + 32 + 10 {
            break;
        }
    }
    let serve = [&77_u64.to_le_bytes()[..], &3_u64.to_le_bytes(), &[6, 0, 6, 0], b"calleecaller"].concat();
    let expected = [
        frame(BODY, &long),
        frame_of(SERVE, 8, &serve),
        frame_of(LINE, OUTSIDE, b"\x05\0\0\0callee"),
        frame(BODY, &long),
    ];
    assert!(bytes == expected.concat(), "{} bytes", bytes.len());
    // They may come with bytes before them, never after the first of their own.
    let (first, second) = (expected[0].len(), expected[0].len() + expected[1].len());
    assert!(
        matches!(places[..], [(a, 3, n), (b, 3, m)]
            if a <= first && first < a + n && b <= second && second < b + m),
        "{places:?}, {first} {second}"
    );
}

#[test]
fn what_is_said_of_lines_is_read_and_half_of_it_is_a_lie() {
    let ask = [&9_u32.to_le_bytes()[..], &4_u32.to_le_bytes(), b"\x01\0g\0\0body"].concat();
    let words = [
        frame(ASK_AGAIN, &ask),
        frame(SERVING, b"{}\n{}"),
        frame(WAITED, &70_u64.to_le_bytes()),
        frame(PHASES, &[7; 24]),
        frame(DROPPED, &9_u32.to_le_bytes()),
        frame(LEAVING, b""),
    ];
    let heard = heard(&words.concat());
    let nested = NestedCall {
        function: "g".into(),
        content_type: String::new(),
        body: b"body".to_vec(),
        line: LineAsk::default(),
    };
    assert_eq!(
        heard,
        [
            Ok(Frame::AskAgain(7, 9, 4, nested)),
            Ok(Frame::Serving(7, b"{}\n{}".to_vec())),
            Ok(Frame::Waited(7, Duration::from_micros(70))),
            Ok(Frame::Phases(7, phases::read(&[7; 24]).unwrap())),
            Ok(Frame::Dropped(7, 9)),
            Ok(Frame::Leaving),
            Err(Broken::Closed),
        ]
    );
    let over = Ok(Frame::Serving(7, Vec::new()));
    assert_eq!(self::heard(&frame(SERVING, b""))[..], [over, Err(Broken::Closed)], "no request is served");
    for half in [
        frame(ASK_AGAIN, &ask[..9]),
        frame(SERVING, &[b' '; LINE_HEAD_MAX + 1]),
        frame(WAITED, b"1234"),
        frame(PHASES, &[7; 23]),
        frame(PHASES, &[7; 25]),
        frame(PHASES, &[7; phases::BYTES_MAX + 1]),
        frame(DROPPED, b""),
        frame(LEAVING, b"why"),
        frame(SERVED, b""),
        frame(SERVED, b"half a report"),
    ] {
        assert!(matches!(self::heard(&half)[..], [Err(Broken::Lie(_))]), "{half:?}");
    }
}
