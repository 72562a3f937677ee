// SPDX-License-Identifier: Apache-2.0
//! A syntax tree to handles and the objects behind them.
//!
//! Files, directories and labels are looked up before ([`externals`] lists
//! them); building is then a pure function, and all objects that it makes go
//! to the node in one bundle.

use std::collections::{HashMap, HashSet};

use objects::{BundleWriter, Handle, Limits, Part, Selection, TreeBuilder, TreeView};

use super::closest;
use super::syntax::{Expression, Form, Span};
use super::{Error, parser};

/// What an expression needs from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ExternalKind {
    File,
    Directory,
    Label,
}

/// Something from outside and where it is named first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct External {
    pub(crate) kind: ExternalKind,
    pub(crate) name: String,
    pub(crate) span: Span,
}

impl External {
    /// An error that points at it.
    pub(crate) fn error(&self, message: impl Into<String>, hint: Option<String>) -> Error {
        Error { message: message.into(), span: self.span, hint }
    }
}

/// The handles of what an expression needs from outside.
pub(crate) type Externals = HashMap<(ExternalKind, String), Handle>;

/// Lists what an expression needs from outside, each once, in order.
pub(crate) fn externals(expression: &Expression) -> Vec<External> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    collect(expression, &mut |kind, name: &str, span| {
        if seen.insert((kind, name.to_owned())) {
            found.push(External { kind, name: name.to_owned(), span });
        }
    });
    found
}

fn collect(expression: &Expression, found: &mut impl FnMut(ExternalKind, &str, Span)) {
    match &expression.form {
        Form::File(name) => found(ExternalKind::File, name, expression.span),
        Form::Directory(name) => found(ExternalKind::Directory, name, expression.span),
        Form::Label(name) => found(ExternalKind::Label, name, expression.span),
        form => form.parts().into_iter().for_each(|part| collect(part, found)),
    }
}

/// Objects on their way to the node, each once.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    writer: BundleWriter,
    seen: HashSet<Handle>,
    bytes: usize,
}

impl Objects {
    /// Adds a blob.
    pub(crate) fn blob(&mut self, bytes: &[u8]) -> Handle {
        let handle = Handle::blob(bytes);
        if handle.literal_bytes().is_none() && self.seen.insert(handle) {
            self.bytes += bytes.len();
            self.writer.blob(bytes);
        }
        handle
    }

    /// Adds a tree.
    pub(crate) fn tree(&mut self, tree: TreeView<'_>) -> Handle {
        let handle = tree.handle();
        if self.seen.insert(handle) {
            self.bytes += tree.as_bytes().len();
            self.writer.tree(tree);
        }
        handle
    }

    /// Bytes of all objects so far.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Nothing to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// The bundle, with what is to be evaluated.
    pub(crate) fn with_goal(self, goal: Handle) -> Vec<u8> {
        self.writer.goal(goal)
    }

    /// The bundle, to be stored only.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.writer.finish()
    }
}

/// The handle that an expression means; what is behind it goes into `objects`.
///
/// # Errors
/// Names that nobody gave, and forms of the wrong kind.
pub(crate) fn build(
    expression: &Expression,
    externals: &Externals,
    objects: &mut Objects,
) -> Result<Handle, Error> {
    Builder { externals, objects, names: Vec::new() }.handle(expression)
}

struct Builder<'a> {
    externals: &'a Externals,
    objects: &'a mut Objects,
    /// Inner names last.
    names: Vec<(String, Handle)>,
}

