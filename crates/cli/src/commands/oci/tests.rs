// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use node::bundle::Birth;

use super::*;

#[test]
fn ids_are_names_of_folders() {
    for id in ["a", "9b5-1_x.y", "a+b"] {
        check_id(id).unwrap();
    }
    for id in ["", ".", "..", "a/b", ".hidden", "ä", &"x".repeat(256)] {
        assert!(check_id(id).is_err(), "{id}");
    }
}

#[test]
fn signals_have_numbers_and_names() {
    for (text, number) in [("9", 9), ("KILL", 9), ("SIGTERM", 15), ("sigusr1", 10), ("SYS", 31), ("64", 64)] {
        assert_eq!(signal_number(text).unwrap(), number, "{text}");
    }
    for text in ["0", "65", "-9", "SIG", "NOTHING", ""] {
        assert!(signal_number(text).is_err(), "{text}");
    }
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let record = Record {
        id: "c".to_owned(),
        version: "1.0.2".to_owned(),
        bundle: "/b".into(),
        annotations: vec![("k".to_owned(), "v".to_owned())],
        control_group: "/g".into(),
        process: Birth { pid: 7, ticks: 1 << 40 },
    };
    assert!(Record::read(folder.path()).is_err());
    record.write(folder.path()).unwrap();
    assert_eq!(Record::read(folder.path()).unwrap(), record);
    let state = |status| serde_json::from_str::<serde_json::Value>(&record.state(status)).unwrap();
    assert_eq!(state(Status::Running)["pid"], 7);
    assert_eq!(state(Status::Stopped)["pid"], serde_json::Value::Null);
    assert_eq!(state(Status::Stopped)["annotations"]["k"], "v");
}
