// SPDX-License-Identifier: Apache-2.0
//! A syntax tree as text that reads back as the same tree.

use std::fmt::{self, Display, Formatter, Write as _};

use objects::Limits;

use super::parser::is_bare_path;
use super::syntax::{Expression, Form};
use crate::quantity;

impl Display for Expression {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.form {
            Form::Text(bytes) => text(f, bytes),
            Form::Bytes(bytes) => {
                f.write_str("0x")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Form::Number(value, width) => write!(f, "{value}{}", width.suffix()),
            Form::File(name) => path(f, "@", name),
            Form::Directory(name) => path(f, "@@", name),
            Form::Label(name) => write!(f, "#{name}"),
            Form::Handle(handle) => write!(f, "{handle}"),
            Form::Tree(entries) => {
                f.write_char('[')?;
                list(f, entries)?;
                f.write_char(']')
            }
            Form::Call(limits, procedure, arguments) => {
                if let Some(limits) = limits {
                    f.write_char('{')?;
                    limit_fields(f, limits)?;
                    f.write_str("} ")?;
                }
                let bare = if limits.is_some() { is_primary(procedure) } else { is_suffixed(procedure) };
                part(f, procedure, bare)?;
                f.write_char('(')?;
                list(f, arguments)?;
                f.write_char(')')
            }
            Form::Limits(limits) => {
                f.write_str("limits(")?;
                limit_fields(f, limits)?;
                f.write_char(')')
            }
            Form::Application(inner) => write!(f, "app({inner})"),
            Form::Identification(inner) => write!(f, "ident({inner})"),
            Form::Ref(inner) => write!(f, "ref({inner})"),
            Form::Element(target, index) => {
                part(f, target, is_suffixed(target))?;
                write!(f, "[{index}]")
            }
            Form::Range(target, begin, end) => {
                part(f, target, is_suffixed(target))?;
                write!(f, "[{begin}..{end}]")
            }
            Form::Strict(inner) => prefixed(f, '!', inner),
            Form::Shallow(inner) => prefixed(f, '?', inner),
            Form::Name(name) => f.write_str(name),
            Form::Let(bindings, body) => {
                for (name, value) in bindings {
                    write!(f, "let {name} = {value}; ")?;
                }
                // A body that begins with let would read as one more binding.
                part(f, body, !matches!(body.form, Form::Let(..)))
            }
        }
    }
}

/// May stand before a suffix.
fn is_suffixed(expression: &Expression) -> bool {
    !matches!(expression.form, Form::Strict(_) | Form::Shallow(_) | Form::Let(..))
}

/// May stand between limits and the parenthesis of the call they are for.
fn is_primary(expression: &Expression) -> bool {
    let suffixed = matches!(expression.form, Form::Call(..) | Form::Element(..) | Form::Range(..));
    is_suffixed(expression) && !suffixed
}

fn prefixed(f: &mut Formatter<'_>, prefix: char, inner: &Expression) -> fmt::Result {
    f.write_char(prefix)?;
    part(f, inner, !matches!(inner.form, Form::Let(..)))
}

fn part(f: &mut Formatter<'_>, expression: &Expression, bare: bool) -> fmt::Result {
    if bare { write!(f, "{expression}") } else { write!(f, "({expression})") }
}

fn list(f: &mut Formatter<'_>, items: &[Expression]) -> fmt::Result {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            f.write_str(", ")?;
        }
        write!(f, "{item}")?;
    }
    Ok(())
}

fn limit_fields(f: &mut Formatter<'_>, limits: &Limits) -> fmt::Result {
    let usual = Limits::default();
    let size = |bytes| quantity::exact(bytes);
    let fields = [
        (limits.memory_bytes != usual.memory_bytes, "mem", size(limits.memory_bytes)),
        (limits.fuel != usual.fuel, "fuel", limits.fuel.to_string()),
        (limits.output_size_hint != usual.output_size_hint, "out", size(limits.output_size_hint)),
        (limits.fan_out_hint != usual.fan_out_hint, "fan", limits.fan_out_hint.to_string()),
    ];
    let mut first = true;
    for (_, field, value) in fields.iter().filter(|(unusual, ..)| *unusual) {
        if !std::mem::take(&mut first) {
            f.write_str(", ")?;
        }
        write!(f, "{field}: {value}")?;
    }
    Ok(())
}

fn path(f: &mut Formatter<'_>, sigil: &str, name: &str) -> fmt::Result {
    f.write_str(sigil)?;
    if is_bare_path(name) { f.write_str(name) } else { text(f, name.as_bytes()) }
}

fn text(f: &mut Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    f.write_char('"')?;
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                control if control.is_control() => write!(f, "\\u{{{:x}}}", u32::from(control))?,
                plain => f.write_char(plain)?,
            }
        }
        for byte in chunk.invalid() {
            write!(f, "\\x{byte:02x}")?;
        }
    }
    f.write_char('"')
}