impl Builder<'_> {
    fn handle(&mut self, expression: &Expression) -> Result<Handle, Error> {
        let span = expression.span;
        match &expression.form {
            Form::Text(bytes) | Form::Bytes(bytes) => Ok(self.objects.blob(bytes)),
            Form::Number(value, width) => Ok(self.objects.blob(&value.to_le_bytes()[..width.bytes()])),
            Form::File(name) => self.external(ExternalKind::File, name, span),
            Form::Directory(name) => self.external(ExternalKind::Directory, name, span),
            Form::Label(name) => self.external(ExternalKind::Label, name, span),
            Form::Handle(handle) => Ok(*handle),
            Form::Tree(entries) => {
                let tree = self.handles(entries)?;
                Ok(self.objects.tree(tree.view()))
            }
            Form::Call(limits, procedure, arguments) => {
                let mut tree = TreeBuilder::with_capacity(2 + arguments.len());
                tree.push(limits_handle(limits.as_ref(), span)?).push(self.handle(procedure)?);
                for argument in arguments {
                    tree.push(self.handle(argument)?);
                }
                let tree = self.objects.tree(tree.view());
                tree.application().ok_or_else(|| Error::new(span, "the call is no application"))
            }
            Form::Limits(limits) => limits_handle(Some(limits), span),
            Form::Application(inner) => {
                let tree = self.handle(inner)?;
                tree.application().ok_or_else(|| {
                    Error::new(inner.span, format!("app needs a tree, and this is {}", described(tree)))
                        .hint("write app([limits(), procedure, argument, …])")
                })
            }
            Form::Identification(inner) => {
                let value = self.handle(inner)?;
                value.identification().ok_or_else(|| {
                    Error::new(inner.span, format!("ident needs data, and this is {}", described(value)))
                })
            }
            Form::Ref(inner) => {
                let value = self.handle(inner)?;
                value.lowered().ok_or_else(|| {
                    Error::new(inner.span, format!("ref needs data, and this is {}", described(value)))
                        .hint("?x asks for the ref to a computation's result")
                })
            }
            Form::Element(target, index) => self.selection(target, Part::Element(*index), span),
            Form::Range(target, begin, end) => {
                self.selection(target, Part::Range { begin: *begin, end: *end }, span)
            }
            Form::Strict(inner) => self.encode(inner, Handle::strict),
            Form::Shallow(inner) => self.encode(inner, Handle::shallow),
            Form::Name(name) => self.named(name, span),
            Form::Let(bindings, body) => self.bound(bindings, body),
        }
    }

    fn handles(&mut self, expressions: &[Expression]) -> Result<TreeBuilder, Error> {
        let mut tree = TreeBuilder::with_capacity(expressions.len());
        for expression in expressions {
            tree.push(self.handle(expression)?);
        }
        Ok(tree)
    }

    fn external(&self, kind: ExternalKind, name: &str, span: Span) -> Result<Handle, Error> {
        let found = self.externals.get(&(kind, name.to_owned())).copied();
        found.ok_or_else(|| Error::new(span, format!("{name:?} was not looked up")))
    }

    fn selection(&mut self, target: &Expression, part: Part, span: Span) -> Result<Handle, Error> {
        let target = self.handle(target)?;
        let tree = self.objects.tree(Selection { target, part }.to_tree().view());
        tree.selection().ok_or_else(|| Error::new(span, "the index makes no selection"))
    }

    fn encode(
        &mut self,
        inner: &Expression,
        make: impl FnOnce(Handle) -> Option<Handle>,
    ) -> Result<Handle, Error> {
        let thunk = self.handle(inner)?;
        make(thunk).ok_or_else(|| {
            Error::new(
                inner.span,
                format!("only a computation can be asked for, and this is {}", described(thunk)),
            )
            .hint("ident(x) makes a computation of data: !ident(x)")
        })
    }

    fn named(&self, name: &str, span: Span) -> Result<Handle, Error> {
        if let Some((_, handle)) = self.names.iter().rev().find(|(known, _)| known == name) {
            return Ok(*handle);
        }
        let known = self.names.iter().map(|(known, _)| known.as_str()).chain(parser::KEYWORDS);
        let hint = match closest(name, known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("a text is written \"{name}\", a file @{name}, a label #{name}"),
        };
        Err(Error::new(span, format!("nothing is called `{name}`")).hint(hint))
    }

    fn bound(&mut self, bindings: &[(String, Expression)], body: &Expression) -> Result<Handle, Error> {
        let outside = self.names.len();
        for (name, value) in bindings {
            let value = self.handle(value)?;
            self.names.push((name.clone(), value));
        }
        let result = self.handle(body);
        self.names.truncate(outside);
        result
    }
}

/// Default limits are the empty literal, so that a call that states them is
/// the same application as one that does not.
fn limits_handle(limits: Option<&Limits>, span: Span) -> Result<Handle, Error> {
    let stated = limits.filter(|limits| **limits != Limits::default());
    let handle = stated.map_or_else(|| Handle::literal(b""), Limits::handle);
    handle.ok_or_else(|| Error::new(span, "a limit is over 2^48"))
}

fn described(handle: Handle) -> &'static str {
    if handle.is_encode() {
        "a request (an encode)"
    } else if handle.is_thunk() {
        "a computation (a thunk)"
    } else if handle.is_failure() {
        "a failure"
    } else if handle.names_tree() {
        "a tree"
    } else {
        "a blob"
    }
}
