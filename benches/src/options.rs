// SPDX-License-Identifier: Apache-2.0
//! What a bench is asked for besides its name and what all know: `--name`, or `--name=value`.

use anyhow::{Context as _, bail};

/// Options of one call.
#[derive(Debug, Default)]
pub(crate) struct Options(Vec<(String, String)>);

impl Options {
    /// Those of a bench; another one is an error.
    pub(crate) fn of(arguments: &[String], known: &[&str]) -> anyhow::Result<Self> {
        let mut options = Vec::new();
        // A value that stands apart would go unnoticed, and the bench do all of it.
        if let Some(word) = arguments.iter().filter(|argument| !argument.starts_with('-')).nth(1) {
            bail!("`{word}` belongs to nothing; a value follows its option directly: --name={word}");
        }
        for argument in arguments.iter().filter_map(|argument| argument.strip_prefix("--")) {
            let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
            if ["json", "without-peers"].contains(&name) {
                continue;
            }
            if !known.contains(&name) {
                let known: Vec<_> = known.iter().map(|name| format!("--{name}")).collect();
                bail!("--{name} is no option of this bench; it has {}", known.join(", "));
            }
            options.push((name.to_owned(), value.to_owned()));
        }
        Ok(Self(options))
    }

    /// The option's value, which may be empty; `None` if it was not given.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        Some(&self.0.iter().find(|(known, _)| known == name)?.1)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// Its number; the other one if it has none.
    pub(crate) fn number(&self, name: &str, otherwise: u64) -> anyhow::Result<u64> {
        match self.value(name) {
            None | Some("") => Ok(otherwise),
            Some(value) => value.parse().with_context(|| format!("--{name}={value} is no number")),
        }
    }

    /// Its words, between commas.
    pub(crate) fn words(&self, name: &str) -> Vec<&str> {
        self.value(name).unwrap_or_default().split(',').filter(|word| !word.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests;
