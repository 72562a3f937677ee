// SPDX-License-Identifier: Apache-2.0
//! `${NAME}` and `${NAME:-default}` in a manifest's strings; `$${` is `${`.

/// Bytes of a string after the replacement, at most.
const BYTES_MAX: usize = 1 << 20;

/// The text with its variables replaced.
///
/// # Errors
/// A variable that is not set and has no default, a name that is none, a
/// brace that is missing, or too long a text.
pub(super) fn replace(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        if let Some(before) = before.strip_suffix('$') {
            replaced.push_str(before);
            replaced.push_str("${");
            rest = after;
            continue;
        }
        replaced.push_str(before);
        let end = after.find('}').ok_or("a ${ has no closing brace; write $${ for the characters ${")?;
        let (name, default) = match after[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&after[..end], None),
        };
        if !is_name(name) {
            return Err(format!("${{{name}}} names no variable; write $${{ for the characters ${{"));
        }
        match variable(name).or_else(|| default.map(str::to_owned)) {
            Some(value) => replaced.push_str(&value),
            None => return Err(format!("the environment variable {name} is not set")),
        }
        if replaced.len() > BYTES_MAX {
            return Err(format!("with its variables replaced, the text is longer than {BYTES_MAX} bytes"));
        }
        rest = &after[end + 1..];
    }
    replaced.push_str(rest);
    Ok(replaced)
}

/// What shells accept as a variable's name.
pub(super) fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
