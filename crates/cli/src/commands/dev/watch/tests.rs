// SPDX-License-Identifier: Apache-2.0

use clap::Parser as _;

use super::*;
use crate::arguments::Arguments;
use crate::manifest::Glob;

fn output() -> Output {
    Output::new(&Arguments::parse_from(["sinew", "list"]).global)
}

/// The paths that one call of `changes` tells.
async fn paths(watch: &mut Watch) -> Vec<String> {
    let changes = watch.changes(&output()).await.unwrap();
    let mut paths: Vec<String> = changes.paths.unwrap().into_iter().collect();
    paths.sort();
    paths
}

#[tokio::test]
async fn what_somebody_edits_is_told_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for directory in ["lib", "node_modules/a", ".git", ".sinew", "dist", "__pycache__"] {
        std::fs::create_dir_all(path(directory)).unwrap();
    }
    std::fs::write(path(".gitignore"), "dist/\n*.log\n").unwrap();
    std::fs::write(path("main.py"), "1").unwrap();
    let mut watch = Watch::new(folder.path()).unwrap();
    let quiet = [
        "node_modules/a/x.js",
        ".git/index",
        ".sinew/node.sock",
        "dist/a.js",
        "a.log",
        "__pycache__/a.pyc",
        ".main.py.swp",
    ];
    for name in quiet {
        std::fs::write(path(name), "2").unwrap();
    }
    // To read is no change.
    std::fs::read(path("main.py")).unwrap();
    std::fs::write(path("main.py"), "2").unwrap();
    assert_eq!(paths(&mut watch).await, ["main.py"]);
    std::fs::write(path("sinew.toml"), "").unwrap();
    std::fs::write(path("lib/a.py"), "").unwrap();
    assert_eq!(paths(&mut watch).await, ["lib/a.py", "sinew.toml"]);
}

#[tokio::test]
async fn new_directories_are_watched_and_what_a_gitignore_says_now() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut watch = Watch::new(folder.path()).unwrap();
    std::fs::create_dir(path("new")).unwrap();
    assert_eq!(paths(&mut watch).await, ["new"]);
    std::fs::write(path("new/a.py"), "1").unwrap();
    assert_eq!(paths(&mut watch).await, ["new/a.py"]);
    std::fs::write(path(".gitignore"), "new/\n").unwrap();
    assert_eq!(paths(&mut watch).await, [".gitignore"]);
    std::fs::write(path("new/a.py"), "2").unwrap();
    std::fs::write(path("b.py"), "2").unwrap();
    assert_eq!(paths(&mut watch).await, ["b.py"]);
}

#[tokio::test]
async fn a_file_that_is_replaced_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("main.py"), "1").unwrap();
    let mut watch = Watch::new(folder.path()).unwrap();
    // As many editors do.
    std::fs::write(path("main.py~"), "2").unwrap();
    std::fs::rename(path("main.py~"), path("main.py")).unwrap();
    assert_eq!(paths(&mut watch).await, ["main.py"]);
    std::fs::remove_file(path("main.py")).unwrap();
    assert_eq!(paths(&mut watch).await, ["main.py"]);
}

#[test]
fn a_build_is_concerned_by_what_it_watches() {
    let changes = |paths: &[&str]| Changes {
        since: Instant::now(),
        paths: Some(paths.iter().map(|&path| path.to_owned()).collect()),
    };
    let build = |watch: &[&str], output: Option<&str>| Build {
        command: "make".to_owned(),
        watch: watch.iter().map(|glob| Glob::new(glob).unwrap()).collect(),
        output: output.map(str::to_owned),
    };
    assert!(changes(&["src/a.ts"]).concern(&build(&["src/**"], None)));
    assert!(!changes(&["README.md"]).concern(&build(&["src/**"], None)));
    // A build that does not say: everything but what it writes itself.
    assert!(changes(&["a.go"]).concern(&build(&[], Some("bin"))));
    assert!(!changes(&["bin/hello"]).concern(&build(&[], Some("./bin/"))));
    assert!(changes(&["binary.go"]).concern(&build(&[], Some("bin"))));
    assert!(Changes::everything().concern(&build(&["src/**"], None)));
}

#[tokio::test]
async fn what_is_printed_into_the_directory_is_no_change() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("out.txt"), "").unwrap();
    let mut watch = Watch::new(folder.path()).unwrap();
    let printed = std::fs::metadata(path("out.txt")).unwrap();
    watch.printed.push((printed.dev(), printed.ino()));
    std::fs::write(path("out.txt"), "reloaded").unwrap();
    std::fs::write(path("main.py"), "1").unwrap();
    assert_eq!(paths(&mut watch).await, ["main.py"]);
}
