// SPDX-License-Identifier: Apache-2.0
//! Uploads to a bucket on this machine's loopback that keeps what it is sent, and goes
//! wrong when it is told to. That real servers take the signatures is shown elsewhere
//! (`cli/tests/e2e/s3.rs`).
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::net::SocketAddr;

use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::*;
use crate::s3::{BucketOptions, hex};

/// An object, and its mark.
type Kept = (Vec<u8>, String);

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Kept>,
    /// Parts of uploads that are under way, and their marks.
    uploads: BTreeMap<String, (BTreeMap<usize, Vec<u8>>, String)>,
    requests: Vec<String>,
    /// What the next requests are answered with, by how their first line begins.
    wrong: Vec<(&'static str, Wrong)>,
    at_once: usize,
    at_once_max: usize,
}

/// How a request goes wrong.
#[derive(Clone, Copy)]
enum Wrong {
    /// It is answered so, and nothing is done.
    Says(&'static str),
    /// It is done, and the answer is lost.
    Silent,
    /// It is never answered.
    Hangs,
}

struct Bucket {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Bucket {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let state = Arc::clone(&shared);
                tokio::spawn(async move {
                    {
                        let mut state = state.lock();
                        state.at_once += 1;
                        state.at_once_max = state.at_once_max.max(state.at_once);
                    }
                    _ = serve(stream, &state).await;
                    state.lock().at_once -= 1;
                });
            }
        });
        Self { address, state, task }
    }

    fn go_wrong(&self, wrong: &[(&'static str, Wrong)]) {
        self.state.lock().wrong = wrong.to_vec();
    }

    fn uploads(&self) -> Uploads {
        let endpoint = Some(format!("http://{}", self.address));
        let secret = "SINEW_S3".to_owned();
        let options = BucketOptions { endpoint, secret, is_writable: true, ..BucketOptions::default() };
        let keys: crate::s3::Keys = Arc::new(|_| Some("AKEY shhh".to_owned()));
        let buckets = Buckets::new([(&"data".to_owned(), &options)], &keys).unwrap();
        let options = UploadOptions {
            part_bytes: 1000,
            answer_timeout: Duration::from_millis(500),
            attempts_max: 3,
            pause: Duration::from_millis(1),
            ..UploadOptions::default()
        };
        Uploads::new(options, buckets)
    }

    fn requests(&self) -> Vec<String> {
        self.state.lock().requests.clone()
    }

    fn kept(&self) -> Option<Kept> {
        self.state.lock().objects.get("/data/a/b").cloned()
    }
}

async fn serve(mut stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    let header = |name: &str| {
        head.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
            .unwrap_or_default()
            .to_owned()
    };
    let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    assert_eq!(header("x-amz-content-sha256"), hex(digest(&SHA256, &body).as_ref()), "{head}");
    assert!(header("authorization").starts_with("AWS4-HMAC-SHA256"), "{head}");
    let line = head.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
    let wrong = {
        let mut state = state.lock();
        state.requests.push(line.clone());
        let at = state.wrong.iter().position(|(begin, _)| line.starts_with(begin));
        at.map(|at| state.wrong.remove(at).1)
    };
    let answer = match wrong {
        Some(Wrong::Says(answer)) => answer.to_owned(),
        Some(Wrong::Hangs) => {
            // Until the other end has had enough.
            return stream.read_u8().await.map(drop);
        }
        other => {
            let answer = act(&mut state.lock(), &line, body, header("x-amz-meta-sinew"));
            if other.is_some() {
                return Ok(());
            }
            answer
        }
    };
    stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).await
}

fn said(status: &str, headers: &str, text: &str) -> String {
    format!("{status}\r\n{headers}content-length: {}\r\n\r\n{text}", text.len())
}

