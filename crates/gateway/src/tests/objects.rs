// SPDX-License-Identifier: Apache-2.0
//! Data in and out.

use std::io;

use axum::body::{Body, Bytes};
use axum::http::Request;
use futures_util::stream;
use objects::{BundleWriter, Handle, TreeBuilder};

use super::House;
use crate::{BUNDLE_MEDIA_TYPE, Options};

const OCTETS: &str = "application/octet-stream";

type Headers<'a> = &'a [(&'a str, &'a str)];

#[tokio::test]
async fn blobs_of_all_lengths_come_back_as_they_went_in() {
    let house = House::new();
    for len in [0usize, 1, 30, 31, 256 << 10, (1 << 20) + 17] {
        let blob: Vec<u8> = (0..len).map(|at| (at * 7 + at / 251) as u8).collect();
        let put = house.post("/v1/blobs", OCTETS, blob.clone()).await;
        assert_eq!(put.status, 201);
        let handle = Handle::blob(&blob).to_string();
        assert_eq!(put.json()["handle"], handle);
        assert_eq!(put.json()["size"], len);
        assert_eq!(put.header("location"), format!("/v1/objects/{handle}"));
        let got = house.get(put.header("location")).await;
        assert_eq!(got.status, 200);
        assert!(got.body == blob, "a blob of {len} bytes");
        assert_eq!(got.header("etag"), format!("\"{handle}\""));
        assert_eq!(got.header("content-length"), len.to_string());
        assert_eq!(got.header("x-content-type-options"), "nosniff");
        assert!(got.header("cache-control").contains("immutable"));
    }
}

#[tokio::test]
async fn an_upload_in_many_pieces_is_one_blob() {
    let house = House::new();
    let pieces = (0..100u8).map(|at| Ok::<_, io::Error>(Bytes::from(vec![at; 10_000])));
    let put = house.post("/v1/blobs", OCTETS, Body::from_stream(stream::iter(pieces))).await;
    let whole: Vec<u8> = (0..100u8).flat_map(|at| vec![at; 10_000]).collect();
    assert_eq!(put.json()["handle"], Handle::blob(&whole).to_string());
}

#[tokio::test]
async fn nothing_is_stored_of_a_body_that_breaks_off() {
    let house = House::new();
    let first = vec![1u8; 600_000];
    let pieces = [Ok(Bytes::from(first.clone())), Err(io::Error::other("the line went dead"))];
    let put = house.post("/v1/blobs", OCTETS, Body::from_stream(stream::iter(pieces))).await;
    assert_eq!(put.problem(400), "body-incomplete");
    let part = house.get(&format!("/v1/objects/{}", Handle::blob(&first))).await;
    assert_eq!(part.problem(404), "object-not-found");
}

#[tokio::test]
async fn a_body_that_ends_before_its_promise_is_refused() {
    let house = House::new();
    let pieces = [Ok::<_, io::Error>(Bytes::from(vec![2u8; 50]))];
    let request = Request::post("/v1/blobs").header("content-length", "51");
    let request = request.body(Body::from_stream(stream::iter(pieces))).unwrap();
    assert_eq!(house.send(request).await.problem(400), "body-incomplete");
}

#[tokio::test]
async fn bodies_over_the_limit_are_refused_and_not_stored() {
    let options =
        Options { body_max_bytes: 300_000, bundle_max_bytes: 100, json_max_bytes: 50, ..Options::default() };
    let house = House::with(options);
    let long = vec![3u8; 300_001];
    assert_eq!(house.post("/v1/blobs", OCTETS, long.clone()).await.problem(413), "body-too-large");
    // The same without a promised length.
    let pieces = long.chunks(1000).map(|piece| Ok::<_, io::Error>(Bytes::copy_from_slice(piece)));
    let pieces: Vec<_> = pieces.collect();
    let put = house.post("/v1/blobs", OCTETS, Body::from_stream(stream::iter(pieces))).await;
    assert_eq!(put.problem(413), "body-too-large");
    for stored in [&long[..], &long[..300_000]] {
        house.get(&format!("/v1/objects/{}", Handle::blob(stored))).await.problem(404);
    }
    assert_eq!(house.post("/v1/blobs", OCTETS, long[..300_000].to_vec()).await.status, 201);
    house.post("/v1/bundles", BUNDLE_MEDIA_TYPE, vec![0; 101]).await.problem(413);
    house.post("/v1/trees", OCTETS, vec![0; 101]).await.problem(413);
    house.post_json("/v1/trees", &format!("{{\"entries\":[]{}}}", " ".repeat(50))).await.problem(413);
}

