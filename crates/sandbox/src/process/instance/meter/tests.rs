// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use std::cell::Cell;

use super::*;

/// A machine whose processor and clock go as a test says.
struct Machine {
    begun: Instant,
    clock_us: Cell<u64>,
    cpu_us: Cell<u64>,
    readings: Cell<u64>,
}

impl Machine {
    fn new() -> Self {
        // What the start took stands there already.
        let (clock_us, cpu_us) = (Cell::new(0), Cell::new(5_000));
        Self { begun: Instant::now(), clock_us, cpu_us, readings: Cell::new(0) }
    }

    fn now(&self) -> Instant {
        self.begun + Duration::from_micros(self.clock_us.get())
    }

    /// So much time passes, with so much of the processor.
    fn pass(&self, clock_us: u64, cpu_us: u64) {
        self.clock_us.set(self.clock_us.get() + clock_us);
        self.cpu_us.set(self.cpu_us.get() + cpu_us);
    }
}

impl Counted for Machine {
    fn cpu_ns(&self) -> Option<u64> {
        self.readings.set(self.readings.get() + 1);
        Some(self.cpu_us.get() * 1000)
    }

    fn memory_peak_bytes(&self) -> Option<u64> {
        Some(self.cpu_us.get())
    }
}

fn micros(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn about(time: Duration, us: u64) -> bool {
    time.abs_diff(micros(us)) < micros(1)
}

fn call(meter: &mut Meter, machine: &Machine, clock_us: u64, cpu_us: u64) -> Spent {
    let served = meter.begin(machine.now(), machine);
    machine.pass(clock_us, cpu_us);
    meter.end(served, machine.now(), machine)
}

#[test]
fn a_call_after_a_pause_is_read_at_both_ends_and_pays_for_nothing_else() {
    let machine = Machine::new();
    let mut meter = Meter::new(machine.now());
    machine.pass(2_000, 700);
    let first = call(&mut meter, &machine, 300, 250);
    assert_eq!((first.cpu.unwrap(), first.is_cpu_own), (micros(250), true), "{first:?}");
    assert_eq!((first.running, first.held, first.waiting), (micros(300), micros(300), Duration::ZERO));
    assert_eq!(first.cpu_between, Duration::ZERO, "the start is no call's");
    // A timer of the function's runs between the calls.
    machine.pass(10_000, 4_000);
    let second = call(&mut meter, &machine, 100, 10);
    assert_eq!((second.cpu.unwrap(), second.is_cpu_own), (micros(10), true), "{second:?}");
    assert_eq!(second.cpu_between, micros(4_000));
    assert_eq!(second.memory_peak_bytes, Some(9_960));
}

#[test]
fn brief_calls_in_a_row_are_read_rarely_and_are_charged_all_that_was_used() {
    let machine = Machine::new();
    let mut meter = Meter::new(machine.now());
    let mut charged = Duration::ZERO;
    for number in 0..1_000 {
        // The node takes a moment from one to the next; half of them use twice as much.
        machine.pass(5, 0);
        charged += call(&mut meter, &machine, 50, if number % 2 == 0 { 20 } else { 40 }).cpu.unwrap();
    }
    assert!(charged.abs_diff(micros(30_000)) < micros(1_000), "{charged:?}");
    assert!(machine.readings.get() < 60, "{}", machine.readings.get());
}

#[test]
fn a_long_call_among_brief_ones_pays_for_itself() {
    let machine = Machine::new();
    let mut meter = Meter::new(machine.now());
    for _ in 0..7 {
        call(&mut meter, &machine, 50, 40);
    }
    let long = call(&mut meter, &machine, 80_000, 1_000);
    // Nothing was measured of the brief ones since the first: at most their time is put to it.
    assert!(about(long.cpu.unwrap(), 1_000), "{long:?}");
    assert!(!long.is_cpu_own, "it was not read when it began");
    let next = call(&mut meter, &machine, 50, 40);
    assert!(next.cpu.unwrap() < micros(50), "{next:?}");
}

#[test]
fn calls_at_the_same_time_share_alike_and_together_pay_all() {
    let machine = Machine::new();
    let mut meter = Meter::new(machine.now());
    let first = meter.begin(machine.now(), &machine);
    machine.pass(10_000, 8_000);
    let second = meter.begin(machine.now(), &machine);
    machine.pass(10_000, 4_000);
    let second = meter.end(second, machine.now(), &machine);
    machine.pass(5_000, 1_000);
    let first = meter.end(first, machine.now(), &machine);
    assert!(about(first.cpu.unwrap() + second.cpu.unwrap(), 13_000), "{first:?} {second:?}");
    assert!(!first.is_cpu_own && !second.is_cpu_own);
    assert!(about(second.held, 5_000) && about(first.held, 20_000), "{first:?} {second:?}");
    assert_eq!((first.running, second.running), (micros(25_000), micros(10_000)));
}

#[test]
fn time_in_which_others_are_waited_for_is_not_held() {
    let machine = Machine::new();
    let mut meter = Meter::new(machine.now());
    let mut served = meter.begin(machine.now(), &machine);
    machine.pass(1_000, 900);
    meter.waits(&mut served, machine.now());
    machine.pass(7_000, 0);
    // A second call of another function beside the first changes nothing.
    meter.waits(&mut served, machine.now());
    machine.pass(3_000, 0);
    meter.goes_on(&mut served, machine.now());
    meter.goes_on(&mut served, machine.now());
    machine.pass(500, 400);
    meter.waits(&mut served, machine.now());
    machine.pass(100, 0);
    // It answers without what it waited for.
    let spent = meter.end(served, machine.now(), &machine);
    assert_eq!((spent.running, spent.waiting), (micros(11_600), micros(10_100)));
    assert!(about(spent.held, 1_500) && about(spent.cpu.unwrap(), 1_300), "{spent:?}");
}

#[test]
fn where_nobody_counts_only_time_is_told() {
    struct Nobody;
    impl Counted for Nobody {}
    let begun = Instant::now();
    let mut meter = Meter::new(begun);
    let served = meter.begin(begun, &Nobody);
    let spent = meter.end(served, begun + micros(70), &Nobody);
    assert_eq!((spent.running, spent.cpu, spent.memory_peak_bytes), (micros(70), None, None));
    assert!(!spent.is_cpu_own);
}

#[test]
fn requests_on_a_line_share_what_was_used_since_the_last_report() {
    let (machine, mut meter) = (Machine::new(), Meter::new(Instant::now()));
    assert!(meter.told(machine.now(), &[], &machine).is_empty());
    machine.pass(5_000, 90);
    let calls = [(micros(100), micros(70)), (micros(60), Duration::ZERO)];
    let spent = meter.told(machine.now(), &calls, &machine);
    assert!(about(spent[0].cpu.unwrap(), 30) && about(spent[1].cpu.unwrap(), 60), "{spent:?}");
    assert_eq!((spent[0].running, spent[0].waiting), (micros(100), micros(70)));
    assert!(about(spent[0].held, 30) && about(spent[1].held, 60) && !spent[0].is_cpu_own);
    // Who says that it took no time is held for its processor time.
    machine.pass(1_000, 400);
    let spent = meter.told(machine.now(), &[(Duration::ZERO, Duration::ZERO)], &machine);
    assert!(about(spent[0].cpu.unwrap(), 400) && about(spent[0].held, 400) && spent[0].is_cpu_own);
}

#[test]
fn who_says_that_it_waited_on_lines_is_held_for_its_processor_time_at_least() {
    let machine = Machine::new();
    let mut meter = Meter::new(machine.now());
    machine.pass(10_000, 0);
    let mut ended = |waited| {
        let mut served = meter.begin(machine.now(), &machine);
        machine.pass(2_000, 300);
        meter.waited(&mut served, machine.now(), waited);
        let spent = meter.end(served, machine.now(), &machine);
        machine.pass(10_000, 0);
        spent
    };
    let honest = ended(micros(1_500));
    assert!(about(honest.waiting, 1_500) && about(honest.held, 500), "{honest:?}");
    let liar = ended(Duration::from_secs(3));
    assert!(about(liar.waiting, 2_000) && about(liar.held, 300), "{liar:?}");
}

#[test]
fn time_waited_on_a_line_and_for_the_node_at_once_is_not_counted_twice() {
    let machine = Machine::new();
    let mut meter = Meter::new(machine.now());
    machine.pass(10_000, 0);
    let mut served = meter.begin(machine.now(), &machine);
    machine.pass(1_000, 0);
    meter.waits(&mut served, machine.now());
    machine.pass(1_500, 300);
    meter.goes_on(&mut served, machine.now());
    meter.waited(&mut served, machine.now(), micros(2_000));
    meter.waits(&mut served, machine.now());
    machine.pass(500, 0);
    let spent = meter.end(served, machine.now(), &machine);
    assert_eq!((spent.running, spent.waiting), (micros(3_000), micros(3_000)));
    assert!(about(spent.held, 300), "{spent:?}");
    // Nor is a request on a line held to have waited longer than it ran.
    let spent = meter.told(machine.now(), &[(micros(100), micros(300))], &machine);
    assert_eq!((spent[0].running, spent[0].waiting), (micros(100), micros(100)));
}
