// SPDX-License-Identifier: Apache-2.0
//! Tokens to a syntax tree, by recursive descent.
//!
//! ```text
//! expression = { "let" name "=" expression ";" } operand
//! operand    = ("!" | "?") operand | [limits] primary { suffix }
//! suffix     = "(" expressions ")" | "[" number "]" | "[" number ".." number "]"
//! primary    = text | bytes | number | @path | @@path | #label | handle | name
//!            | "[" expressions "]" | "(" expression ")" | keyword "(" … ")"
//! limits     = "{" fields "}"        for the first call that follows
//! ```
//!
//! Nesting is counted, both of the parser's own recursion and of the tree
//! that it builds; over the limit is an error like any other.

use objects::Limits;

use super::closest;
use super::lexer::{Token, tokens};
use super::syntax::{Expression, Form, HEIGHT_MAX, Span, Width};
use super::{Error, lexer};
use crate::quantity;

/// Words that are no names.
pub(crate) const KEYWORDS: [&str; 7] = ["app", "ident", "let", "limits", "ref", "shallow", "strict"];
const LIMIT_FIELDS: [&str; 4] = ["mem", "fuel", "out", "fan"];

/// Reads an expression.
///
/// # Errors
/// The first thing that is not of the language.
pub(crate) fn parse(source: &str) -> Result<Expression, Error> {
    let mut parser = Parser { tokens: tokens(source)?, at: 0, level: 0 };
    let expression = parser.expression()?;
    match parser.peek() {
        Token::End => Ok(expression),
        found => {
            let error = parser.error(format!("expected the end, found {}", found.describe()));
            Err(error.hint("arguments are separated by commas; a call's parenthesis follows its procedure"))
        }
    }
}

struct Parser {
    tokens: Vec<(Token, Span)>,
    at: usize,
    level: u16,
}

impl Parser {
    fn peek(&self) -> &Token {
        // The last token is End, and nothing moves past it.
        &self.tokens[self.at].0
    }

    fn span(&self) -> Span {
        self.tokens[self.at].1
    }

    fn next(&mut self) -> (Token, Span) {
        let token = self.tokens[self.at].clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn error(&self, message: impl Into<String>) -> Error {
        Error::new(self.span(), message)
    }

    fn take(&mut self, punctuation: char) -> bool {
        let found = *self.peek() == Token::Punctuation(punctuation);
        if found {
            self.next();
        }
        found
    }

    fn expect(&mut self, punctuation: char, context: &str) -> Result<(), Error> {
        if self.take(punctuation) {
            return Ok(());
        }
        Err(self.error(format!("expected `{punctuation}` {context}, found {}", self.peek().describe())))
    }

    /// What began at `start` and ends before the next token.
    fn finish(&self, start: Span, form: Form) -> Result<Expression, Error> {
        let end = self.tokens[self.at.saturating_sub(1)].1.end;
        let expression = Expression::new(form, Span { start: start.start, end });
        if expression.height > HEIGHT_MAX {
            return Err(too_deep(start));
        }
        Ok(expression)
    }

    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.level >= HEIGHT_MAX {
            return Err(too_deep(self.span()));
        }
        self.level += 1;
        let result = inner(self);
        self.level -= 1;
        result
    }

    fn expression(&mut self) -> Result<Expression, Error> {
        self.nested(|parser| {
            let start = parser.span();
            let mut bindings = Vec::new();
            while *parser.peek() == Token::Word("let".to_owned()) {
                parser.next();
                bindings.push(parser.binding()?);
            }
            let body = parser.operand()?;
            if bindings.is_empty() {
                return Ok(body);
            }
            parser.finish(start, Form::Let(bindings, Box::new(body)))
        })
    }

    fn binding(&mut self) -> Result<(String, Expression), Error> {
        let (token, span) = self.next();
        let Token::Word(name) = token else {
            return Err(Error::new(span, format!("expected a name after let, found {}", token.describe())));
        };
        check_name(&name, span)?;
        self.expect('=', "after the name")?;
        let value = self.expression()?;
        self.expect(';', "after the value of a let")?;
        Ok((name, value))
    }

    fn operand(&mut self) -> Result<Expression, Error> {
        let start = self.span();
        let make: fn(Box<Expression>) -> Form = match self.peek() {
            Token::Punctuation('!') => Form::Strict,
            Token::Punctuation('?') => Form::Shallow,
            _ => return self.suffixed(),
        };
        self.next();
        let inner = self.nested(Self::operand)?;
        self.finish(start, make(Box::new(inner)))
    }

