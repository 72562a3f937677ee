// SPDX-License-Identifier: Apache-2.0
//! What URLs of objects lead to, and what is signed. That servers take the signatures
//! is shown with real ones (`cli/tests/e2e/s3.rs`).
#![allow(clippy::unwrap_used)]

use super::*;

fn keys(text: &'static str) -> Keys {
    Arc::new(move |name| (name == "SINEW_S3" && !text.is_empty()).then(|| text.to_owned()))
}

fn buckets(endpoint: Option<&str>, text: &'static str) -> Buckets {
    let options = BucketOptions {
        endpoint: endpoint.map(str::to_owned),
        region: Some("eu-north-7".to_owned()),
        secret: "SINEW_S3".to_owned(),
        is_writable: false,
    };
    let all = ["data", "with.points"].map(|name| (name.to_owned(), options.clone()));
    Buckets::new(all.iter().map(|(name, options)| (name, options)), &keys(text)).unwrap()
}

fn leads_to(buckets: &Buckets, url: &str) -> Result<String, String> {
    let place = buckets.place(url)?;
    let scheme = if place.is_tls { "https" } else { "http" };
    Ok(format!("{scheme}://{}{}", place.authority.to_str().unwrap(), place.path))
}

#[test]
fn objects_are_where_their_bucket_is() {
    let here = buckets(Some("http://127.0.0.1:9000"), "");
    for (url, leads) in [
        ("s3://data/a", "http://127.0.0.1:9000/data/a"),
        ("S3://data/a/b.txt", "http://127.0.0.1:9000/data/a/b.txt"),
        ("s3://data/a%20b+c=d%2fe%C3%A9", "http://127.0.0.1:9000/data/a%20b%2Bc%3Dd/e%C3%A9"),
        ("s3://data/a?versionId=x/y", "http://127.0.0.1:9000/data/a?versionId=x%2Fy"),
        ("s3://data//a", "http://127.0.0.1:9000/data//a"),
    ] {
        assert_eq!(leads_to(&here, url).as_deref(), Ok(leads), "{url}");
    }
    let aws = buckets(None, "");
    let at_aws = |url| leads_to(&aws, url).unwrap();
    assert_eq!(at_aws("s3://data/a"), "https://data.s3.eu-north-7.amazonaws.com/a");
    assert_eq!(at_aws("s3://with.points/a"), "https://s3.eu-north-7.amazonaws.com/with.points/a");
}

#[test]
fn what_names_no_object_of_a_bucket_of_ours_is_refused() {
    let here = buckets(Some("http://127.0.0.1:9000"), "");
    for (url, why) in [
        ("s3://data", "no URL like"),
        ("s3://other/a", "[s3.other]"),
        ("s3:///a", "is not one of this node"),
        ("s3://data/", "no bytes"),
        ("s3://data/../other/a", ". or .."),
        ("s3://data/a/%2e%2E/b", ". or .."),
        ("s3://data/a%2", "two hexadecimal digits"),
        ("s3://data/a%zz", "two hexadecimal digits"),
        ("s3://data/a?acl", "only versionId"),
        ("s3://data/a?versionId=1&acl", "only versionId"),
        ("s3://user@data/a", "is not one of this node"),
    ] {
        let error = leads_to(&here, url).unwrap_err();
        assert!(error.contains(why), "{url}: {error}");
    }
    assert!(leads_to(&here, &format!("s3://data/{}", "a".repeat(1025))).unwrap_err().contains("1024"));
}

#[test]
fn settings_that_lead_nowhere_are_refused() {
    let one = |name: &str, options: BucketOptions| {
        Buckets::new([(&name.to_owned(), &options)], &keys("")).map(drop).unwrap_err()
    };
    let with =
        |endpoint: &str| BucketOptions { endpoint: Some(endpoint.to_owned()), ..BucketOptions::default() };
    assert!(one("Data", BucketOptions::default()).contains("small letters"));
    assert!(one("a/b", BucketOptions::default()).contains("small letters"));
    assert!(one("data", with("127.0.0.1:9000")).contains("its endpoint"));
    assert!(one("data", with("http://u:p@a.example")).contains("a user"));
    assert!(one("data", with("http://a.example/b")).contains("has a path"));
    let region = BucketOptions { region: Some("a b".to_owned()), ..BucketOptions::default() };
    assert!(one("data", region).contains("no region"));
}