/// Does as a bucket does.
fn act(state: &mut State, line: &str, body: Vec<u8>, mark: String) -> String {
    let (method, rest) = line.split_once(' ').unwrap();
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let parameter = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let missing = said("404 Not Found", "", "<Error><Code>NoSuchUpload</Code></Error>");
    match (method, parameter("uploadId")) {
        ("HEAD", _) => match state.objects.get(path) {
            Some((bytes, mark)) => {
                format!("200 OK\r\nx-amz-meta-sinew: {mark}\r\ncontent-length: {}\r\n\r\n", bytes.len())
            }
            None => said("404 Not Found", "", ""),
        },
        ("POST", None) => {
            let id = format!("up/{}", state.uploads.len());
            state.uploads.insert(id.clone(), (BTreeMap::new(), mark));
            said("200 OK", "", &format!("<UploadId>{id}</UploadId>"))
        }
        ("PUT", None) => {
            state.objects.insert(path.to_owned(), (body, mark));
            said("200 OK", "etag: \"e\"\r\n", "")
        }
        (_, None) => said("405 No", "", ""),
        (method, Some(id)) => {
            let id = id.replace("%2F", "/");
            let Some(upload) = state.uploads.get_mut(&id) else { return missing };
            match method {
                "PUT" => {
                    let number: usize = parameter("partNumber").unwrap().parse().unwrap();
                    upload.0.insert(number, body);
                    said("200 OK", &format!("etag: \"part-{number}\"\r\n"), "")
                }
                "POST" => {
                    let (parts, mark) = state.uploads.remove(&id).unwrap();
                    let list = String::from_utf8(body).unwrap();
                    assert!(parts.keys().all(|number| list.contains(&format!(
                        "<PartNumber>{number}</PartNumber><ETag>\"part-{number}\"</ETag>"
                    ))));
                    let bytes = parts.into_values().flatten().collect();
                    state.objects.insert(path.to_owned(), (bytes, mark));
                    said("200 OK", "", "<CompleteMultipartUploadResult/>")
                }
                _ => {
                    state.uploads.remove(&id);
                    said("204 No Content", "", "")
                }
            }
        }
    }
}

fn upload(len: usize) -> Upload {
    let body: Vec<u8> = (0..len).map(|at| (at * 31 % 251) as u8).collect();
    Upload {
        url: "s3://data/a/b".to_owned(),
        content_type: "text/csv".to_owned(),
        mark: format!("blob-{len}"),
        body: Bytes::from(body),
    }
}

fn kept(upload: &Upload) -> Option<Kept> {
    Some((upload.body.to_vec(), upload.mark.clone()))
}

const BUSY: Wrong = Wrong::Says("503 Slow Down\r\ncontent-length: 0\r\n\r\n");

#[tokio::test]
async fn short_ones_go_whole_and_long_ones_in_parts() {
    for len in [0, 1, 2000, 2001, 12_345] {
        let bucket = Bucket::start().await;
        let upload = upload(len);
        assert_eq!(bucket.uploads().send(&upload).await, Ok(Uploaded::Written));
        assert_eq!(bucket.kept(), kept(&upload), "{len} bytes");
        let parts = bucket.requests().iter().filter(|line| line.contains("partNumber=")).count();
        assert_eq!(parts, if len <= 2000 { 0 } else { len.div_ceil(1000) });
        assert!(bucket.state.lock().uploads.is_empty());
        assert!(bucket.state.lock().at_once_max <= 4);
    }
}

#[tokio::test]
async fn what_is_there_already_is_not_sent() {
    let bucket = Bucket::start().await;
    let (old, new) = (upload(500), upload(501));
    for (upload, ended) in [
        (&old, Uploaded::Written),
        (&old, Uploaded::Known),
        (&new, Uploaded::Written),
        (&new, Uploaded::Known),
        (&old, Uploaded::Written),
    ] {
        assert_eq!(bucket.uploads().send(upload).await, Ok(ended));
        assert_eq!(bucket.kept(), kept(upload));
    }
    assert_eq!(bucket.requests().iter().filter(|line| line.starts_with("PUT")).count(), 3);
    // Somebody else wrote something as long, without a mark.
    let other = (vec![0; 500], String::new());
    bucket.state.lock().objects.insert("/data/a/b".to_owned(), other);
    assert_eq!(bucket.uploads().send(&old).await, Ok(Uploaded::Written));
}

