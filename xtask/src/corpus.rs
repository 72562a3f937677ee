// SPDX-License-Identifier: Apache-2.0
//! The demonstration's text: the kernel's documentation as Debian packages it,
//! concatenated in the order of the paths.
//!
//! Nothing is installed: packages are fetched and unpacked into `.demo`. The
//! stamp names what was made; without it everything is made again.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::progress::{mebibytes, note, step};
use crate::{layout, process};

/// Debian packages, in the order in which they are added until it is enough.
const PACKAGES: &[&str] = &["linux-doc-6.1", "gcc-12-doc", "openjdk-17-doc"];
/// Bytes that are enough for a demonstration.
const BYTES_MIN: u64 = 100_000_000;

/// Bytes of a line, at most: shards end behind lines, and are longer than this.
const LINE_BYTES_MAX: usize = 1 << 20;

/// The text.
pub(crate) struct Corpus {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// `cargo xtask corpus`.
pub(crate) fn run() -> anyhow::Result<()> {
    let corpus = make()?;
    note(format!("{}: {}", corpus.path.display(), mebibytes(corpus.bytes)));
    Ok(())
}

/// Makes it, unless it is there.
pub(crate) fn make() -> anyhow::Result<Corpus> {
    let demo = layout::demo();
    let (path, stamp) = (demo.join("corpus.txt"), demo.join("corpus.stamp"));
    if !is_made(&path, &stamp) {
        step("fetching the corpus", || fetch(&demo, &path, &stamp))?;
    }
    let bytes = fs::metadata(&path)?.len();
    Ok(Corpus { path, bytes })
}

/// The stamp is written last, and says how long the text is.
fn is_made(text: &Path, stamp: &Path) -> bool {
    let Ok(bytes) = fs::metadata(text).map(|metadata| metadata.len()) else { return false };
    fs::read_to_string(stamp).is_ok_and(|stamped| stamped.ends_with(&format!(" {bytes} bytes\n")))
}

fn fetch(demo: &Path, text: &Path, stamp: &Path) -> anyhow::Result<()> {
    let sources = demo.join("corpus-src");
    layout::remove(&sources)?;
    fs::create_dir_all(&sources)?;
    let mut names = Vec::new();
    let mut bytes = 0;
    for package in PACKAGES {
        names.push(unpack(package, &sources)?);
        bytes = concatenate(&sources.join("root"), text)?;
        note(format!("{}: {} of text so far", names[names.len() - 1], mebibytes(bytes)));
        if bytes >= BYTES_MIN {
            break;
        }
    }
    if bytes < BYTES_MIN {
        bail!("{} have only {bytes} bytes of text; {BYTES_MIN} are wanted", PACKAGES.join(", "));
    }
    layout::remove(&sources)?;
    // Last of all: from here on, it is there.
    Ok(fs::write(stamp, format!("{}: {bytes} bytes\n", names.join(", ")))?)
}

/// Fetches a package and unpacks it below `root`; returns its file's name.
fn unpack(package: &str, sources: &Path) -> anyhow::Result<String> {
    let mut apt = process::command("apt-get");
    apt.current_dir(sources).args(["download", "-qq", package]);
    // As root, apt would give the download to a user who may not write here.
    apt.args(["-o", "APT::Sandbox::User=root"]);
    if process::run(&mut apt).is_err() {
        process::run(process::command("apt-get").args(["update", "-qq"]))?;
        process::run(&mut apt).with_context(|| {
            format!("the demonstration needs Debian's package {package}; try `apt-get download {package}`")
        })?;
    }
    let is_it = |name: &str| name.starts_with(&format!("{package}_")) && name.ends_with(".deb");
    let mut names = fs::read_dir(sources)?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let name = names.find(|name| is_it(name)).with_context(|| format!("apt left no {package}_….deb"))?;
    let mut dpkg = process::command("dpkg-deb");
    dpkg.arg("-x").arg(sources.join(&name)).arg(sources.join("root"));
    process::run(&mut dpkg)?;
    Ok(name)
}

/// Writes all texts below `folder` into one, and returns its length.
fn concatenate(folder: &Path, target: &Path) -> anyhow::Result<u64> {
    let mut paths = Vec::new();
    collect(folder, &mut paths)?;
    paths.sort();
    let mut out = BufWriter::new(File::create(target)?);
    for path in paths {
        let bytes = if path.extension().is_some_and(|extension| extension == "gz") {
            let mut gzip = process::command("gzip");
            gzip.arg("-dc").arg(&path);
            process::output_bytes(&mut gzip)?
        } else {
            fs::read(&path)?
        };
        if !is_text(&bytes) {
            continue;
        }
        out.write_all(&bytes)?;
        // A file's last line must not join the next file's first.
        if bytes.last().is_some_and(|&last| last != b'\n') {
            out.write_all(b"\n")?;
        }
    }
    out.flush()?;
    Ok(fs::metadata(target)?.len())
}

/// Neither pictures nor what has lines that no shard could hold, such as the
/// search index.
fn is_text(bytes: &[u8]) -> bool {
    !bytes.contains(&0) && bytes.split(|&byte| byte == b'\n').all(|line| line.len() <= LINE_BYTES_MAX)
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            collect(&entry.path(), paths)?;
        } else if kind.is_file() {
            paths.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