#[test]
fn what_is_signed_says_when_and_for_whom_and_nobody_sees_the_secret() {
    let signed = |text: &'static str, url: &str, now_s| {
        let place = buckets(Some("http://127.0.0.1:9000"), text).place(url).unwrap();
        let bucket = Arc::clone(place.bucket.as_ref().unwrap());
        bucket.signed("GET", &place, &hash_of_nothing(), &[], now_s).map(|headers| {
            let text =
                |(name, value): &(HeaderName, HeaderValue)| format!("{name}: {}\n", value.to_str().unwrap());
            headers.iter().map(text).collect::<String>()
        })
    };
    // A leap day, and a second before a new year.
    let at = |now_s| signed("AKEY shhh", "s3://data/a", now_s).unwrap();
    let head = at(1_709_210_096);
    assert!(head.contains("x-amz-date: 20240229T123456Z\n"), "{head}");
    assert!(head.contains("Credential=AKEY/20240229/eu-north-7/s3/aws4_request, SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature="), "{head}");
    assert!(!head.contains("shhh"));
    assert!(at(1_798_761_599).contains("x-amz-date: 20261231T235959Z\n"));
    assert!(at(951_782_400).contains("x-amz-date: 20000229T000000Z\n"));
    let with_token = signed("AKEY shhh token", "s3://data/a", 0).unwrap();
    assert!(
        with_token.contains("x-amz-security-token: token\n")
            && with_token.contains("x-amz-date;x-amz-security-token,")
    );
    // Whatever is other has another signature.
    let signature = |text: &str| text.split("Signature=").nth(1).unwrap()[..64].to_owned();
    let first = signature(&at(7));
    for other in [
        at(8),
        signed("AKEY shhhh", "s3://data/a", 7).unwrap(),
        signed("AKEY shhh", "s3://data/b", 7).unwrap(),
    ] {
        assert_ne!(signature(&other), first);
    }
    assert_eq!(signed("", "s3://data/a", 7).unwrap(), "", "without keys nothing is signed");
    for wrong in ["uno", "uno dos tres cuatro", "uno dos tr\u{1}es"] {
        let why = signed(wrong, "s3://data/a", 7).unwrap_err();
        assert!(why.contains("SINEW_S3") && !why.contains("uno"), "{why:?}");
    }
}

/// What a request to this place, at the beginning of 24 May 2013, is signed with.
fn signature_of(place: &Place) -> String {
    let bucket = Arc::clone(place.bucket.as_ref().unwrap());
    let signed = bucket.signed("GET", place, &hash_of_nothing(), &[], 1_369_353_600).unwrap();
    signed[0].1.to_str().unwrap().split("Signature=").nth(1).unwrap().to_owned()
}

const KEYS: &str = "AKIAIOSFODNN7EXAMPLE wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const KEYS_WITH_TOKEN: &str = "AKIAIOSFODNN7EXAMPLE wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY tok/en==";

