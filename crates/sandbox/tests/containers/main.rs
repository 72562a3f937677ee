// SPDX-License-Identifier: Apache-2.0
//! Containers against hostile code, on the kernel as it is.
//!
//! This program is three things: with `sandbox-init` as its first argument it
//! is the init of a container, with `attack` it is hostile code in one, and
//! else it runs the cases one after the other and reports like libtest does.
//! After each case, processes, control groups, mounts and descriptors must be
//! what they were before.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, unsafe_code)]

mod attack;
mod control;
mod host;
mod lifecycle;
mod reach;
mod report;
mod resources;
mod world;

use std::process::ExitCode;

use host::Host;
use report::Report;
use world::World;

/// Modules of attacks in the names of cases.
const ATTACKS: [&str; 2] = ["reach::", "resources::"];
/// So many there are at least; half of those of the two suites together.
const ATTACKS_MIN: usize = 50;
/// So many of them have a control, where the kernel has all that they need.
const CONTROLLED_MIN: usize = 46;

/// A case, and what it needs of the machine.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
    pub(crate) run: fn(&World),
}

/// What a case cannot do without.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    Root,
    MemoryLimit,
    DiskLimit,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("sandbox-init") => return sandbox::process::init::main(),
        Some("attack") => return attack::main(&arguments[1..]),
        Some("hold") => return lifecycle::hold(),
        Some("forgetful-init") => return lifecycle::forget(),
        _ => {}
    }
    let cases = [lifecycle::CASES, reach::CASES, resources::CASES].concat_cases();
    let is_attack = |case: &&&Case| ATTACKS.iter().any(|module| case.name.starts_with(module));
    assert!(cases.iter().filter(is_attack).count() >= ATTACKS_MIN, "attacks are missing");
    if arguments.iter().any(|argument| argument == "--list") {
        cases.iter().for_each(|case| println!("{}: test", case.name));
        return ExitCode::SUCCESS;
    }
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let chosen: Vec<&Case> = cases
        .iter()
        .copied()
        .filter(|case| filter.is_none_or(|part| case.name.contains(part.as_str())))
        .collect();
    run(&chosen, cases.len() - chosen.len())
}

trait Concat {
    fn concat_cases(self) -> Vec<&'static Case>;
}

impl<const N: usize> Concat for [&'static [Case]; N] {
    fn concat_cases(self) -> Vec<&'static Case> {
        self.into_iter().flatten().collect()
    }
}

fn run(cases: &[&Case], filtered: usize) -> ExitCode {
    let mut report = Report::begin(cases.len());
    let world = World::new();
    let mut controlled = 0;
    for case in cases {
        let missing = match (&world, case.needs) {
            (Err(why), _) => Some(why.as_str()),
            (Ok(world), Needs::Root) if !world.is_root() => Some("needs root"),
            (Ok(world), Needs::DiskLimit) if !world.limits_disk() => Some("needs control groups for disks"),
            (Ok(world), Needs::MemoryLimit) if !world.limits_memory() => Some("needs control groups"),
            _ => None,
        };
        if let Some(why) = missing {
            report.ignore(case.name, why);
            continue;
        }
        let Ok(world) = &world else { continue };
        let before = Host::look();
        let ran = report.run(case.name, || {
            control::take_shown();
            (case.run)(world);
            before.assert_unchanged();
            let is_attack = ATTACKS.iter().any(|module| case.name.starts_with(module));
            let shown = control::take_shown();
            assert!(!is_attack || shown.controls + shown.others > 0, "no control was shown");
            is_attack && shown.controls > 0
        });
        controlled += usize::from(ran == Some(true));
    }
    if filtered == 0 && report.ignored == 0 {
        println!("attacks with a control: {controlled}");
        let is_enough = report.failed > 0 || controlled >= CONTROLLED_MIN;
        assert!(is_enough, "only {controlled} attacks have shown a control");
    }
    report.end(filtered)
}
