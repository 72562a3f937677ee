// SPDX-License-Identifier: Apache-2.0
//! The one text form of a handle, in command lines, URLs and logs.
//!
//! ```text
//! handle = ["strict-" | "shallow-"] thunk | value
//! thunk  = ("app-" | "sel-") hash "-" size | "ident-" object
//! value  = object | ("blobref-" | "treeref-" | "failure-") hash "-" size
//! object = "lit-" hex* | ("blob-" | "tree-") hash "-" size
//! hash   = 48 lower-case hexadecimal digits;  size = decimal, no leading zero
//! ```

use std::fmt::{self, Write as _};
use std::str::FromStr;

use crate::handle::HASH_LEN;
use crate::{Error, Handle, Kind, LITERAL_LEN_MAX};

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            Kind::Strict => f.write_str("strict-")?,
            Kind::Shallow => f.write_str("shallow-")?,
            _ => {}
        }
        match self.thunk().map(|thunk| thunk.kind()) {
            Some(Kind::Application) => return write_hashed(f, "app-", self),
            Some(Kind::Selection) => return write_hashed(f, "sel-", self),
            Some(_) => f.write_str("ident-")?,
            None => {}
        }
        let value = self.thunk().map_or(*self, Handle::definition);
        if let Some(literal) = value.literal_bytes() {
            f.write_str("lit-")?;
            return write_hex(f, literal);
        }
        let prefix = match value.kind() {
            Kind::BlobRef => "blobref-",
            Kind::TreeRef => "treeref-",
            Kind::Failure => "failure-",
            Kind::Tree => "tree-",
            _ => "blob-",
        };
        write_hashed(f, prefix, &value)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn write_hashed(f: &mut fmt::Formatter<'_>, prefix: &str, handle: &Handle) -> fmt::Result {
    f.write_str(prefix)?;
    write_hex(f, handle.hash_bytes())?;
    write!(f, "-{}", handle.size())
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        f.write_char(char::from(DIGITS[usize::from(byte >> 4)]))?;
        f.write_char(char::from(DIGITS[usize::from(byte & 15)]))?;
    }
    Ok(())
}

impl FromStr for Handle {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let not_thunk = Error::BadText("an encode of something that is no thunk");
        if let Some(rest) = text.strip_prefix("strict-") {
            return parse_unencoded(rest)?.strict().ok_or(not_thunk);
        }
        if let Some(rest) = text.strip_prefix("shallow-") {
            return parse_unencoded(rest)?.shallow().ok_or(not_thunk);
        }
        parse_unencoded(text)
    }
}

fn parse_unencoded(text: &str) -> Result<Handle, Error> {
    let not_value = Error::BadText("an identification of something that is no object");
    match text.strip_prefix("ident-") {
        Some(rest) => {
            let value = parse_plain(rest)?;
            let object = Some(value).filter(|value| matches!(value.kind(), Kind::Blob | Kind::Tree));
            object.and_then(Handle::identification).ok_or(not_value)
        }
        None => parse_plain(text),
    }
}

fn parse_plain(text: &str) -> Result<Handle, Error> {
    let (prefix, rest) = text.split_once('-').ok_or(Error::BadText("it has no kind"))?;
    if prefix == "lit" {
        let mut literal = [0; LITERAL_LEN_MAX];
        let len = rest.len() / 2;
        let target = literal.get_mut(..len).ok_or(Error::BadText("a literal of over 30 bytes"))?;
        read_hex(rest, target)?;
        return Handle::literal(target).ok_or(Error::BadText("a literal of over 30 bytes"));
    }
    let is_tree = match prefix {
        "blob" | "blobref" => false,
        "tree" | "treeref" | "app" | "sel" | "failure" => true,
        _ => return Err(Error::BadText("the kind is unknown")),
    };
    let (hash_text, size_text) = rest.split_once('-').ok_or(Error::BadText("it has no size"))?;
    let mut hash = [0; 32];
    if hash_text.len() != 2 * HASH_LEN {
        return Err(Error::BadText("the hash does not have 48 digits"));
    }
    read_hex(hash_text, &mut hash[..HASH_LEN])?;
    let size = read_size(size_text)?;
    let object = Handle::hashed(&hash, size, u16::from(is_tree));
    let object = Handle::from_bytes(*object.as_bytes())?;
    let tagged = match prefix {
        "blobref" | "treeref" => object.lowered(),
        "app" => object.application(),
        "sel" => object.selection(),
        "failure" => object.failure(),
        _ => Some(object),
    };
    tagged.ok_or(Error::BadText("the size does not fit the kind"))
}

fn read_size(text: &str) -> Result<u64, Error> {
    let canonical =
        text.bytes().all(|digit| digit.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    let size = text.parse().ok().filter(|&size| canonical && size <= crate::BLOB_SIZE_MAX);
    size.ok_or(Error::BadText("the size is not a decimal number below 2^48"))
}

fn read_hex(text: &str, target: &mut [u8]) -> Result<(), Error> {
    if text.len() != 2 * target.len() {
        return Err(Error::BadText("an odd number of hexadecimal digits"));
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(Error::BadText("not a lower-case hexadecimal digit")),
    };
    for (byte, pair) in target.iter_mut().zip(text.as_bytes().as_chunks::<2>().0) {
        *byte = (digit(pair[0])? << 4) | digit(pair[1])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
