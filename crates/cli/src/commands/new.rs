// SPDX-License-Identifier: Apache-2.0
//! `sinew new`: a directory with a function that can be deployed as it is.
//!
//! The files are those of `examples/functions`, with the name put in.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::directory::unreadable;
use crate::exit::{Code, Stop};
use crate::function_api::checked;
use crate::output::Output;

/// Which function to write.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sinew new hello\n  sinew new hello --runtime node")]
pub(crate) struct Arguments {
    /// The function's name, and the directory's
    name: String,
    /// What it is written in
    #[arg(short, long, value_enum, default_value_t = Language::Python)]
    runtime: Language,
    /// Write into this directory instead
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// Python 3.11 or later
    Python,
    /// JavaScript on Node 20 or later
    Node,
    /// A WebAssembly codelet, as text
    Wasm,
}

/// A file's name and what is in it.
type Template = (&'static str, &'static str);

macro_rules! example {
    ($path:literal) => {
        include_str!(concat!("../../../../examples/functions/", $path))
    };
}

const PYTHON: [Template; 3] = [
    ("sinew.toml", example!("hello-python/sinew.toml")),
    ("main.py", example!("hello-python/main.py")),
    (".sinewignore", example!("hello-python/.sinewignore")),
];
const NODE: [Template; 3] = [
    ("sinew.toml", example!("hello-node/sinew.toml")),
    ("index.mjs", example!("hello-node/index.mjs")),
    (".sinewignore", example!("hello-node/.sinewignore")),
];
const WASM: [Template; 3] = [
    ("sinew.toml", example!("hello-wasm/sinew.toml")),
    ("hello.wat", example!("hello-wasm/hello.wat")),
    (".sinewignore", example!("hello-wasm/.sinewignore")),
];

pub(crate) fn run(arguments: &Arguments, output: &Output) -> anyhow::Result<()> {
    let name = checked(&arguments.name)?;
    let folder = arguments.to.clone().unwrap_or_else(|| PathBuf::from(name));
    let templates = match arguments.runtime {
        Language::Python => PYTHON,
        Language::Node => NODE,
        Language::Wasm => WASM,
    };
    let mut files: Vec<(&str, String)> =
        templates.iter().map(|&(file, text)| (file, personal(file, text, name))).collect();
    files.push(("README.md", readme(name)));
    refuse_to_overwrite(&folder, &files)?;
    fs::create_dir_all(&folder).map_err(|error| unreadable(&folder, error))?;
    for (file, text) in &files {
        write_new(&folder.join(file), text)?;
    }
    if output.is_json() {
        let names: Vec<&str> = files.iter().map(|&(file, _)| file).collect();
        return output.json(&json!({"name": name, "path": folder.to_string_lossy(), "files": names}));
    }
    output.line(&folder.display().to_string())?;
    let folder = folder.display();
    output.say(&format!(
        "next, with a node running (`sinew up`):\n  cd {folder}\n  sinew deploy\n  {}",
        call(name)
    ));
    Ok(())
}

/// The example's text, for a function of this name and without the line about our licence.
fn personal(file: &str, text: &str, name: &str) -> String {
    let own = text.split_inclusive('\n').filter(|line| !line.contains("SPDX-License-Identifier"));
    let own: String = own.collect();
    match file {
        "sinew.toml" => own.replace("[functions.hello]", &format!("[functions.{name}]")),
        _ => own,
    }
}

fn call(name: &str) -> String {
    format!("sinew invoke {name} -d '{{\"name\": \"Ada\"}}'")
}

fn readme(name: &str) -> String {
    format!(
        "# {name}\n\nA function for Sinew. With a node running (`sinew up`), in this directory:\n\n\
         ```sh\nsinew deploy\n{}\nsinew describe {name}\n```\n",
        call(name)
    )
}

fn refuse_to_overwrite(folder: &Path, files: &[(&str, String)]) -> anyhow::Result<()> {
    let found = files.iter().map(|(file, _)| folder.join(file)).find(|path| path.symlink_metadata().is_ok());
    match found {
        None => Ok(()),
        Some(path) => {
            let stop =
                Stop::new(Code::Failed, format!("{} is there already; nothing was written", path.display()));
            Err(stop.suggest("take another name, or another directory with --to DIR").into())
        }
    }
}

/// A file that was not there a moment ago either.
fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    let create = || -> io::Result<()> { File::create_new(path)?.write_all(text.as_bytes()) };
    create().with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
mod tests;
