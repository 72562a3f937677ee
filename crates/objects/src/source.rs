// SPDX-License-Identifier: Apache-2.0
//! External data, as the arguments of the platform's procedure that fetches it
//! (`docs/spec/external.md`): `[limits, "sinew:fetch", urls, size, validator]`.

use crate::{Application, Error, Handle, Kind, LIMITS_INDEX, PROCEDURE_INDEX, TreeBuilder};

/// The procedure that fetches, a literal.
pub const FETCH_PROCEDURE: &[u8] = b"sinew:fetch";
/// URLs of one source, at most.
pub const SOURCE_URLS_MAX: usize = 8;
/// Bytes of a URL, at most.
pub const SOURCE_URL_MAX: usize = 2048;
/// Bytes of an entity tag, at most, with its quotes.
pub const SOURCE_ETAG_MAX: usize = 1024;

const ETAG: &str = "etag ";
const SHA256: &str = "sha256 ";
const SHA256_LEN: usize = 32;

/// Where data comes from that is not here, and how it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Where it is; the later ones where the earlier ones do not give it.
    pub urls: Vec<String>,
    /// How many bytes it has.
    pub size: Option<u64>,
    /// What tells it from other data.
    pub validator: Validator,
}

/// What external data is known by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Validator {
    /// Nothing: whatever is there when it is fetched.
    #[default]
    None,
    /// The strong entity tag that its server gives it, with its quotes.
    Etag(String),
    /// Its SHA-256.
    Sha256([u8; 32]),
    /// Its own handle, a ref.
    Ref(Handle),
}

fn bad(why: &'static str) -> Error {
    Error::BadSource(why)
}

impl Source {
    /// Whether an application's procedure is the one that fetches.
    #[inline]
    pub fn is_fetched_by(procedure: Handle) -> bool {
        procedure.is_object() && procedure.literal_bytes() == Some(FETCH_PROCEDURE)
    }

    /// Reads the arguments of an application. `bytes` gives a blob's data.
    ///
    /// # Errors
    /// [`Error::BadSource`] for anything that [`Source::to_tree`] does not write.
    pub fn of_application<B: AsRef<[u8]>>(
        application: &Application<'_>,
        mut bytes: impl FnMut(Handle) -> Option<B>,
    ) -> Result<Self, Error> {
        let arguments: Vec<Handle> = application.arguments().take(4).collect();
        let &[urls, size, validator] = arguments.as_slice() else {
            return Err(bad("its arguments are not urls, size and validator"));
        };
        let mut text = |blob: Handle, max: usize, why| {
            if blob.kind() != Kind::Blob || blob.size() > max as u64 {
                return Err(bad(why));
            }
            let bytes = bytes(blob).ok_or(bad(why))?;
            String::from_utf8(bytes.as_ref().to_vec()).map_err(|_| bad(why))
        };
        let urls_max = SOURCE_URLS_MAX * (SOURCE_URL_MAX + 1);
        let urls = text(urls, urls_max, "its urls are no text, or too long")?;
        let urls: Vec<String> = urls.split('\n').map(str::to_owned).collect();
        let size = size.literal_bytes().filter(|_| size.is_object()).ok_or(bad("its size is no literal"))?;
        let size = match size {
            [] => None,
            bytes => Some(u64::from_le_bytes(bytes.try_into().map_err(|_| bad("its size is no number"))?)),
        };
        let validator = match validator.kind() {
            Kind::BlobRef => Validator::Ref(validator),
            _ => {
                Validator::read(&text(validator, SOURCE_ETAG_MAX + ETAG.len(), "its validator is no text")?)?
            }
        };
        let source = Self { urls, size, validator };
        source.check()?;
        Ok(source)
    }