#[tokio::test]
async fn trees_go_in_and_out_as_json_and_as_bytes() {
    let house = House::new();
    let entries = [Handle::blob(b"a"), Handle::u64(7), Handle::blob(&[5; 100])];
    let tree: TreeBuilder = entries.into_iter().collect();
    let handle = tree.view().handle().to_string();
    let json = serde_json::json!({"entries": entries.map(|entry| entry.to_string())});
    let put = house.post_json("/v1/trees", &json.to_string()).await;
    assert_eq!((put.status.as_u16(), &put.json()["handle"]), (201, &handle.clone().into()));
    let put = house.post("/v1/trees", OCTETS, tree.view().as_bytes().to_vec()).await;
    assert_eq!((put.status.as_u16(), &put.json()["handle"]), (201, &handle.clone().into()));

    let path = format!("/v1/objects/{handle}");
    let got = house.get(&path).await;
    assert_eq!(got.header("content-type"), "application/json");
    let listing = got.json();
    assert_eq!(listing["entries"], json["entries"]);
    assert_eq!((&listing["size"], &listing["kind"]), (&3.into(), &"tree".into()));
    let got = house.get_with(&path, &[("accept", OCTETS)]).await;
    assert_eq!(got.body, tree.view().as_bytes());
    assert_eq!(got.header("vary"), "Accept");
    let page = house.get(&format!("{path}?offset=1&limit=1")).await.json();
    assert_eq!((&page["offset"], &page["size"]), (&1.into(), &3.into()));
    assert_eq!(page["entries"], serde_json::json!([entries[1].to_string()]));
    let past = house.get(&format!("{path}?offset=9&limit=18446744073709551615")).await.json();
    assert_eq!(past["entries"], serde_json::json!([]));
    // A ref names the same tree; a failure is read like one.
    let by_ref = house.get(&format!("/v1/objects/{}", handle.replace("tree-", "treeref-"))).await.json();
    assert_eq!(by_ref["entries"], json["entries"]);
}

#[tokio::test]
async fn a_long_tree_is_streamed_as_one_json_document() {
    let house = House::new();
    for len in [1024u64, 1025, 5000] {
        let tree: TreeBuilder = (0..len).map(Handle::u64).collect();
        let handle = house.fake.store.put_tree(tree.view()).unwrap();
        let listing = house.get(&format!("/v1/objects/{handle}")).await.json();
        let entries = listing["entries"].as_array().unwrap();
        assert_eq!(entries.len() as u64, len);
        assert_eq!(entries[entries.len() - 1], Handle::u64(len - 1).to_string());
    }
}

