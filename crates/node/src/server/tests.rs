// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use std::os::unix::net::{UnixListener as StdListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn the_socket_replaces_one_that_a_dead_node_left() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(SOCKET_NAME);
    drop(StdListener::bind(&path).unwrap());
    // A node that was killed while it made its own.
    std::fs::create_dir(home.path().join(".new")).unwrap();
    drop(StdListener::bind(home.path().join(".new/s")).unwrap());
    let listener = bind_socket(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    let client = UnixStream::connect(&path).unwrap();
    listener.accept().await.unwrap();
    drop(client);
    let left: Vec<_> = home.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [SOCKET_NAME]);
}

/// Somebody looks all the time, and never sees a socket that is open to others.
#[tokio::test]
async fn the_socket_is_never_open_to_others() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(SOCKET_NAME);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut modes = Vec::new();
            while !done.load(Ordering::Relaxed) {
                modes.extend(path.symlink_metadata().map(|found| found.permissions().mode() & 0o777));
            }
            modes
        });
        for _ in 0..300 {
            drop(bind_socket(&path).unwrap());
            std::fs::remove_file(&path).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        assert!(watcher.join().unwrap().iter().all(|&mode| mode == 0o600));
    });
}

/// The kernel takes 107 bytes for a socket's path.
#[tokio::test]
async fn a_path_that_fits_the_socket_is_not_too_long_for_making_it() {
    let home = tempfile::tempdir().unwrap();
    let taken = home.path().as_os_str().len() + 2 + SOCKET_NAME.len();
    let deep = home.path().join("d".repeat(107 - taken));
    std::fs::create_dir(&deep).unwrap();
    let path = deep.join(SOCKET_NAME);
    assert_eq!(path.as_os_str().len(), 107);
    drop(bind_socket(&path).unwrap());
}
