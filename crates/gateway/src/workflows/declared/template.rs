// SPDX-License-Identifier: Apache-2.0
//! Values with references in them: what a step is given, as its workflow declares it. A string that
//! is one reference stands for the value itself, whatever its type; in a longer one its text stands there.
//!
//! ```text
//! "{{ list.images[0].url }}"    a member of what the step `list` returned
//! "thumbnail of {{ event.title }}"
//! "{{ event.size? }}"           null where there is none
//! ```

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::super::graph::Number;
use super::super::run::MAPPED_MAX;
use super::given::Given;

/// Values within values.
pub(super) const DEPTH_MAX: usize = 32;
/// Bytes of the texts, and of what stands for other values, that are made of one template.
const MADE_BYTES_MAX: usize = 64 << 20;
/// What a number, a list or an object takes besides what is in it.
const VALUE_BYTES: usize = 32;
/// Members and places that one reference names.
const KEYS_MAX: usize = 32;

/// What a reference begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Root {
    /// What the workflow was asked with.
    Event,
    /// Of `each`: one of them, and the how manieth from 0 on.
    Item,
    Index,
    /// What a step returned, by its place among those that are declared.
    Step(usize),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Key {
    Member(String),
    At(usize),
}

/// A reference to a value, or to a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) root: Root,
    keys: Vec<Key>,
    /// What is not there is null.
    is_optional: bool,
    /// As it is written.
    text: String,
}

/// A value as it is declared.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Template {
    Constant(Value),
    Whole(Reference),
    Text(Vec<Piece>),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Reference(Reference),
}

/// What is made of one template.
#[derive(Debug)]
pub(super) struct Making {
    /// Bytes that it may still take.
    left: usize,
    /// The steps whose memory it hands on, each once, in the order in which they are referred to.
    memory: Vec<Number>,
    /// It is a part of a text, where nothing stands for memory.
    is_text: bool,
}

impl Making {
    pub(super) fn new() -> Self {
        Self::within(MADE_BYTES_MAX)
    }

    /// What takes so many bytes at most.
    pub(super) fn within(left: usize) -> Self {
        Self { left, memory: Vec::new(), is_text: false }
    }

    /// Takes bytes of those that one template may make.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), String> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            format!(
                "what is made of it takes more than {MADE_BYTES_MAX} bytes; hand a whole answer on, or less of it"
            )
        })?;
        Ok(())
    }

    /// What stands for the memory of a step: its place among all that is handed on.
    pub(super) fn memory(&mut self, step: Number) -> Result<Value, String> {
        if self.is_text {
            return Err("it is memory, which cannot be a part of a text".to_owned());
        }
        let known = self.memory.iter().position(|known| *known == step);
        if known.is_none() && self.memory.len() >= MAPPED_MAX {
            return Err(format!("it hands on the memory of more than {MAPPED_MAX} steps"));
        }
        let place = known.unwrap_or_else(|| {
            self.memory.push(step);
            self.memory.len() - 1
        });
        Ok(serde_json::json!({ "$value": place }))
    }

    /// Steps whose memory is handed on with it.
    pub(super) fn into_memory(self) -> Vec<Number> {
        self.memory
    }
}

/// What references refer to.
pub(super) struct Scope<'a> {
    pub(super) event: &'a Given,
    pub(super) steps: &'a [Option<Given>],
    pub(super) item: Option<(&'a Given, usize)>,
}

impl Scope<'_> {
    fn root(&self, root: Root) -> Result<Cow<'_, Given>, &'static str> {
        match (root, self.item) {
            (Root::Event, _) => Ok(Cow::Borrowed(self.event)),
            (Root::Item, Some((item, _))) => Ok(Cow::Borrowed(item)),
            (Root::Index, Some((_, index))) => Ok(Cow::Owned(Given::json(index.into()))),
            (Root::Item | Root::Index, None) => Err("there is none without `each`"),
            (Root::Step(at), _) => {
                let given = self.steps.get(at).and_then(Option::as_ref);
                given.map(Cow::Borrowed).ok_or("the step has not ended")
            }
        }
    }
}