#[tokio::test]
async fn ranges() {
    let house = House::new();
    let blob: Vec<u8> = (0..100u8).collect();
    let handle = house.fake.store.put_blob(&blob).unwrap();
    let path = format!("/v1/objects/{handle}");
    let etag = format!("\"{handle}\"");
    let cases: &[(Headers<'_>, u16, std::ops::Range<usize>, &str)] = &[
        (&[("range", "bytes=0-0")], 206, 0..1, "bytes 0-0/100"),
        (&[("range", "bytes=10-19")], 206, 10..20, "bytes 10-19/100"),
        (&[("range", "bytes=90-1000")], 206, 90..100, "bytes 90-99/100"),
        (&[("range", "bytes=95-")], 206, 95..100, "bytes 95-99/100"),
        (&[("range", "bytes=-5")], 206, 95..100, "bytes 95-99/100"),
        (&[("range", "bytes=-500")], 206, 0..100, "bytes 0-99/100"),
        (&[("range", "bytes=0-1,5-6")], 200, 0..100, ""),
        (&[("range", "lines=0-1")], 200, 0..100, ""),
        (&[("range", "bytes=9-3")], 200, 0..100, ""),
        (&[("range", "bytes=5-6"), ("if-range", &etag)], 206, 5..7, "bytes 5-6/100"),
        (&[("range", "bytes=5-6"), ("if-range", "\"other\"")], 200, 0..100, ""),
        (&[("range", "bytes=5-6"), ("if-range", "Sat, 21 Nov 2026 00:00:00 GMT")], 200, 0..100, ""),
    ];
    for (headers, status, part, content_range) in cases {
        let got = house.get_with(&path, headers).await;
        assert_eq!(got.status.as_u16(), *status, "{headers:?}");
        assert_eq!(got.body, blob[part.clone()], "{headers:?}");
        assert_eq!(got.header("content-range"), *content_range, "{headers:?}");
        assert_eq!(got.header("content-length"), part.len().to_string(), "{headers:?}");
    }
    for range in ["bytes=100-", "bytes=100-200", "bytes=-0", "bytes=99999999999999999999-"] {
        let got = house.get_with(&path, &[("range", range)]).await;
        assert_eq!(got.problem(416), "range-not-satisfiable", "{range}");
        assert_eq!(got.header("content-range"), "bytes */100");
    }
}

#[tokio::test]
async fn of_a_large_object_no_more_is_read_than_the_range_needs() {
    let house = House::new();
    let blob: Vec<u8> = (0..2_u32 << 20).map(|at| (at * 7 + at / 251) as u8).collect();
    let handle = house.fake.store.put_blob(&blob).unwrap();
    let path = format!("/v1/objects/{handle}");
    let parts = || std::mem::take(&mut *house.fake.parts.lock().unwrap());
    for (range, part) in [("bytes=1000000-1000999", 1_000_000..1_001_000), ("bytes=100-900000", 100..900_001)]
    {
        let got = house.get_with(&path, &[("range", range)]).await;
        assert_eq!(got.status, 206);
        assert_eq!(got.header("content-length"), part.len().to_string());
        assert!(got.body == blob[part.clone()], "{range}");
        let read = parts();
        assert!(read.iter().all(|piece| piece.end - piece.start <= 256 << 10), "{read:?}");
        let sum: u64 = read.iter().map(|piece| piece.end - piece.start).sum();
        assert_eq!(sum, part.len() as u64);
    }
    let got = house.get_with(&path, &[("range", "bytes=2097152-")]).await;
    assert_eq!(got.problem(416), "range-not-satisfiable");
    assert_eq!(parts().iter().map(|piece| piece.end).max(), Some(0));
    let absent = format!("/v1/objects/{}", Handle::blob(&blob[1..]));
    for range in ["bytes=0-9", "bytes=9999999-"] {
        let got = house.get_with(&absent, &[("range", range)]).await;
        assert_eq!(got.problem(404), "object-not-found", "{range}");
    }
    // A page of a large tree.
    parts();
    let tree: TreeBuilder = (0..40_000).map(Handle::u64).collect();
    let tree = house.fake.store.put_tree(tree.view()).unwrap();
    for (offset, limit) in [(39_998_u64, 10_u64), (0, 2000), (40_001, 5)] {
        let got = house.get(&format!("/v1/objects/{tree}?offset={offset}&limit={limit}")).await.json();
        let entries = got["entries"].as_array().unwrap();
        let expected: Vec<String> = (offset..offset + limit)
            .filter(|at| *at < 40_000)
            .map(|at| Handle::u64(at).to_string())
            .collect();
        assert!(entries.iter().map(|entry| entry.as_str().unwrap()).eq(expected.iter().map(String::as_str)));
        assert_eq!((got["size"].as_u64(), got["offset"].as_u64()), (Some(40_000), Some(offset.min(40_000))));
    }
    assert_eq!(parts().iter().map(|piece| piece.end - piece.start).sum::<u64>(), 32 * 2002);
}

#[tokio::test]
async fn a_client_that_has_the_object_gets_304_and_head_gets_no_body() {
    let house = House::new();
    let handle = house.fake.store.put_blob(&[9; 1_000_000]).unwrap();
    let path = format!("/v1/objects/{handle}");
    for tags in [format!("\"{handle}\""), format!("\"x\", W/\"{handle}\""), "*".to_owned()] {
        let got = house.get_with(&path, &[("if-none-match", &tags)]).await;
        assert_eq!((got.status.as_u16(), got.body.len()), (304, 0), "{tags}");
    }
    let got = house.get_with(&path, &[("if-none-match", "\"x\"")]).await;
    assert_eq!(got.status, 200);
    let head = house.send(Request::head(&path).body(Body::empty()).unwrap()).await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), "1000000");
}

#[tokio::test]
async fn bundles_store_all_or_nothing() {
    let house = House::new();
    let blob = vec![8u8; 1000];
    let mut writer = BundleWriter::new();
    let stored = writer.blob(&blob);
    let tree: TreeBuilder = [stored, stored].into_iter().collect();
    let tree = writer.tree(tree.view());
    let goal = tree.identification().unwrap();
    let bundle = writer.goal(goal);
    let object = format!("/v1/objects/{stored}");
    for len in 0..bundle.len() {
        // Cut between records it is a whole, shorter bundle; try those last.
        let whole = [4, 4 + 9 + 1000, 4 + 9 + 1000 + 9 + 64].contains(&len);
        if !whole && (len < 40 || len % 97 == 0 || len > 1000) {
            let put = house.post("/v1/bundles", BUNDLE_MEDIA_TYPE, bundle[..len].to_vec()).await;
            assert_eq!(put.problem(400), "bad-bundle", "cut at {len}");
        }
    }
    house.get(&object).await.problem(404);
    let put = house.post("/v1/bundles", BUNDLE_MEDIA_TYPE, bundle).await;
    assert_eq!(put.status, 201);
    assert_eq!(put.json(), serde_json::json!({"handles": 2, "goal": goal.to_string()}));
    assert_eq!(house.get(&object).await.body, blob);
    house.post("/v1/bundles", OCTETS, "SNB1").await.problem(415);
}

