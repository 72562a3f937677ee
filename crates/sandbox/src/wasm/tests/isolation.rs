// SPDX-License-Identifier: Apache-2.0
//! What one application leaves behind, the next must not find. Each probe
//! returns the trace of the call before and leaves one; the negative control
//! runs the same probes with the reset switched off, and must find them all.

use objects::{FailureCode, Handle};

use super::*;
use crate::wasm::Class;

/// A probe: its class, its declarations, how it looks for a trace (an i32
/// that is 0 on a fresh instance) and how it leaves one.
struct Probe {
    name: &'static str,
    class: Class,
    declarations: &'static str,
    look: &'static str,
    leave: &'static str,
}

const PROBES: [Probe; 14] = [
    Probe {
        name: "a small memory",
        class: Class::Restored,
        declarations: "(memory 4096 (pagesize 1))",
        look: "(i32.load (i32.const 4092))",
        leave: "(i32.store (i32.const 4092) (i32.const 7))",
    },
    Probe {
        name: "one page",
        class: Class::Restored,
        declarations: "(memory (export \"memory\") 1)",
        look: "(i32.load (i32.const 65532))",
        leave: "(i32.store (i32.const 65532) (i32.const 7))",
    },
    Probe {
        name: "initialised data",
        class: Class::Restored,
        declarations: "(memory 2) (data (i32.const 70000) \"AAAA\")",
        look: "(i32.sub (i32.load (i32.const 70000)) (i32.const 0x41414141))",
        leave: "(i32.store (i32.const 70000) (i32.const 7))",
    },
    Probe {
        name: "a global",
        class: Class::Restored,
        declarations: "(global $g (mut i32) (i32.const 5))",
        look: "(i32.sub (global.get $g) (i32.const 5))",
        leave: "(global.set $g (i32.const 7))",
    },
    Probe {
        name: "an exported global",
        class: Class::Restored,
        declarations: "(global $a i64 (i64.const 1)) (global $g (export \"g\") (mut i64) (i64.const 0))",
        look: "(i32.wrap_i64 (global.get $g))",
        leave: "(global.set $g (i64.const 7))",
    },
    Probe {
        name: "floats and vectors",
        class: Class::Restored,
        declarations: "(global $f (mut f64) (f64.const 0)) (global $v (mut v128) (v128.const i64x2 0 0))",
        look: "(i32.or (i32.trunc_f64_s (global.get $f)) (i32x4.extract_lane 3 (global.get $v)))",
        leave: "(global.set $f (f64.const 7)) (global.set $v (v128.const i64x2 0 -1))",
    },
    Probe {
        name: "memory that a segment is copied into",
        class: Class::Restored,
        declarations: "(memory 1) (data $d \"\\07\")",
        look: "(i32.load (i32.const 0))",
        leave: "(memory.init $d (i32.const 0) (i32.const 0) (i32.const 1))",
    },
    Probe {
        name: "growth",
        class: Class::Restored,
        declarations: "(memory 1)",
        look: "(i32.sub (memory.size) (i32.const 1))",
        leave: "(drop (memory.grow (i32.const 1)))",
    },
    Probe {
        name: "a large memory",
        class: Class::Fresh,
        declarations: "(memory (export \"memory\") 17)",
        look: "(i32.load (i32.const 1100000))",
        leave: "(memory.fill (i32.const 0) (i32.const 7) (i32.const 1114112))",
    },
    Probe {
        name: "a table",
        class: Class::Fresh,
        declarations: "(table $t 2 funcref) (elem declare func $f) (func $f)",
        look: "(i32.eqz (ref.is_null (table.get $t (i32.const 1))))",
        leave: "(table.set $t (i32.const 1) (ref.func $f))",
    },
    Probe {
        name: "the size of a table",
        class: Class::Fresh,
        declarations: "(table $t 2 funcref)",
        look: "(i32.sub (table.size $t) (i32.const 2))",
        leave: "(drop (table.grow $t (ref.null func) (i32.const 1)))",
    },
    Probe {
        name: "a reference in a global",
        class: Class::Fresh,
        declarations: "(global $g (mut funcref) (ref.null func)) (elem declare func $f) (func $f)",
        look: "(i32.eqz (ref.is_null (global.get $g)))",
        leave: "(global.set $g (ref.func $f))",
    },
    Probe {
        name: "a dropped element segment",
        class: Class::Fresh,
        declarations: "(table $t 2 funcref) (elem $e func $f) (func $f)",
        look: "(i32.const 0) (table.init $t $e (i32.const 0) (i32.const 0) (i32.const 1))",
        leave: "(elem.drop $e)",
    },
    Probe {
        name: "a dropped data segment",
        class: Class::Fresh,
        declarations: "(memory 1) (data $d \"abcd\")",
        look: "(i32.const 0) (memory.init $d (i32.const 0) (i32.const 0) (i32.const 4))",
        leave: "(data.drop $d)",
    },
];

