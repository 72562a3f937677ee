// SPDX-License-Identifier: Apache-2.0
//! Packages with native code, installed when a function is deployed and called
//! in its container. Where no registry can be reached, these tests skip.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::functions::is_root;
use super::{Node, home};

/// Whether packages can be fetched: their own clients are asked.
fn reaches(program: &str, arguments: &[&str]) -> bool {
    let reached = Command::new(program).args(arguments).output().is_ok_and(|asked| asked.status.success());
    if !reached {
        eprintln!("skipped: {program} reaches no registry");
    }
    reached
}

impl Node {
    /// Deploys, with a cache of the test's own; what goes to stderr.
    fn install(&self, folder: &Path) -> Result<String, String> {
        let mut deploy = self.command(&["deploy", folder.to_str().unwrap()]);
        let done = deploy.env("XDG_CACHE_HOME", self.home.join("cache")).output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        if done.status.success() { Ok(told) } else { Err(told) }
    }
}

#[test]
fn python_packages_with_native_code_are_installed_once_and_shared() {
    if !is_root() || !reaches("python3", &["-m", "pip", "index", "versions", "six"]) {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let source = "import io, numpy, pandas\nfrom lxml import etree\n\
        def handler(event, context):\n    frame = pandas.DataFrame({'a': numpy.arange(4)})\n    \
        root = etree.fromstring('<a><b/></a>')\n    return {'sum': int(frame.a.sum()), 'tag': root[0].tag}\n";
    let folder = node.python("science", "memory = \"512MiB\"\n", source);
    std::fs::write(folder.join("requirements.txt"), "numpy==2.4.6\npandas==3.1.1\nlxml==6.1.3\n").unwrap();
    let told = node.install(&folder).unwrap();
    assert!(told.contains("installing what requirements.txt of science asks for"), "{told}");
    let expected = (200, json!({"sum": 6, "tag": "b"}));
    assert_eq!(node.call("science", &json!({})), expected);
    assert_eq!(node.call("science", &json!({})), expected, "warm");
    let logs = node.ok(&["logs", "science", "-n", "1", "-o", "json"]);
    assert!(logs.contains("\"warm\""), "{logs}");
    // Another function with the same requirements.
    let other = node.python("other", "memory = \"512MiB\"\n", source);
    std::fs::copy(folder.join("requirements.txt"), other.join("requirements.txt")).unwrap();
    assert!(!node.install(&other).unwrap().contains("installing"));
    assert_eq!(node.call("other", &json!({})), expected);
    // What there is not is told with pip's own words.
    std::fs::write(other.join("requirements.txt"), "numpy==0.0.0.1\n").unwrap();
    let told = node.install(&other).unwrap_err();
    assert!(told.contains("pip install failed") && told.contains("No matching distribution"), "{told}");
    assert_eq!(node.call("other", &json!({})), expected, "the version before serves");
}

#[test]
fn an_addon_of_node_is_installed_and_loaded() {
    if !is_root() || !reaches("npm", &["view", "sharp@0.35.5", "version"]) {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let folder = home.path().join("source-image");
    std::fs::create_dir(&folder).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("sinew.toml", "[functions.image]\nruntime = \"node\"\nmemory = \"512MiB\"\n");
    write(
        "package.json",
        "{\"name\": \"image\", \"version\": \"1.0.0\", \"dependencies\": {\"sharp\": \"0.35.5\"}}",
    );
    write(
        "index.mjs",
        "import sharp from 'sharp';\nexport const handler = async () => {\n  \
         const made = await sharp({ create: { width: 3, height: 2, channels: 3, background: 'red' } }).png().toBuffer();\n  \
         const { width, height, format } = await sharp(made).metadata();\n  return { width, height, format };\n};\n",
    );
    let mut lock = Command::new("npm");
    let locked =
        lock.args(["install", "--package-lock-only", "--silent"]).current_dir(&folder).output().unwrap();
    assert!(locked.status.success(), "{locked:?}");
    let told = node.install(&folder).unwrap();
    assert!(told.contains("installing what package-lock.json"), "{told}");
    for _ in 0..2 {
        let expected = json!({"width": 3, "height": 2, "format": "png"});
        assert_eq!(node.call("image", &json!({})), (200, expected));
    }
    let logs = node.ok(&["logs", "image", "-n", "1", "-o", "json"]);
    assert!(logs.contains("\"warm\""), "{logs}");
}
