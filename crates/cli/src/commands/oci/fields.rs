// SPDX-License-Identifier: Apache-2.0
//! Reading JSON so that nothing in it is passed over: each field is taken by
//! its name, one that has the wrong type is an error with its path, and what
//! is left at the end is looked at too.
//!
//! What the specification knows and we cannot do is refused by name. What no
//! version of it knows must be ignored, says the specification; a warning
//! tells of it.

use anyhow::{Context as _, bail};
use serde_json::{Map, Value};

/// An object that is being read.
pub(super) struct Fields {
    path: String,
    rest: Map<String, Value>,
}

impl Fields {
    /// The object of this path.
    pub(super) fn new(path: &str, value: Value) -> anyhow::Result<Self> {
        match value {
            Value::Object(rest) => Ok(Self { path: path.to_owned(), rest }),
            _ => bail!("{} must be an object", if path.is_empty() { "the file" } else { path }),
        }
    }

    /// The path of one of its fields.
    pub(super) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.rest.remove(name).filter(|value| !value.is_null())
    }

    fn typed<T>(
        &mut self,
        name: &str,
        what: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> anyhow::Result<Option<T>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let found = read(&value);
        found.with_context(|| format!("{} must be {what}", self.path_of(name))).map(Some)
    }

    pub(super) fn string(&mut self, name: &str) -> anyhow::Result<Option<String>> {
        self.typed(name, "a string", |value| value.as_str().map(str::to_owned))
    }

    pub(super) fn boolean(&mut self, name: &str) -> anyhow::Result<bool> {
        Ok(self.typed(name, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    pub(super) fn number<T: TryFrom<i128>>(&mut self, name: &str) -> anyhow::Result<Option<T>> {
        self.typed(name, "a number that fits", |value| {
            let number = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from))?;
            T::try_from(number).ok()
        })
    }

    pub(super) fn numbers(&mut self, name: &str) -> anyhow::Result<Vec<u32>> {
        let read = |value: &Value| {
            let all = value.as_array()?.iter();
            all.map(|one| u32::try_from(one.as_u64()?).ok()).collect::<Option<Vec<_>>>()
        };
        Ok(self.typed(name, "a list of numbers", read)?.unwrap_or_default())
    }

    pub(super) fn required<T>(&self, name: &str, found: Option<T>) -> anyhow::Result<T> {
        found.with_context(|| format!("{} is missing", self.path_of(name)))
    }

    pub(super) fn strings(&mut self, name: &str) -> anyhow::Result<Vec<String>> {
        let read = |value: &Value| {
            value.as_array()?.iter().map(|one| one.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        };
        Ok(self.typed(name, "a list of strings", read)?.unwrap_or_default())
    }

    pub(super) fn object(&mut self, name: &str) -> anyhow::Result<Option<Self>> {
        let path = self.path_of(name);
        self.take(name).map(|value| Self::new(&path, value)).transpose()
    }

    /// The objects of a list.
    pub(super) fn objects(&mut self, name: &str) -> anyhow::Result<Vec<Self>> {
        let path = self.path_of(name);
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(all)) => {
                let numbered = all.into_iter().enumerate();
                numbered.map(|(index, one)| Self::new(&format!("{path}[{index}]"), one)).collect()
            }
            Some(_) => bail!("{path} must be a list"),
        }
    }

    /// Names and strings.
    pub(super) fn pairs(&mut self, name: &str) -> anyhow::Result<Vec<(String, String)>> {
        let read = |value: &Value| {
            let all = value.as_object()?.iter();
            all.map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect::<Option<Vec<_>>>()
        };
        Ok(self.typed(name, "an object of strings", read)?.unwrap_or_default())
    }

    /// Ends the reading: fields among `refused` that hold anything are errors,
    /// others are warned of.
    pub(super) fn end(self, refused: &[&str]) -> anyhow::Result<()> {
        for (name, value) in &self.rest {
            if is_empty(value) {
                continue;
            }
            if refused.contains(&name.as_str()) {
                bail!("{} cannot be honoured", self.path_of(name));
            }
            eprintln!("warning: {} is not known to the specification, and ignored", self.path_of(name));
        }
        Ok(())
    }
}

/// A field that asks for nothing.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.values().all(is_empty),
        Value::Bool(true) | Value::Number(_) => false,
    }
}
