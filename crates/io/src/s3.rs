// SPDX-License-Identifier: Apache-2.0
//! Buckets of S3, and of what speaks like it: where they are, and signatures of what
//! is asked of them (Signature Version 4).
//!
//! A bucket is one that the node's settings name, with its endpoint; keys for it come
//! from the node's secrets, each time anew, so that they can be changed. Whoever names
//! `s3://BUCKET/KEY` sees neither. A signature covers the method, the host, the object
//! and the time: what is signed is sent to that endpoint and nowhere else, whatever it
//! answers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use hyper::header::{HeaderName, HeaderValue};
use hyper::http::Uri;
use ring::digest::{SHA256, digest};
use ring::hmac;

use crate::dial::Place;

/// How a URL of an object begins.
const SCHEME: &str = "s3://";
/// Bytes of an object's key.
const KEY_BYTES_MAX: usize = 1024;
/// Where no region is said.
const REGION_USUAL: &str = "us-east-1";
/// Bytes of the text of keys, and of each setting.
const TEXT_MAX: usize = 4096;

/// What the node's settings say of a bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BucketOptions {
    /// Its server's URL; the bucket's name comes first in the path. None: that of AWS.
    pub endpoint: Option<String>,
    /// The region that signatures name.
    pub region: Option<String>,
    /// The secret that has the keys, as [`Keys`] says.
    pub secret: String,
    /// Objects may be written to it.
    pub is_writable: bool,
}

/// Looks up a secret: `ACCESS-KEY SECRET-KEY`, and a session's token behind them if
/// there is one. None: what is asked is not signed.
pub type Keys = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The buckets that can be named.
#[derive(Clone, Default)]
pub struct Buckets(BTreeMap<String, Arc<Bucket>>);

/// One that can be asked.
pub(crate) struct Bucket {
    /// Where it is; its path is what stands before keys.
    place: Place,
    before: String,
    region: String,
    secret: String,
    keys: Keys,
    is_writable: bool,
}

impl fmt::Debug for Buckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Buckets {
    /// From settings, by the buckets' names.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn new<'a>(
        options: impl IntoIterator<Item = (&'a String, &'a BucketOptions)>,
        keys: &Keys,
    ) -> Result<Self, String> {
        let bucket = |(name, options): (&String, &BucketOptions)| {
            let bucket = Bucket::new(name, options, Arc::clone(keys));
            Ok((name.clone(), Arc::new(bucket.map_err(|why| format!("{name}: {why}"))?)))
        };
        options.into_iter().map(bucket).collect::<Result<_, _>>().map(Self)
    }

    /// Whether a URL is one of an object in a bucket.
    pub(crate) fn is_one(url: &str) -> bool {
        url.get(..SCHEME.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(SCHEME))
    }

    /// Where `s3://BUCKET/KEY` is, or `s3://BUCKET/KEY?versionId=ID`.
    pub(crate) fn place(&self, url: &str) -> Result<Place, String> {
        let rest = url.get(SCHEME.len()..).unwrap_or_default();
        let (name, rest) = rest.split_once('/').ok_or("it is no URL like s3://bucket/key")?;
        let bucket = self.0.get(name).ok_or_else(|| {
            format!("the bucket {name:?} is not one of this node: its file has to name it, as [s3.{name}]")
        })?;
        let (key, query) = rest.split_once('?').unwrap_or((rest, ""));
        let version = match query {
            "" => None,
            query => {
                let version = query.strip_prefix("versionId=").filter(|version| !version.contains('&'));
                Some(version.ok_or("behind its ? only versionId=… can stand")?)
            }
        };
        let key = decoded(key).ok_or("its key has a % that no two hexadecimal digits follow")?;
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(format!("its key has no bytes, or more than {KEY_BYTES_MAX}"));
        }
        if key.split(|byte| *byte == b'/').any(|step| step == b"." || step == b"..") {
            // Some servers would take them for steps, out of the bucket too.
            return Err("a part of its key is . or ..".to_owned());
        }
        let mut path = format!("{}{}", bucket.before, encoded(&key, true));
        if let Some(version) = version {
            let version = decoded(version).ok_or("its version is no text")?;
            path += &format!("?versionId={}", encoded(&version, false));
        }
        let path: Uri = path.parse().map_err(|_| "it is too long")?;
        Ok(Place { path, bucket: Some(Arc::clone(bucket)), ..bucket.place.clone() })
    }
}

impl Buckets {
    /// Where an object may be written: as [`Buckets::place`], in a bucket that is open for it.
    pub(crate) fn writable(&self, url: &str) -> Result<Place, String> {
        if !Self::is_one(url) {
            return Err("it is no URL like s3://bucket/key".to_owned());
        }
        let place = self.place(url)?;
        if place.path.query().is_some() {
            return Err("a version is made by writing, and cannot be named before".to_owned());
        }
        if !place.bucket.as_ref().is_some_and(|bucket| bucket.is_writable) {
            let name = url[SCHEME.len()..].split('/').next().unwrap_or_default();
            return Err(format!(
                "the bucket {name:?} is only read: the node's file has to say `write = true` below [s3.{name}]"
            ));
        }
        Ok(place)
    }
}

impl Place {
    /// The bucket in which it is.
    pub(crate) fn root(&self) -> Self {
        let path = self.bucket.as_ref().and_then(|bucket| bucket.before.parse().ok());
        Self { path: path.unwrap_or_else(|| self.path.clone()), ..self.clone() }
    }
}

