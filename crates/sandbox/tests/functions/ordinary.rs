// SPDX-License-Identifier: Apache-2.0
//! What functions of every language rely on.

use std::time::{Duration, Instant};

use objects::{FailureCode, Handle};
use sandbox::contract::{self, Fixture};
use sandbox::process::{FunctionsOptions, Language, Weakness};
use sandbox::{Call, Sandbox, Spec};

use crate::Case;
use crate::world::{Packages, World, options};

pub(crate) const CASES: &[Case] = &[
    ("contract", contract),
    ("contract_with_blanks", contract_with_blanks),
    ("ends_while_instances_are_prepared", ends_while_instances_are_prepared),
    ("many_at_once", many_at_once),
    ("instances_outlive_the_template", instances_outlive_the_template),
    ("a_stuck_template_is_replaced", a_stuck_template_is_replaced),
    ("a_stuck_template_keeps_no_container", a_stuck_template_keeps_no_container),
    ("more_waiting_than_allowed", more_waiting_than_allowed),
    ("contract_where_nothing_can_be_forked", contract_where_nothing_can_be_forked),
    ("a_cold_instance_is_confined_and_replaced", a_cold_instance_is_confined_and_replaced),
];

/// Enough for an engine of its own, also where what it might use is counted and not
/// what it does: without control groups.
const COLD_BYTES: u64 = 256 << 20;

impl Fixture for World {
    fn sandbox(&self) -> &dyn Sandbox {
        &self.functions
    }

    fn good(&self) -> Spec {
        self.spec(self.sources.echo)
    }

    fn bad(&self) -> Spec {
        self.spec(self.sources.malformed)
    }

    fn echo(&self, argument: Handle) -> (Call, Handle) {
        (self.call(self.sources.echo, &[argument]), argument)
    }

    fn failing(&self) -> (Spec, Call, FailureCode) {
        (self.spec(self.sources.raising), self.call(self.sources.raising, &[]), FailureCode::Trap)
    }

    fn endless(&self) -> (Spec, Call) {
        (self.spec(self.sources.endless), self.call(self.sources.endless, &[]))
    }
}

/// Of a machine that stands still for a while: nothing in the contract waits for the end of a time.
const PATIENCE: Duration = Duration::from_secs(30);

fn contract(language: Language) {
    let options = FunctionsOptions { call_timeout: PATIENCE, ..options(language) };
    contract::check_all(&World::with(options, Weakness::NONE));
}

fn contract_with_blanks(language: Language) {
    let options = FunctionsOptions { blanks: 2, call_timeout: PATIENCE, ..options(language) };
    let world = World::with(options, Weakness::NONE);
    let began = Instant::now();
    while world.functions.blanks() < 2 && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(world.functions.blanks(), 2);
    contract::check_all(&world);
}

/// What is made at that moment is not waited for: it fails, and nobody tries again.
fn ends_while_instances_are_prepared(language: Language) {
    let mut took = Duration::ZERO;
    for after in [0, 5, 10, 20, 40, 60, 80, 100].map(Duration::from_millis) {
        let world = World::with(FunctionsOptions { blanks: 16, ..options(language) }, Weakness::NONE);
        std::thread::sleep(after);
        let began = Instant::now();
        drop(world);
        took += began.elapsed();
    }
    // Who waits once for what does not come takes three seconds and more; a machine may stand still.
    assert!(took < Duration::from_secs(10), "{took:?}");
}

fn many_at_once(language: Language) {
    let world = World::new(language);
    let specs = vec![world.spec(world.sources.echo); 12];
    let ids: Vec<_> = world.functions.create(&specs).into_iter().map(Result::unwrap).collect();
    assert!(world.functions.start(&ids).iter().all(Result::is_ok));
    std::thread::scope(|scope| {
        for id in &ids {
            scope.spawn(|| assert_eq!(world.invoke(*id, world.sources.echo, b"x").unwrap(), b"x"));
        }
    });
    ids.into_iter().for_each(|id| world.end(id));
}

fn instances_outlive_the_template(language: Language) {
    let world = World::new(language);
    let id = world.created(world.sources.echo);
    let pid = world.functions.template_pid().unwrap().to_string();
    std::process::Command::new("kill").args(["-9", &pid]).status().unwrap();
    assert_eq!(world.invoke(id, world.sources.echo, b"alive").unwrap(), b"alive");
    world.assert_others_are_served();
    world.end(id);
}

