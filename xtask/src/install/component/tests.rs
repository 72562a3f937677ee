// SPDX-License-Identifier: Apache-2.0

use super::*;

fn library() -> Component {
    Component::library("wasm32-unknown-unknown")
}

#[test]
fn the_archive_is_of_exactly_the_compilers_release() {
    let archive =
        Archive::of(&library(), "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\nrelease: 1.95.0\n")
            .unwrap();
    assert_eq!(
        archive.url(),
        "https://static.rust-lang.org/dist/rust-std-1.95.0-wasm32-unknown-unknown.tar.xz"
    );
    let advice = archive.advice(Path::new("/usr"));
    assert!(advice.contains(&archive.url()) && advice.contains("-C /usr "), "{advice}");
    let tools = Archive::of(&Component::llvm_tools("x86_64-unknown-linux-gnu"), "release: 1.95.0").unwrap();
    assert_eq!(
        tools.url(),
        "https://static.rust-lang.org/dist/llvm-tools-1.95.0-x86_64-unknown-linux-gnu.tar.xz"
    );
    let unpack = format!("{:?}", tools.unpack(Path::new("/usr")));
    assert!(unpack.contains("x86_64-unknown-linux-gnu/llvm-tools-preview/lib"), "{unpack}");
}

#[test]
fn only_stable_releases_have_an_archive() {
    for release in ["1.97.0-nightly", "1.96.0-beta.2", ""] {
        let error = Archive::of(&library(), &format!("release: {release}")).unwrap_err().to_string();
        assert!(error.contains("stable"), "{error}");
    }
    assert!(Archive::of(&library(), "rustc").is_err());
}

#[test]
fn an_archive_with_another_hash_is_refused() {
    let folder = std::env::temp_dir().join(format!("sinew-archive-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let archive = Archive::of(&library(), "release: 1.95.0").unwrap();
    let hash = folder.join(format!("{}.tar.xz.sha256", archive.name));
    fs::write(folder.join(format!("{}.tar.xz", archive.name)), "abc").unwrap();
    let good = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let named = format!("{good}  {}.tar.xz\n", archive.name);
    for (sum, is_right) in [(named, true), (good.to_owned(), true), (good.replace('b', "c"), false)] {
        fs::write(&hash, sum).unwrap();
        assert_eq!(archive.verify(&folder).is_ok(), is_right);
    }
    fs::write(&hash, "").unwrap();
    assert!(archive.verify(&folder).is_err());
    fs::remove_dir_all(&folder).unwrap();
}
