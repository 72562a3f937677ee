// SPDX-License-Identifier: Apache-2.0
//! An image restores every byte, whatever it holds.

use super::*;

fn check(initial: &[u8]) {
    let image = Image::of(initial);
    let mut covered = 0;
    for run in &image.runs {
        let (Run::Zero(range) | Run::Data(range, _)) = run;
        assert_eq!(range.start, covered, "runs are adjacent");
        covered = range.end;
    }
    assert_eq!(covered, initial.len());
    let mut memory = vec![0xA5; initial.len()];
    assert!(image.restore(&mut memory));
    assert_eq!(memory, initial);
}

#[test]
fn restores_what_was_there() {
    check(&[]);
    check(&[0; 4096]);
    check(&[7; 4096]);
    for (at, len) in [(0, 1), (1, 300), (4095, 1), (1000, 2000), (255, 2), (256, 1)] {
        let mut memory = vec![0; 4096];
        memory[at..at + len].fill(9);
        check(&memory);
        memory[at + len / 2] = 0;
        check(&memory);
    }
}

#[test]
fn restores_whatever_stands_at_the_edges_of_blocks() {
    for at in [0, 1023, 1024, 1025, 4095, 4096, 5119, 5120, 5199] {
        for other in [1022, 1023, 1024, 2047, 2048, 5199] {
            let mut memory = vec![0; 5200];
            (memory[at], memory[other]) = (7, 9);
            check(&memory);
        }
    }
}

#[test]
fn long_zero_ranges_are_not_stored() {
    let mut memory = vec![0; 65536];
    memory[1024..1040].fill(1);
    let image = Image::of(&memory);
    assert!(
        matches!(&image.runs[..], [Run::Zero(_), Run::Data(data, _), Run::Zero(_)] if *data == (1024..1040))
    );
}

#[test]
fn refuses_another_size() {
    let image = Image::of(&[1; 64]);
    let mut grown = [9; 65];
    assert!(!image.restore(&mut grown));
    assert_eq!(grown, [9; 65]);
}
