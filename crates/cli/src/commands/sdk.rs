// SPDX-License-Identifier: Apache-2.0
//! `sinew sdk`: files for those who write functions. What they say is what this binary's
//! node does, for most of it is made of the texts that the node itself runs.

mod texts;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::json;

use crate::directory::unreadable;
use crate::exit::{Code, Stop};
use crate::output::Output;

/// For what to write it, and where.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sinew sdk python                # tests of functions and workflows run without a node: pytest\n  \
                  sinew sdk node && node --import ./sinew.mjs --test\n  \
                  sinew sdk schema                # an editor completes and checks sinew.toml\n  \
                  sinew sdk c --to vendor && cc -O2 main.c vendor/sinew.c -pthread"
)]
pub(crate) struct Arguments {
    /// For whom
    #[arg(value_enum)]
    language: Language,
    /// Write into this directory
    #[arg(long, value_name = "DIR", default_value = ".")]
    to: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Language {
    /// sinew.py, for tests and scripts: calls a node's functions, and runs workflows in its process; sinew.pyi has its types
    Python,
    /// sinew.mjs, for tests and scripts: calls a node's functions; sinew.d.mts has types, for TypeScript and editors
    #[value(alias = "javascript", alias = "js", alias = "typescript", alias = "ts")]
    Node,
    /// sinew.h and sinew.c, for native functions: C11 on Linux, and what is linked with it
    C,
    /// sinew.schema.json, which editors check sinew.toml with
    Schema,
}

/// A file, and what only a file of ours has in it, so that a later one may take its place.
struct Written {
    name: &'static str,
    text: String,
    mark: &'static str,
}

impl Language {
    fn files(self) -> Vec<Written> {
        let file = |name, text, mark| Written { name, text, mark };
        match self {
            Self::Python => vec![
                file("sinew.py", texts::python(), "`sinew sdk python`"),
                file("sinew.pyi", texts::PYTHON_TYPES.to_owned(), "`sinew sdk python`"),
            ],
            Self::Node => vec![
                file("sinew.mjs", texts::node(), "`sinew sdk node`"),
                file("sinew.d.mts", texts::NODE_TYPES.to_owned(), "`sinew sdk node`"),
            ],
            Self::C => vec![
                file("sinew.h", texts::C_HEADER.to_owned(), "`sinew sdk c`"),
                file("sinew.c", texts::c(), "`sinew sdk c`"),
            ],
            Self::Schema => {
                vec![file("sinew.schema.json", texts::SCHEMA.to_owned(), "urn:sinew:schema:sinew.toml")]
            }
        }
    }

    /// What to do with them.
    fn next(self) -> &'static str {
        match self {
            Self::Python => {
                "next: `import sinew` in tests and scripts finds it; on a node functions find the node's own"
            }
            Self::Node => "next: node --import ./sinew.mjs --test; on a node functions find the node's own",
            Self::C => {
                "next: compile sinew.c with the program, with -pthread, and deploy that with mode = \"native\""
            }
            Self::Schema => {
                "next: make `#:schema ./sinew.schema.json` the first line of sinew.toml, for editors with Taplo (Even Better TOML)"
            }
        }
    }
}

pub(crate) fn run(arguments: &Arguments, output: &Output) -> anyhow::Result<()> {
    let files = arguments.language.files();
    for file in &files {
        check_own(&arguments.to.join(file.name), file.mark)?;
    }
    fs::create_dir_all(&arguments.to).map_err(|error| unreadable(&arguments.to, error))?;
    for file in &files {
        let path = arguments.to.join(file.name);
        fs::write(&path, &file.text).map_err(|error| unreadable(&path, error))?;
    }
    let names = files.iter().map(|file| arguments.to.join(file.name).to_string_lossy().into_owned());
    let names: Vec<String> = names.collect();
    if output.is_json() {
        return output.json(&json!({"files": names}));
    }
    names.iter().try_for_each(|name| output.line(name))?;
    output.say(arguments.language.next());
    Ok(())
}

/// Refuses to write over what it has not written.
fn check_own(path: &Path, mark: &str) -> anyhow::Result<()> {
    match fs::read_to_string(path) {
        Ok(text) if text.contains(mark) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => {
            let what = format!("sdk: {} is there, and is none of its files", path.display());
            Err(Stop::new(Code::Usage, what).suggest("give another directory with --to").into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_has_its_mark() {
        for language in Language::value_variants() {
            for file in language.files() {
                assert!(file.text.contains(file.mark), "{}", file.name);
                assert!(file.text.ends_with('\n') && !file.text.ends_with("\n\n"), "{}", file.name);
            }
        }
    }
}
