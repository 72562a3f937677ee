// SPDX-License-Identifier: Apache-2.0
//! The compiler and what it compiles, fetched once and checked.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

/// Where, the SHA-256, and the folder that its contents are to lie in.
const ARCHIVES: [(&str, &str, &str); 3] = [
    (
        "https://registry.npmjs.org/@yowasp/clang/-/clang-22.0.0-git20542-10.tgz",
        "6230ea1afa9691fa065935cf68c01642ff9b31c183fe8ac64cdfda025df06009",
        "clang",
    ),
    (
        "http://deb.debian.org/debian/pool/main/libt/libtomcrypt/libtomcrypt_1.18.2.orig.tar.xz",
        "96ad4c3b8336050993c5bc2cf6c057484f2b0f9f763448151567fbab5e767b84",
        "ltc",
    ),
    (
        "http://deb.debian.org/debian/pool/main/libt/libtommath/libtommath_1.2.0.orig.tar.xz",
        "b7c75eecf680219484055fcedd686064409254ae44bc31a96c5032843c0e18b1",
        "ltm",
    ),
];

/// What the program is that comes of it: the library is asked for known answers.
const MAIN: &str = r#"#include <stdio.h>
#include <tomcrypt.h>

static int known(const char *what, int error)
{
	printf("%s: %s\n", what, error_to_string(error));
	return error != CRYPT_OK;
}

int main(void)
{
	ecc_key key;
	prng_state prng;
	unsigned char digest[32] = { 7 }, signature[128];
	unsigned long len = sizeof signature;
	int number, valid = 0, failed = 0;

	ltc_mp = ltm_desc;
	failed += known("sha256", sha256_test());
	failed += known("aes", aes_test());
	failed += known("chacha20", chacha_test());
	register_prng(&sprng_desc);
	number = register_prng(&fortuna_desc);
	if (fortuna_start(&prng) || fortuna_add_entropy(digest, 32, &prng) || fortuna_ready(&prng))
		return 2;
	failed += known("ecc key", ecc_make_key(&prng, number, 32, &key));
	failed += known("sign", ecc_sign_hash(digest, 32, signature, &len, &prng, number, &key));
	failed += known("verify", ecc_verify_hash(signature, len, digest, 32, &valid, &key));
	printf("valid: %d\n", valid);
	return failed || !valid;
}
"#;
/// What it prints.
pub(super) const SAID: &str = "sha256: CRYPT_OK\naes: CRYPT_OK\nchacha20: CRYPT_OK\necc key: CRYPT_OK\nsign: CRYPT_OK\nverify: CRYPT_OK\nvalid: 1\n";

/// Where all of it lies.
pub(super) struct Sources {
    pub(super) root: PathBuf,
    pub(super) llvm: PathBuf,
    /// What is compiled, from the folder with the sources on.
    pub(super) files: Vec<PathBuf>,
}

impl Sources {
    pub(super) fn get() -> anyhow::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench-compile");
        std::fs::create_dir_all(&root)?;
        let root = root.canonicalize()?;
        for (url, sha, folder) in ARCHIVES {
            fetch(&root, url, sha, folder)?;
        }
        let (clang, usr) = (root.join("clang"), root.join("usr"));
        if !usr.join("lib").exists() {
            unpack(&clang.join("gen/llvm-resources.tar"), &usr, 0)?;
        }
        std::fs::create_dir_all(root.join("main"))?;
        std::fs::write(root.join("main/main.c"), MAIN)?;
        let mut files = found(&root, Path::new("ltc/src"), true)?;
        files.retain(|path| !path.to_string_lossy().ends_with("tab.c"));
        files.extend(found(&root, Path::new("main"), true)?);
        files.extend(found(&root, Path::new("ltm"), false)?);
        ensure!(files.len() > 500, "only {} files to compile", files.len());
        Ok(Self { llvm: clang.join("gen/llvm.core.wasm"), root, files })
    }

    /// A copy of the sources, for one way to compile them.
    #[expect(clippy::disallowed_methods, reason = "cp copies folders")]
    pub(super) fn copy(&self, name: &str) -> anyhow::Result<PathBuf> {
        let folder = self.root.join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir(&folder)?;
        for part in ["ltc", "ltm", "main", "usr"] {
            let told = Command::new("cp").arg("-r").arg(self.root.join(part)).arg(&folder).status()?;
            ensure!(told.success(), "cp cannot copy {part}");
        }
        Ok(folder)
    }

    /// Changes one file of a copy.
    pub(super) fn change(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let file = self.files.first().context("no files")?;
        let path = folder.join(file);
        let text = std::fs::read_to_string(&path)?;
        std::fs::write(&path, format!("{text}\nint sinew_changed(void) {{ return 1; }}\n"))?;
        Ok(file.clone())
    }
}

/// C files of a folder, sorted.
fn found(root: &Path, folder: &Path, deep: bool) -> anyhow::Result<Vec<PathBuf>> {
    of_kind(root, folder, deep, "c")
}

/// All objects below a folder, from there on.
pub(super) fn objects(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    of_kind(folder, Path::new(""), true, "o")
}

fn of_kind(root: &Path, folder: &Path, deep: bool, kind: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut entries: Vec<_> = std::fs::read_dir(root.join(folder))?.collect::<Result<_, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let mut files = Vec::new();
    for entry in entries {
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            if deep {
                files.extend(of_kind(root, &path, deep, kind)?);
            }
        } else if path.extension().is_some_and(|end| end == kind) {
            files.push(path);
        }
    }
    Ok(files)
}

/// Fetches an archive, checks it and unpacks it without its first folder.
#[expect(clippy::disallowed_methods, reason = "curl fetches, sha256sum checks")]
fn fetch(root: &Path, url: &str, sha: &str, folder: &str) -> anyhow::Result<()> {
    let to = root.join(folder);
    if to.exists() {
        return Ok(());
    }
    eprintln!("  fetching {url}");
    let archive = root.join(format!("{folder}.archive"));
    let told =
        Command::new("curl").args(["-sSfL", "--max-time", "300", "-o"]).arg(&archive).arg(url).output();
    let told = told.context("curl cannot be run; apt-get install curl")?;
    ensure!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let sum = Command::new("sha256sum").arg(&archive).output()?;
    let sum = String::from_utf8_lossy(&sum.stdout).split(' ').next().unwrap_or_default().to_owned();
    ensure!(sum == sha, "{url} has the SHA-256 {sum} and not {sha}");
    unpack(&archive, &to, 1)
}

/// Unpacks beside the place first, so that what is there is whole.
#[expect(clippy::disallowed_methods, reason = "tar unpacks")]
fn unpack(archive: &Path, to: &Path, strip: usize) -> anyhow::Result<()> {
    let partial = to.with_extension("partial");
    _ = std::fs::remove_dir_all(&partial);
    std::fs::create_dir_all(&partial)?;
    let mut tar = Command::new("tar");
    let told = tar
        .arg("xf")
        .arg(archive)
        .arg(format!("--strip-components={strip}"))
        .arg("-C")
        .arg(&partial)
        .output()?;
    ensure!(told.status.success(), "tar: {}", String::from_utf8_lossy(&told.stderr));
    std::fs::rename(&partial, to)?;
    Ok(())
}
