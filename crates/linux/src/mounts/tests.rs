// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::fs;

use super::*;
use crate::test_thread::{is_root, on_own_thread};
use crate::{Namespaces, unshare};

fn attributes(place: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    let place = place.to_str().unwrap();
    let line = mounts.lines().rfind(|line| line.split(' ').nth(4) == Some(place))?;
    line.split(' ').nth(5).map(str::to_owned)
}

fn in_own_mounts(test: impl FnOnce(&Path) + Send) {
    if !is_root() {
        return;
    }
    let folder = std::env::temp_dir().join(format!(
        "sinew-mounts-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    fs::create_dir(&folder).unwrap();
    on_own_thread(|| {
        unshare(Namespaces::MOUNT).unwrap();
        make_mounts_private().unwrap();
        test(&folder);
    });
    assert_eq!(attributes(&folder), None, "nobody else sees the mounts");
    fs::remove_dir(&folder).unwrap();
}

#[test]
fn memory_files_have_quotas() {
    in_own_mounts(|folder| {
        let files = new_memory_files(64 << 10, 8, 0o700, Restrictions::NO_EXEC).unwrap();
        attach(files.as_fd(), folder).unwrap();
        assert_eq!(file_system_size(folder).unwrap(), (64 << 10, 8));
        assert!(attributes(folder).unwrap().contains("noexec"));
        let full = fs::write(folder.join("big"), vec![1; 65 << 10]).unwrap_err();
        assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
        let many = (0..20).find_map(|n| fs::write(folder.join(n.to_string()), b"").err());
        assert_eq!(many.unwrap().raw_os_error(), Some(libc::ENOSPC));
        detach(folder).unwrap();
        assert_eq!(attributes(folder), None);
    });
}

#[test]
fn copies_are_restricted_and_the_original_is_not() {
    in_own_mounts(|folder| {
        let files = new_memory_files(1 << 20, 64, 0o755, Restrictions::default()).unwrap();
        attach(files.as_fd(), folder).unwrap();
        let (from, to) = (folder.join("from"), folder.join("to"));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("code"), b"code").unwrap();
        let all = Restrictions::READ_ONLY.and(Restrictions::NO_SETUID).and(Restrictions::NO_DEVICES);
        attach(copy_tree(&from, all).unwrap().as_fd(), &to).unwrap();
        assert!(attributes(&to).unwrap().starts_with("ro,nosuid,nodev"));
        let refused = fs::write(to.join("code"), b"x").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
        fs::write(from.join("code"), b"new").unwrap();
        assert_eq!(fs::read(to.join("code")).unwrap(), b"new");
        restrict(files.as_fd(), Restrictions::READ_ONLY).unwrap();
        assert!(fs::write(from.join("code"), b"x").is_err());
    });
}

#[test]
fn the_root_is_changed_and_the_old_one_is_gone() {
    in_own_mounts(|folder| {
        let root = new_memory_files(1 << 20, 64, 0o755, Restrictions::default()).unwrap();
        attach(root.as_fd(), folder).unwrap();
        fs::write(folder.join("here"), b"").unwrap();
        change_directory(root.as_fd()).unwrap();
        change_root(None).unwrap();
        let names: Vec<_> = fs::read_dir("/").unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["here"]);
        assert!(fs::metadata("/../etc").is_err());
    });
}

#[test]
fn unknown_file_systems_and_options_are_errors() {
    in_own_mounts(|_| {
        assert!(new_file_system("no-such-files", &[], Restrictions::default()).is_err());
        assert!(new_file_system("tmpfs", &[("no-such-option", "1")], Restrictions::default()).is_err());
        assert!(copy_tree(Path::new("/no/such/path"), Restrictions::default()).is_err());
    });
}