impl Template {
    /// Reads a value. `root` knows what names stand for.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub(super) fn read(value: &Value, root: &dyn Fn(&str) -> Result<Root, String>) -> Result<Self, String> {
        Self::read_within(value, root, 0)
    }

    fn read_within(
        value: &Value,
        root: &dyn Fn(&str) -> Result<Root, String>,
        depth: usize,
    ) -> Result<Self, String> {
        if depth > DEPTH_MAX {
            return Err(format!("it has values within values, more than {DEPTH_MAX} levels deep"));
        }
        let read = |value: &Value| Self::read_within(value, root, depth + 1);
        Ok(match value {
            Value::String(text) => Self::of_text(text, root)?,
            Value::Array(items) => Self::List(items.iter().map(read).collect::<Result<_, _>>()?),
            Value::Object(members) => {
                let members = members.iter().map(|(name, value)| Ok((name.clone(), read(value)?)));
                Self::Object(members.collect::<Result<_, String>>()?)
            }
            constant => Self::Constant(constant.clone()),
        })
    }

    fn of_text(text: &str, root: &dyn Fn(&str) -> Result<Root, String>) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (inner, after) = after.split_once("}}").ok_or_else(|| format!("{text:?} has no }}}}"))?;
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            // So two braces themselves can be written.
            pieces.push(match inner.trim() {
                "\"{{\"" => Piece::Text("{{".to_owned()),
                inner => Piece::Reference(Reference::read(inner, root)?),
            });
            rest = after;
        }
        if pieces.is_empty() {
            return Ok(Self::Constant(text.into()));
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(match <[Piece; 1]>::try_from(pieces) {
            Ok([Piece::Reference(reference)]) => Self::Whole(reference),
            Ok(pieces) => Self::Text(pieces.to_vec()),
            Err(pieces) => Self::Text(pieces),
        })
    }

    /// Tells of each reference.
    pub(super) fn visit(&self, told: &mut dyn FnMut(&Reference)) {
        match self {
            Self::Constant(_) => {}
            Self::Whole(reference) => told(reference),
            Self::Text(pieces) => pieces.iter().for_each(|piece| {
                if let Piece::Reference(reference) = piece {
                    told(reference);
                }
            }),
            Self::List(items) => items.iter().for_each(|item| item.visit(told)),
            Self::Object(members) => members.iter().for_each(|(_, member)| member.visit(told)),
        }
    }

    /// The same where what is not there is null.
    pub(super) fn optional(mut self) -> Self {
        self.change(&mut |reference| reference.is_optional = true);
        self
    }

    /// The same where steps have other places.
    pub(super) fn placed(mut self, places: &[usize]) -> Self {
        self.change(&mut |reference| {
            if let Root::Step(at) = &mut reference.root {
                *at = places.get(*at).copied().unwrap_or(*at);
            }
        });
        self
    }

    fn change(&mut self, change: &mut dyn FnMut(&mut Reference)) {
        match self {
            Self::Constant(_) => {}
            Self::Whole(reference) => change(reference),
            Self::Text(pieces) => pieces.iter_mut().for_each(|piece| {
                if let Piece::Reference(reference) = piece {
                    change(reference);
                }
            }),
            Self::List(items) => items.iter_mut().for_each(|item| item.change(change)),
            Self::Object(members) => members.iter_mut().for_each(|(_, member)| member.change(change)),
        }
    }

    /// What it stands for.
    ///
    /// # Errors
    /// Which reference refers to nothing, and why.
    pub(super) fn given(&self, scope: &Scope<'_>) -> Result<Given, String> {
        if let Self::Whole(reference) = self {
            return reference.given(scope);
        }
        let mut making = Making::new();
        let value = self.value(scope, &mut making)?;
        Ok(Given::made(value, making.into_memory()))
    }

    /// How many references it has.
    pub(super) fn references(&self) -> usize {
        let mut count = 0;
        self.visit(&mut |_| count += 1);
        count
    }

    fn value(&self, scope: &Scope<'_>, making: &mut Making) -> Result<Value, String> {
        making.take(VALUE_BYTES)?;
        Ok(match self {
            Self::Constant(value) => value.clone(),
            Self::Whole(reference) => reference.value(scope, making)?,
            Self::Text(pieces) => {
                making.is_text = true;
                let mut text = String::new();
                for piece in pieces {
                    match piece {
                        Piece::Text(piece) => text.push_str(piece),
                        Piece::Reference(reference) => match reference.value(scope, making)? {
                            Value::String(told) => text.push_str(&told),
                            other => text.push_str(&other.to_string()),
                        },
                    }
                }
                making.is_text = false;
                text.into()
            }
            Self::List(items) => {
                items.iter().map(|item| item.value(scope, making)).collect::<Result<Value, _>>()?
            }
            Self::Object(members) => {
                let members =
                    members.iter().map(|(name, member)| Ok((name.clone(), member.value(scope, making)?)));
                Value::Object(members.collect::<Result<Map<_, _>, String>>()?)
            }
        })
    }
}