/// How a probe ends: after both an instance that can be restored serves the next application.
#[derive(Debug, Clone, Copy)]
enum Ending {
    Returns,
    Fails,
}

const ENDINGS: [Ending; 2] = [Ending::Returns, Ending::Fails];

impl Probe {
    fn module(&self, ending: Ending) -> Vec<u8> {
        let found = number("(local.get $found)");
        let end = match ending {
            Ending::Returns => found,
            Ending::Fails => format!("(call $fail {found}) (unreachable)"),
        };
        module(&format!(
            "{IMPORTS} {} (func (export \"apply\") (param i32) (result i32) (local $found i32)
               (local.set $found {}) {} {end})",
            self.declarations, self.look, self.leave,
        ))
    }

    /// Whether any of a few calls in a row finds something.
    fn finds_a_trace(&self, world: &mut World, limits: Limits, ending: Ending) -> bool {
        let module = self.module(ending);
        (0..4).any(|n| {
            let result = world.run_limited(&module, &[Handle::u64(n)], limits).result;
            match result {
                Ok(found) => found != Handle::u64(0),
                Err(fault) if fault.code == FailureCode::Guest => fault.detail != "\0".repeat(8),
                // A segment that was dropped makes the next use of it trap.
                Err(fault) if fault.code == FailureCode::Trap => true,
                Err(fault) => panic!("{}: {fault}", self.name),
            }
        })
    }
}

fn each_ending() -> impl Iterator<Item = (&'static Probe, Ending)> {
    PROBES.iter().flat_map(|probe| ENDINGS.map(|ending| (probe, ending)))
}

#[test]
fn no_application_finds_what_another_left() {
    for limits in [Limits::default(), fuel(1 << 40)] {
        let mut world = World::new();
        for (probe, ending) in each_ending() {
            assert!(!probe.finds_a_trace(&mut world, limits, ending), "{} leaks: {ending:?}", probe.name);
            let module = Handle::blob(&probe.module(ending));
            let compilation = world.codelets.prepare(module, limits.fuel > 0);
            assert_eq!(compilation.unwrap().class, probe.class, "{}", probe.name);
        }
    }
}

#[test]
fn without_the_reset_every_probe_finds_something() {
    let mut world = World::with_options(Options { workers: 2, is_unsound: true, ..Options::default() });
    for (probe, ending) in each_ending() {
        let found = probe.finds_a_trace(&mut world, Limits::default(), ending);
        assert!(found, "{} proves nothing: {ending:?}", probe.name);
    }
}

#[test]
fn stateless_modules_keep_their_instance() {
    let mut world = World::new();
    let codelets = [
        plain("(i32.const 0)"),
        module(
            "(table 1 funcref) (elem (i32.const 0) $f) (func $f) (func (export \"apply\") (param i32) (result i32) (call_indirect (i32.const 0)) (i32.const 0))",
        ),
        module(
            "(global i32 (i32.const 7)) (func (export \"apply\") (param i32) (result i32) (global.get 0))",
        ),
    ];
    for codelet in codelets {
        let _ = world.run(&codelet, &[]);
        let compilation = world.codelets.compilation(Handle::blob(&codelet)).unwrap();
        assert_eq!(compilation.class, Class::Stateless);
    }
}

#[test]
fn an_instance_does_not_survive_a_trap() {
    let mut world = World::new();
    let codelet = with_memory_and(
        "(global $g (mut i32) (i32.const 0))",
        &format!(
            "(if (i32.or (global.get $g) (i32.load (i32.const 8))) (then (return {})))
             (global.set $g (i32.const 1)) (i32.store (i32.const 8) (i32.const 1))
             (if (i32.wrap_i64 (call $read_u64 (i32.const 3) (i64.const 0))) (then (unreachable))) {}",
            number("(i32.const 1)"),
            number("(i32.const 0)")
        ),
    );
    for n in [1, 0, 1, 1, 0, 0] {
        match world.run(&codelet, &[Handle::u64(n)]).result {
            Ok(found) => assert_eq!((n, found), (0, Handle::u64(0))),
            Err(fault) => assert_eq!((n, fault.code), (1, FailureCode::Trap)),
        }
    }
}

#[test]
fn objects_of_an_earlier_call_are_not_read_by_a_later_one() {
    let mut world = World::new();
    let read = plain("(call $blob_u64 (call $read_u64 (i32.const 3) (i64.const 0)) (i32.const 8))");
    for n in 1..20u8 {
        let blob = world.store.keep_blob(&[n; 64]);
        assert_eq!(world.number(&read, &[blob]), u64::from_le_bytes([n; 8]));
    }
}
