// SPDX-License-Identifier: Apache-2.0
//! Native functions (`guests/native`), with the node's end of the channel in the test, and the
//! other ends of their lines, which lie. The library is compiled so that a wrong access or
//! anything undefined ends the program.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod memory;
mod node;

use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;

use node::frame::{ASK, ASK_AGAIN, DROPPED, LINE, RAISED, RESULT, SERVED, SERVING, VERSION, WAITED};
use node::{End, Node, SEALED, asked, request, text};

/// An answer on a line without anything in its head.
const ANSWER: &[u8] = b"\0\0\0\0answer";
const REQUESTS: u32 = 200;

#[test]
fn calls_are_answered_as_the_handler_says() {
    let mut node = Node::new();
    let head =
        b"{\"request_id\":\"a \\u00e4\\ud83d\\ude00\",\"version\":7,\"more\":[{\"x\":[1.5e3,null]}]}\n\
        {\"method\":\"PUT\",\"path\":\"/p\",\"query\":\"q=1\",\"headers\":[[\"x-name\",\"value\"]]}";
    for (body, head_of_answer, answer) in [
        ("text", "{\"status\":200,\"headers\":[]}", "text"),
        ("none", "{\"status\":204,\"headers\":[]}", ""),
        ("wrong", "{\"status\":200,\"headers\":[]}", "refused"),
        (
            "head",
            "{\"status\":201,\"headers\":[[\"content-type\",\"text/plain\"],[\"x-told\",\"\\\"quoted\\\"\"]]}",
            "PUT /p q=1 a ä😀 7 value",
        ),
    ] {
        let (kind, told) = node.call(head, body.as_bytes());
        assert_eq!(kind, RESULT, "{body}");
        let length = u32::from_le_bytes(told[..4].try_into().unwrap()) as usize;
        assert_eq!(
            (text(&told[4..4 + length]), text(&told[4 + length..])),
            (head_of_answer.into(), answer.into())
        );
    }
    for (body, said) in [("fail", "ValueError not today"), ("return", "NativeError the handler returned 7")] {
        let (kind, told) = node.call(b"", body.as_bytes());
        let words: Vec<String> = node::texts(&told);
        assert_eq!((kind, words.join(" ").trim()), (RAISED, said));
    }
    for bad in [&b"{"[..], b"{\"headers\":1}\n{\"headers\":[[1]]}", b"{\"deadline_ms\":-1}", &[b'['; 99]] {
        assert_eq!(node.call(bad, b"text").0, RAISED, "{bad:?}");
    }
    assert_eq!(node.call(b"", b"print").1, b"\x1b\0\0\0{\"status\":200,\"headers\":[]}print");
    assert_eq!(node.printed, "printed\n", "before the answer");
}

#[test]
fn what_is_printed_before_a_deadly_signal_is_told() {
    let mut node = Node::new();
    node.send_call(b"", b"abort");
    assert_eq!(node.frame_or_end(), None);
    assert_eq!(node.printed, "last words\n");
}

#[test]
fn a_node_that_speaks_otherwise_is_told_why_not() {
    let mut node = Node::of_version(VERSION + 1);
    let (kind, _, told) = node.frame();
    assert!(kind == RAISED && text(&told).contains("another version"), "{}", text(&told));
}

#[test]
fn it_serves_lines_and_reports_and_serves_calls_after_them() {
    let mut node = Node::new();
    for _ in 0..2 {
        let (turn, line, mut end) = node.serve();
        for number in 1..=REQUESTS {
            end.send(&asked(number));
            let answer = end.receive();
            assert!(answer.ends_with(b"body"), "{answer:?}");
        }
        line.shut();
        let mut reports = 0;
        loop {
            let (kind, its, told) = node.frame();
            assert_eq!(its, turn);
            if kind == RESULT {
                assert!(told.is_empty());
                break;
            }
            assert_eq!((kind, told.len() % 81), (SERVED, 0));
            for report in told.chunks(81) {
                assert_eq!(
                    (&report[12..22], &report[72..]),
                    (&b"\x04\0\0\0\x04\0\0\0\xc8\0"[..], &b"a-request"[..])
                );
                assert_eq!((&report[22..30], &report[38..70], report[70]), (&[7; 8][..], &[7; 32][..], 1));
            }
            reports += told.len() / 81;
        }
        assert_eq!(reports, REQUESTS as usize);
    }
    assert_eq!(node.call(b"", b"text").0, RESULT);
}

#[test]
fn what_fails_on_a_line_is_the_end_of_it() {
    for (body, kind) in [("fail", RAISED), ("return", RAISED)] {
        let mut node = Node::new();
        let (_, _line, mut end) = node.serve();
        end.send(&request(1, 9, 0, format!("a-request{body}").as_bytes()));
        assert_eq!(node.frame().0, kind);
        assert!(end.is_closed());
        assert_eq!(node.call(b"", b"text").0, RESULT, "it goes on");
    }
}

