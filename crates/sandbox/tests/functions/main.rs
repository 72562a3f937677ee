// SPDX-License-Identifier: Apache-2.0
//! Functions of every language in containers: the contract, and hostile
//! functions.
//!
//! With `sandbox-init` as its first argument this program is the init of a
//! container; else it runs the cases one after the other and reports like
//! libtest does. After each, nothing may be left behind, and a neighbour must
//! be served. One case runs it once more, as a user without rights, with
//! `unprivileged` as its first argument: those cases then that hold for such a
//! node too.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod brought;
#[path = "../containers/control.rs"]
mod control;
#[path = "../containers/host.rs"]
mod host;
mod kernel;
mod lines;
mod nested;
mod network;
mod node;
mod ordinary;
mod python;
#[path = "../containers/report.rs"]
mod report;
mod unprivileged;
mod versions;
mod warm;
mod wheels;
mod world;

use std::process::ExitCode;

use host::Host;
use report::Report;
use sandbox::process::Language;

/// What the names of attacks have in them.
const ATTACK: &str = "hostile::";
/// So many there are at least.
const ATTACKS_MIN: usize = 74;
/// So many of them have a control.
const CONTROLLED_MIN: usize = 54;

/// A name, and what is to hold.
pub(crate) type Case = (&'static str, fn(Language));

/// Those of one language: its name, and what is to hold.
type Named = (String, fn(Language), Language);

fn cases() -> Vec<Named> {
    let all = Language::INTERPRETED.into_iter().flat_map(|language| {
        // Names tell attacks apart: the bench counts them.
        let own: &[(&str, &[Case])] = match language {
            Language::Python => &[
                (ATTACK, python::HOSTILE),
                (ATTACK, kernel::HOSTILE),
                (ATTACK, network::HOSTILE),
                (ATTACK, nested::HOSTILE),
                (ATTACK, lines::HOSTILE),
                ("", lines::CASES),
                (ATTACK, brought::HOSTILE),
                ("", brought::CASES),
                ("", kernel::CASES),
                ("", python::CASES),
                ("", warm::CASES),
                ("", versions::PYTHON),
                ("", wheels::CASES),
                ("", unprivileged::CASES),
            ],
            Language::Node => &[
                (ATTACK, node::HOSTILE),
                (ATTACK, network::HOSTILE),
                (ATTACK, nested::HOSTILE),
                (ATTACK, lines::HOSTILE),
                ("", lines::CASES),
                ("", brought::CASES),
                ("", kernel::CASES),
                ("", node::CASES),
                ("", versions::NODE),
                ("", unprivileged::CASES),
            ],
            Language::Executable => &[],
        };
        let own = own.iter().flat_map(move |(module, cases)| named(language, module, cases));
        named(language, "", ordinary::CASES).into_iter().chain(own)
    });
    all.collect()
}

/// With the language in their names.
fn named(language: Language, module: &str, cases: &[Case]) -> Vec<Named> {
    let name = language.name().to_lowercase();
    cases.iter().map(|(case, run)| (format!("{name}_{module}{case}"), *run, language)).collect()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "sandbox-init") {
        return sandbox::process::init::main();
    }
    if arguments.first().is_some_and(|first| first == "unprivileged") {
        let own = unprivileged::own_cases();
        let all = own.len();
        let chosen = chosen(own, &arguments[1..]);
        return run(&chosen, all - chosen.len(), None);
    }
    let cases = cases();
    let attacks = cases.iter().filter(|(name, ..)| name.contains(ATTACK));
    assert!(attacks.count() >= ATTACKS_MIN, "attacks are missing");
    if arguments.iter().any(|argument| argument == "--list") {
        cases.iter().for_each(|(name, ..)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let all = cases.len();
    let chosen = chosen(cases, &arguments);
    let filtered = all - chosen.len();
    run(&chosen, filtered, world::missing().as_deref())
}

/// Those whose names have the first argument in them that is no option.
fn chosen(cases: Vec<Named>, arguments: &[String]) -> Vec<Named> {
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let is_chosen = |(name, ..): &Named| filter.is_none_or(|part| name.contains(part.as_str()));
    cases.into_iter().filter(is_chosen).collect()
}

/// All of these, unless something is missing for them.
fn run(cases: &[Named], filtered: usize, missing: Option<&str>) -> ExitCode {
    let mut report = Report::begin(cases.len());
    let mut controlled = 0;
    for (name, case, language) in cases {
        if let Some(why) = missing {
            report.ignore(name, why);
            continue;
        }
        let before = Host::look();
        let ran = report.run(name, || {
            control::take_shown();
            case(*language);
            before.assert_unchanged();
            let (is_attack, shown) = (name.contains(ATTACK), control::take_shown());
            assert!(!is_attack || shown.controls + shown.others > 0, "no control was shown");
            is_attack && shown.controls > 0
        });
        controlled += usize::from(ran == Some(true));
    }
    if filtered == 0 && report.ignored == 0 && controlled > 0 {
        println!("attacks with a control: {controlled}");
        let is_enough = report.failed > 0 || controlled >= CONTROLLED_MIN;
        assert!(is_enough, "only {controlled} attacks have shown a control");
    }
    report.end(filtered)
}