    /// Whether it can be a source, as far as can be told without looking at the URLs.
    ///
    /// # Errors
    /// [`Error::BadSource`] with the reason.
    pub fn check(&self) -> Result<(), Error> {
        if self.urls.is_empty() || self.urls.len() > SOURCE_URLS_MAX {
            return Err(bad("it has no url, or more than 8"));
        }
        let is_url = |url: &String| {
            (1..=SOURCE_URL_MAX).contains(&url.len()) && url.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if !self.urls.iter().all(is_url) {
            return Err(bad(
                "a url is empty, over 2048 bytes, or has other characters than visible ones of ASCII",
            ));
        }
        match &self.validator {
            Validator::Etag(etag) if !is_strong(etag) => {
                Err(bad("its entity tag is not a strong one in quotes"))
            }
            Validator::Ref(handle) if handle.kind() != Kind::BlobRef => {
                Err(bad("its handle is no ref of a blob"))
            }
            Validator::Ref(handle) if self.size.is_some_and(|size| size != handle.size()) => {
                Err(bad("its size is not that of its handle"))
            }
            _ => Ok(()),
        }
    }

    /// How many bytes it has, if that is known.
    pub fn len(&self) -> Option<u64> {
        match self.validator {
            Validator::Ref(handle) => Some(handle.size()),
            _ => self.size,
        }
    }

    /// Whether it has no bytes, if that is known.
    pub fn is_empty(&self) -> Option<bool> {
        self.len().map(|len| len == 0)
    }

    /// Whether the same bytes come whenever it is fetched: it is known by what it
    /// hashes to, or its server has named it and how long it is.
    pub fn is_bound(&self) -> bool {
        match self.validator {
            Validator::None => false,
            Validator::Etag(_) => self.size.is_some(),
            Validator::Sha256(_) | Validator::Ref(_) => true,
        }
    }

    /// The tree whose application fetches it, and the blobs that it names, which are
    /// to be stored if they are no literals.
    pub fn to_tree(&self) -> (TreeBuilder, Vec<Vec<u8>>) {
        let urls = self.urls.join("\n").into_bytes();
        let size = self.size.map_or_else(|| Handle::blob(b""), Handle::u64);
        let text = match &self.validator {
            Validator::Ref(_) => Vec::new(),
            validator => validator.text().into_bytes(),
        };
        let validator = match self.validator {
            Validator::Ref(handle) => handle,
            _ => Handle::blob(&text),
        };
        let mut entries = [Handle::blob(b""); 5];
        entries[LIMITS_INDEX] = Handle::blob(b"");
        entries[PROCEDURE_INDEX] = Handle::blob(FETCH_PROCEDURE);
        entries[PROCEDURE_INDEX + 1] = Handle::blob(&urls);
        entries[PROCEDURE_INDEX + 2] = size;
        entries[PROCEDURE_INDEX + 3] = validator;
        (entries.into_iter().collect(), vec![urls, text])
    }
}

impl Validator {
    fn read(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Ok(Self::None);
        }
        if let Some(etag) = text.strip_prefix(ETAG) {
            return Ok(Self::Etag(etag.to_owned()));
        }
        let digest = text.strip_prefix(SHA256).and_then(sha256);
        digest.map(Self::Sha256).ok_or(bad("its validator is neither `etag` nor `sha256`"))
    }

    fn text(&self) -> String {
        match self {
            Self::None | Self::Ref(_) => String::new(),
            Self::Etag(etag) => format!("{ETAG}{etag}"),
            Self::Sha256(digest) => {
                digest.iter().fold(SHA256.to_owned(), |text, byte| format!("{text}{byte:02x}"))
            }
        }
    }
}

/// Reads 64 hexadecimal digits, in small letters.
pub fn sha256(text: &str) -> Option<[u8; SHA256_LEN]> {
    let mut digest = [0; SHA256_LEN];
    let (digits, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if digits.len() != SHA256_LEN || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in digest.iter_mut().zip(digits) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(digest)
}

/// Whether an entity tag is one that names bytes, not only what they mean.
fn is_strong(etag: &str) -> bool {
    let inner = etag.strip_prefix('"').and_then(|etag| etag.strip_suffix('"'));
    let is_char = |byte: u8| byte == b'!' || (b'#'..=b'~').contains(&byte);
    etag.len() <= SOURCE_ETAG_MAX && inner.is_some_and(|inner| inner.bytes().all(is_char))
}

#[cfg(test)]
mod tests;
