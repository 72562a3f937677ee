// SPDX-License-Identifier: Apache-2.0
//! Routes: which function a path belongs to (`docs/spec/functions.md`,
//! section 5).
//!
//! A tree of a path's parts. At each part a text goes before `{name}`, and
//! that before a rest; where the first way leads to no end, the next one is
//! tried. A method of its own goes before `ANY`.

use std::collections::BTreeMap;

use gateway::{RouteError, Routed};

const METHODS: [&str; 8] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "ANY"];
const ANY: &str = "ANY";
/// What the gateway answers itself, and may answer one day.
const RESERVED: [&str; 9] = [
    "dashboard",
    "v1",
    "function",
    "async-function",
    "2015-03-31",
    "healthz",
    "readyz",
    "metrics",
    "openapi.json",
];
const PARTS_MAX: usize = 32;
const PATTERN_LEN_MAX: usize = 1024;

/// `METHOD /path/{name}/{*rest}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    method: &'static str,
    pattern: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    /// One part that is not empty.
    Name(String),
    /// All that follows.
    Rest(String),
}

impl Route {
    /// Reads a route as deployments say it.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let bad = |why: &str| format!("{text:?} is no route: {why}");
        let (method, pattern) = text.split_once(' ').ok_or_else(|| bad("it is like `GET /users/{id}`"))?;
        let method = METHODS.into_iter().find(|known| *known == method);
        let method =
            method.ok_or_else(|| bad("its method is one of GET POST PUT PATCH DELETE HEAD OPTIONS ANY"))?;
        let rest = pattern.strip_prefix('/').ok_or_else(|| bad("its path begins with /"))?;
        let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'%' | b'\\');
        if pattern.len() > PATTERN_LEN_MAX || !pattern.bytes().all(plain) {
            return Err(bad("its path has at most 1024 printable characters of ASCII, without ? # % \\"));
        }
        let mut parts = Vec::new();
        let texts: Vec<&str> = rest.split('/').collect();
        for (at, part) in texts.iter().enumerate() {
            let is_last = at + 1 == texts.len();
            parts.push(read_part(part, is_last).map_err(|why| bad(&why))?);
        }
        if parts.len() > PARTS_MAX {
            return Err(bad("it has more than 32 parts"));
        }
        if let Some(Part::Text(first)) = parts.first()
            && RESERVED.contains(&first.as_str())
        {
            return Err(bad(&format!("/{first} belongs to the node itself")));
        }
        let names: Vec<&str> = parts.iter().filter_map(Part::name).collect();
        if names.iter().enumerate().any(|(at, name)| names[..at].contains(name)) {
            return Err(bad("a name occurs twice in it"));
        }
        Ok(Self { method, pattern: pattern.to_owned(), parts })
    }
}

impl Part {
    fn name(&self) -> Option<&str> {
        match self {
            Self::Text(_) => None,
            Self::Name(name) | Self::Rest(name) => Some(name),
        }
    }
}

fn read_part(part: &str, is_last: bool) -> Result<Part, String> {
    let inner = part.strip_prefix('{').and_then(|part| part.strip_suffix('}'));
    let is_name = |name: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        (1..=64).contains(&name.len()) && name.bytes().all(plain) && !name.as_bytes()[0].is_ascii_digit()
    };
    let rest = match (part, inner) {
        ("*", _) => Some("rest"),
        (_, Some(inner)) => inner.strip_prefix('*'),
        (_, None) => None,
    };
    match (rest, inner) {
        (Some(_), _) if !is_last => Err("a rest is the last part of it".to_owned()),
        (Some(name), _) | (None, Some(name)) if !is_name(name) => Err(format!("{name:?} is no name")),
        (Some(name), _) => Ok(Part::Rest(name.to_owned())),
        (None, Some(name)) => Ok(Part::Name(name.to_owned())),
        (None, None) if part.contains(['{', '}', '*']) => {
            Err("what stands in braces is a whole part of it".to_owned())
        }
        (None, None) if part == "." || part == ".." => Err("it has a part . or ..".to_owned()),
        (None, None) => Ok(Part::Text(part.to_owned())),
    }
}

/// All routes of a node.
#[derive(Debug, Default)]
pub(crate) struct RouteTable {
    root: Branch,
}