#[tokio::test]
async fn what_passes_is_tried_again_and_only_that() {
    let bucket = Bucket::start().await;
    let upload = upload(3500);
    bucket.go_wrong(&[
        ("HEAD", BUSY),
        ("POST /data/a/b?uploads=", BUSY),
        ("PUT /data/a/b?partNumber=2", Wrong::Silent),
        ("PUT /data/a/b?partNumber=3", Wrong::Hangs),
        ("PUT /data/a/b?partNumber=4", BUSY),
        ("PUT /data/a/b?partNumber=4", BUSY),
    ]);
    assert_eq!(bucket.uploads().send(&upload).await, Ok(Uploaded::Written));
    assert_eq!(bucket.kept(), kept(&upload));
    let sent = bucket.requests();
    let times = |begin: &str| sent.iter().filter(|line| line.starts_with(begin)).count();
    assert_eq!((times("HEAD"), times("PUT /data/a/b?partNumber=1")), (2, 1), "{sent:?}");
    assert_eq!((times("PUT /data/a/b?partNumber=3"), times("PUT /data/a/b?partNumber=4")), (2, 3));
    // Until it has been tried often enough.
    let bucket = Bucket::start().await;
    bucket.go_wrong(&[("PUT", BUSY), ("PUT", BUSY), ("PUT", BUSY)]);
    let error = bucket.uploads().send(&super::tests::upload(10)).await.unwrap_err();
    assert!(
        error.why.contains("503") && error.why.contains("after 3 attempts") && !error.is_lasting,
        "{error}"
    );
    assert_eq!(bucket.kept(), None);
}

#[tokio::test]
async fn an_answer_that_is_lost_at_the_end_does_no_harm() {
    let bucket = Bucket::start().await;
    let upload = upload(2500);
    bucket.go_wrong(&[("POST /data/a/b?uploadId", Wrong::Silent)]);
    assert_eq!(bucket.uploads().send(&upload).await, Ok(Uploaded::Written));
    assert_eq!(bucket.kept(), kept(&upload));
    // It says 200, and that it went wrong; then it goes well.
    let bucket = Bucket::start().await;
    let late = "200 OK\r\ncontent-length: 42\r\n\r\n<Error><Code>InternalError</Code> </Error> ";
    bucket.go_wrong(&[("POST /data/a/b?uploadId", Wrong::Says(late))]);
    assert_eq!(bucket.uploads().send(&upload).await, Ok(Uploaded::Written));
    assert_eq!(bucket.kept(), kept(&upload));
    // Somebody else has taken the upload back: it is not there, and is not said to be.
    let bucket = Bucket::start().await;
    let gone = "404 Not Found\r\ncontent-length: 39\r\n\r\n<Error><Code>NoSuchUpload</Code></Error>";
    bucket.go_wrong(&[("POST /data/a/b?uploadId", BUSY), ("POST /data/a/b?uploadId", Wrong::Says(gone))]);
    let error = bucket.uploads().send(&upload).await.unwrap_err();
    assert!(error.why.contains("NoSuchUpload"), "{error}");
}

async fn soon(mut holds: impl FnMut() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came so far");
}

