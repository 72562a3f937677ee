// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use super::*;

fn result(head: &str, body: &[u8]) -> Bytes {
    [&(head.len() as u32).to_le_bytes(), head.as_bytes(), body].concat().into()
}

#[test]
fn answers_are_what_the_function_says() {
    let said = r#"{"status":201,"headers":[["content-type","a/b"],["set-cookie","x"],["set-cookie","y"],
        ["transfer-encoding","chunked"],["content-length","999"],["Service-Worker-Allowed","/"]]}"#;
    let said = read(result(said, b"body")).unwrap();
    assert_eq!((said.status.as_u16(), said.body.as_ref()), (201, &b"body"[..]));
    let names: Vec<&str> = said.headers.keys().map(HeaderName::as_str).collect();
    assert_eq!(names, ["content-type", "set-cookie"]);
    assert_eq!(said.headers.get_all("set-cookie").iter().count(), 2);
    assert_eq!(read(result("", b"")).unwrap().status, 200);
    let page = read(result("{}", b"x")).unwrap().into_response();
    assert_eq!(page.headers().len(), 1, "only its origin is said: {:?}", page.headers());
}

#[test]
fn what_is_no_answer_is_refused() {
    for (head, why) in [
        (r#"{"status":99}"#, "status"),
        (r#"{"status":101}"#, "status"),
        (r#"{"status":"ok"}"#, "head"),
        (r#"{"headers":[["a b","c"]]}"#, "name"),
        (r#"{"headers":[["a","c\r\nd: e"]]}"#, "value"),
        ("[]x", "head"),
    ] {
        assert!(read(result(head, b"")).unwrap_err().contains(why), "{head}");
    }
    assert!(read(Bytes::from_static(b"abc")).is_err());
    assert!(read(Bytes::from_static(b"\xff\xff\xff\xff{}")).is_err());
    assert!(read(Bytes::from_static(b"\x03\0\0\0{}")).is_err());
}

#[test]
fn an_answer_that_is_not_to_be_remembered_is_an_answer() {
    let mut bytes = result(r#"{"status":503}"#, b"later").to_vec();
    bytes[3] |= 0x80;
    let said = read(bytes.into()).unwrap();
    assert_eq!((said.status.as_u16(), said.body.as_ref()), (503, &b"later"[..]));
}

#[test]
fn an_answer_says_what_its_head_says_however_many_came_before() {
    let head =
        |number: usize| format!(r#"{{"status":{},"headers":[["x-n","{number}"]]}}"#, 200 + number % 50);
    let long = format!(r#"{{"headers":[["x-n","{}"]]}}"#, "n".repeat(KNOWN_BYTES_MAX));
    for number in (0..3 * KNOWN_MAX).chain([0, 7, 7, 3 * KNOWN_MAX - 1, 1]) {
        let said = read(result(&head(number), b"")).unwrap();
        assert_eq!(said.status.as_u16() as usize, 200 + number % 50);
        assert_eq!(said.headers["x-n"], *number.to_string());
        assert!(read(result(r#"{"status":99}"#, b"")).is_err(), "also what was refused before");
        assert_eq!(read(result(&long, b"")).unwrap().headers["x-n"].len(), KNOWN_BYTES_MAX);
    }
    KNOWN.with_borrow(|KnownHeads(known)| {
        assert_eq!(known.len(), KNOWN_MAX);
        assert!(known.iter().all(|(text, _)| text.len() <= KNOWN_BYTES_MAX));
    });
}

#[test]
fn more_headers_than_there_can_be_are_refused() {
    let headers: Vec<String> = (0..40_000).map(|number| format!(r#"["h{number}",""]"#)).collect();
    let said = read(result(&format!(r#"{{"headers":[{}]}}"#, headers.join(",")), b""));
    assert_eq!(said.err(), Some("has too many headers"));
}