fn stop_the_template(world: &World) {
    let pid = world.functions.template_pid().unwrap().to_string();
    std::process::Command::new("kill").args(["-STOP", &pid]).status().unwrap();
}

fn a_stuck_template_is_replaced(language: Language) {
    let world = World::new(language);
    stop_the_template(&world);
    let began = Instant::now();
    let refused = world.functions.create(&[world.spec(world.sources.echo)]).pop().unwrap().unwrap_err();
    assert!(refused.to_string().contains("did not answer in time"), "{refused}");
    assert!(began.elapsed() < Duration::from_secs(15));
    world.assert_others_are_served();
}

fn a_stuck_template_keeps_no_container(language: Language) {
    let world = World::new(language);
    let id = world.created(world.sources.echo);
    stop_the_template(&world);
    let began = Instant::now();
    world.end(id);
    assert!(began.elapsed() < Duration::from_secs(15));
    world.assert_others_are_served();
}

fn more_waiting_than_allowed(language: Language) {
    let world = World::with(FunctionsOptions { waiting_max: 2, ..options(language) }, Weakness::NONE);
    let source = world.sources.slow;
    let id = world.created(source);
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| world.invoke(id, source, b""))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let served = results.iter().filter(|result| result.is_ok()).count();
    let refused = results.iter().flat_map(|result| result.as_ref().err());
    assert_eq!(served, 3);
    assert!(refused.into_iter().all(|fault| fault.code == FailureCode::Resources));
    world.end(id);
}

/// A module that starts a thread when it is imported.
fn threading(language: Language) -> Packages {
    match language {
        Language::Python => Packages::new(
            "imported.py",
            "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n",
        ),
        Language::Node => Packages::new("imported.js", "require('fs').promises.stat('/');\n"),
        Language::Executable => panic!("an executable imports nothing"),
    }
}

fn contract_where_nothing_can_be_forked(language: Language) {
    let packages = threading(language);
    let options = packages.imported(language);
    let options = FunctionsOptions { usual_memory_bytes: COLD_BYTES, call_timeout: PATIENCE, ..options };
    let world = World::with(options.clone(), Weakness::NONE).with_memory(COLD_BYTES);
    let why = world.functions.why_cold().unwrap();
    assert!(why.contains("threads"), "{why}");
    contract::check_all(&world);
    let began = Instant::now();
    while world.functions.blanks() == 0 && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(world.functions.blanks() > 0, "none is started in advance");
    world.assert_others_are_served();
    drop(world);
    let refused = World::refused(FunctionsOptions { must_fork: true, ..options });
    assert!(refused.contains("forking is not safe"), "{refused}");
    // The negative control: without the module it is forked.
    assert_eq!(World::new(language).functions.why_cold(), None);
}

fn a_cold_instance_is_confined_and_replaced(language: Language) {
    let packages = threading(language);
    let world = World::with(packages.imported(language), Weakness::NONE).with_memory(COLD_BYTES);
    let (status, ending, holding) = match language {
        Language::Python => (
            "def apply(x):\n    return open('/proc/self/status', 'rb').read()\n",
            "import os\ndef apply(x):\n    if x == b'die': os._exit(3)\n    return x\n",
            "import os, time\ndef apply(x):\n    if os.fork() == 0: time.sleep(1000)\n    os._exit(0)\n",
        ),
        Language::Node => (
            "exports.apply = () => require('fs').readFileSync('/proc/self/status');\n",
            "exports.apply = (x) => { if (String(x) === 'die') process.exit(3); return x; };\n",
            "exports.apply = () => { require('child_process').spawn('/bin/sleep', ['1000'], { stdio: ['ignore', 'ignore', 'ignore', 3] }); process.exit(0); };\n",
        ),
        Language::Executable => panic!("an executable has no source"),
    };
    let said = String::from_utf8(world.run(status).unwrap()).unwrap();
    for line in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let id = world.created(ending);
    let fault = world.invoke(id, ending, b"die").unwrap_err();
    assert!(fault.detail.contains("status 3"), "{fault}");
    assert_eq!(world.invoke(id, ending, b"again").unwrap(), b"again");
    world.end(id);
    assert_eq!(world.run(holding).unwrap_err().code, FailureCode::Trap);
    world.assert_others_are_served();
}
