// SPDX-License-Identifier: Apache-2.0
//! A process is killed in the middle of its work, again and again: every
//! message that it took is there, or done.
#![allow(clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tempfile::tempdir;

use super::{claim, is_like, message};
use crate::{Embedded, End, Options, Queue};

const HOME_VARIABLE: &str = "QUEUE_CRASH_TEST_HOME";
const ROUND_VARIABLE: &str = "QUEUE_CRASH_TEST_ROUND";
const KILLS: u64 = 25;

fn open(home: &Path) -> Embedded {
    Embedded::open(&home.join("queue"), Options::default()).unwrap()
}

fn say(word: &str, number: u64) {
    let line = format!("{word} {number}\n");
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}

/// Not a test of its own: the process that is killed.
#[test]
fn child_that_is_killed() {
    let Some(home) = std::env::var_os(HOME_VARIABLE).map(PathBuf::from) else { return };
    let round: u64 = std::env::var(ROUND_VARIABLE).unwrap().parse().unwrap();
    let queue = Arc::new(open(&home));
    let pushing = |id: u64| {
        let queue = queue.clone();
        let work = move || {
            for step in 0.. {
                let number = (round << 32) | (step * 3 + id);
                queue.push(message(number, ["a", "b", "c"][id as usize]), 0).unwrap();
                say("took", number);
            }
        };
        thread::Builder::new().spawn(work).unwrap()
    };
    let threads: Vec<_> = (0..3).map(pushing).collect();
    loop {
        let Some(claimed) = claim(&*queue, 0) else { continue };
        let number = claimed.id.0 as u64;
        assert!(is_like(&claimed, &message(number, &claimed.lane)));
        say("began", number);
        if number.is_multiple_of(4) && claimed.attempt == 1 {
            let end = End::Retry { due_ms: 0, reason: "again".to_owned(), counts: true };
            queue.end(claimed.id, end, None, 0).unwrap();
        } else {
            queue.end(claimed.id, End::Succeeded(claimed.head), None, 0).unwrap();
            say("done", number);
        }
        if threads.is_empty() {
            break;
        }
    }
}

/// What children said, over all of their lives.
#[derive(Default)]
struct Said {
    took: BTreeSet<u64>,
    began: BTreeMap<u64, u64>,
    done: BTreeMap<u64, u64>,
}

impl Said {
    fn hear(&mut self, line: &str) -> Option<()> {
        // libtest may begin a line that the first word then ends.
        let at = ["took ", "began ", "done "].into_iter().find_map(|word| line.find(word))?;
        let (word, number) = line[at..].split_once(' ')?;
        let number = number.parse().ok()?;
        match word {
            "took" => _ = self.took.insert(number),
            "began" => *self.began.entry(number).or_default() += 1,
            _ => *self.done.entry(number).or_default() += 1,
        }
        Some(())
    }
}

/// Runs the child, and kills it after it said so many words.
fn kill_one(home: &Path, round: u64, words: u64, said: &mut Said) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::crash::child_that_is_killed", "--nocapture", "--test-threads=1"])
        .env(HOME_VARIABLE, home)
        .env(ROUND_VARIABLE, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..words {
        said.hear(&lines.next().expect("the child lives until it is killed").unwrap());
    }
    thread::sleep(Duration::from_micros(round * 137 % 3000));
    child.kill().unwrap();
    child.wait().unwrap();
    lines.for_each(|line| _ = said.hear(&line.unwrap_or_default()));
}

#[test]
fn nothing_that_was_taken_is_lost_by_kills() {
    let folder = tempdir().unwrap();
    let mut said = Said::default();
    for round in 0..KILLS {
        kill_one(folder.path(), round, 20 + round * 11 % 60, &mut said);
    }
    let queue = open(folder.path());
    let mut left = BTreeSet::new();
    while let Some(claimed) = claim(&queue, u64::MAX) {
        let number = claimed.id.0 as u64;
        assert!(is_like(&claimed, &message(number, &claimed.lane)), "{number}");
        assert!(left.insert(number), "{number} twice");
    }
    for number in &said.took {
        let status = queue.status(crate::Id(u128::from(*number)));
        assert!(status.is_some(), "{number} is lost");
    }
    for (number, times) in &said.done {
        assert_eq!(*times, 1, "{number} was done and reported more than once");
        assert!(!left.contains(number), "{number} is done and waits again");
    }
    let again = said.began.iter().filter(|(number, times)| **times > 1 && !number.is_multiple_of(4)).count();
    eprintln!("{} taken, {} done, {again} begun again after a kill", said.took.len(), said.done.len());
    assert!(said.took.len() as u64 >= KILLS * 10 && said.done.len() > 100);
}
