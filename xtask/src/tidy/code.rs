// SPDX-License-Identifier: Apache-2.0
//! Rules for Rust sources: the introduction, function length, `unsafe`.
//!
//! Comments, strings and characters are blanked first, so that a brace or a
//! word in them counts for nothing; the rest is a scan for tokens and braces.

use super::files::has_word;
use super::{File, Finding};

/// Lines of a function, from its name to its last brace, at most.
const FUNCTION_LINES_MAX: usize = 70;
/// Lines above an `unsafe` in which its reason is looked for.
const REASON_LINES_MAX: usize = 12;
/// Folders in which `unsafe` may stand. Guests run inside of sandboxes.
const UNSAFE_HOMES: &[&str] = &["crates/linux", "crates/sandbox", "crates/rmmap", "crates/xpu", "guests"];

pub(super) fn check(file: &File, findings: &mut Vec<Finding>) {
    let Some(text) = file.text() else { return };
    let introduction = text.lines().nth(1).unwrap_or_default();
    let is_tests = file.path.ends_with("tests.rs") || file.path.ends_with("tests/mod.rs");
    if !is_tests && !introduction.starts_with("//!") {
        findings.push(Finding::new(&file.path, 2, "the second line does not begin a `//!` text"));
    }
    let code = blank(text);
    for (line, name, lines) in functions(&code) {
        if lines > FUNCTION_LINES_MAX {
            let what = format!("`{name}` has {lines} lines; at most {FUNCTION_LINES_MAX}");
            findings.push(Finding::new(&file.path, line, what));
        }
    }
    check_unsafe(file, text, &code, findings);
    for (index, line) in code.lines().enumerate() {
        for name in ["todo", "unimplemented"] {
            if line.contains(&format!("{name}!")) {
                findings.push(Finding::new(&file.path, index + 1, format!("`{name}!`")));
            }
        }
    }
}

fn check_unsafe(file: &File, text: &str, code: &str, findings: &mut Vec<Finding>) {
    let is_home = UNSAFE_HOMES.iter().any(|home| file.path.starts_with(home));
    let lines: Vec<&str> = text.lines().collect();
    for (index, line) in code.lines().enumerate() {
        // Attributes and foreign declarations do nothing by themselves.
        let does = has_word(line, "unsafe") && !line.contains("#[unsafe(") && !line.contains("unsafe extern");
        if !does {
            continue;
        }
        if !is_home {
            findings.push(Finding::new(&file.path, index + 1, "`unsafe` outside of linux and sandbox"));
        }
        let is_block = ["unsafe {", "unsafe impl"].iter().any(|form| line.contains(form));
        let above = lines.get(index.saturating_sub(REASON_LINES_MAX)..=index).unwrap_or_default();
        if is_block && !above.iter().any(|line| line.contains("SAFETY:")) {
            findings.push(Finding::new(&file.path, index + 1, "`unsafe` without `// SAFETY:`"));
        }
    }
}

/// Every function with a body: its line (from 1), its name, how many lines it has.
pub(super) fn functions(code: &str) -> Vec<(usize, String, usize)> {
    let mut found = Vec::new();
    let mut line = 1;
    let mut last = 0;
    for (at, _) in code.match_indices("fn ") {
        line += code[last..at].matches('\n').count();
        last = at;
        let is_word = code[..at].chars().next_back().is_none_or(|before| before.is_whitespace());
        let name: String = code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if !is_word || name.is_empty() {
            continue;
        }
        if let Some(body) = body(&code[at..]) {
            found.push((line, name, body.matches('\n').count() + 1));
        }
    }
    found
}

/// The text of a function up to its last brace; `None` for a mere declaration.
fn body(code: &str) -> Option<&str> {
    let mut depth = 0usize;
    let mut brackets = 0usize;
    for (at, character) in code.char_indices() {
        match character {
            '(' | '[' if depth == 0 => brackets += 1,
            ')' | ']' if depth == 0 => brackets = brackets.saturating_sub(1),
            ';' if depth == 0 && brackets == 0 => return None,
            '{' => depth += 1,
            '}' => {
                depth = depth.checked_sub(1)?;
                // A brace within brackets is a constant in a type.
                if depth == 0 && brackets == 0 {
                    return code.get(..=at);
                }
            }
            _ => {}
        }
    }
    None
}

/// The same text, line for line, with comments, strings and characters blanked.
pub(super) fn blank(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => string(rest),
            'r' | 'b' | 'c' if !before.is_alphanumeric() && before != '_' => prefixed_string(rest),
            '\'' => character(rest),
            _ => 0,
        };
        let (blanked, after) = rest.split_at(len);
        code.extend(blanked.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = after;
        if len == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        }
        before = if len == 0 { first } else { ' ' };
    }
    code
}

/// Length of a comment with its nested ones.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Length of a string that begins here.
fn string(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Length of `r"…"`, `br#"…"#`, `b"…"`, `b'…'`; 0 if it is none of them.
fn prefixed_string(text: &str) -> usize {
    let prefix = text.find(|c| !matches!(c, 'r' | 'b' | 'c')).unwrap_or(text.len());
    let rest = &text[prefix..];
    if prefix > 2 {
        return 0;
    }
    if !text[..prefix].contains('r') {
        return match rest.chars().next() {
            Some('"') => prefix + string(rest),
            Some('\'') => prefix + character(rest),
            _ => 0,
        };
    }
    let hashes = rest.find(|c| c != '#').unwrap_or(0);
    if !rest[hashes..].starts_with('"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let inside = prefix + hashes + 1;
    text[inside..].find(&end).map_or(text.len(), |at| inside + at + end.len())
}

/// Length of `'x'` or `'\n'`; 0 for a lifetime.
fn character(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    match characters.next() {
        Some((_, '\\')) => {
            // What is escaped may itself be a quote.
            characters.next();
            characters.find(|(_, c)| *c == '\'').map_or(0, |(at, _)| at + 1)
        }
        Some(_) => match characters.next() {
            Some((at, '\'')) => at + 1,
            _ => 0,
        },
        None => 0,
    }
}
