// SPDX-License-Identifier: Apache-2.0
//! `sinew new`: a directory with a function that can be deployed as it is.
//!
//! The files are those of `examples/functions`, with the name put in.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
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
#[command(after_help = "Examples:\n  sinew new hello\n  sinew new hello -l go\n  cd hello && sinew dev")]
pub(crate) struct Arguments {
    /// The function's name, and the directory's
    name: String,
    /// What it is written in
    #[arg(short, long, alias = "runtime", short_alias = 'r', value_enum, default_value_t = Language::Python)]
    language: Language,
    /// Write into this directory instead
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// Python 3.11 or later
    Python,
    /// JavaScript on Node 20 or later
    #[value(alias = "javascript", alias = "js")]
    Node,
    /// A class in Java, by a JDK of version 17 or later
    Java,
    /// A server of HTTP in Go
    Go,
    /// A program in Rust that is run for each request
    Rust,
    /// A program in C that is run for each request
    C,
    /// A shell script that is run for each request
    #[value(alias = "sh", alias = "bash")]
    Shell,
    /// A WebAssembly codelet, as text
    Wasm,
}

/// A file's name and what is in it.
type Template = (&'static str, &'static str);

macro_rules! example {
    ($folder:literal, $($file:literal),+) => {
        &[$((
            $file,
            include_str!(concat!("../../../../examples/functions/hello-", $folder, "/", $file)),
        )),+]
    };
}

impl Language {
    /// Its files: the manifest, the code, and what is no code.
    fn templates(self) -> &'static [Template] {
        match self {
            Self::Python => example!("python", "sinew.toml", "main.py", ".sinewignore"),
            Self::Node => example!("node", "sinew.toml", "index.mjs", ".sinewignore"),
            Self::Java => example!("java", "sinew.toml", "Hello.java", ".sinewignore"),
            Self::Go => example!("go", "sinew.toml", "main.go", "go.mod", ".sinewignore"),
            Self::Rust => example!("rust", "sinew.toml", "src/main.rs", "Cargo.toml", ".sinewignore"),
            Self::C => example!("c", "sinew.toml", "main.c", ".sinewignore"),
            Self::Shell => example!("shell", "sinew.toml", "main.sh", ".sinewignore"),
            Self::Wasm => example!("wasm", "sinew.toml", "hello.wat", ".sinewignore"),
        }
    }

    /// What version control is to leave alone.
    fn ignored(self) -> &'static str {
        match self {
            Self::Python => ".sinew/\n__pycache__/\n.venv/\n",
            Self::Node => ".sinew/\nnode_modules/\n",
            Self::Go | Self::C => ".sinew/\nbuild/\n",
            Self::Rust | Self::Java => ".sinew/\ntarget/\n",
            Self::Shell | Self::Wasm => ".sinew/\n",
        }
    }

    /// A body that the example understands.
    fn body(self) -> &'static str {
        match self {
            Self::Rust | Self::C | Self::Shell => "Ada",
            _ => "{\"name\": \"Ada\"}",
        }
    }
}

pub(crate) fn run(arguments: &Arguments, output: &Output) -> anyhow::Result<()> {
    let name = checked(&arguments.name)?;
    let folder = arguments.to.clone().unwrap_or_else(|| PathBuf::from(name));
    let files = files(arguments.language, name);
    refuse_to_overwrite(&folder, &files)?;
    fs::create_dir_all(&folder).map_err(|error| unreadable(&folder, error))?;
    for (file, text) in &files {
        let path = folder.join(file);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|error| unreadable(parent, error))?;
        }
        write_new(&path, text)?;
    }
    if output.is_json() {
        let names: Vec<&str> = files.iter().map(|&(file, _)| file).collect();
        return output.json(&json!({"name": name, "path": folder.to_string_lossy(), "files": names}));
    }
    output.line(&folder.display().to_string())?;
    output.say(&format!("next:\n  cd {}\n  sinew dev", folder.display()));
    Ok(())
}

/// All files of a new function.
fn files(language: Language, name: &str) -> Vec<(&'static str, String)> {
    let templates = language.templates().iter();
    let mut files: Vec<(&str, String)> =
        templates.map(|&(file, text)| (file, personal(file, text, name))).collect();
    files.push((".gitignore", language.ignored().to_owned()));
    files.push(("README.md", readme(language, name)));
    files
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

fn readme(language: Language, name: &str) -> String {
    let body = language.body();
    let tests = match language {
        Language::Python => {
            "\n`sinew sdk python` writes what tests import as `sinew`, and types for editors.\n"
        }
        Language::Node => "\n`sinew sdk node` writes what tests have as `sinew`, and types for editors.\n",
        _ => "",
    };
    format!(
        "# {name}\n\nA function for Sinew. In this directory:\n\n```sh\nsinew dev\n```\n\nruns it, tells where, and \
         reloads it as its files change. With a node running (`sinew up`):\n\n\
         ```sh\nsinew deploy\nsinew invoke {name} -d '{body}'\nsinew describe {name}\n```\n{tests}"
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
    let create = || -> io::Result<()> {
        let mut file = File::create_new(path)?;
        file.write_all(text.as_bytes())?;
        // What a shell runs is a program.
        let mode = if text.starts_with("#!") { 0o755 } else { 0o644 };
        file.set_permissions(Permissions::from_mode(mode))
    };
    create().with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
mod tests;