/// The documentation of S3 has these two requests, with these signatures ("Signature
/// Calculations for the Authorization Header": the lifecycle of a bucket, its objects).
#[test]
fn the_examples_of_the_documentation_have_their_signatures() {
    let options = BucketOptions { secret: "SINEW_S3".to_owned(), ..BucketOptions::default() };
    let buckets = Buckets::new([(&"examplebucket".to_owned(), &options)], &keys(KEYS)).unwrap();
    for (path, signature) in [
        ("/?lifecycle=", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("/?max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ] {
        let place = Place {
            authority: HeaderValue::from_static("examplebucket.s3.amazonaws.com"),
            path: path.parse().unwrap(),
            ..buckets.place("s3://examplebucket/a").unwrap()
        };
        assert_eq!(signature_of(&place), signature, "{path}");
    }
}

/// Computed with the `hashlib` and `hmac` of Python, from the requests as they are sent.
#[test]
fn signatures_of_all_kinds_of_names_are_those_that_others_compute() {
    for (endpoint, keys, url, signature) in [
        (None, KEYS, "s3://data/a/b.txt", "de065ffcb915c37000fa8074b5f4f7a0de5bd92452895ac0543d86be6dd30a5e"),
        (
            None,
            KEYS,
            "s3://data/a%20b+c=d%2fe%C3%A9",
            "1ff42ec41fb81b0bc98996d5ad6f2a61e66db8e897acf90a857154567a402d2a",
        ),
        (
            None,
            KEYS,
            "s3://data/a?versionId=x/y",
            "4803c96bb71d3f5b45c7c34649fca2bf8d0169ccf6f3fa45c2faa247d1bd2e7b",
        ),
        (
            None,
            KEYS_WITH_TOKEN,
            "s3://data/a",
            "c9100801430114d8838fb5604250a7e46ab61b8b1cab1b10d91baf20f9542971",
        ),
        (
            Some("http://127.0.0.1:9000"),
            KEYS,
            "s3://data/a",
            "87f632505e847428bb982b1b6fdd5cc86efd20db00e623e97a5cb713c1965f0c",
        ),
    ] {
        let place = buckets(endpoint, keys).place(url).unwrap();
        assert_eq!(signature_of(&place), signature, "{url} {endpoint:?}");
    }
}

#[test]
fn only_buckets_that_are_opened_for_it_are_written_to() {
    let with = |is_writable| {
        let options = BucketOptions { is_writable, ..BucketOptions::default() };
        Buckets::new([(&"data".to_owned(), &options)], &keys("AKEY shhh")).unwrap()
    };
    let why = with(false).writable("s3://data/a").map(drop).unwrap_err();
    assert!(why.contains("only read") && why.contains("[s3.data]"), "{why}");
    assert!(with(true).writable("s3://data/a").is_ok());
    for (url, why) in [
        ("s3://data/a?versionId=1", "cannot be named before"),
        ("s3://data/../b", ". or .."),
        ("s3://other/a", "[s3.other]"),
        ("https://data/a", "no URL like s3://"),
        ("s3://data/", "no bytes"),
    ] {
        let refused = with(true).writable(url).map(drop).unwrap_err();
        assert!(refused.contains(why), "{url}: {refused}");
    }
}

#[test]
fn what_is_kept_with_an_object_is_signed() {
    let buckets = buckets(None, "AKEY shhh");
    let place = buckets.place("s3://data/a").unwrap();
    let bucket = place.bucket.clone().unwrap();
    let signed = |extra: &[(&str, &str)]| {
        let headers = bucket.signed("PUT", &place, &hash_of_nothing(), extra, 7).unwrap();
        let text = |name: &str| {
            let found = headers.iter().find(|(known, _)| known.as_str() == name);
            found.map(|(_, value)| value.to_str().unwrap().to_owned())
        };
        (text("authorization").unwrap(), text("x-amz-meta-sinew"))
    };
    let (with, mark) = signed(&[("x-amz-meta-sinew", "blob-1")]);
    assert_eq!(mark.as_deref(), Some("blob-1"));
    assert!(with.contains("SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-meta-sinew,"), "{with}");
    assert_ne!(signed(&[("x-amz-meta-sinew", "blob-2")]).0, with, "another one has another signature");
    assert_eq!(signed(&[]).1, None);
}

#[test]
fn reasons_of_buckets_are_words() {
    assert_eq!(reason("<Error><Code>NoSuchKey</Code><Message>x</Message>"), Some("NoSuchKey"));
    for other in ["", "<Code></Code>", "<Code>a b</Code>", "<Code>never ends", "</Code><Code>"] {
        assert_eq!(reason(other), None, "{other}");
    }
    assert_eq!(between("<UploadId>a/b</UploadId>", "<UploadId>", "</UploadId>"), Some("a/b"));
}