#[derive(Debug, Default)]
struct Branch {
    texts: BTreeMap<String, Branch>,
    name: Option<Box<Branch>>,
    rest: Ends,
    ends: Ends,
}

/// By method.
type Ends = BTreeMap<&'static str, End>;

#[derive(Debug)]
struct End {
    function: String,
    route: Route,
}

impl RouteTable {
    /// Adds a function's route.
    ///
    /// # Errors
    /// The function that has it already, and its route.
    pub(crate) fn add(&mut self, function: &str, route: &Route) -> Result<(), (String, String)> {
        let mut branch = &mut self.root;
        let mut ends = None;
        for part in &route.parts {
            match part {
                Part::Text(text) => branch = branch.texts.entry(text.clone()).or_default(),
                Part::Name(_) => branch = branch.name.get_or_insert_default(),
                Part::Rest(_) => ends = Some(()),
            }
        }
        let ends = if ends.is_some() { &mut branch.rest } else { &mut branch.ends };
        if let Some(end) = ends.get(route.method) {
            return Err((end.function.clone(), format!("{} {}", end.route.method, end.route.pattern)));
        }
        ends.insert(route.method, End { function: function.to_owned(), route: route.clone() });
        Ok(())
    }

    /// The function that a path belongs to.
    ///
    /// # Errors
    /// That there is none, or none for this method.
    pub(crate) fn find(&self, method: &str, path: &str) -> Result<Routed, RouteError> {
        let parts: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
        if parts.len() > PATTERN_LEN_MAX || RESERVED.contains(&parts[0]) {
            return Err(RouteError::None);
        }
        let mut search = Search { method, parts: &parts, methods: Vec::new(), steps: 0 };
        let Some(end) = search.walk(&self.root, 0) else {
            search.methods.sort_unstable();
            search.methods.dedup();
            return Err(match search.methods.is_empty() {
                true => RouteError::None,
                false => RouteError::Method(search.methods),
            });
        };
        let mut params = Vec::new();
        for (at, part) in end.route.parts.iter().enumerate() {
            let value = match part {
                Part::Text(_) => continue,
                Part::Name(name) => (name, parts[at].to_owned()),
                Part::Rest(name) => (name, parts[at..].join("/")),
            };
            let decoded = decoded(&value.1).ok_or(RouteError::Encoding)?;
            params.push((value.0.clone(), decoded));
        }
        let (function, pattern) = (end.function.clone(), end.route.pattern.clone());
        Ok(Routed { function, pattern, params, at_home: false })
    }
}

/// How many branches a search looks at: a table with many names and texts side
/// by side could have it try very many ways.
const STEPS_MAX: usize = 10_000;

struct Search<'a> {
    method: &'a str,
    parts: &'a [&'a str],
    /// Those of paths that fit.
    methods: Vec<&'static str>,
    steps: usize,
}

impl Search<'_> {
    fn walk<'t>(&mut self, branch: &'t Branch, at: usize) -> Option<&'t End> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return None;
        }
        let Some(part) = self.parts.get(at) else { return self.end(&branch.ends) };
        if let Some(end) = branch.texts.get(*part).and_then(|next| self.walk(next, at + 1)) {
            return Some(end);
        }
        if let Some(next) = branch.name.as_deref().filter(|_| !part.is_empty())
            && let Some(end) = self.walk(next, at + 1)
        {
            return Some(end);
        }
        self.end(&branch.rest)
    }

    fn end<'t>(&mut self, ends: &'t Ends) -> Option<&'t End> {
        self.methods.extend(ends.keys());
        let get = || if self.method == "HEAD" { ends.get("GET") } else { None };
        ends.get(self.method).or_else(get).or_else(|| ends.get(ANY))
    }
}

/// A part of a path without its percent signs; none if it is no text.
fn decoded(part: &str) -> Option<String> {
    if !part.contains('%') {
        return Some(part.to_owned());
    }
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let (bytes, mut text) = (part.as_bytes(), Vec::with_capacity(part.len()));
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if *byte == b'%' {
            let (high, low) = (digit(bytes.get(at + 1))?, digit(bytes.get(at + 2))?);
            text.push((high * 16 + low) as u8);
            at += 3;
        } else {
            text.push(*byte);
            at += 1;
        }
    }
    String::from_utf8(text).ok()
}

#[cfg(test)]
mod tests;
