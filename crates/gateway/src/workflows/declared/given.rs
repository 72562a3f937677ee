// SPDX-License-Identifier: Apache-2.0
//! What goes from step to step: answers of functions, as they came. They are read as JSON only if
//! somebody asks for a part of one; as a whole they are handed on.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use serde_json::Value;

use super::super::graph::Number;
use super::template::{Making, bytes_of};

/// A longer answer is not looked into.
const READ_BYTES_MAX: usize = 8 << 20;
pub(super) const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
/// What the value of a step begins with that is an answer (`docs/spec/workflows.md`, section 7).
const ANSWER_KIND: u8 = 3;
/// What arguments begin with that hand memory on.
const WITH_MEMORY: u8 = 4;

/// A value, whoever gave it.
#[derive(Debug, Clone)]
pub(crate) enum Given {
    /// Made of others.
    Json(Arc<Made>),
    /// Of a function, or of whoever asked.
    Answer(Arc<Answered>),
    /// One of each step that was made of one declaration.
    List(Arc<[Self]>),
    /// What this step made is memory, which others map.
    Memory(Number),
}

/// What is made of a template, and the steps whose memory it hands on: `{"$value": 0}` in it stands
/// for that of the first one.
#[derive(Debug)]
pub(crate) struct Made {
    value: Value,
    memory: Vec<Number>,
}

/// A body of a request or an answer, what it is, and the steps whose memory goes with it.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) content_type: String,
    pub(super) bytes: Bytes,
    pub(super) memory: Vec<Number>,
}

/// A body, and what it is.
#[derive(Debug)]
pub(crate) struct Answered {
    content_type: String,
    body: Bytes,
    /// Once it was read: what it is as JSON, or why it is none.
    read: OnceLock<Result<Value, String>>,
}

impl Given {
    pub(super) fn json(value: Value) -> Self {
        Self::made(value, Vec::new())
    }

    pub(super) fn made(value: Value, memory: Vec<Number>) -> Self {
        Self::Json(Arc::new(Made { value, memory }))
    }

    /// What somebody answered, or asked with.
    pub(crate) fn of_body(content_type: &str, body: Bytes) -> Self {
        Self::Answer(Arc::new(Answered {
            content_type: content_type.to_owned(),
            body,
            read: OnceLock::new(),
        }))
    }

    /// An answer, as `framed` has written it; `None`: it is none.
    pub(super) fn read(mut frame: Bytes) -> Option<Self> {
        let (&[kind, low, high], _) = frame.split_first_chunk()?;
        let len = usize::from(u16::from_le_bytes([low, high]));
        if kind != ANSWER_KIND || frame.len() < 3 + len {
            return None;
        }
        let body = frame.split_off(3 + len);
        let content_type = std::str::from_utf8(frame.get(3..)?).ok()?;
        Some(Self::of_body(content_type, body))
    }

    /// Those of a list of answers.
    pub(super) fn items(&self) -> Option<&[Self]> {
        match self {
            Self::List(items) => Some(items),
            Self::Json(_) | Self::Answer(_) | Self::Memory(_) => None,
        }
    }

    /// As JSON. What is made anew counts.
    ///
    /// # Errors
    /// Why it cannot be read so, for people.
    pub(super) fn value(&self, making: &mut Making) -> Result<Cow<'_, Value>, String> {
        match self {
            // Its places are not those of the other one.
            Self::Json(made) if !made.memory.is_empty() => {
                Err("what others made of memory can only be handed on as a whole".to_owned())
            }
            Self::Json(made) => Ok(Cow::Borrowed(&made.value)),
            Self::Memory(step) => making.memory(*step).map(Cow::Owned),
            Self::Answer(answered) => answered.value().map(Cow::Borrowed),
            Self::List(items) => {
                let mut all = Vec::with_capacity(items.len());
                for item in items.iter() {
                    let value = item.value(making)?.into_owned();
                    making.take(bytes_of(&value))?;
                    all.push(value);
                }
                Ok(Cow::Owned(all.into()))
            }
        }
    }

    /// As the body of a request or an answer, and what that is.
    ///
    /// # Errors
    /// As of `value`.
    pub(super) fn body(&self) -> Result<Body, String> {
        let json = |value: &Value, memory| {
            let (content_type, bytes) = (JSON.to_owned(), value.to_string().into());
            Body { content_type, bytes, memory }
        };
        match self {
            Self::Answer(answered) => {
                let (content_type, bytes) = (answered.content_type.clone(), answered.body.clone());
                Ok(Body { content_type, bytes, memory: Vec::new() })
            }
            Self::Json(made) => Ok(json(&made.value, made.memory.clone())),
            other => {
                let mut making = Making::new();
                let value = other.value(&mut making)?;
                Ok(json(&value, making.into_memory()))
            }
        }
    }

    /// Bytes of which it was made, as far as they came from outside; and how many of them can be looked into.
    pub(super) fn bytes(&self) -> (usize, usize) {
        match self {
            Self::Json(_) | Self::Memory(_) => (0, 0),
            Self::Answer(answered) => {
                let bytes = answered.body.len();
                (bytes, if bytes <= READ_BYTES_MAX { bytes } else { 0 })
            }
            Self::List(items) => {
                items.iter().map(Self::bytes).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
            }
        }
    }
}

