// SPDX-License-Identifier: Apache-2.0
//! Which files of a directory are a function's code.
//!
//! Patterns are those of `.gitignore`: `*`, `?`, `[a-z]` and `**`; a slash
//! at the beginning or within ties a pattern to the directory's root, one at the
//! end means directories only, `!` in front takes back what was left out.

use std::ops::Range;

/// Characters of a pattern, at most; matching takes time in proportion.
const PATTERN_CHARS_MAX: usize = 1024;
/// Lines of a `.sinewignore`, at most.
const LINES_MAX: usize = 10_000;

/// What is never code unless `include` names it.
const LEFT_OUT: [&str; 18] = [
    ".sinew",
    ".gitignore",
    ".git",
    ".hg",
    ".svn",
    "__pycache__",
    "*.pyc",
    ".venv",
    "/venv",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".DS_Store",
    "/sinew.toml",
    "/.sinewignore",
    // On a node functions have the node's own.
    "/sinew.py",
    "/sinew.pyi",
    "/sinew.schema.json",
];

/// What looks like a secret by its name. Everybody who may read the node's
/// objects could read it, so it is left out, and told, also if `include`
/// names it; a `!pattern` takes it nevertheless.
const SECRETS: [&str; 18] = [
    ".env",
    ".env.*",
    "!.env.example",
    "!.env.sample",
    "!.env.template",
    ".envrc",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".aws/",
    ".ssh/",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "*.p12",
    "*.pfx",
];

/// What becomes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is code, or may hold some.
    Taken,
    /// It is none.
    LeftOut,
    /// It would be, but its name is one of [`SECRETS`].
    Secret,
}

/// One pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glob {
    /// Parts between slashes; an unanchored pattern begins with `**`.
    parts: Vec<Vec<char>>,
    directories_only: bool,
    takes_back: bool,
}

impl Glob {
    /// Reads a pattern.
    ///
    /// # Errors
    /// One that is empty or too long, or has `..` in it.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let (takes_back, rest) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
        let (directories_only, rest) = rest.strip_suffix('/').map_or((false, rest), |rest| (true, rest));
        let rest = rest.strip_prefix("./").map_or(rest.to_owned(), |rest| format!("/{rest}"));
        let is_tied = rest.contains('/');
        let mut parts: Vec<Vec<char>> =
            rest.split('/').filter(|part| !part.is_empty()).map(|part| part.chars().collect()).collect();
        if parts.is_empty() || rest.chars().count() > PATTERN_CHARS_MAX {
            return Err(format!(
                "a pattern has 1 to {PATTERN_CHARS_MAX} characters, like \"tests/**\" or \"*.log\""
            ));
        }
        if parts.iter().any(|part| *part == ['.', '.']) {
            return Err("a pattern stays within the source: it cannot contain `..`".to_owned());
        }
        if !is_tied {
            parts.insert(0, vec!['*', '*']);
        }
        Ok(Self { parts, directories_only, takes_back })
    }

    /// Whether a path, relative and with slashes, is meant.
    pub(crate) fn matches(&self, path: &str, is_directory: bool) -> bool {
        if self.directories_only && !is_directory {
            return false;
        }
        let names: Vec<Vec<char>> = path.split('/').map(|name| name.chars().collect()).collect();
        // Row by row: whether the parts so far match the names so far.
        let mut row = vec![false; names.len() + 1];
        row[0] = true;
        for (at, part) in self.parts.iter().enumerate() {
            let mut next = vec![false; names.len() + 1];
            let is_any = *part == ['*', '*'];
            // `a/**` means what is in `a`, not `a` itself.
            let is_last = at + 1 == self.parts.len();
            for count in 0..=names.len() {
                next[count] = match (is_any, count.checked_sub(1)) {
                    (true, None) => row[0] && !is_last,
                    (true, Some(before)) => next[before] || row[before] || (row[count] && !is_last),
                    (false, None) => false,
                    (false, Some(before)) => row[before] && matches_name(part, &names[before]),
                };
            }
            row = next;
        }
        row[names.len()]
    }
}

