// SPDX-License-Identifier: Apache-2.0
//! Adds exports to a valid module, so that what a guest may change can be
//! reached from outside and restored, or kept.
//!
//! Only the export section is encoded anew; every other section is copied
//! byte for byte, except custom ones, which nobody reads and are left out.

use wasm_encoder::{ExportKind, ExportSection, RawSection};
use wasmparser::{ExternalKind, Parser, Payload};
use wasmtime::{Global, Instance, Store};

use super::call::CallState;
use super::module::Scan;

const GLOBAL_PREFIX: &str = "sinew:global:";

/// Whether an export is a mutable global that [`export_state`] added.
pub(crate) fn is_global_name(name: &str) -> bool {
    name.starts_with(GLOBAL_PREFIX)
}

/// The globals that [`export_state`] exported, in the order of their indices.
pub(crate) fn globals(instance: &Instance, store: &mut Store<CallState>) -> Vec<Global> {
    let exports = instance.exports(&mut *store).filter(|export| is_global_name(export.name()));
    let index = |name: &str| name.strip_prefix(GLOBAL_PREFIX).and_then(|index| index.parse::<u32>().ok());
    let found = exports.filter_map(|export| Some((index(export.name())?, export.into_global()?)));
    let mut found: Vec<(u32, Global)> = found.collect();
    found.sort_unstable_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, global)| global).collect()
}

/// The name under which the memory is exported besides its own, if any.
pub(crate) const MEMORY_NAME: &str = "sinew:memory";

/// The module with its memory and its mutable globals exported.
///
/// # Errors
/// A text, if `module` is not the valid module that `scan` was made of.
pub(crate) fn export_state(module: &[u8], scan: &Scan) -> Result<Vec<u8>, String> {
    let mut output = wasm_encoder::Module::new();
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload.map_err(|error| error.to_string())?;
        if let Payload::ExportSection(exports) = &payload {
            output.section(&extended(exports.clone(), scan)?);
            continue;
        }
        if matches!(payload, Payload::CustomSection(_)) {
            continue;
        }
        if let Some((id, range)) = payload.as_section() {
            let data = module.get(range).ok_or("a section ends beyond the module")?;
            output.section(&RawSection { id, data });
        }
    }
    Ok(output.finish())
}

fn extended(exports: wasmparser::ExportSectionReader<'_>, scan: &Scan) -> Result<ExportSection, String> {
    let mut section = ExportSection::new();
    for export in exports {
        let export = export.map_err(|error| error.to_string())?;
        let kind = match export.kind {
            ExternalKind::Func => ExportKind::Func,
            ExternalKind::Table => ExportKind::Table,
            ExternalKind::Memory => ExportKind::Memory,
            ExternalKind::Global => ExportKind::Global,
            ExternalKind::Tag => ExportKind::Tag,
            other => return Err(format!("an export of an unknown kind: {other:?}")),
        };
        section.export(export.name, kind, export.index);
    }
    if scan.memory_bytes.is_some() {
        section.export(MEMORY_NAME, ExportKind::Memory, 0);
    }
    for &index in &scan.mutable_globals {
        section.export(&format!("{GLOBAL_PREFIX}{index}"), ExportKind::Global, index);
    }
    Ok(section)
}