#[tokio::test]
async fn what_is_refused_or_left_takes_its_parts_back() {
    let refusal = "403 Forbidden\r\ncontent-length: 38\r\n\r\n<Error><Code>AccessDenied</Code></Error>";
    let bucket = Bucket::start().await;
    bucket.go_wrong(&[("PUT /data/a/b?partNumber=3", Wrong::Says(refusal))]);
    let error = bucket.uploads().send(&upload(5000)).await.unwrap_err();
    assert!(error.is_lasting && error.why.contains("403") && error.why.contains("AccessDenied"), "{error}");
    soon(|| bucket.state.lock().uploads.is_empty()).await;
    assert_eq!(bucket.kept(), None);
    // Whoever asked for it has left.
    let bucket = Bucket::start().await;
    bucket.go_wrong(&[("PUT /data/a/b?partNumber=2", Wrong::Hangs)]);
    let uploads = bucket.uploads();
    let sending = tokio::spawn(async move { uploads.send(&upload(5000)).await });
    soon(|| bucket.requests().iter().any(|line| line.contains("partNumber=2"))).await;
    sending.abort();
    soon(|| bucket.state.lock().uploads.is_empty()).await;
    assert!(bucket.requests().iter().any(|line| line.starts_with("DELETE")));
    assert_eq!(bucket.kept(), None);
}

#[tokio::test]
async fn nothing_goes_to_who_must_not_have_it() {
    let bucket = Bucket::start().await;
    let elsewhere = "307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
    bucket.go_wrong(&[("HEAD", Wrong::Says(elsewhere))]);
    let error = bucket.uploads().send(&upload(10)).await.unwrap_err();
    assert!(error.why.contains("elsewhere"), "{error}");
    for (url, why) in [("s3://other/a", "[s3.other]"), ("http://127.0.0.1/a", "no URL like")] {
        let wrong = Upload { url: url.to_owned(), ..upload(10) };
        let error = bucket.uploads().send(&wrong).await.unwrap_err();
        assert!(error.is_lasting && error.why.contains(why) && error.url == url, "{error}");
    }
    let wrong = Upload { content_type: "a\r\nx-amz-acl: public-read".to_owned(), ..upload(10) };
    assert!(bucket.uploads().send(&wrong).await.unwrap_err().why.contains("visible"));
    assert_eq!(bucket.requests().len(), 1);
}

#[tokio::test]
async fn a_list_ends_only_where_the_server_says_so() {
    let page = |keys: &str, more: &str| {
        let text = format!("<ListBucketResult>{keys}<IsTruncated>{more}</ListBucketResult>\n");
        &*said("200 OK", "", &text).leak()
    };
    let key = |name: &str| format!("<Contents><Key>p/{name}</Key></Contents>");
    let bucket = Bucket::start().await;
    let folder = bucket.uploads().folder("s3://data/p").unwrap();
    let next = "true</IsTruncated><NextContinuationToken>a+b/c=</NextContinuationToken>";
    bucket.go_wrong(&[
        ("GET", Wrong::Says(page("", next))),
        ("GET", Wrong::Says(page("", next))),
        ("GET", Wrong::Says(page(&[key("x/2"), key("x/1")].concat(), next))),
    ]);
    assert_eq!(folder.list("x/", "x/0").await, Ok(vec!["x/1".to_owned(), "x/2".to_owned()]));
    let requests = bucket.requests();
    assert!(requests[0].contains("start-after=p%2Fx%2F0"), "{requests:?}");
    assert!(requests[1].contains("?continuation-token=a%2Bb%2Fc%3D&list-type=2"), "{requests:?}");
    assert_eq!(requests.len(), 3);
    bucket.go_wrong(&[("GET", Wrong::Says(page("", "false</IsTruncated>")))]);
    assert_eq!(folder.list("x/", "").await, Ok(Vec::new()));
    // What breaks off is no end, whether or not it says how long it is.
    let cut = "200 OK\r\nconnection: close\r\n\r\n<ListBucketResult><IsTruncated>false</IsTruncated>";
    bucket.go_wrong(&[("GET", Wrong::Says(cut))]);
    assert!(folder.list("x/", "").await.unwrap_err().contains("breaks off"));
    bucket.go_wrong(&[("GET", Wrong::Says(page("", "true</IsTruncated>")))]);
    assert!(folder.list("x/", "").await.unwrap_err().contains("not where they begin"));
}