/// `*`, `?` and `[…]` against one name.
pub(crate) fn matches_name(pattern: &[char], name: &[char]) -> bool {
    let (mut at, mut place) = (0, 0);
    // Where to go on if the rest does not match: behind the last star.
    let mut retry: Option<(usize, usize)> = None;
    while place < name.len() {
        let step = match pattern.get(at) {
            Some('*') => {
                retry = Some((at + 1, place));
                at += 1;
                continue;
            }
            Some('?') => Some(1),
            Some('[') => class(&pattern[at..], name[place]),
            Some(literal) => (*literal == name[place]).then_some(1),
            None => None,
        };
        match (step, retry) {
            (Some(length), _) => {
                at += length;
                place += 1;
            }
            (None, Some((behind, from))) => {
                retry = Some((behind, from + 1));
                at = behind;
                place = from + 1;
            }
            (None, None) => return false,
        }
    }
    pattern[at..].iter().all(|&character| character == '*')
}

/// The length of a class `[…]` if the character is in it. Without an end it is a bracket.
fn class(pattern: &[char], character: char) -> Option<usize> {
    let negated = matches!(pattern.get(1), Some('!' | '^'));
    let first = 1 + usize::from(negated);
    let Some(end) = pattern.iter().skip(first + 1).position(|&one| one == ']').map(|at| first + 1 + at)
    else {
        return (character == '[').then_some(1);
    };
    let inside = &pattern[first..end];
    let mut found = false;
    let mut at = 0;
    while at < inside.len() {
        match (inside.get(at + 1), inside.get(at + 2)) {
            (Some('-'), Some(&last)) => {
                found |= (inside[at]..=last).contains(&character);
                at += 3;
            }
            _ => {
                found |= inside[at] == character;
                at += 1;
            }
        }
    }
    (found != negated).then_some(end + 1)
}

/// The files that are taken.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selection {
    include: Vec<Glob>,
    /// Later ones win.
    exclude: Vec<Glob>,
    /// Which of `exclude` are [`SECRETS`].
    secrets: Range<usize>,
}

impl Selection {
    /// The defaults, then the lines of a `.sinewignore`, then the manifest's patterns.
    ///
    /// # Errors
    /// The number of a line, from 1, that is no pattern, and why.
    pub(crate) fn new(include: &[Glob], exclude: &[Glob], ignored: &str) -> Result<Self, (usize, String)> {
        // Whoever says what is taken, says it alone.
        let left_out: &[&str] = if include.is_empty() { &LEFT_OUT } else { &[] };
        let constant = |patterns: &[&str]| -> Vec<Glob> {
            patterns.iter().filter_map(|pattern| Glob::new(pattern).ok()).collect()
        };
        let mut all = constant(left_out);
        let first = all.len();
        all.extend(constant(&SECRETS));
        let secrets = first..all.len();
        for (at, line) in ignored.lines().enumerate() {
            let line = line.trim_end();
            if at >= LINES_MAX {
                return Err((at + 1, format!("the file has more than {LINES_MAX} lines")));
            }
            if !line.is_empty() && !line.starts_with('#') {
                all.push(Glob::new(line).map_err(|message| (at + 1, message))?);
            }
        }
        all.extend_from_slice(exclude);
        Ok(Self { include: include.to_vec(), exclude: all, secrets })
    }

    /// What becomes of a file, or of anything in a directory.
    pub(crate) fn verdict(&self, path: &str, is_directory: bool) -> Verdict {
        let last = self.exclude.iter().rposition(|glob| glob.matches(path, is_directory));
        // A directory may hold what is included, whatever its own name.
        let is_included = || is_directory || self.include.is_empty() || self.is_included(path);
        match last {
            Some(at) if !self.exclude[at].takes_back => {
                let is_secret = self.secrets.contains(&at) && is_included();
                if is_secret { Verdict::Secret } else { Verdict::LeftOut }
            }
            _ if is_included() => Verdict::Taken,
            _ => Verdict::LeftOut,
        }
    }

    /// Whether a `!pattern` of the user's takes a file, whatever it looks like.
    pub(crate) fn is_wanted(&self, path: &str) -> bool {
        let own = self.exclude.get(self.secrets.end..).unwrap_or_default();
        own.iter().rfind(|glob| glob.matches(path, false)).is_some_and(|glob| glob.takes_back)
    }

    /// A pattern for a directory takes all that is in it.
    fn is_included(&self, path: &str) -> bool {
        let directories = path.match_indices('/').map(|(at, _)| (&path[..at], true));
        directories
            .chain([(path, false)])
            .any(|(path, is_directory)| self.include.iter().any(|glob| glob.matches(path, is_directory)))
    }
}