    fn suffixed(&mut self) -> Result<Expression, Error> {
        let start = self.span();
        let mut expression = if self.take('{') {
            let limits = self.limit_fields('}')?;
            let procedure = self.primary()?;
            self.expect('(', "after the procedure that the limits are for")?;
            let arguments = self.list(')', "after an argument")?;
            self.finish(start, Form::Call(Some(limits), Box::new(procedure), arguments))?
        } else {
            self.primary()?
        };
        loop {
            let form = if self.take('(') {
                let arguments = self.list(')', "after an argument")?;
                Form::Call(None, Box::new(expression), arguments)
            } else if self.take('[') {
                self.selection(expression)?
            } else {
                return Ok(expression);
            };
            expression = self.finish(start, form)?;
        }
    }

    fn selection(&mut self, target: Expression) -> Result<Form, Error> {
        let target = Box::new(target);
        let begin = self.index()?;
        let form = if *self.peek() == Token::Dots {
            self.next();
            let end = self.index()?;
            if begin > end {
                let hint = format!("write [{end}..{begin}]");
                return Err(self.error("the range ends before it begins").hint(hint));
            }
            Form::Range(target, begin, end)
        } else {
            Form::Element(target, begin)
        };
        self.expect(']', "after the index")?;
        Ok(form)
    }

    fn index(&mut self) -> Result<u64, Error> {
        match self.next() {
            (Token::Number(value, suffix), _) if suffix.is_empty() => Ok(value),
            (token, span) => {
                let error = Error::new(span, format!("expected an index, found {}", token.describe()));
                Err(error.hint("x[3] is one entry or byte, x[2..5] are three; indices are plain numbers"))
            }
        }
    }

    /// Expressions up to `close`, which is taken. A last comma may stay.
    fn list(&mut self, close: char, context: &str) -> Result<Vec<Expression>, Error> {
        let mut items = Vec::new();
        while !self.take(close) {
            items.push(self.expression()?);
            if !self.take(',') {
                self.expect(close, &format!("or `,` {context}"))?;
                break;
            }
        }
        Ok(items)
    }

    fn primary(&mut self) -> Result<Expression, Error> {
        let (token, span) = self.next();
        let form = match token {
            Token::Text(bytes) => Form::Text(bytes),
            Token::Bytes(bytes) => Form::Bytes(bytes),
            Token::Number(value, suffix) => number(value, &suffix, span)?,
            Token::File(path) => Form::File(path),
            Token::Directory(path) => Form::Directory(path),
            Token::Label(name) => Form::Label(name),
            Token::Punctuation('[') => Form::Tree(self.list(']', "after an entry")?),
            Token::Punctuation('(') => {
                let inner = self.expression()?;
                self.expect(')', "to close the parenthesis")?;
                return Ok(inner);
            }
            Token::Word(word) => return self.word(word, span),
            token => {
                let error = Error::new(span, format!("expected an expression, found {}", token.describe()));
                return Err(error.hint("like \"text\", 7u64, @file, #label, [a, b] or @add.wasm(3u8, 4u8)"));
            }
        };
        self.finish(span, form)
    }

    fn word(&mut self, word: String, span: Span) -> Result<Expression, Error> {
        let form = match word.as_str() {
            "limits" => {
                self.expect('(', "after limits")?;
                Form::Limits(self.limit_fields(')')?)
            }
            "app" => Form::Application(self.wrapped(&word)?),
            "ident" => Form::Identification(self.wrapped(&word)?),
            "strict" => Form::Strict(self.wrapped(&word)?),
            "shallow" => Form::Shallow(self.wrapped(&word)?),
            "ref" => Form::Ref(self.wrapped(&word)?),
            "let" => {
                return Err(Error::new(span, "a let stands at the beginning of an expression")
                    .hint("put it in parentheses: (let a = 1u8; a)"));
            }
            _ if word.contains('-') => Form::Handle(handle(&word, span)?),
            _ => Form::Name(word),
        };
        self.finish(span, form)
    }

    fn wrapped(&mut self, keyword: &str) -> Result<Box<Expression>, Error> {
        self.expect('(', &format!("after {keyword}"))?;
        let inner = self.expression()?;
        self.expect(')', &format!("to close {keyword}(…)"))?;
        Ok(Box::new(inner))
    }

