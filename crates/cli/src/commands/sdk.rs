// SPDX-License-Identifier: Apache-2.0
//! `sinew sdk`: what native functions are compiled with, one header and one file
//! of C. It is of the same version as the node that it speaks to.

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
    after_help = "Examples:\n  sinew sdk c\n  sinew sdk c --to vendor && cc -O2 main.c vendor/sinew.c -pthread"
)]
pub(crate) struct Arguments {
    /// What functions are written in: c is for anything that calls C
    #[arg(value_enum)]
    language: Language,
    /// Write into this directory
    #[arg(long, value_name = "DIR", default_value = ".")]
    to: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Language {
    /// C11 on Linux, and what is linked with it
    C,
}

const HEADER: &str = include_str!("../../../../guests/native/sinew.h");
/// Lines of it name the parts.
const SOURCE: &str = include_str!("../../../../guests/native/sinew.c");
const PARTS: [(&str, &str); 9] = [
    ("../template/line.h", include_str!("../../../../guests/template/line.h")),
    ("../template/line.c", include_str!("../../../../guests/template/line.c")),
    ("../heap/huge.h", include_str!("../../../../guests/heap/huge.h")),
    ("text.c", include_str!("../../../../guests/native/text.c")),
    ("channel.c", include_str!("../../../../guests/native/channel.c")),
    ("calls.c", include_str!("../../../../guests/native/calls.c")),
    ("answer.c", include_str!("../../../../guests/native/answer.c")),
    ("memory.c", include_str!("../../../../guests/native/memory.c")),
    ("serve.c", include_str!("../../../../guests/native/serve.c")),
];
/// Both files have it, so that a later one may take their places.
const MARK: &str = "`sinew sdk c`";

pub(crate) fn run(arguments: &Arguments, output: &Output) -> anyhow::Result<()> {
    let files = [("sinew.h", HEADER.to_owned()), ("sinew.c", source())];
    for (name, _) in &files {
        check_own(&arguments.to.join(name))?;
    }
    fs::create_dir_all(&arguments.to).map_err(|error| unreadable(&arguments.to, error))?;
    for (name, text) in &files {
        let path = arguments.to.join(name);
        fs::write(&path, text).map_err(|error| unreadable(&path, error))?;
    }
    let names = files.map(|(name, _)| arguments.to.join(name).to_string_lossy().into_owned());
    if output.is_json() {
        return output.json(&json!({"files": names}));
    }
    names.iter().try_for_each(|name| output.line(name))?;
    output
        .say("next: compile sinew.c with the program, with -pthread, and deploy that with mode = \"native\"");
    Ok(())
}

/// Refuses to write over what it has not written.
fn check_own(path: &Path) -> anyhow::Result<()> {
    match fs::read_to_string(path) {
        Ok(text) if text.contains(MARK) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => {
            let what = format!("sdk: {} is there, and is none of its files", path.display());
            Err(Stop::new(Code::Usage, what).suggest("give another directory with --to").into())
        }
    }
}

/// The file of C, with its parts in the places where they are named.
fn source() -> String {
    let mut whole = String::new();
    for line in SOURCE.split_inclusive('\n') {
        match PARTS.iter().find(|(name, _)| included(line) == Some(name)) {
            // What a part includes of the others is there before it.
            Some((_, part)) => {
                whole.extend(part.split_inclusive('\n').filter(|line| included(line).is_none()))
            }
            None => whole.push_str(line),
        }
    }
    whole
}

/// The file of ours that a line names.
fn included(line: &str) -> Option<&str> {
    line.trim().strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_all_of_its_parts_once_and_names_none() {
        let source = source();
        let included: Vec<&str> = source.lines().filter(|line| line.starts_with("#include \"")).collect();
        assert_eq!(included, ["#include \"sinew.h\""]);
        for begin in [
            "int64_t line_next(",
            "static int json_more(",
            "int sinew_call(",
            "int sinew_serve(",
            "int sinew_answer(",
        ] {
            assert_eq!(source.lines().filter(|line| line.starts_with(begin)).count(), 1, "{begin}");
        }
        assert!(source.contains(MARK) && HEADER.contains(MARK));
    }
}
