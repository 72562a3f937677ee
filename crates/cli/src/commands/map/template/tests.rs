// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn filled(text: &str, path: &str) -> String {
    String::from_utf8(Template::new(text.as_bytes(), "{}".parse().unwrap()).fill(path.as_bytes())).unwrap()
}

#[test]
fn places_are_those_of_gnu_parallel() {
    let path = "src/a.b/c d.tar.gz";
    for (text, expected) in [
        ("{}", path),
        ("{.}", "src/a.b/c d.tar"),
        ("{/}", "c d.tar.gz"),
        ("{/.}", "c d.tar"),
        ("{//}", "src/a.b"),
        ("-o/out/{.}.o,{}", "-o/out/src/a.b/c d.tar.o,src/a.b/c d.tar.gz"),
        ("{{}}", "{src/a.b/c d.tar.gz}"),
        ("{x} {/x} { } {", "{x} {/x} { } {"),
        ("{///}", "{///}"),
        ("", ""),
    ] {
        assert_eq!(filled(text, path), expected, "{text}");
    }
}

#[test]
fn names_without_an_ending_stay_whole() {
    for (path, stem, name_stem, parent) in [
        ("a.d/b", "a.d/b", "b", "a.d"),
        ("a/.bashrc", "a/.bashrc", ".bashrc", "a"),
        ("/x.c", "/x", "x", "/"),
        ("x.", "x", "x", "."),
    ] {
        let found = (filled("{.}", path), filled("{/.}", path), filled("{//}", path));
        assert_eq!(found, (stem.to_owned(), name_stem.to_owned(), parent.to_owned()), "{path}");
    }
}

#[test]
fn other_braces_leave_these_alone() {
    let braces: Braces = "<>".parse().unwrap();
    let template = Template::new(b"x = {}; open('<>', '</.>')", braces);
    assert_eq!(template.fill(b"d/a.c"), b"x = {}; open('d/a.c', 'a')");
    assert!(template.has_place() && !template.is_path());
    assert!(!Template::new(b"{}", braces).has_place());
    for wrong in ["", "<", "<<", "<>>", "ab", "./", "\u{e9}"] {
        assert!(wrong.parse::<Braces>().is_err(), "{wrong}");
    }
    assert_eq!(braces.to_string(), "<>");
}

proptest! {
    /// Whatever the path, name and directory make the path, and stem and ending do.
    #[test]
    fn parts_make_the_whole(path in prop::collection::vec(any::<u8>(), 0..64)) {
        let fill = |text: &str| Template::new(text.as_bytes(), "{}".parse().unwrap()).fill(&path);
        let (parent, name) = (fill("{//}"), fill("{/}"));
        prop_assert!(!name.contains(&b'/'));
        let whole = match &parent[..] {
            b"." if !path.starts_with(b"./") => name.clone(),
            b"/" => [b"/", &name[..]].concat(),
            parent => [parent, b"/", &name[..]].concat(),
        };
        prop_assert_eq!(&whole, &path);
        let stems = path.starts_with(&fill("{.}")) && name.starts_with(&fill("{/.}"));
        prop_assert!(stems);
    }

    /// No text is lost: without places a template says what it said.
    #[test]
    fn text_is_kept(text in "[a-z{}./ ]{0,40}", path in "[a-z./]{1,20}") {
        let template = Template::new(text.as_bytes(), "{}".parse().unwrap());
        let expected = ["{}", "{.}", "{/}", "{//}", "{/.}"].iter().any(|place| text.contains(place));
        prop_assert_eq!(template.has_place(), expected);
        if !expected {
            prop_assert_eq!(template.fill(path.as_bytes()), text.as_bytes());
        }
    }
}
