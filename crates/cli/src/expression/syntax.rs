// SPDX-License-Identifier: Apache-2.0
//! The syntax tree of expressions.
//!
//! An expression knows its height, which the parser bounds: everything that
//! walks the tree by recursion, dropping it included, is safe.

use objects::{Handle, Limits};

/// The most levels of nesting.
pub(crate) const HEIGHT_MAX: u16 = 256;

/// Where something stands in the source, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Where an expression stands is no part of what it says.
impl PartialEq for Span {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Span {}

/// The widths of little-endian numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    U8,
    U16,
    U32,
    U64,
}

impl Width {
    pub(crate) const ALL: [Self; 4] = [Self::U8, Self::U16, Self::U32, Self::U64];

    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 => 2,
            Self::U32 => 4,
            Self::U64 => 8,
        }
    }

    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
        }
    }

    pub(crate) const fn max(self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes())
    }
}

/// An expression and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expression {
    pub(crate) form: Form,
    pub(crate) span: Span,
    /// 1 + the greatest height of the parts.
    pub(crate) height: u16,
}

/// What an expression says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    /// `"text"`: a blob. Bytes, because `\xff` is allowed.
    Text(Vec<u8>),
    /// `0x00ff`: a blob.
    Bytes(Vec<u8>),
    /// `7u32`: a little-endian blob.
    Number(u64, Width),
    /// `@path`: a file's contents.
    File(String),
    /// `@@path`: a directory as a tree.
    Directory(String),
    /// `#name`: what a label points at.
    Label(String),
    /// `blob-…`: the handle itself.
    Handle(Handle),
    /// `[a, b]`
    Tree(Vec<Expression>),
    /// `{mem: 1MiB} procedure(arguments)`: an application thunk.
    Call(Option<Limits>, Box<Expression>, Vec<Expression>),
    /// `app(tree)`: the tree as an application thunk.
    Application(Box<Expression>),
    /// `limits(mem: 1MiB)`: the literal that an application begins with.
    Limits(Limits),
    /// `ident(x)`: an identification thunk.
    Identification(Box<Expression>),
    /// `x[3]`: a selection thunk.
    Element(Box<Expression>, u64),
    /// `x[2..5]`: a selection thunk.
    Range(Box<Expression>, u64, u64),
    /// `!x`
    Strict(Box<Expression>),
    /// `?x`
    Shallow(Box<Expression>),
    /// `ref(x)`
    Ref(Box<Expression>),
    /// A name that `let` gave.
    Name(String),
    /// `let a = x; let b = y; body`
    Let(Vec<(String, Expression)>, Box<Expression>),
}

impl Form {
    /// The expressions that this one is made of.
    pub(crate) fn parts(&self) -> Vec<&Expression> {
        match self {
            Self::Tree(entries) => entries.iter().collect(),
            Self::Call(_, procedure, arguments) => {
                std::iter::once(procedure.as_ref()).chain(arguments).collect()
            }
            Self::Let(bindings, body) => {
                bindings.iter().map(|(_, value)| value).chain([body.as_ref()]).collect()
            }
            Self::Application(part)
            | Self::Identification(part)
            | Self::Element(part, _)
            | Self::Range(part, ..)
            | Self::Strict(part)
            | Self::Shallow(part)
            | Self::Ref(part) => vec![part],
            _ => Vec::new(),
        }
    }
}

impl Expression {
    /// Measures the height; the caller checks it.
    pub(crate) fn new(form: Form, span: Span) -> Self {
        let tallest = form.parts().iter().map(|part| part.height).max().unwrap_or(0);
        Self { form, span, height: tallest.saturating_add(1) }
    }
}
