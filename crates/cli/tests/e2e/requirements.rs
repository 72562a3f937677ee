// SPDX-License-Identifier: Apache-2.0
//! Packages with native code, installed when a function is deployed and called
//! in its container. Where no registry can be reached, these tests skip.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::functions::is_root;
use super::later_python::fetched;
use super::{Node, home, workflows};

/// Whether packages can be fetched: their own clients are asked.
pub(super) fn reaches(program: &str, arguments: &[&str]) -> bool {
    let reached = Command::new(program).args(arguments).output().is_ok_and(|asked| asked.status.success());
    if !reached {
        eprintln!("skipped: {program} reaches no registry");
    }
    reached
}

/// The programs of a virtual environment with these packages, made once; it has them if
/// `modules` can be imported. Not below `/tmp`, which containers have of their own.
pub(super) fn environment(name: &str, modules: &str, packages: &[&str]) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let python = root.join("bin/python3");
    let does = |program: &Path, arguments: &[&str]| {
        Command::new(program).args(arguments).output().is_ok_and(|done| done.status.success())
    };
    let has_them = does(&python, &["-c", &format!("import {modules}")])
        || does(Path::new("python3"), &["-m", "venv", "--clear", root.to_str()?])
            && does(&python, &[&["-m", "pip", "install", "--quiet"], packages].concat());
    has_them.then(|| root.join("bin"))
}

/// A Python that speaks to AWS, and stands for parts of it.
pub(super) fn python_with_aws() -> Option<&'static Path> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    let packages = ["moto[server,s3,iam]==5.2.1", "boto3==1.43.11"];
    let python =
        PYTHON.get_or_init(|| Some(environment("aws", "boto3, moto.server", &packages)?.join("python3")));
    if python.is_none() {
        eprintln!("skipped: {packages:?} cannot be fetched");
    }
    python.as_deref()
}

impl Node {
    /// Deploys, with a cache of the test's own; what goes to stderr.
    pub(super) fn install(&self, folder: &Path) -> Result<String, String> {
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
    // Each instance loads them itself, which takes long: what would help is told.
    assert!(told.contains("imports = [\"numpy\", \"pandas\", \"lxml.etree\"]\n"), "{told}");
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
    // A third one is forked with them loaded, from where it brings them.
    let source = "import sys\nloaded = 'pandas' in sys.modules\nimport pandas\n\
        def handler(event, context):\n    return [loaded, pandas.__file__, sum(map(int, pandas.Series([1, 2])))]\n";
    let third = node.python("third", "memory = \"512MiB\"\nimports = [\"pandas\"]\n", source);
    std::fs::copy(folder.join("requirements.txt"), third.join("requirements.txt")).unwrap();
    assert!(!node.install(&third).unwrap().contains("hint"), "it names some");
    assert_eq!(node.call("third", &json!({})), (200, json!([true, "/layers/0/pandas/__init__.py", 3])));
    // What there is not is told with pip's own words.
    std::fs::write(other.join("requirements.txt"), "numpy==0.0.0.1\n").unwrap();
    let told = node.install(&other).unwrap_err();
    assert!(told.contains("pip install failed") && told.contains("No matching distribution"), "{told}");
    assert_eq!(node.call("other", &json!({})), expected, "the version before serves");
}

#[test]
fn packages_are_for_the_python_that_the_node_runs() {
    if !is_root() || !reaches("python3", &["-m", "pip", "index", "versions", "six"]) {
        return;
    }
    let Some(python) = fetched("3.14", &[]) else { return };
    let home = home();
    let python = python.to_str().unwrap();
    let node = Node::start_with(home.path(), &["--listen", "127.0.0.1:0", "--python", python]);
    let source = "import os, sys\nimport lib, markupsafe._speedups as native\n\
        def handler(event, context):\n    \
        return [sys.version_info[:2], native.__file__, os.path.exists(lib.__cached__), str(native._escape_inner('<'))]\n";
    let folder = node.python("later", "layers = [\"own\"]\n", source);
    std::fs::create_dir(folder.join("own")).unwrap();
    std::fs::write(folder.join("own/lib.py"), "x = 1\n").unwrap();
    std::fs::write(folder.join("requirements.txt"), "markupsafe==3.0.3\n").unwrap();
    // Where the checkout lies in others' folders, nothing is run there that the node names; then it is found by its name.
    let usual = std::env::var_os("PATH").unwrap();
    let own = Path::new(python).parent().unwrap().to_owned();
    let programs = std::iter::once(own).chain(std::env::split_paths(&usual));
    let mut deploy = node.command(&["deploy", folder.to_str().unwrap()]);
    deploy.env("XDG_CACHE_HOME", home.path().join("cache"));
    let done = deploy.env("PATH", std::env::join_paths(programs).unwrap()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let (status, told) = node.call("later", &json!({}));
    assert_eq!((status, &told[0], &told[3]), (200, &json!([3, 14]), &json!("&lt;")), "{told}");
    // Native code, and what is compiled of modules.
    assert!(told[1].as_str().unwrap().contains(".cpython-314-"), "{told}");
    assert_eq!(told[2], json!(true), "compiled for that one: {told}");
}

#[test]
fn modules_are_imported_as_they_were_compiled_when_deployed() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    // With the compiler of modules out of order, only what is compiled can be imported.
    let source = "import importlib.machinery as machinery\n\
        def refuse(*_): raise RuntimeError('compiled again')\n\
        machinery.SourceFileLoader.source_to_code = refuse\n\
        def handler(event, context):\n    import lib, own\n    \
        try:\n        lib.fail()\n    except ValueError as error:\n        \
        return [own.x, error.__traceback__.tb_next.tb_frame.f_code.co_filename, lib.__cached__ is not None]\n";
    let folder = node.python("vendored", "layers = [\"first\", \"second\"]\n", source);
    for (name, text) in [
        ("own.py", "x = 7\n"),
        ("first/other.py", "import lib\n"),
        ("second/lib.py", "def fail():\n    raise ValueError\n"),
        ("sinew.ignored", ""),
    ] {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let first = node.deploy(&folder);
    assert_eq!(node.call("vendored", &json!({})), (200, json!([7, "/layers/1/lib.py", true])));
    // Made again, in another place, at another time: the same.
    for module in ["main.py", "own.py", "second/lib.py"] {
        let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(99);
        std::fs::File::open(folder.join(module)).unwrap().set_modified(long_ago).unwrap();
    }
    let moved = home.path().join("moved");
    std::fs::rename(&folder, &moved).unwrap();
    node.install(&moved).unwrap();
    let again = node.deploy(&moved);
    assert_eq!((&again["deployment"], &again["changed"]), (&first["deployment"], &json!(false)));
}

/// What is below a folder, with its number on the disk.
fn files_below(folder: &Path) -> Vec<(PathBuf, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            found.push((entry.path(), entry.metadata().unwrap().ino()));
            folders.extend(Some(entry.path()).filter(|path| path.is_dir()));
        }
    }
    found.sort();
    found
}