impl Reference {
    /// A name, and members and places: `list.images[0]["full name"]`.
    fn read(text: &str, root: &dyn Fn(&str) -> Result<Root, String>) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no reference, which is written like list.images[0].url");
        let (path, is_optional) = text.strip_suffix('?').map_or((text, false), |path| (path, true));
        let end = path.find(['.', '[']).unwrap_or(path.len());
        let (name, mut rest) = path.split_at(end);
        if !is_name(name) {
            return Err(wrong());
        }
        let mut keys = Vec::new();
        while !rest.is_empty() {
            let (key, after) = key(rest).ok_or_else(wrong)?;
            keys.push(key);
            rest = after;
        }
        if keys.len() > KEYS_MAX {
            return Err(format!("`{text}` names more than {KEYS_MAX} parts"));
        }
        Ok(Self { root: root(name)?, keys, is_optional, text: text.to_owned() })
    }

    /// Whether it stands for all that a step returned.
    pub(super) fn is_whole(&self) -> bool {
        self.keys.is_empty()
    }

    fn given(&self, scope: &Scope<'_>) -> Result<Given, String> {
        if self.is_whole() {
            return scope.root(self.root).map(Cow::into_owned).map_err(|why| self.refused(why));
        }
        let mut making = Making::new();
        let value = self.value(scope, &mut making)?;
        Ok(Given::made(value, making.into_memory()))
    }

    fn value(&self, scope: &Scope<'_>, making: &mut Making) -> Result<Value, String> {
        let given = scope.root(self.root).map_err(|why| self.refused(why))?;
        // One of many is taken out without the others being read.
        let (given, keys) = match (given.items(), self.keys.split_first()) {
            (Some(items), Some((Key::At(at), keys))) => {
                let none = || self.refused(&format!("there are {} of them", items.len()));
                match items.get(*at) {
                    None if self.is_optional => return Ok(Value::Null),
                    item => (item.ok_or_else(none)?, keys),
                }
            }
            _ => (&*given, self.keys.as_slice()),
        };
        let value = given.value(making).map_err(|why| self.refused(&why))?;
        let mut at: &Value = &value;
        for key in keys {
            at = match key.of(at) {
                Some(part) => part,
                None if self.is_optional => return Ok(Value::Null),
                None => return Err(self.refused(&missing(key, at))),
            };
        }
        making.take(bytes_of(at)).map_err(|why| self.refused(&why))?;
        Ok(at.clone())
    }

    fn refused(&self, why: &str) -> String {
        format!("`{}`: {why}", self.text)
    }
}

impl Key {
    fn of<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        match self {
            Self::Member(name) => value.as_object()?.get(name),
            Self::At(at) => value.as_array()?.get(*at),
        }
    }
}

/// What a value takes, about.
pub(super) fn bytes_of(value: &Value) -> usize {
    VALUE_BYTES
        + match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(bytes_of).sum(),
            Value::Object(members) => {
                members.iter().map(|(name, member)| name.len() + bytes_of(member)).sum()
            }
        }
}

/// Why a key leads nowhere.
fn missing(key: &Key, value: &Value) -> String {
    const SHOWN_MAX: usize = 8;
    match (key, value) {
        (Key::Member(name), Value::Object(members)) => {
            let known: Vec<&str> = members.keys().map(String::as_str).take(SHOWN_MAX).collect();
            format!("there is no member {name:?}; there are {}", known.join(", "))
        }
        (Key::At(at), Value::Array(items)) => format!("there is no item {at}; there are {}", items.len()),
        (_, Value::Null) => {
            "it is null, as what a step that is left out returns; with ? behind it, so is the whole"
                .to_owned()
        }
        (_, other) => format!("it has no parts: it is {}", kind(other)),
    }
}

/// What a value is, for people.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The first key of what follows a name, and what follows that.
fn key(text: &str) -> Option<(Key, &str)> {
    if let Some(rest) = text.strip_prefix('.') {
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        return is_name(name).then(|| (Key::Member(name.to_owned()), rest));
    }
    let inner = text.strip_prefix('[')?;
    if inner.starts_with('"') {
        let mut read = serde_json::Deserializer::from_str(inner).into_iter::<String>();
        let name = read.next()?.ok()?;
        let rest = inner.get(read.byte_offset()..)?.strip_prefix(']')?;
        return Some((Key::Member(name), rest));
    }
    let (digits, rest) = inner.split_once(']')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    Some((Key::At(digits.parse().ok().filter(|_| is_number)?), rest))
}

/// Whether this can be the name of a step, or of a member without quotes.
pub(super) fn is_name(name: &str) -> bool {
    name.bytes().next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

#[cfg(test)]
mod tests;
