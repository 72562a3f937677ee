// SPDX-License-Identifier: Apache-2.0
//! Messages arrive whole and in order, and a peer that lies gains nothing.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::time::Duration;

use super::*;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
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

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        (0..self.roll(most + 1)).map(|_| self.roll(256) as u8).collect()
    }
}

#[test]
fn messages_arrive_whole_and_in_order() {
    let (mut writer, fd) = create(CAPACITY_MIN).unwrap();
    let mut reader = Reader::open(&fd).unwrap();
    let most = writer.message_max() as u64;
    let messages = move || {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
        (0..3000).map(move |number| dice.bytes(if number % 100 == 0 { most } else { 200 }))
    };
    let sender = std::thread::spawn(move || {
        messages().for_each(|message| writer.send(&message, soon()).unwrap());
    });
    let mut received = Vec::new();
    for message in messages() {
        reader.receive(&mut received, soon()).unwrap();
        assert!(received == message);
    }
    assert!(matches!(reader.receive(&mut received, soon()), Err(Error::Closed)));
    sender.join().unwrap();
}

#[test]
fn a_full_fifo_takes_no_more_and_an_empty_one_gives_none() {
    let (mut writer, fd) = create(CAPACITY_MIN).unwrap();
    let mut reader = Reader::open(&fd).unwrap();
    let past = Instant::now();
    let mut received = Vec::new();
    assert!(matches!(reader.receive(&mut received, past), Err(Error::Late)));
    let longest = vec![7; writer.message_max()];
    assert!(matches!(writer.send(&[&longest[..], b"x"].concat(), soon()), Err(Error::TooLong { .. })));
    writer.send(&longest, past).unwrap();
    assert!(matches!(writer.send(b"", past), Err(Error::Late)));
    reader.receive(&mut received, past).unwrap();
    assert_eq!(received, longest);
    writer.send(b"", past).unwrap();
    reader.receive(&mut received, past).unwrap();
    assert!(received.is_empty());
}

#[test]
fn who_sleeps_is_woken_by_messages_by_room_and_by_the_end() {
    let (mut writer, fd) = create(CAPACITY_MIN).unwrap();
    let mut reader = Reader::open(&fd).unwrap();
    reader.end.looks = 0;
    writer.end.looks = 0;
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut received = Vec::new();
            let mut count = 0;
            while reader.receive(&mut received, soon()).is_ok() {
                count += 1;
            }
            count
        });
        let message = [1; 1500];
        (0..2000).for_each(|_| writer.send(&message, soon()).unwrap());
        drop(writer);
        assert_eq!(reading.join().unwrap(), 2000);
    });
    let (mut writer, fd) = create(CAPACITY_MIN).unwrap();
    drop(Reader::open(&fd).unwrap());
    assert!(matches!(writer.send(b"x", soon()), Err(Error::Closed)));
}

#[test]
fn what_is_no_fifo_is_refused() {
    for capacity in [0, 4095, 5000, CAPACITY_MAX * 2] {
        assert!(matches!(create(capacity), Err(Error::Memory(_))), "{capacity}");
    }
    let (_memory, fd) = SharedMemory::create("test", RING_AT + 5000).unwrap();
    assert!(matches!(Reader::open(&fd), Err(Error::Memory(_))));
    let (_memory, fd) = SharedMemory::create("test", 100).unwrap();
    assert!(matches!(Writer::open(&fd), Err(Error::Memory(_))));
}

#[test]
fn lies_are_noticed_and_remembered() {
    let cases: [(u64, u32, &str); 4] = [
        (CAPACITY_MIN as u64 + 1, 0, "more than there is room for"),
        (u64::MAX, 0, "more than there is room for"),
        (3, 0, "half a length"),
        (20, 17, "longer than what was written"),
    ];
    for (tail, len, why) in cases {
        let (memory, fd) = SharedMemory::create("test", RING_AT + CAPACITY_MIN).unwrap();
        let mut reader = Reader::open(&fd).unwrap();
        memory.write(RING_AT, &len.to_le_bytes());
        memory.word64(TAIL_AT).store(tail, Ordering::Release);
        for _ in 0..2 {
            let error = reader.receive(&mut Vec::new(), soon()).unwrap_err();
            assert!(matches!(error, Error::Broken(_)) && error.to_string().contains(why), "{error}");
            memory.word64(TAIL_AT).store(0, Ordering::Release);
        }
    }
    let (memory, fd) = SharedMemory::create("test", RING_AT + CAPACITY_MIN).unwrap();
    let mut writer = Writer::open(&fd).unwrap();
    memory.word64(HEAD_AT).store(1, Ordering::Release);
    assert!(matches!(writer.send(b"x", soon()), Err(Error::Broken(_))));
}

/// A peer that writes what it likes, anywhere, between and during the acts of
/// the other side.
#[test]
fn whatever_the_peer_writes_every_act_ends() {
    let mut dice = Dice(0xd1b5_4a32_d192_ed03);
    for _ in 0..300 {
        let (memory, fd) = SharedMemory::create("test", RING_AT + CAPACITY_MIN).unwrap();
        let (mut reader, mut writer) = (Reader::open(&fd).unwrap(), Writer::open(&fd).unwrap());
        let mut received = Vec::new();
        for _ in 0..40 {
            match dice.roll(6) {
                0 => memory
                    .word64([TAIL_AT, HEAD_AT][dice.roll(2) as usize])
                    .store(dice.roll(9000), Ordering::Release),
                1 => memory.write(RING_AT + dice.roll(4000) as usize, &dice.bytes(90)),
                2 => memory.word32(READER_SLEEPS_AT).store(dice.roll(3) as u32, Ordering::Release),
                3 | 4 => drop(writer.send(&dice.bytes(300), Instant::now())),
                _ => {
                    if reader.receive(&mut received, Instant::now()).is_ok() {
                        assert!(received.len() <= CAPACITY_MIN);
                    }
                }
            }
        }
    }
}
