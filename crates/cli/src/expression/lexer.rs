// SPDX-License-Identifier: Apache-2.0
//! Text to tokens.
//!
//! Paths, labels and handles are tokens of their own, so that `@a/b-1.wasm`
//! needs no quotes: a path ends at white space or one of `()[]{},;"`.

use super::Error;
use super::syntax::Span;

/// The longest expression, in bytes. Data belongs in files.
pub(crate) const SOURCE_BYTES_MAX: usize = 1 << 20;

/// A word of the language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// One of `( ) [ ] { } , ; : = ! ?`
    Punctuation(char),
    /// `..`
    Dots,
    /// `"…"`
    Text(Vec<u8>),
    /// `0x…`
    Bytes(Vec<u8>),
    /// Digits and the letters after them.
    Number(u64, String),
    /// `@path`
    File(String),
    /// `@@path`
    Directory(String),
    /// `#label`
    Label(String),
    /// A name, a keyword, or (with a dash in it) a handle.
    Word(String),
    /// The end of the text.
    End,
}

impl Token {
    /// For "expected …, found …".
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Punctuation(character) => format!("`{character}`"),
            Self::Dots => "`..`".to_owned(),
            Self::Text(_) => "a text".to_owned(),
            Self::Bytes(_) => "bytes".to_owned(),
            Self::Number(value, suffix) => format!("`{value}{suffix}`"),
            Self::File(path) => format!("the file `@{path}`"),
            Self::Directory(path) => format!("the directory `@@{path}`"),
            Self::Label(name) => format!("the label `#{name}`"),
            Self::Word(word) => format!("`{word}`"),
            Self::End => "the end".to_owned(),
        }
    }
}

