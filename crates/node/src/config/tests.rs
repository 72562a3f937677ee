// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn budgets_never_exceed_what_was_given() {
    for workers in [1, 2, 7, 64, 5000] {
        for memory_mib in [1, 256, 1000, 1 << 14] {
            let memory_bytes = Some(memory_mib << 20);
            let budgets =
                Budgets::new(&Options { workers: Some(workers), memory_bytes, ..Options::default() });
            let guests = budgets.allowance_bytes * budgets.workers as u64 + budgets.pool_bytes;
            let total = guests + budgets.objects_bytes + budgets.relations_bytes + budgets.walks_bytes;
            assert!(total <= (memory_mib << 20).max(MEMORY_BYTES_MIN), "{budgets:?}");
            assert!((1..=WORKERS_MAX).contains(&budgets.workers));
        }
    }
}

#[test]
fn a_file_says_what_flags_do_not() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("node.toml");
    std::fs::write(&path, "listen = \"127.0.0.1:9\"\nworkers = 3\n").unwrap();
    let flags = Options { workers: Some(5), ..Options::default() };
    let options = flags.or(Options::from_file(&path).unwrap());
    assert_eq!((options.workers, options.listen.unwrap().port()), (Some(5), 9));
}

#[test]
fn connections_leave_files_for_the_store() {
    let budgets = Budgets::new(&Options::default());
    let files = linux::files_max().unwrap_or(u64::MAX);
    assert!(budgets.connections_max as u64 <= (files / 4).max(1) && budgets.connections_max <= 1024);
    let told = Options { connections_max: Some(0), ..Options::default() };
    assert_eq!(Budgets::new(&told).connections_max, 1);
    let file: Options = toml::from_str("connections_max = 7").unwrap();
    assert_eq!(Budgets::new(&Options::default().or(file)).connections_max, 7);
}

#[test]
fn each_limit_of_patience_is_looked_after_in_time() {
    for patience in [Patience::default(), Patience::default().with_owner()] {
        let shortest = patience.head.min(patience.idle).min(patience.answer);
        assert!(patience.look_every() <= shortest / 4);
    }
}

#[test]
fn an_unknown_key_names_file_and_key() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("node.toml");
    std::fs::write(&path, "wrokers = 3\n").unwrap();
    let error = Options::from_file(&path).unwrap_err().to_string();
    assert!(error.contains("node.toml") && error.contains("wrokers"), "{error}");
}