#[test]
fn callers_that_lie_are_left() {
    let lies: [&dyn Fn(&mut End); 11] = [
        &|end| end.claim((64 << 10) + 1, 0),
        &|end| end.claim(3, 0),
        &|end| end.claim(8, 5),
        &|end| end.claim(64 << 10, u32::MAX),
        &|end| end.send(b"short"),
        &|end| end.send(&asked(0)),
        &|end| end.send(&request(1, 0, 3000, &[b'a'; 4000])),
        &|end| end.send(&request(1, 200, 0, b"short")),
        &|end| end.send(&request(1, 3, 0, "grü".as_bytes())),
        &|end| end.send(&request(1, 9, 2, b"a-request\xc3\x28body")),
        &|end| end.send(&request(1, 9, 3, b"a-requesta\0bbody")),
    ];
    let mut node = Node::new();
    for (number, lie) in lies.iter().enumerate() {
        let (_, _line, mut end) = node.serve();
        end.send(&asked(1));
        end.receive();
        lie(&mut end);
        assert_eq!(node.frame().0, SERVED, "lie {number}");
        let (kind, _, told) = node.frame();
        assert!(kind == RESULT && told.is_empty() && end.is_closed(), "lie {number}");
    }
    assert_eq!(node.call(b"", b"text").0, RESULT);
}

#[test]
fn callees_that_lie_are_asked_no_more_and_the_node_is() {
    let lies: [&dyn Fn(&mut End); 7] = [
        &|end| end.claim((64 << 10) + 1, 0),
        &|end| end.claim(3, 0),
        &|end| end.claim(8, 5),
        &|end| end.send(b"x"),
        &|end| end.send(b"\xff\xff\xff\x0fx"),
        &|end| end.send(b"\x02\0\0\0[]x"),
        // It takes the request back.
        &|end| {
            end.read.word64(64).store(0, Ordering::SeqCst);
            end.claim(1, 0);
        },
    ];
    let mut node = Node::new();
    for (number, lie) in lies.iter().enumerate() {
        let (id, mut end) = node.line("g");
        node.send_call(SEALED, b"call 3");
        end.receive();
        lie(&mut end);
        for time in 0..3 {
            let (kind, turn, told) = node.frame();
            let is_again = time == 0 && number != 6;
            assert_eq!(kind, if is_again { ASK_AGAIN } else { ASK }, "lie {number}");
            let told = if is_again { told.strip_prefix(&id.to_le_bytes()).unwrap() } else { &told };
            assert!(told.ends_with(b"\x01\0g\x0a\0text/plainbody"), "{told:?}");
            node.tell(turn, &told[..4], b"node");
        }
        let answer = node.result();
        assert!(answer.ends_with(b"node,node,node"), "lie {number}: {answer:?}");
    }
}

#[test]
fn it_calls_on_lines_and_tells_how_long_it_waited() {
    let mut node = Node::new();
    let (_, mut end) = node.line("g");
    node.send_call(SEALED, b"call 5");
    for number in 1..=5_u32 {
        let message = end.receive();
        assert_eq!(message[..4], number.to_le_bytes());
        assert_eq!((message[12], message[57]), (3, 9), "the depth, and the id's length");
        assert_eq!((&message[16..32], &message[60..]), (&[7; 16][..], &b"a-requesttext/plainbody"[..]));
        end.send(ANSWER);
    }
    assert_eq!(node.frame().0, WAITED);
    assert!(node.result().ends_with(b"answer,answer,answer,answer,answer"));
    // Without a seal the node is asked.
    node.send_call(b"{\"request_id\":\"x\"}\n{}", b"call 1");
    let (kind, turn, told) = node.frame();
    assert_eq!(kind, ASK);
    node.tell(turn, &told[..4], b"node");
    assert!(node.result().ends_with(b"node"));
}

#[test]
fn threads_call_at_the_same_time_and_one_of_them_has_the_line() {
    let mut node = Node::new();
    let (_, mut end) = node.line("g");
    node.send_call(SEALED, b"at once");
    let (kind, turn, told) = node.frame();
    assert_eq!(kind, ASK, "the line is in use");
    end.receive();
    node.tell(turn, &told[..4], b"node");
    end.send(ANSWER);
    assert_eq!(node.frame().0, WAITED);
    assert!(node.result().ends_with(b"200 200"));
}

#[test]
fn the_node_is_told_for_which_request_on_a_line_it_is_asked() {
    let mut node = Node::new();
    let (turn, line, mut end) = node.serve();
    end.send(&request(1, 9, 0, b"a-requestcall 2"));
    let (kind, its, head) = node.frame();
    assert_eq!((kind, its), (SERVING, turn));
    let head = text(&head);
    assert!(
        head.contains("\"request_id\":\"a-request\"") && head.contains(&format!("\"{}\"", "07".repeat(16))),
        "{head}"
    );
    for _ in 0..2 {
        let (kind, its, told) = node.frame();
        assert_eq!((kind, its), (ASK, turn));
        node.tell(turn, &told[..4], b"node");
    }
    assert!(end.receive().ends_with(b"node,node"));
    line.shut();
    assert_eq!((node.frame().0, node.frame().0), (SERVED, RESULT));
}

#[test]
fn lines_that_cannot_be_had_are_dropped() {
    let mut node = Node::new();
    node.send(LINE, 0, b"\x05\0\0\0g", &[]);
    assert_eq!(node.frame(), (DROPPED, 0, b"\x05\0\0\0".to_vec()));
    let file = std::fs::File::open("/dev/zero").unwrap();
    let files = [file.as_fd(); 3];
    node.send(LINE, 0, b"\x06\0\0\0g", &files);
    assert_eq!(node.frame(), (DROPPED, 0, b"\x06\0\0\0".to_vec()));
    assert_eq!(node.call(b"", b"text").0, RESULT);
}