#[test]
fn what_a_function_brings_is_written_out_once_whenever_the_node_starts() {
    if !is_root() {
        return;
    }
    let home = home();
    let layers = home.path().join("layers");
    let mut node = Node::start(home.path());
    let source = "import lib\ndef handler(event, context):\n    return [lib.x, lib.__file__]\n";
    let folder = node.python("brings", "layers = [\"own\"]\nkeep-alive = 0\n", source);
    std::fs::create_dir(folder.join("own")).unwrap();
    std::fs::write(folder.join("own/lib.py"), "x = 7\n").unwrap();
    node.deploy(&folder);
    let expected = (200, json!([7, "/layers/0/lib.py"]));
    assert_eq!(node.call("brings", &json!({})), expected);
    let written = files_below(&layers);
    assert!(written.iter().any(|(path, _)| path.ends_with("lib.py")), "{written:?}");
    for is_killed in [true, false] {
        if is_killed {
            node.kill();
        } else {
            assert_eq!(node.terminate(), 0);
        }
        assert_eq!(files_below(&layers), written, "killed: {is_killed}");
        node = Node::start(home.path());
        assert_eq!(node.call("brings", &json!({})), expected);
        assert_eq!(files_below(&layers), written, "killed: {is_killed}");
    }
    // What somebody has written to meanwhile no function sees.
    assert_eq!(node.terminate(), 0);
    let (changed, _) = written.iter().find(|(path, _)| path.ends_with("lib.py")).unwrap();
    std::fs::write(changed, "x = 8\n").unwrap();
    node = Node::start(home.path());
    assert_eq!(node.call("brings", &json!({})), expected);
}