#[tokio::test]
async fn bad_handles_and_bad_trees() {
    let house = House::new();
    let absent = Handle::blob(&[7; 64]);
    let thunk = house.fake.application(b"x");
    let gets = [
        ("/v1/objects/nonsense".to_owned(), 400, "bad-handle"),
        ("/v1/objects/lit-zz".to_owned(), 400, "bad-handle"),
        ("/v1/objects/%C3%A9t%C3%A9".to_owned(), 400, "bad-handle"),
        ("/v1/objects/%FF%FE".to_owned(), 400, "bad-path"),
        (format!("/v1/objects/{absent}"), 404, "object-not-found"),
        (format!("/v1/objects/{thunk}"), 400, "not-data"),
        (format!("/v1/objects/{}", thunk.strict().unwrap()), 400, "not-data"),
        (format!("/v1/objects/{absent}?offset=x"), 400, "bad-query"),
        (format!("/v1/objects/{}", "a".repeat(9000)), 414, "uri-too-long"),
        (format!("/function/{}", "a".repeat(9000)), 414, "uri-too-long"),
    ];
    for (path, status, kind) in gets {
        assert_eq!(house.get(&path).await.problem(status), kind, "{path}");
    }
    let trees = [
        ("", "bad-json"),
        ("{", "bad-json"),
        ("[]", "bad-json"),
        ("{\"entries\":[7]}", "bad-json"),
        ("{\"entries\":[],\"more\":1}", "bad-json"),
        ("{\"entries\":[\"lit-0\"]}", "bad-handle"),
        ("{\"entries\":[\"\u{1F980}\"]}", "bad-handle"),
    ];
    for (body, kind) in trees {
        assert_eq!(house.post_json("/v1/trees", body).await.problem(400), kind, "{body}");
    }
    assert_eq!(house.post("/v1/trees", OCTETS, vec![0xff; 32]).await.problem(400), "bad-tree");
    assert_eq!(house.post("/v1/trees", OCTETS, vec![0; 31]).await.problem(400), "bad-tree");
    house.post("/v1/trees", "text/plain", "{}").await.problem(415);
}

#[tokio::test]
async fn what_is_stored_is_listed_in_pages() {
    let house = House::new();
    let blobs = [vec![1u8; 40], vec![2; 500], vec![3; 70_000]];
    let mut expected: Vec<Handle> = Vec::new();
    for blob in &blobs {
        house.post("/v1/blobs", OCTETS, blob.clone()).await;
        expected.push(Handle::blob(blob));
    }
    let tree: TreeBuilder = expected.iter().copied().collect();
    house.post("/v1/trees", OCTETS, tree.view().as_bytes().to_vec()).await;
    expected.push(tree.view().handle());
    expected.sort_unstable();
    let (mut after, mut listed) = (String::new(), Vec::<Handle>::new());
    loop {
        let page = house.get(&format!("/v1/objects?limit=3{after}")).await.json();
        let objects = page["objects"].as_array().unwrap();
        assert!(objects.len() <= 3);
        listed.extend(
            objects.iter().map(|object| object["handle"].as_str().unwrap().parse::<Handle>().unwrap()),
        );
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(listed, expected);
    let trees = house.get("/v1/objects?kind=tree").await.json();
    let one = serde_json::json!({
        "handle": tree.view().handle().to_string(), "kind": "tree", "size": 3, "bytes": 96, "place": "memory",
        "tiered": false, "promised": true,
    });
    assert_eq!(trees, serde_json::json!({"objects": [one], "next": null}));
    let large = house.get("/v1/objects?min_bytes=500&kind=blob&limit=99999").await.json();
    assert_eq!(large["objects"].as_array().unwrap().len(), 2);
    for bad in ["limit=0", "limit=x", "limit=-1", "kind=failure", "kind=", "min_bytes=1k", "next=1"] {
        assert_eq!(house.get(&format!("/v1/objects?{bad}")).await.problem(400), "bad-query", "{bad}");
    }
    assert_eq!(house.get("/v1/objects?after=blob-1").await.problem(400), "bad-handle");
}