impl Bucket {
    fn new(name: &str, options: &BucketOptions, keys: Keys) -> Result<Self, String> {
        let is_char = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        if !(3..=63).contains(&name.len()) || !name.bytes().all(is_char) || name.contains("..") {
            return Err("a bucket's name has 3 to 63 small letters, digits, - and .".to_owned());
        }
        let region = options.region.clone().unwrap_or_else(|| REGION_USUAL.to_owned());
        let is_region = (1..=64).contains(&region.len())
            && region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !is_region {
            return Err(format!("{region:?} is no region"));
        }
        // A name with points has no certificate below that of AWS.
        let is_host = options.endpoint.is_none() && !name.contains('.');
        let endpoint = match &options.endpoint {
            Some(endpoint) => endpoint.clone(),
            None if is_host => format!("https://{name}.s3.{region}.amazonaws.com"),
            None => format!("https://s3.{region}.amazonaws.com"),
        };
        let place = Place::read(&endpoint).map_err(|why| format!("its endpoint {endpoint:?}: {why}"))?;
        if !matches!(place.path.to_string().as_str(), "/" | "") {
            return Err(format!("its endpoint {endpoint:?} has a path"));
        }
        let before = if is_host { "/".to_owned() } else { format!("/{name}/") };
        Ok(Self {
            place,
            before,
            region,
            secret: options.secret.clone(),
            keys,
            is_writable: options.is_writable,
        })
    }

    /// The name of the secret without which nothing is signed, if there is none.
    pub(crate) fn lacks_secret(&self) -> Option<&str> {
        (self.keys)(&self.secret).is_none().then_some(self.secret.as_str())
    }

    /// What a request to this place is to be sent with, for it to be signed at this time
    /// (seconds since 1970). The payload is told by its SHA-256; `extra` headers are signed
    /// too, and among what comes back.
    ///
    /// # Errors
    /// The secret is none.
    pub(crate) fn signed(
        &self,
        method: &str,
        place: &Place,
        payload: &str,
        extra: &[(&str, &str)],
        now_s: u64,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
        let Some(text) = (self.keys)(&self.secret) else { return Ok(Vec::new()) };
        let wrong = || {
            format!(
                "the secret {} is not ACCESS-KEY SECRET-KEY, with a session's token behind them if there is one",
                self.secret
            )
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let (access, secret, token) = match (words.as_slice(), text.len() <= TEXT_MAX) {
            (&[access, secret], true) => (access, secret, None),
            (&[access, secret, token], true) => (access, secret, Some(token)),
            _ => return Err(wrong()),
        };
        let time = Stamp::at(now_s);
        let host = place.authority.to_str().map_err(|_| wrong())?;
        let mut headers =
            vec![("host", host), ("x-amz-content-sha256", payload), ("x-amz-date", time.whole.as_str())];
        headers.extend(token.map(|token| ("x-amz-security-token", token)));
        headers.extend(extra);
        headers.sort_unstable();
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let query = place.path.query().unwrap_or_default();
        let request = format!("{method}\n{}\n{query}\n{lines}\n{names}\n{payload}", place.path.path());
        let scope = format!("{}/{}/s3/aws4_request", time.day, self.region);
        let hash = hex(digest(&SHA256, request.as_bytes()).as_ref());
        let text = format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{hash}", time.whole);
        let mut key = format!("AWS4{secret}").into_bytes();
        for part in [time.day.as_str(), &self.region, "s3", "aws4_request"] {
            key = tag(&key, part);
        }
        let signature = hex(&tag(&key, &text));
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={access}/{scope}, SignedHeaders={names}, Signature={signature}"
        );
        let mut signed = vec![(HeaderName::from_static("authorization"), authorization.as_str())];
        for (name, value) in headers.into_iter().filter(|(name, _)| *name != "host") {
            signed.push((HeaderName::try_from(name).map_err(|_| wrong())?, value));
        }
        let value = |value: &str| {
            let mut value = HeaderValue::from_str(value).map_err(|_| wrong())?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        };
        signed.into_iter().map(|(name, text)| Ok((name, value(text)?))).collect()
    }
}

fn tag(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The code of an error of S3, if that is what a text is.
pub(crate) fn reason(text: &str) -> Option<&str> {
    let code = between(text, "<Code>", "</Code>")?;
    let is_word = (1..=64).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_word.then_some(code)
}

/// What stands between two tags of a text in XML, the first time.
pub(crate) fn between<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(begin)?;
    Some(rest.split_once(end)?.0)
}

/// The hash of no bytes.
pub(crate) fn hash_of_nothing() -> String {
    hex(digest(&SHA256, b"").as_ref())
}

#[expect(clippy::disallowed_methods, reason = "servers compare it with their time of day")]
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A time, as signatures write it.
struct Stamp {
    day: String,
    whole: String,
}

impl Stamp {
    fn at(now_s: u64) -> Self {
        let (days, of_day) = (now_s / 86_400, now_s % 86_400);
        let (year, month, day) = civil(days);
        let day = format!("{year:04}{month:02}{day:02}");
        let whole = format!("{day}T{:02}{:02}{:02}Z", of_day / 3600, of_day / 60 % 60, of_day % 60);
        Self { day, whole }
    }
}

/// Year, month and day, so many days after 1970 began. Years are counted from March
/// on, so that the day that some of them have more comes last.
fn civil(days: u64) -> (u64, u64, u64) {
    /// From 1 March 0000 to 1 January 1970.
    const BEFORE: u64 = 719_468;
    const ERA_DAYS: u64 = 146_097;
    let days = days + BEFORE;
    let (era, of_era) = (days / ERA_DAYS, days % ERA_DAYS);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

/// Bytes as they stand in a URL; slashes too, unless they are part of what is named.
pub(crate) fn encoded(bytes: &[u8], keeps_slashes: bool) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(*byte))
            }
            b'/' if keeps_slashes => text.push('/'),
            _ => text += &format!("%{byte:02X}"),
        }
    }
    text
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push((digit(digits[0])? * 16 + digit(digits[1])?) as u8);
        rest = after;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