    fn limit_fields(&mut self, close: char) -> Result<Limits, Error> {
        let mut limits = Limits::default();
        let mut seen: Vec<String> = Vec::new();
        while !self.take(close) {
            let (token, span) = self.next();
            let Token::Word(field) = token else {
                let message = format!("expected mem, fuel, out or fan, found {}", token.describe());
                return Err(Error::new(span, message).hint("like {mem: 64MiB, fuel: 1000000}"));
            };
            if seen.contains(&field) {
                return Err(Error::new(span, format!("`{field}` is given twice")));
            }
            self.expect(':', "after the name of a limit")?;
            self.limit(&mut limits, &field, span)?;
            seen.push(field);
            if !self.take(',') {
                self.expect(close, "or `,` after a limit")?;
                break;
            }
        }
        Ok(limits)
    }

    fn limit(&mut self, limits: &mut Limits, field: &str, field_span: Span) -> Result<(), Error> {
        let (token, span) = self.next();
        let Token::Number(value, unit) = token else {
            return Err(Error::new(span, format!("expected a number, found {}", token.describe())));
        };
        const U48_MAX: u64 = (1 << 48) - 1;
        let bytes = || {
            let bytes = quantity::bytes(value, &unit).filter(|&bytes| bytes <= U48_MAX);
            let error = Error::new(span, format!("`{value}{unit}` is not a size below 256TiB"));
            bytes.ok_or_else(|| error.hint("sizes are written 4096, 64KiB, 64MiB or 2GiB"))
        };
        let count = |most: u64| {
            let count = Some(value).filter(|&value| unit.is_empty() && value <= most);
            count.ok_or_else(|| Error::new(span, format!("expected a plain number up to {most}")))
        };
        match field {
            "mem" => limits.memory_bytes = bytes()?,
            "out" => limits.output_size_hint = bytes()?,
            "fuel" => limits.fuel = count(u64::MAX)?,
            // The bound makes the cast exact.
            "fan" => limits.fan_out_hint = count(u64::from(u32::MAX))? as u32,
            _ => {
                let error = Error::new(field_span, format!("there is no limit `{field}`"));
                let hint = closest(field, LIMIT_FIELDS).map(|near| format!("did you mean `{near}`?"));
                return Err(
                    error.hint(hint.unwrap_or_else(|| "the limits are mem, fuel, out, fan".to_owned()))
                );
            }
        }
        Ok(())
    }
}

fn too_deep(span: Span) -> Error {
    Error::new(span, format!("more than {HEIGHT_MAX} levels of nesting"))
        .hint("name parts with let, or build the computation inside a procedure")
}

fn number(value: u64, suffix: &str, span: Span) -> Result<Form, Error> {
    let Some(width) = Width::ALL.into_iter().find(|width| width.suffix() == suffix) else {
        let error = Error::new(span, format!("`{value}{suffix}` is no number with a width"));
        return Err(error.hint(format!("write {value}u8, {value}u16, {value}u32 or {value}u64")));
    };
    if value > width.max() {
        return Err(Error::new(span, format!("{value} does not fit: {suffix} ends at {}", width.max())));
    }
    Ok(Form::Number(value, width))
}

fn handle(word: &str, span: Span) -> Result<objects::Handle, Error> {
    const KINDS: [&str; 12] = [
        "lit", "blob", "tree", "blobref", "treeref", "failure", "app", "sel", "ident", "strict", "shallow",
        "let",
    ];
    word.parse().map_err(|error: objects::Error| {
        let kind = word.split('-').next().unwrap_or("");
        let error = Error::new(span, error.to_string());
        match closest(kind, KINDS) {
            Some(near) if !KINDS.contains(&kind) => error.hint(format!("did you mean `{near}-…`?")),
            _ => error.hint("a label is written #name, a file @name; names of let have no dash"),
        }
    })
}

/// A name that `let` may give.
fn check_name(name: &str, span: Span) -> Result<(), Error> {
    if KEYWORDS.contains(&name) {
        return Err(Error::new(span, format!("`{name}` is a word of the language and cannot be a name")));
    }
    if name.contains('-') {
        let hint = format!("write {}", name.replace('-', "_"));
        return Err(Error::new(span, "a name has letters, digits and _ only").hint(hint));
    }
    Ok(())
}

/// Whether a text needs no quotes after `@`.
pub(crate) fn is_bare_path(path: &str) -> bool {
    !path.is_empty() && !path.starts_with('@') && path.chars().all(lexer::is_path)
}
