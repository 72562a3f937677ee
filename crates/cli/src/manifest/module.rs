// SPDX-License-Identifier: Apache-2.0
//! What a manifest says of a WebAssembly module alone: what a program is told, and
//! how answers are.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::DeValue;

use super::fault::Fault;
use super::function::path;
use super::reader::Reader;

/// Its fields.
pub(super) const FIELDS: [&str; 4] = ["arguments", "directories", "content-type", "fuel"];
const ARGUMENTS_MAX: usize = 1024;
/// Each has a descriptor.
const DIRECTORIES_MAX: usize = 64;
const TEXT_BYTES_MAX: usize = 65_536;

/// What only modules have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Module {
    /// After the program's name.
    pub(crate) arguments: Vec<String>,
    /// Directories below the manifest's, by the paths at which the program finds them.
    pub(crate) directories: BTreeMap<String, String>,
    pub(crate) content_type: Option<String>,
    /// Instructions of one call.
    pub(crate) fuel: Option<u64>,
}

/// One field.
pub(super) fn field(
    module: &mut Module,
    name: &str,
    value: &Spanned<DeValue<'_>>,
    reader: &mut Reader<'_>,
) -> Option<()> {
    match name {
        "arguments" => module.arguments = arguments(value, reader)?,
        "directories" => module.directories = directories(value, reader)?,
        "content-type" => module.content_type = Some(content_type(value, reader)?),
        _ => module.fuel = Some(reader.count(value, 1..=u64::MAX)?),
    }
    Some(())
}

fn arguments(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Vec<String>> {
    let texts = reader.texts(value)?;
    if texts.len() > ARGUMENTS_MAX {
        return reader.fault(value.span(), format!("a program has at most {ARGUMENTS_MAX} arguments"));
    }
    let mut arguments = Vec::new();
    for (text, place) in texts {
        if text.len() > TEXT_BYTES_MAX || text.contains('\0') {
            let message = format!("an argument has at most {TEXT_BYTES_MAX} bytes, and no NUL");
            reader.faults.push(Fault::new(place, message));
            continue;
        }
        arguments.push(text);
    }
    Some(arguments)
}

fn directories(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<BTreeMap<String, String>> {
    let table = reader.table(value)?;
    if table.len() > DIRECTORIES_MAX {
        return reader.fault(value.span(), format!("a program has at most {DIRECTORIES_MAX} directories"));
    }
    let mut directories = BTreeMap::new();
    for (key, value) in table {
        let guest = key.get_ref().as_ref();
        if guest.is_empty() || guest.contains('\0') {
            reader
                .faults
                .push(Fault::new(key.span(), "a directory needs a path at which the program finds it"));
            continue;
        }
        if let Some(host) = path(value, reader) {
            directories.insert(guest.to_owned(), host);
        }
    }
    Some(directories)
}

fn content_type(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<String> {
    let text = reader.text(value)?;
    let is_type = text.contains('/') && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if !is_type {
        return reader.fault(value.span(), "a content type is written like \"text/html; charset=utf-8\"");
    }
    Some(text)
}