#[test]
fn modules_that_a_function_brings_are_loaded_before_it_is_forked() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let put = |folder: &Path, files: &[(&str, &str)]| {
        for (name, text) in files {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    };
    let source = "import lib\ndef handler(event, context):\n    return [lib.drawn, lib.__file__]\n";
    let folder = node.python("brings", "layers = [\"own\"]\nimports = [\"lib\"]\n", source);
    put(&folder, &[("own/lib.py", "import os\ndrawn = os.urandom(8).hex()\n")]);
    node.deploy(&folder);
    let first = node.call("brings", &json!({}));
    assert_eq!((first.0, &first.1[1]), (200, &json!("/layers/0/lib.py")));
    // Another version, with other code and the same layer, is forked from the same template.
    put(&folder, &[("main.py", &format!("{source}# Changed.\n"))]);
    node.deploy(&folder);
    assert_eq!(node.call("brings", &json!({})), first);
    // With another layer, from another one.
    put(&folder, &[("own/lib.py", "import os\ndrawn = os.urandom(8).hex()\n# Changed.\n")]);
    node.deploy(&folder);
    let other = node.call("brings", &json!({}));
    assert!(other.0 == 200 && other != first, "{other:?}");
    // What cannot be loaded is refused, with what it says; the version before serves.
    put(&folder, &[("own/lib.py", "raise ValueError('not today')\n")]);
    let refused = node.run(&["deploy", folder.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("cannot import lib: ValueError: not today"), "{told}");
    assert_eq!(node.call("brings", &json!({})), other);
    // What keeps a template from forking is loaded by each instance itself.
    let threads = "import os, threading, time\ndrawn = os.urandom(8).hex()\n\
        threading.Thread(target=time.sleep, args=(99,), daemon=True).start()\n";
    put(&folder, &[("own/lib.py", threads)]);
    node.deploy(&folder);
    assert_eq!(node.call("brings", &json!({})).0, 200);
    let folder = home.path().join("source-ships");
    put(
        &folder,
        &[
            (
                "sinew.toml",
                "[functions.ships]\nruntime = \"node\"\nlayers = [\"own\"]\nimports = [\"lib\"]\n",
            ),
            ("index.js", "const { drawn } = require('lib');\nexports.handler = async () => drawn;\n"),
            ("own/node_modules/lib/index.js", "exports.drawn = require('crypto').randomUUID();\n"),
        ],
    );
    node.deploy(&folder);
    let first = node.call("ships", &json!({}));
    assert_eq!(first.0, 200);
    put(&folder, &[("index.js", "import lib from 'lib';\nexport const handler = async () => lib.drawn;\n")]);
    std::fs::rename(folder.join("index.js"), folder.join("index.mjs")).unwrap();
    node.deploy(&folder);
    assert_eq!(node.call("ships", &json!({})), first, "an ES module finds what CommonJS has loaded");
}

/// A workflow whose steps find what they bring loaded, in one template, and may share memory.
const BRINGS: &str = "import mmap\nfrom sinew import function, workflow\nimport lib\n\n\
    @function()\ndef make(count):\n    return lib.drawn, list(range(count))\n\n\
    @function()\ndef take(made):\n    with mmap.mmap(-1, 4096) as page:\n        page[0] = 7\n    \
    return [made[0] == lib.drawn, sum(made[1])]\n\n\
    @workflow\ndef brings(event):\n    return take(make(event))\n";

/// Runs it; its run.
pub(crate) fn run_what_brings(node: &Node, folder: &Path) -> Value {
    std::fs::create_dir_all(folder.join("own")).unwrap();
    let manifest = "[functions.brings]\nruntime = \"python\"\nhandler = \"main.brings\"\nworkflow = true\n\
        memory = \"128MiB\"\nlayers = [\"own\"]\nimports = [\"lib\"]\n";
    let module = "import os\ndrawn = os.urandom(8).hex()\n";
    for (name, text) in [("sinew.toml", manifest), ("main.py", BRINGS), ("own/lib.py", module)] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    node.deploy(folder);
    let count: u64 = 200_000;
    assert_eq!(workflows::result(node, "brings", &json!(count)), json!([true, count * (count - 1) / 2]));
    workflows::last(node, "brings")
}

/// What it makes is mapped, as where the node's own packages are imported.
#[test]
fn a_workflow_that_imports_what_it_brings_hands_memory_over() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let run = run_what_brings(&node, &home.path().join("source-brings"));
    let made = run["graph"].as_array().unwrap().iter().find(|step| step["function"] == "main.make").unwrap();
    assert_eq!(made["is_mapped"], true, "{made}");
}

/// What is loaded before the fork shares memory with instances, and keeps more of it than all may
/// have together. All end, and from then on each instance loads it itself.
#[test]
fn a_template_that_keeps_memory_of_instances_is_given_up() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let source =
        "import lib\n\ndef handler(event, context):\n    lib.fill(event['at'])\n    return lib.drawn\n";
    let settings = "layers = [\"own\"]\nimports = [\"lib\"]\nmemory = \"256MiB\"\nkeep-alive = 0\n";
    let folder = node.python("keeps", settings, source);
    std::fs::create_dir(folder.join("own")).unwrap();
    let module = "import mmap, os\ndrawn, shared, fork = os.urandom(8).hex(), None, os.fork\n\n\
        def late():\n    global shared\n    if shared is None:\n        shared = mmap.mmap(-1, 2 << 30)\n    \
        return fork()\n\nos.fork = late\n\n\
        def fill(at):\n    for page in range(at << 20, (at + 150) << 20, 4096) if shared and at >= 0 else ():\n        \
        shared[page] = 1\n";
    std::fs::write(folder.join("own/lib.py"), module).unwrap();
    node.deploy(&folder);
    let drawn = |at: i32| {
        let (status, drawn) = node.call("keeps", &json!({"at": at}));
        assert_eq!(status, 200, "{drawn}");
        drawn
    };
    let (first, began) = (drawn(-1), Instant::now());
    for at in [0, 150, 300, 450, 600] {
        assert_eq!(drawn(at), first, "of the template");
    }
    // The template may have 256 MiB, and the store 640: 750 are not too much, and 1050 are.
    std::thread::sleep(Duration::from_millis(4500));
    assert_eq!(drawn(750), first, "it is given up too soon");
    drawn(900);
    // It may be ended while it is asked.
    let answer = |node: &Node| node.call("keeps", &json!({"at": -1}));
    while answer(&node) == answer(&node) {
        assert!(began.elapsed() < Duration::from_secs(60), "nobody saw it");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_ne!(drawn(-1), drawn(-1), "each has its own");
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
