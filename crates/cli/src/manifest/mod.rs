// SPDX-License-Identifier: Apache-2.0
//! `sinew.toml`: text in, functions out. No file is opened here, and no
//! variable of the environment is read.
//!
//! A table of TOML with the places of its values (`reader.rs`) becomes
//! [`Function`]s, whose fields stand in `fields.rs`; `variables.rs` replaces
//! `${NAME}`; `data.rs` turns a function into the pairs of
//! `docs/spec/functions.md`; `glob.rs` says which files are its code.
//! `docs/reference/manifest.md` describes the language. No function here
//! panics or overflows the stack, whatever the text.

mod data;
mod fault;
mod fields;
mod function;
mod glob;
mod module;
mod reader;
mod together;
mod tool;
mod variables;
mod workflow;

pub(crate) use data::{Pairs, serving, settings};
pub(crate) use fault::Fault;
pub(crate) use function::{Build, Function, Runtime, is_function_name};
pub(crate) use glob::{Glob, Selection, Verdict, matches_name};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use reader::Reader;

/// What a manifest is called.
pub(crate) const FILE_NAME: &str = "sinew.toml";
/// Bytes of a manifest, at most.
pub(crate) const TEXT_BYTES_MAX: u64 = 1 << 20;
/// Functions of one manifest, at most.
const FUNCTIONS_MAX: usize = 256;
/// Faults that are told at once.
const FAULTS_MAX: usize = 20;

/// Reads a manifest. `variable` gives what stands for `${NAME}`.
///
/// # Errors
/// All faults that were found, in the order of their places.
pub(crate) fn parse(
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Function>, Vec<Fault>> {
    let table = DeTable::parse(text).map_err(|error| {
        let place = error.span().unwrap_or(0..0);
        vec![Fault::new(place, error.message().trim_end())]
    })?;
    let mut reader = Reader::new(variable);
    let functions = functions(table.get_ref(), &mut reader);
    let mut faults = reader.faults;
    if functions.is_empty() && faults.is_empty() {
        let fault = Fault::new(0..0, "there is no function");
        faults.push(fault.hint("add a table [functions.hello] with runtime = \"python\", or \"node\""));
    }
    if faults.is_empty() {
        return Ok(functions);
    }
    faults.sort_by_key(|fault| fault.place.start);
    faults.truncate(FAULTS_MAX);
    Err(faults)
}

fn functions(table: &DeTable<'_>, reader: &mut Reader<'_>) -> Vec<Function> {
    let mut functions = Vec::new();
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "function" => functions.extend(reader.table(value).and_then(|table| {
                let name = table.get("name").and_then(|name| reader.text(name));
                if table.get("name").is_none() {
                    let fault = Fault::new(key.span(), "the function has no name");
                    reader.faults.push(fault.hint("add name = \"hello\" below [function]"));
                }
                function::read(&name?, &key.span(), table, reader)
            })),
            "functions" => {
                let tables: Vec<(&Spanned<_>, &Spanned<DeValue<'_>>)> =
                    reader.table(value).into_iter().flatten().collect();
                if tables.len() > FUNCTIONS_MAX {
                    let message =
                        format!("{} functions; a manifest has at most {FUNCTIONS_MAX}", tables.len());
                    reader.faults.push(Fault::new(key.span(), message));
                    continue;
                }
                for (name, value) in tables {
                    let Some(table) = reader.table(value) else { continue };
                    functions.extend(function::read(name.get_ref(), &name.span(), table, reader));
                }
            }
            unknown => reader.unknown(unknown, key.span(), "table", &["function", "functions"]),
        }
    }
    // A manifest has either form, or both with different names.
    for (at, function) in functions.iter().enumerate() {
        if functions[..at].iter().any(|other| other.name == function.name) {
            let message = format!("there are two functions called {}", function.name);
            reader.faults.push(Fault::new(0..0, message));
        }
    }
    reader.faults.extend(together::check(&functions));
    functions
}

#[cfg(test)]
mod tests;
