// SPDX-License-Identifier: Apache-2.0
//! Bodies that are passed on to functions while they come.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::Request;
use futures_util::stream;
use tower::ServiceExt as _;

use super::fake::Script;
use super::{House, Options};

fn house() -> House {
    let house = House::with(Options { body_max_bytes: 1000, ..Options::default() });
    house.fake.functions.add("upload", 1, |served| served.streams_body = true);
    house.fake.gives("{}", b"done");
    house
}

impl House {
    fn room(&self, bytes: usize) {
        let mut intake = self.fake.functions.intake.lock().unwrap();
        intake.room += bytes;
        intake.waker.take().into_iter().for_each(std::task::Waker::wake);
    }

    /// Has requests to functions end a moment later.
    fn takes(&self, time: Duration) {
        let Some(Script::Gives(result, _)) = *self.fake.otherwise.lock().unwrap() else {
            panic!("no result")
        };
        *self.fake.otherwise.lock().unwrap() = Some(Script::Takes(time, result));
    }

    /// What came of the body, once so much has.
    async fn came(&self, bytes: usize) -> Vec<u8> {
        for _ in 0..1000 {
            let came = self.fake.functions.intake.lock().unwrap().came.clone();
            if came.len() >= bytes {
                return came;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("{bytes} bytes do not come");
    }
}

/// A request whose body has these pieces, and no length.
fn request(pieces: Vec<Result<Bytes, std::io::Error>>) -> Request<Body> {
    Request::post("/function/upload").body(Body::from_stream(stream::iter(pieces))).unwrap()
}

fn pieces(texts: &[&str]) -> Vec<Result<Bytes, std::io::Error>> {
    texts.iter().map(|text| Ok(Bytes::from((*text).to_owned()))).collect()
}

#[tokio::test]
async fn no_more_is_taken_than_there_is_room_for() {
    let house = house();
    house.takes(Duration::from_millis(300));
    house.room(4);
    let answer = house.send(request(pieces(&["abc", "defg", "h"])));
    let looks = async {
        assert_eq!(house.came(4).await, b"abcd");
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(house.came(4).await, b"abcd", "there is room for no more");
        house.room(100);
        assert_eq!(house.came(8).await, b"abcdefgh");
    };
    let (answer, ()) = tokio::join!(answer, looks);
    assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, &b"done"[..]));
    {
        let intake = house.fake.functions.intake.lock().unwrap();
        assert!(intake.has_ended && !intake.is_broken);
    }
    let (head, body) = house.fake.last_call();
    assert!(head["body"] == "stream" && body.is_empty(), "{head}");
    let logs = house.get("/v1/logs").await.json();
    assert_eq!(logs["records"][0]["usage"]["received_bytes"], 8, "{logs}");
}

#[tokio::test]
async fn what_says_to_be_short_is_whole() {
    let house = house();
    for body in ["", "short"] {
        let request = Request::post("/function/upload").body(Body::from(body)).unwrap();
        assert_eq!(house.send(request).await.status, 200);
        let (head, came) = house.fake.last_call();
        assert!(head.get("body").is_none() && came == body.as_bytes(), "{head}");
    }
}

#[tokio::test]
async fn what_goes_wrong_on_the_way_is_the_answer() {
    let house = house();
    house.takes(Duration::from_millis(100));
    house.room(10_000);
    let long = "x".repeat(600);
    assert_eq!(house.send(request(pieces(&[&long, &long]))).await.problem(413), "body-too-large");
    assert!(house.fake.functions.intake.lock().unwrap().is_broken, "the function hears of it");
    let broken = vec![Ok(Bytes::from_static(b"a")), Err(std::io::Error::other("reset"))];
    assert_eq!(house.send(request(broken)).await.problem(400), "body-incomplete");
    let promised = Request::post("/function/upload").header("content-length", "100000");
    let more = Body::from_stream(stream::iter(pieces(&["x"])));
    assert_eq!(house.send(promised.body(more).unwrap()).await.problem(413), "body-too-large");
}

#[tokio::test]
async fn a_function_hears_at_once_that_its_client_has_left() {
    let house = house();
    *house.fake.otherwise.lock().unwrap() = Some(Script::Hangs);
    house.room(1);
    let never = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
    let request = Request::post("/function/upload").body(never).unwrap();
    let call = house.router.clone().oneshot(request);
    assert!(tokio::time::timeout(Duration::from_millis(50), call).await.is_err(), "it hangs");
    for _ in 0..400 {
        if house.fake.functions.intake.lock().unwrap().is_broken {
            return;
        }
        // Long before it is stopped.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it was not told");
}
