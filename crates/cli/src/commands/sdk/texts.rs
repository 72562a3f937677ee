// SPDX-License-Identifier: Apache-2.0
//! The texts that `sinew sdk` writes, put together from parts that the node runs too.

pub(super) const SCHEMA: &str = include_str!("../../../../../docs/reference/sinew.schema.json");
pub(super) const PYTHON_TYPES: &str = include_str!("../../../../../guests/sdk/sinew.pyi");
pub(super) const NODE_TYPES: &str = include_str!("../../../../../guests/sdk/sinew.d.mts");
pub(super) const C_HEADER: &str = include_str!("../../../../../guests/native/sinew.h");

const PYTHON: [&str; 6] = [
    include_str!("../../../../../guests/sdk/head.py"),
    include_str!("../../../../../guests/python/json_values.py"),
    include_str!("../../../../../guests/python/request.py"),
    include_str!("../../../../../guests/python/calls.py"),
    include_str!("../../../../../guests/python/steps.py"),
    include_str!("../../../../../guests/sdk/local.py"),
];
const NODE: [&str; 5] = [
    include_str!("../../../../../guests/sdk/head.mjs"),
    include_str!("../../../../../guests/node/values.js"),
    include_str!("../../../../../guests/node/request.js"),
    include_str!("../../../../../guests/node/calls.js"),
    include_str!("../../../../../guests/sdk/local.mjs"),
];
/// Lines of it name the parts.
const C: &str = include_str!("../../../../../guests/native/sinew.c");
const C_PARTS: [(&str, &str); 9] = [
    ("../template/line.h", include_str!("../../../../../guests/template/line.h")),
    ("../template/line.c", include_str!("../../../../../guests/template/line.c")),
    ("../heap/huge.h", include_str!("../../../../../guests/heap/huge.h")),
    ("text.c", include_str!("../../../../../guests/native/text.c")),
    ("channel.c", include_str!("../../../../../guests/native/channel.c")),
    ("calls.c", include_str!("../../../../../guests/native/calls.c")),
    ("answer.c", include_str!("../../../../../guests/native/answer.c")),
    ("memory.c", include_str!("../../../../../guests/native/memory.c")),
    ("serve.c", include_str!("../../../../../guests/native/serve.c")),
];

pub(super) fn python() -> String {
    joined(&PYTHON, "#", "\n\n\n")
}

pub(super) fn node() -> String {
    joined(&NODE, "//", "\n\n")
}

/// Parts one after the other. What the first lines of each but the first say is about where it stands in the node.
fn joined(parts: &[&str], comment: &str, between: &str) -> String {
    let bodies = parts.iter().enumerate().map(|(at, part)| {
        let lines: Vec<&str> =
            part.lines().skip_while(|line| at > 0 && line.starts_with(comment)).map(said).collect();
        lines.join("\n").trim_matches('\n').to_owned()
    });
    bodies.collect::<Vec<_>>().join(between) + "\n"
}

/// A line without what it says to a checker of its part alone.
fn said(line: &str) -> &str {
    line.split("  # noqa").next().unwrap_or(line)
}

/// The file of C, with its parts in the places where they are named.
pub(super) fn c() -> String {
    let mut whole = String::new();
    for line in C.split_inclusive('\n') {
        match C_PARTS.iter().find(|(name, _)| included(line) == Some(name)) {
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
    fn the_file_of_c_has_all_of_its_parts_once_and_names_none() {
        let source = c();
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
    }

    #[test]
    fn the_others_have_a_licence_once_and_nothing_about_where_their_parts_stand() {
        for (text, begins) in [
            (python(), ["class CallError(", "def current_run(", "class Context:", "def workflow("]),
            (node(), ["class CallError ", "function eventOf(", "class Context ", "export const sinew"]),
        ] {
            assert_eq!(text.matches("SPDX-License-Identifier").count(), 1);
            assert!(
                !text.contains("noqa")
                    && !text.contains("It is run before")
                    && !text.contains("It stands before")
            );
            for begin in begins {
                assert_eq!(text.lines().filter(|line| line.starts_with(begin)).count(), 1, "{begin}");
            }
        }
    }
}
