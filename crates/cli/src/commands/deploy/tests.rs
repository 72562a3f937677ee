// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use super::*;

fn wanted(paths: &[&Path], functions: &[&str]) -> anyhow::Result<Vec<Wanted>> {
    let paths: Vec<PathBuf> = paths.iter().map(|&path| path.to_owned()).collect();
    let functions: Vec<String> = functions.iter().map(|&name| name.to_owned()).collect();
    super::wanted(&paths, &functions)
}

fn code(result: anyhow::Result<Vec<Wanted>>) -> (Code, String) {
    let error = result.err().unwrap();
    let stop = error.downcast_ref::<Stop>().unwrap();
    (stop.code, format!("{stop}; {}", stop.suggestion.clone().unwrap_or_default()))
}

#[test]
fn manifests_are_found_and_functions_picked() {
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (root.path().join("a"), root.path().join("b"));
    for (folder, text) in [
        (&a, "[functions.one]\nruntime = \"node\"\n[functions.two]\nruntime = \"node\"\n"),
        (&b, "[functions.three]\nruntime = \"wasm\"\n"),
    ] {
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join("sinew.toml"), text).unwrap();
    }
    let names = |paths: &[&Path], functions: &[&str]| -> Vec<String> {
        wanted(paths, functions).unwrap().into_iter().map(|wanted| wanted.function.name).collect()
    };
    assert_eq!(names(&[&a, &b], &[]), ["one", "two", "three"]);
    assert_eq!(names(&[&b.join("sinew.toml")], &[]), ["three"]);
    assert_eq!(names(&[&a, &b], &["two", "three"]), ["two", "three"]);
    let (kind, told) = code(wanted(&[&a], &["on"]));
    assert_eq!(kind, Code::NotFound);
    assert!(told.contains("did you mean one?"), "{told}");
    assert_eq!(code(wanted(&[&a, &a], &[])).0, Code::Usage);
    assert_eq!(code(wanted(&[root.path()], &[])).0, Code::NotFound);
    std::fs::write(b.join("sinew.toml"), "[functions.three]\nruntime = \"wsm\"\n").unwrap();
    let (kind, told) = code(wanted(&[&b], &[]));
    assert_eq!(kind, Code::Usage);
    assert!(told.contains("sinew.toml:2:11: unknown runtime `wsm`"), "{told}");
}
