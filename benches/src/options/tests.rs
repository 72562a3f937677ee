// SPDX-License-Identifier: Apache-2.0

use super::*;

fn options(arguments: &[&str]) -> anyhow::Result<Options> {
    let arguments: Vec<_> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    Options::of(&arguments, &["kinds", "rounds", "memory"])
}

#[test]
fn options_have_values_or_none() {
    let options = options(&["transfer", "--json", "--kinds=int,str", "--memory"]).unwrap();
    assert_eq!(options.words("kinds"), ["int", "str"]);
    assert_eq!(options.value("memory"), Some(""));
    assert!(options.has("memory") && !options.has("rounds"));
    assert_eq!((options.number("memory", 3).unwrap(), options.number("rounds", 7).unwrap()), (3, 7));
}

#[test]
fn what_is_not_known_is_an_error() {
    assert!(options(&["--kind=int"]).unwrap_err().to_string().contains("--kinds, --rounds"));
    assert!(options(&["transfer", "--rounds", "4"]).unwrap_err().to_string().contains("--name=4"));
    assert!(options(&["--rounds=many"]).unwrap().number("rounds", 1).is_err());
}
