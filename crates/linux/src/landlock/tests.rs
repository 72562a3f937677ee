// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::fs;

use super::*;
use crate::test_thread::on_own_thread;

#[test]
fn files_outside_are_out_of_reach_where_there_is_landlock() {
    let folder = std::env::temp_dir().join(format!("sinew-landlock-{}", std::process::id()));
    let (read, write) = (folder.join("read"), folder.join("write"));
    fs::create_dir_all(&read).unwrap();
    fs::create_dir_all(&write).unwrap();
    fs::write(read.join("a"), b"a").unwrap();
    fs::write(folder.join("outside"), b"secret").unwrap();
    on_own_thread(|| {
        crate::forbid_new_privileges().unwrap();
        let holds = restrict_files(&[&read], &[&write]).unwrap();
        assert_eq!(holds, landlock_version().is_some());
        assert_eq!(fs::read(read.join("a")).unwrap(), b"a");
        fs::write(write.join("b"), b"b").unwrap();
        assert_eq!(fs::write(read.join("a"), b"x").is_err(), holds);
        assert_eq!(fs::read(folder.join("outside")).is_err(), holds);
    });
    fs::remove_dir_all(&folder).unwrap();
}
