// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt as _;

use sandbox::process::SecretSource as _;

use super::*;

fn open(home: &Path) -> Secrets {
    Secrets::open(Some(home)).unwrap()
}

#[test]
fn they_survive_and_are_on_no_disk_as_they_are() {
    let home = tempfile::tempdir().unwrap();
    {
        let secrets = open(home.path());
        assert!(secrets.set("DB_URL", "postgres://hunter2@db").unwrap());
        assert!(!secrets.set("DB_URL", "postgres://hunter2@db").unwrap(), "the same again");
        assert!(secrets.set("EMPTY", "").unwrap() && secrets.set("GONE", "x").unwrap());
        assert!(secrets.remove("GONE").unwrap() && !secrets.remove("GONE").unwrap());
    }
    let secrets = open(home.path());
    assert_eq!(secrets.names(), ["DB_URL", "EMPTY"]);
    assert_eq!(secrets.secret("DB_URL").as_deref(), Some("postgres://hunter2@db"));
    assert_eq!((secrets.secret("EMPTY").as_deref(), secrets.secret("GONE")), (Some(""), None));
    let mut files = Vec::new();
    for file in std::fs::read_dir(home.path()).unwrap() {
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let bytes = std::fs::read(file.path()).unwrap();
        for told in [&b"hunter2"[..], b"DB_URL"] {
            assert!(!bytes.windows(told.len()).any(|part| part == told), "{:?}", file.path());
        }
        files.push(file.file_name().into_string().unwrap());
    }
    files.sort();
    assert_eq!(files, [FILE, KEY_FILE]);
    assert!(!format!("{secrets:?}").contains("hunter2"));
}

#[test]
fn another_key_or_a_changed_byte_opens_nothing() {
    let home = tempfile::tempdir().unwrap();
    open(home.path()).set("A", "value").unwrap();
    let (file, key) = (home.path().join(FILE), home.path().join(KEY_FILE));
    let (sealed, right) = (std::fs::read(&file).unwrap(), std::fs::read(&key).unwrap());
    for at in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[at] ^= 1;
        std::fs::write(&file, &changed).unwrap();
        assert!(matches!(Secrets::open(Some(home.path())), Err(SecretError::Damaged(_))), "byte {at}");
    }
    std::fs::write(&file, &sealed).unwrap();
    for wrong in [vec![0; KEY_LEN], vec![1; 3]] {
        std::fs::write(&key, wrong).unwrap();
        assert!(matches!(Secrets::open(Some(home.path())), Err(SecretError::Damaged(_))));
    }
    std::fs::remove_file(&key).unwrap();
    assert!(matches!(Secrets::open(Some(home.path())), Err(SecretError::Damaged(_))));
    std::fs::write(&key, right).unwrap();
    assert_eq!(open(home.path()).secret("A").as_deref(), Some("value"), "the control");
}

#[test]
fn what_cannot_be_one_is_refused() {
    let secrets = Secrets::open(None).unwrap();
    for name in ["", "1A", "A-B", "A B", "Ä", &"A".repeat(65)] {
        assert!(matches!(secrets.set(name, "x"), Err(SecretError::Invalid(_))), "{name}");
    }
    assert!(secrets.set("A", "with\0zero").is_err());
    assert!(secrets.set("A", &"x".repeat(VALUE_LEN_MAX + 1)).is_err());
    assert!(secrets.set("A", &"x".repeat(VALUE_LEN_MAX)).is_ok() && secrets.names() == ["A"]);
    assert!((1..SECRETS_MAX).all(|number| secrets.set(&format!("S{number}"), "").is_ok()));
    assert!(secrets.set("ONE_MORE", "").is_err());
}
