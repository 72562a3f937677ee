// SPDX-License-Identifier: Apache-2.0
//! What is sent to a function, as `invoke` and `bench` are told it.

use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::http::request::{Builder, Parts};
use hyper::{Method, Request};
use serde_json::Value;

use crate::client::{Outgoing, streamed, whole};
use crate::commands::put::stdin;
use crate::directory::unreadable;
use crate::exit::{Code, Stop};
use crate::function_api::checked;

/// Longest body that is kept to be sent again and again.
const KEPT_BYTES_MAX: u64 = 64 << 20;

/// A request to a function.
#[derive(Debug, Args)]
pub(crate) struct FunctionRequest {
    /// The body; JSON is sent as such, and @FILE is what is in a file
    #[arg(short, long, value_name = "DATA", conflicts_with = "file")]
    data: Option<String>,
    /// The same, and an @ at its beginning is an @
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["data", "file"])]
    data_raw: Option<String>,
    /// A file as the body; - is stdin [default: stdin, if it is no terminal]
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// What follows the function's own path, and the query
    #[arg(short, long, value_name = "PATH", default_value = "")]
    path: String,
    /// The method
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "POST", value_parser = parse_method)]
    method: Method,
    /// A header; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = parse_header)]
    headers: Vec<(HeaderName, HeaderValue)>,
}

fn parse_method(text: &str) -> Result<Method, String> {
    text.to_ascii_uppercase().parse().map_err(|_| "a method is written GET, POST, PUT …".to_owned())
}

fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong = || "a header is written 'name: value'".to_owned();
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let name = name.trim().parse().map_err(|_| wrong())?;
    let value = value.trim().parse().map_err(|_| wrong())?;
    Ok((name, value))
}

impl FunctionRequest {
    /// With its body, which is read while it is sent.
    pub(crate) fn once(&self, door: &str, name: &str) -> anyhow::Result<Request<Outgoing>> {
        let body = match self.source() {
            Source::Text(data) => whole(data.to_owned()),
            Source::File(path) => {
                let file = std::fs::File::open(path).map_err(|error| unreadable(path, error))?;
                let metadata = file.metadata().map_err(|error| unreadable(path, error))?;
                if metadata.is_dir() {
                    return Err(Stop::new(Code::Usage, format!("{} is a directory", path.display())).into());
                }
                // Pipes and the like have no length.
                let len = metadata.is_file().then_some(metadata.len());
                streamed(tokio::fs::File::from_std(file), len, |_| ())
            }
            Source::Stdin => streamed(stdin()?, None, |_| ()),
            Source::Nothing => whole(Bytes::new()),
        };
        self.described(door, name, body)
    }

    /// As it can be sent again and again: its head and its body.
    pub(crate) fn again(&self, name: &str) -> anyhow::Result<(Parts, Bytes)> {
        let mut body = Vec::new();
        match self.source() {
            Source::Text(data) => body.extend_from_slice(data.as_bytes()),
            Source::File(path) => {
                let file = std::fs::File::open(path).map_err(|error| unreadable(path, error))?;
                let read = file.take(KEPT_BYTES_MAX + 1).read_to_end(&mut body);
                read.map_err(|error| unreadable(path, error))?;
            }
            Source::Stdin => {
                let read = io::stdin().lock().take(KEPT_BYTES_MAX + 1).read_to_end(&mut body);
                read.context("reading stdin")?;
            }
            Source::Nothing => {}
        }
        if body.len() as u64 > KEPT_BYTES_MAX {
            let message = format!("a body that is sent often has at most {KEPT_BYTES_MAX} bytes");
            return Err(Stop::new(Code::Usage, message).into());
        }
        let (parts, ()) = self.described("function", name, ())?.into_parts();
        Ok((parts, body.into()))
    }

    fn source(&self) -> Source<'_> {
        if let Some(text) = &self.data_raw {
            return Source::Text(text);
        }
        let named = self.data.as_deref().and_then(|data| data.strip_prefix('@'));
        if let (Some(data), None) = (&self.data, named) {
            return Source::Text(data);
        }
        match named.map(Path::new).or(self.file.as_deref()) {
            Some(path) if path != Path::new("-") => Source::File(path),
            Some(_) => Source::Stdin,
            None if io::stdin().is_terminal() || matches!(self.method, Method::GET | Method::HEAD) => {
                Source::Nothing
            }
            None => Source::Stdin,
        }
    }

    fn described<B>(&self, door: &str, name: &str, body: B) -> anyhow::Result<Request<B>> {
        // A version of it, or an alias.
        let (own, qualifier) = name.split_once(':').map_or((name, None), |(own, at)| (own, Some(at)));
        checked(own)?;
        qualifier.filter(|at| at.parse::<u64>().is_err()).map(checked).transpose()?;
        let path = match self.path.as_str() {
            path if path.is_empty() || path.starts_with(['/', '?']) => path.to_owned(),
            path => format!("/{path}"),
        };
        let request = Request::builder().method(self.method.clone()).uri(format!("/{door}/{name}{path}"));
        self.with_headers(request).body(body).map_err(|error| {
            let stop = Stop::new(Code::Usage, format!("{path:?} cannot be a path: {error}"));
            stop.suggest("write what is no letter or digit as %20 and the like").into()
        })
    }

    fn with_headers(&self, mut request: Builder) -> Builder {
        let has_type = self.headers.iter().any(|(name, _)| name == CONTENT_TYPE);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let is_json = |data| serde_json::from_str::<Value>(data).is_ok();
        let kind = match self.source() {
            _ if has_type => None,
            Source::Text(data) if is_json(data) => Some("application/json"),
            Source::Text(_) => Some("text/plain; charset=utf-8"),
            Source::File(path) if path.extension().is_some_and(|end| end == "json") => {
                Some("application/json")
            }
            Source::File(_) | Source::Stdin | Source::Nothing => None,
        };
        match kind {
            Some(kind) => request.header(CONTENT_TYPE, kind),
            None => request,
        }
    }
}

/// Where a body comes from.
enum Source<'a> {
    Text(&'a str),
    File(&'a Path),
    Stdin,
    Nothing,
}
