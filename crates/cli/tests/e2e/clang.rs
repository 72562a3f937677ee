// SPDX-License-Identifier: Apache-2.0
//! A C compiler as a program: codelets in C are compiled and linked by the node, and then applied by it. To compile
//! the compiler takes minutes and 2 GB, so that it is asked for: `SINEW_TEST_LARGE=1`. It stays in the target folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Node;
use super::requirements::reaches;

const PACKAGE: &str = "https://registry.npmjs.org/@yowasp/clang/-/clang-22.0.0-git20542-10.tgz";
const SHA256: &str = "6230ea1afa9691fa065935cf68c01642ff9b31c183fe8ac64cdfda025df06009";

/// The compiler and its headers, once for all runs of this test.
fn install(folder: &Path) {
    if folder.join("usr/lib").exists() {
        return;
    }
    fs::create_dir_all(folder.join("usr")).unwrap();
    let script = format!(
        "set -e; curl -sSfL -o clang.tgz {PACKAGE}; echo '{SHA256}  clang.tgz' | sha256sum -c --quiet -; \
         tar xzf clang.tgz; tar xf package/gen/llvm-resources.tar -C usr"
    );
    let done = Command::new("sh").args(["-c", &script]).current_dir(folder).status().unwrap();
    assert!(done.success(), "the package cannot be fetched, or is another one");
}

/// Compiles and links codelets inside of the node; where their modules lie then.
fn built(node: &Node, folder: &Path, seed: &str) -> PathBuf {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests");
    let headers = format!("{}=/h:ro", guests.join("wasm-c").display());
    let work = node.home.join(seed);
    fs::create_dir_all(work.join("bin")).unwrap();
    for name in ["add", "fib", "merge-counts"] {
        fs::copy(guests.join(format!("codelets/c/{name}.c")), work.join(format!("{name}.c"))).unwrap();
    }
    let usr = format!("{}=/usr:ro", folder.join("usr").display());
    let sinew = |arguments: &[&str]| {
        let done = node.command(arguments).current_dir(&work).output().unwrap();
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let mut map =
        vec!["map", "#llvm", "*.c", "--dir", &headers, "--dir", &usr, "--seed", seed, "--memory", "360MiB"];
    map.extend(["--out", "obj", "--label", seed, "--", "clang", "-c", "--target=wasm32", "-ffreestanding"]);
    map.extend([
        "-std=c17",
        "-O2",
        "-mbulk-memory",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-I/h",
        "{}",
        "-o",
        "/out/{.}.o",
    ]);
    sinew(&map);
    let objects = format!("#{seed}=/obj:ro");
    for name in ["add", "fib", "merge-counts"] {
        let (object, module) = (format!("/obj/{name}.o"), format!("/bin/{name}.wasm"));
        let mut link = vec![
            "run",
            "#llvm",
            "--memory",
            "360MiB",
            "--dir",
            &objects,
            "--dir",
            "bin=/bin",
            "--write-back",
        ];
        link.extend(["--", "wasm-ld", "--no-entry", "--export=apply", "--strip-all", "--stack-first"]);
        link.extend(["-z", "stack-size=16384", "--initial-memory=65536", &object, "-o", &module]);
        sinew(&link);
    }
    work.join("bin")
}

#[test]
fn codelets_are_compiled_and_linked_by_the_node_that_applies_them_bit_for_bit_the_same_twice() {
    if std::env::var_os("SINEW_TEST_LARGE").is_none() {
        eprintln!("skipped: SINEW_TEST_LARGE is not set, and this compiles 75 MB of code");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clang");
    if !folder.join("usr/lib").exists() && !reaches("curl", &["-sSfI", PACKAGE]) {
        return;
    }
    install(&folder);
    let home = folder.join("home");
    fs::create_dir_all(&home).unwrap();
    let node = Node::start(&home);
    node.ok(&["put", "--label", "llvm", folder.join("package/gen/llvm.core.wasm").to_str().unwrap()]);
    // Nothing is found again that an earlier run of the test left.
    let run = std::process::id();
    let (one, two) =
        (built(&node, &folder, &format!("one-{run}")), built(&node, &folder, &format!("two-{run}")));
    for name in ["add", "fib", "merge-counts"] {
        let read = |from: &Path| fs::read(from.join(format!("{name}.wasm"))).unwrap();
        assert!(read(&one).starts_with(b"\0asm") && read(&one) == read(&two), "{name} is not the same twice");
    }
    let of = |name: &str| format!("@{}", one.join(format!("{name}.wasm")).display());
    let sum = node.ok(&["eval", &format!("{}(20u8, 22u8)", of("add")), "--as", "u64"]);
    assert_eq!(sum.trim(), "42");
    let number = node.ok(&["eval", &format!("{}({}, 13u8)", of("fib"), of("add")), "--as", "u64"]);
    assert_eq!(number.trim(), "233");
}
