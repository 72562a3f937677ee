// SPDX-License-Identifier: Apache-2.0
//! The project is tidy, and each rule finds what it is for.

#![allow(clippy::unwrap_used)]

use super::*;

/// What a file at this path would be told.
fn findings(path: &str, text: &str) -> Vec<String> {
    let file = File { path: path.into(), bytes: text.into() };
    let mut findings = Vec::new();
    files::check(&file, is_assembled(&file, &[]), &mut findings);
    if file.extension() == "rs" {
        code::check(&file, &mut findings);
    }
    findings.iter().map(Finding::to_string).collect()
}

const HEAD: &str = "// SPDX-License-Identifier: Apache-2.0\n//! What it is.\n";

fn rust(path: &str, body: &str) -> Vec<String> {
    findings(path, &format!("{HEAD}{body}"))
}

#[test]
fn the_project_is_tidy() {
    let findings = check(layout::root()).unwrap();
    let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(lines.is_empty(), "\n{}", lines.join("\n"));
}

#[test]
fn a_good_file_passes() {
    assert_eq!(rust("crates/store/src/lib.rs", "fn f() {}\n"), [""; 0]);
}

#[test]
fn the_head_is_required() {
    let found = findings("crates/store/src/lib.rs", "fn f() {}\n");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(findings("guests/a.c", "int x;\n")[0].contains("SPDX"));
    assert_eq!(findings("docs/a.md", "text\n"), [""; 0]);
    // What tests are for, the file beside them says.
    assert_eq!(findings("a/tests.rs", "// SPDX-License-Identifier: Apache-2.0\nuse super::*;\n"), [""; 0]);
}

#[test]
fn length_is_limited() {
    assert!(rust("a.rs", &"\n".repeat(799))[0].contains("801 lines"));
    let long = format!("pub(crate) fn long(a: [u8; 3]) {{\n{}}}\n", "    x();\n".repeat(69));
    assert!(rust("a.rs", &long)[0].contains("`long` has 71 lines"));
    let fits = format!("fn fits() {{\n{}}}\n", "    x();\n".repeat(68));
    assert_eq!(rust("a.rs", &fits), [""; 0]);
}

#[test]
fn braces_in_texts_do_not_count() {
    let tricky =
        "fn tricky() {\n    f('{', \"}}{\", r#\"\"{\"#, b'\\'', '\\\\'); // {\n    /* { /* { */ */\n}\n";
    let code = code::blank(&format!("{tricky}fn next<'a>(x: &'a str) -> char {{ 'x' }}\n"));
    let names = code::functions(&code);
    assert_eq!(names, [(1, "tricky".to_owned(), 4), (5, "next".to_owned(), 1)]);
}

#[test]
fn unsafe_has_a_home_and_a_reason() {
    let block = "fn f() {\n    unsafe { g() }\n}\n";
    assert_eq!(rust("crates/linux/src/a.rs", block).len(), 1);
    assert_eq!(rust("crates/store/src/a.rs", block).len(), 2);
    let reasoned = "fn f() {\n    // SAFETY: because.\n    unsafe { g() }\n}\n";
    assert_eq!(rust("crates/linux/src/a.rs", reasoned), [""; 0]);
    assert_eq!(rust("crates/store/src/a.rs", "// unsafe { here }\n#![deny(unsafe_code)]\n"), [""; 0]);
}

#[test]
fn unfinished_work_names_its_issue() {
    let mark = concat!("TO", "DO");
    assert_eq!(rust("a.rs", &format!("// {mark}: later\n")).len(), 1);
    assert_eq!(rust("a.rs", &format!("// {mark}(#12): later\n")), [""; 0]);
    assert_eq!(rust("a.rs", "fn f() { todo!() }\n").len(), 1);
}

#[test]
fn what_does_not_belong_is_found() {
    assert_eq!(findings("a.rs.orig", "x\n").len(), 1);
    assert_eq!(findings("docs/a.bin", "\0").len(), 1);
    assert_eq!(findings("fuzz/seeds/a", "\0"), [""; 0]);
    assert_eq!(findings("docs/a.json", &"x".repeat((1 << 20) + 1)).len(), 1);
    assert_eq!(rust("crates/store/src/util.rs", "").len(), 1);
}

#[test]
fn a_module_may_lie_beside_its_text() {
    let file = |path: &str| File { path: path.into(), bytes: vec![0] };
    let files = [file("a/add.wat"), file("b/add.wat")];
    assert!(is_assembled(&file("a/add.wasm"), &files));
    assert!(!is_assembled(&file("a/sub.wasm"), &files));
    assert!(!is_assembled(&file("c/add.wasm"), &files));
}

#[test]
fn a_forgotten_file_is_found() {
    let file = |path: &str, text: &str| File { path: path.into(), bytes: text.into() };
    let files = [
        file("crates/a/src/lib.rs", "mod b;\n// mod forgotten;\n"),
        file("crates/a/src/b.rs", "#[cfg(test)]\nmod tests;\n"),
        file("crates/a/src/b/tests.rs", ""),
        file("crates/a/src/forgotten.rs", ""),
        file("crates/a/src/b/deep/mod.rs", ""),
        file("crates/a/tests/any.rs", ""),
        file("crates/a/src/tests/graph.rs", ""),
        file("tests/e2e/main.rs", "mod demo;"),
        file("tests/e2e/demo.rs", ""),
    ];
    let mut found = Vec::new();
    mounts::check(&files, &mut found);
    let mut paths: Vec<_> = found.iter().map(|finding| finding.path.to_str().unwrap()).collect();
    paths.sort_unstable();
    assert_eq!(
        paths,
        ["crates/a/src/b/deep/mod.rs", "crates/a/src/forgotten.rs", "crates/a/src/tests/graph.rs"]
    );
}

const MAP: &str = "# Map\n\n| task | file |\n|-|-|\n| x | y |\n\ntext\n
| crate | one line | may use |
| :-- | --- | --- |
| `low` | says `|`less | – |
| **mid** | x | `low` |
| top | x | all above |

| crate | may use |
| other | mid |
";

#[test]
fn edges_are_those_of_the_table() {
    let edges = rooms::allowed_edges(MAP.replace("`|`", "").as_str());
    let expect = |name: &str, others: &[&str]| assert_eq!(edges.get(name).unwrap(), others, "{name}");
    expect("low", &[]);
    expect("mid", &["low"]);
    expect("top", &["low", "mid"]);
    assert_eq!(edges.len(), 3);
}

#[test]
fn a_forbidden_edge_is_found() {
    let manifest = |path: &str, name: &str, rest: &str| File {
        path: path.into(),
        bytes: format!("[package]\nname = \"{name}\"\n{rest}").into(),
    };
    let map = File { path: "ARCHITECTURE.md".into(), bytes: MAP.replace("`|`", "").into() };
    let files = [
        map,
        manifest("crates/low/Cargo.toml", "low", "[target.'cfg(unix)'.dependencies]\nmid.workspace = true\n"),
        manifest("crates/mid/Cargo.toml", "mid", "[dependencies]\nl = { package = \"low\", path = \"x\" }\n"),
        manifest("crates/new/Cargo.toml", "new", "[dev-dependencies]\ntop.workspace = true\n"),
    ];
    let mut found = Vec::new();
    rooms::check(&files, &mut found);
    let told: Vec<String> = found.iter().map(Finding::to_string).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told.iter().any(|line| line.contains("`low` may not use `mid`")));
    assert!(told.iter().any(|line| line.contains("`new` is not in the table")));
    assert!(told.iter().any(|line| line.contains("`top` is in the table")));
}
