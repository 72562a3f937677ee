// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use super::*;

fn recipe(arguments: &[&str]) -> Recipe {
    let template = |text: &&str| Template::new(text.as_bytes(), "{}".parse().unwrap());
    Recipe {
        limits: Handle::literal(b"").unwrap(),
        program: Handle::blob(b"program"),
        name: "cc".to_owned(),
        arguments: arguments.iter().map(template).collect(),
        variables: Vec::new(),
        entries: Vec::new(),
        seed: None,
        time: None,
        from: None,
        stdin: None,
        shared: Vec::new(),
        order: vec![Place::Files, Place::Out],
        files: Folder::default().seal(&mut Bundles::default()),
        out: Out::parse(None).unwrap(),
        stdout: None,
        wishes: Wishes::default(),
    }
}

fn given(text: &str) -> Given {
    Given { kind: b'f', handle: Handle::blob(text.as_bytes()), stdin: None }
}

#[test]
fn an_application_depends_on_its_own_file_and_on_its_path_only() {
    let recipe = recipe(&["-c", "{}"]);
    let goal = |path: &str, text: &str| {
        recipe.application(path.as_bytes(), given(text), &mut Objects::default()).unwrap().goal
    };
    assert_eq!(goal("src/a.c", "one"), goal("src/a.c", "one"));
    let others = ["src/a.c:two", "src/b.c:one", "a.c:one"].map(|text| {
        let (path, text) = text.split_once(':').unwrap();
        goal(path, text)
    });
    let all: BTreeSet<String> =
        others.iter().chain([&goal("src/a.c", "one")]).map(ToString::to_string).collect();
    assert_eq!(all.len(), 4);
}

#[test]
fn the_directory_for_what_is_made_has_that_of_the_file() {
    let recipe = recipe(&["{}"]);
    let out =
        |path: &str| recipe.application(path.as_bytes(), given("x"), &mut Objects::default()).unwrap().out;
    assert_eq!(out("a.c").len(), 1);
    assert_eq!(out("src/x/a.c"), nested(b"src/x", &mut Objects::default()));
    assert_eq!(out("/a.c").len(), 1);
}

#[test]
fn where_outputs_go_as_it_is_written() {
    let parse = |text: &str| Out::parse(Some(text)).map(|out| (out.host.unwrap(), out.guest));
    assert_eq!(parse("obj").unwrap(), ("obj".into(), "/out".to_owned()));
    assert_eq!(parse("obj=/build").unwrap(), ("obj".into(), "/build".to_owned()));
    for wrong in ["", "=x", "x="] {
        assert_eq!(parse(wrong).unwrap_err().code, Code::Usage, "{wrong:?}");
    }
}

#[test]
fn stdin_is_the_files_own_where_it_says_so() {
    let with = |stdin| Recipe { stdin, ..recipe(&[]) };
    let each = |text: &str| with(Some(Stdin::Each(Template::new(text.as_bytes(), "{}".parse().unwrap()))));
    assert_eq!(each("{}").stdin_of(b"a/b.c"), Some(StdinOf::Itself));
    assert_eq!(each("{.}.in").stdin_of(b"a/b.c"), Some(StdinOf::Other("a/b.in".into())));
    assert_eq!(with(Some(Stdin::Shared(Handle::blob(b"x")))).stdin_of(b"a"), None);
    assert!(
        each("{}").names_the_file() && !recipe(&["-x"]).names_the_file() && recipe(&["{/}"]).names_the_file()
    );
}
