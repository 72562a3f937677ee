// SPDX-License-Identifier: Apache-2.0
//! A WebAssembly module on its way to a node: a codelet, or a program with the words
//! that its manifest has for it (`docs/spec/programs.md`, section 2).

use std::path::Path;

use objects::Handle;

use super::{read_text, select, tree, within_bounds};
use crate::directory::{plan, unreadable};
use crate::exit::{Code, Stop};
use crate::manifest::Function;
use crate::upload::Uplink;

/// Bytes of a module or text, at most.
const MODULE_BYTES_MAX: u64 = 256 << 20;

/// The procedure, and what it consists of.
pub(super) async fn procedure(
    function: &Function,
    folder: &Path,
    source: &Path,
    uplink: &mut Uplink<'_>,
) -> anyhow::Result<(Handle, Vec<Handle>)> {
    let (module, is_program) = module(source, uplink).await?;
    let told = &function.module;
    if is_program {
        let words = words(function, folder, module, uplink).await?;
        let procedure = tree(&words, uplink).await?;
        return Ok((procedure, vec![module, procedure]));
    }
    if !(told.arguments.is_empty() && told.directories.is_empty() && function.environment.is_empty()) {
        let message = format!("{} is a codelet, which is applied to the body alone", source.display());
        let advice = "leave out `arguments`, `directories` and `environment`, which are for programs: modules for WASI \
                      preview 1";
        return Err(Stop::new(Code::Usage, message).suggest(advice).into());
    }
    Ok((module, vec![module]))
}

/// A program, and all that it is told but the body.
async fn words(
    function: &Function,
    folder: &Path,
    module: Handle,
    uplink: &mut Uplink<'_>,
) -> anyhow::Result<Vec<Handle>> {
    let mut words = vec![module];
    for argument in [&function.name].into_iter().chain(&function.module.arguments) {
        words.push(uplink.blob(b"arg".to_vec()).await?);
        words.push(uplink.blob(argument.clone().into_bytes()).await?);
    }
    for (name, value) in &function.environment {
        words.push(uplink.blob(b"env".to_vec()).await?);
        words.push(uplink.blob(format!("{name}={value}").into_bytes()).await?);
    }
    for (guest, host) in &function.module.directories {
        let path = folder.join(host);
        let planned = within_bounds(plan(&path, Some(&select(&[], &[], &path)?))?, host)?;
        words.push(uplink.blob(b"lib".to_vec()).await?);
        words.push(uplink.blob(guest.clone().into_bytes()).await?);
        words.push(uplink.planned(&planned).await?);
    }
    Ok(words)
}

/// A module, or its text; and whether it is a program.
async fn module(source: &Path, uplink: &mut Uplink<'_>) -> anyhow::Result<(Handle, bool)> {
    let metadata = std::fs::metadata(source).map_err(|error| unreadable(source, error))?;
    if metadata.is_dir() {
        let message =
            format!("{} is a directory; the source of a wasm function is one file", source.display());
        return Err(Stop::new(Code::Usage, message)
            .suggest("write source = \"hello.wasm\", or \"hello.wat\"")
            .into());
    }
    let module = if source.extension().is_some_and(|extension| extension == "wat") {
        let text = read_text(source, MODULE_BYTES_MAX)?;
        wat::parse_str(&text).map_err(|mut error| {
            error.set_path(source);
            Stop::new(Code::Usage, format!("{} is no WebAssembly text: {error}", source.display()))
        })?
    } else if metadata.len() > MODULE_BYTES_MAX {
        let message = format!("{} has more than {MODULE_BYTES_MAX} bytes", source.display());
        return Err(Stop::new(Code::Failed, message).into());
    } else {
        std::fs::read(source).map_err(|error| unreadable(source, error))?
    };
    if !module.starts_with(b"\0asm") {
        let message = format!("{} is no WebAssembly module", source.display());
        return Err(Stop::new(Code::Usage, message).suggest("a text needs the ending .wat").into());
    }
    let is_program = node::is_program(&module);
    // A file is not sent again that the node has.
    let handle = match source.extension().is_some_and(|extension| extension == "wat") {
        true => uplink.blob(module).await?,
        false => uplink.file(source).await?,
    };
    Ok((handle, is_program))
}