impl Answered {
    fn value(&self) -> Result<&Value, String> {
        self.read.get_or_init(|| self.parsed()).as_ref().map_err(Clone::clone)
    }

    fn parsed(&self) -> Result<Value, String> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        if self.body.len() > READ_BYTES_MAX {
            let why = format!("it has {} bytes, and is looked into up to {READ_BYTES_MAX}", self.body.len());
            return Err(format!("{why}: hand it on as a whole, with = \"{{{{ step }}}}\""));
        }
        let kind = self.content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        // What `curl -d` sends says that it is a form, whatever it is.
        let is_said_a_form = kind == FORM && matches!(self.body.first(), Some(b'{' | b'['));
        if kind.is_empty() || kind == JSON || kind.ends_with("+json") || is_said_a_form {
            return serde_json::from_slice(&self.body).map_err(|error| format!("it is no JSON: {error}"));
        }
        let text = kind.starts_with("text/").then(|| std::str::from_utf8(&self.body).ok()).flatten();
        text.map(Value::from).ok_or_else(|| {
            format!(
                "it is {kind}, and no JSON or text: it can be handed on as a whole, with = \"{{{{ step }}}}\""
            )
        })
    }
}

/// An answer, as the value of a step: its kind, the length of its content type as u16 in little-endian, that and the body.
pub(super) fn framed(content_type: &str, body: &[u8]) -> Vec<u8> {
    let kind = content_type.as_bytes();
    // No header is as long.
    let kind = kind.get(..kind.len().min(usize::from(u16::MAX))).unwrap_or_default();
    let len = u16::try_from(kind.len()).unwrap_or(u16::MAX).to_le_bytes();
    [&[ANSWER_KIND][..], &len, kind, body].concat()
}

/// What a step is given, as its arguments: those whose memory goes with it before the rest.
pub(super) fn arguments(body: &Body) -> Vec<u8> {
    let frame = framed(&body.content_type, &body.bytes);
    // A reference names one step, or all of one declaration.
    let Some(count) = u32::try_from(body.memory.len()).ok().filter(|count| *count > 0) else { return frame };
    let mut all = vec![WITH_MEMORY];
    all.extend(count.to_le_bytes());
    body.memory.iter().for_each(|step| all.extend(step.to_le_bytes()));
    all.extend(frame);
    all
}

/// What `arguments` has written; `None`: it is none.
pub(super) fn given_with_memory(mut arguments: Bytes) -> Option<(Given, Vec<Number>)> {
    if arguments.first() != Some(&WITH_MEMORY) {
        return Some((Given::read(arguments)?, Vec::new()));
    }
    let count = u32::from_le_bytes(*arguments.get(1..)?.first_chunk()?);
    let end =
        usize::try_from(count).ok()?.checked_mul(4)?.checked_add(5).filter(|end| *end <= arguments.len())?;
    let numbers = arguments.split_to(end);
    let numbers = numbers[5..].chunks_exact(4).filter_map(|number| number.first_chunk());
    let numbers = numbers.map(|number| Number::from_le_bytes(*number)).collect();
    Some((Given::read(arguments)?, numbers))
}