/// All tokens of a text; the last is [`Token::End`].
pub(crate) fn tokens(source: &str) -> Result<Vec<(Token, Span)>, Error> {
    if source.len() > SOURCE_BYTES_MAX {
        let message = format!("the expression is longer than {SOURCE_BYTES_MAX} bytes");
        return Err(Error::new(Span::default(), message).hint("put data into files and name them with @path"));
    }
    let mut lexer = Lexer { source, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blank();
        let start = lexer.at;
        let token = lexer.token()?;
        let ended = token == Token::End;
        tokens.push((token, Span { start, end: lexer.at }));
        if ended {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.at += character.len_utf8();
        Some(character)
    }

    fn error(&self, start: usize, message: impl Into<String>) -> Error {
        Error::new(Span { start, end: self.at }, message)
    }

    /// White space, and comments from `//` to the end of the line.
    fn skip_blank(&mut self) {
        loop {
            self.take_while(char::is_whitespace);
            if !self.rest().starts_with("//") {
                return;
            }
            self.take_while(|character| character != '\n');
        }
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let taken = rest.find(|character| !wanted(character)).map_or(rest, |end| &rest[..end]);
        self.at += taken.len();
        taken
    }

    fn token(&mut self) -> Result<Token, Error> {
        let start = self.at;
        let Some(character) = self.peek() else { return Ok(Token::End) };
        match character {
            '(' | ')' | '[' | ']' | '{' | '}' | ',' | ';' | ':' | '=' | '!' | '?' => {
                self.bump();
                Ok(Token::Punctuation(character))
            }
            '.' if self.rest().starts_with("..") => {
                self.at += 2;
                Ok(Token::Dots)
            }
            '"' => self.text().map(Token::Text),
            '@' => {
                self.bump();
                if self.peek() == Some('@') {
                    self.bump();
                    return self.path(start).map(Token::Directory);
                }
                self.path(start).map(Token::File)
            }
            '#' => {
                self.bump();
                let name = self.take_while(is_label);
                if name.is_empty() {
                    return Err(self.error(start, "a label needs a name after #"));
                }
                Ok(Token::Label(name.to_owned()))
            }
            '0' if self.rest().starts_with("0x") => self.bytes(),
            '0'..='9' => self.number(),
            'a'..='z' | 'A'..='Z' | '_' => Ok(Token::Word(self.take_while(is_word).to_owned())),
            _ => {
                self.bump();
                let error = self.error(start, format!("{character:?} means nothing here"));
                Err(error.hint("texts are written \"in quotes\", files @like/this"))
            }
        }
    }

    fn number(&mut self) -> Result<Token, Error> {
        let start = self.at;
        let digits = self.take_while(|character| character.is_ascii_digit() || character == '_');
        let value = digits.replace('_', "").parse();
        let suffix = self.take_while(|character| character.is_ascii_alphanumeric()).to_owned();
        match value {
            Ok(value) => Ok(Token::Number(value, suffix)),
            Err(_) => Err(self.error(start, "the number is over 2^64 - 1")),
        }
    }

    fn bytes(&mut self) -> Result<Token, Error> {
        let start = self.at;
        self.at += 2;
        let digits = self.take_while(|character| character.is_ascii_alphanumeric() || character == '_');
        let digits: Vec<u32> = digits
            .chars()
            .filter(|&digit| digit != '_')
            .map(|digit| digit.to_digit(16).unwrap_or(16))
            .collect();
        if digits.contains(&16) {
            let error = self.error(start, "0x is followed by hexadecimal digits only");
            return Err(error.hint("0x… is bytes in their order; numbers are decimal, like 255u8"));
        }
        if !digits.len().is_multiple_of(2) {
            return Err(self.error(start, "bytes have two hexadecimal digits each"));
        }
        // Digits are below 16.
        Ok(Token::Bytes(digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()))
    }

    fn path(&mut self, start: usize) -> Result<String, Error> {
        if self.peek() == Some('"') {
            let bytes = self.text()?;
            let path = String::from_utf8(bytes).map_err(|_| self.error(start, "the path is not UTF-8"))?;
            return if path.is_empty() { Err(self.error(start, "the path is empty")) } else { Ok(path) };
        }
        let path = self.take_while(is_path);
        if path.is_empty() {
            let error = self.error(start, "a path follows @");
            return Err(error.hint("like @data/words.txt, or @\"with spaces\"; @@ before a directory"));
        }
        Ok(path.to_owned())
    }

    fn text(&mut self) -> Result<Vec<u8>, Error> {
        let start = self.at;
        self.bump();
        let mut bytes = Vec::new();
        loop {
            let escape = self.at;
            match self.bump() {
                Some('"') => return Ok(bytes),
                Some('\\') => self.escape(escape, &mut bytes)?,
                Some(character) => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
                None => {
                    self.at = start + 1;
                    return Err(self.error(start, "the text has no closing quote"));
                }
            }
        }
    }

    fn escape(&mut self, start: usize, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let known = "the escapes are \\n \\r \\t \\0 \\\\ \\\" \\xff \\u{1f980}";
        let byte = match self.bump() {
            Some('n') => b'\n',
            Some('r') => b'\r',
            Some('t') => b'\t',
            Some('0') => 0,
            Some('\\') => b'\\',
            Some('"') => b'"',
            Some('x') => {
                let digits = self.rest().get(..2).unwrap_or("");
                let valid = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                let byte = u8::from_str_radix(digits, 16).ok().filter(|_| valid);
                let byte = byte.ok_or_else(|| self.error(start, "two hexadecimal digits follow \\x"))?;
                self.at += 2;
                byte
            }
            Some('u') => {
                let character = self.unicode_escape();
                let character =
                    character.ok_or_else(|| self.error(start, "no such character").hint(known))?;
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(self.error(start, "no such escape").hint(known)),
        };
        bytes.push(byte);
        Ok(())
    }

    /// `{1f980}`
    fn unicode_escape(&mut self) -> Option<char> {
        const DIGITS_MAX: usize = 6;
        (self.bump()? == '{').then_some(())?;
        let digits = self.take_while(|character| character.is_ascii_hexdigit());
        (self.bump()? == '}' && digits.len() <= DIGITS_MAX).then_some(())?;
        char::from_u32(u32::from_str_radix(digits, 16).ok()?)
    }
}

pub(crate) fn is_path(character: char) -> bool {
    !character.is_whitespace() && !"()[]{},;\"".contains(character)
}

pub(crate) fn is_label(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '/' | '-')
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}
