// SPDX-License-Identifier: Apache-2.0

use super::*;

/// The line that is waited for is the one that the demonstration prints.
#[test]
fn the_demonstration_says_that_its_counts_are_right() {
    assert!(include_str!("../demo.rs").contains(CHECKED));
}

#[test]
fn nothing_of_this_environment_gets_in_but_proxies() {
    let command = inside(Path::new("/r"), Path::new("/t"), &["demo"]);
    let mut names: Vec<_> = command.get_envs().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
    names.retain(|name| !PROXIES.contains(&name.as_str()));
    names.sort();
    assert_eq!(names, ["HOME", "LANG", "PATH", "TERM"]);
    let words: Vec<_> = command.get_args().collect();
    assert_eq!(words[words.len() - 3..], ["/r", "/t", "demo"]);
}
