// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn ticks_agree_with_the_kernels_clock() {
    let (begun, ticks) = (Instant::now(), Ticks::now());
    std::thread::sleep(Duration::from_millis(20));
    let measured = Ticks::now().nanos_since(ticks);
    let elapsed = begun.elapsed().as_nanos() as u64;
    assert!(measured >= 19_900_000, "{measured} ns of at least 20 ms");
    assert!(measured <= elapsed + elapsed / 100, "{measured} ns of {elapsed}");
}

#[test]
fn time_does_not_run_backwards() {
    let mut last = Ticks::now();
    for _ in 0..10_000 {
        let now = Ticks::now();
        assert!(now >= last);
        last = now;
    }
    assert_eq!(last.nanos_since(Ticks::now()), 0);
}
