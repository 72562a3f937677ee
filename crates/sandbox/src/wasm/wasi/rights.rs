// SPDX-License-Identifier: Apache-2.0
//! What may be done with a descriptor, as bits.

pub(crate) const FD_DATASYNC: u64 = 1 << 0;
pub(crate) const FD_READ: u64 = 1 << 1;
pub(crate) const FD_SEEK: u64 = 1 << 2;
pub(crate) const FD_FDSTAT_SET_FLAGS: u64 = 1 << 3;
pub(crate) const FD_SYNC: u64 = 1 << 4;
pub(crate) const FD_TELL: u64 = 1 << 5;
pub(crate) const FD_WRITE: u64 = 1 << 6;
pub(crate) const FD_ADVISE: u64 = 1 << 7;
pub(crate) const FD_ALLOCATE: u64 = 1 << 8;
pub(crate) const PATH_CREATE_DIRECTORY: u64 = 1 << 9;
pub(crate) const PATH_CREATE_FILE: u64 = 1 << 10;
pub(crate) const PATH_LINK_SOURCE: u64 = 1 << 11;
pub(crate) const PATH_LINK_TARGET: u64 = 1 << 12;
pub(crate) const PATH_OPEN: u64 = 1 << 13;
pub(crate) const FD_READDIR: u64 = 1 << 14;
pub(crate) const PATH_READLINK: u64 = 1 << 15;
pub(crate) const PATH_RENAME_SOURCE: u64 = 1 << 16;
pub(crate) const PATH_RENAME_TARGET: u64 = 1 << 17;
pub(crate) const PATH_FILESTAT_GET: u64 = 1 << 18;
pub(crate) const PATH_FILESTAT_SET_SIZE: u64 = 1 << 19;
pub(crate) const PATH_FILESTAT_SET_TIMES: u64 = 1 << 20;
pub(crate) const FD_FILESTAT_GET: u64 = 1 << 21;
pub(crate) const FD_FILESTAT_SET_SIZE: u64 = 1 << 22;
pub(crate) const FD_FILESTAT_SET_TIMES: u64 = 1 << 23;
pub(crate) const PATH_SYMLINK: u64 = 1 << 24;
pub(crate) const PATH_REMOVE_DIRECTORY: u64 = 1 << 25;
pub(crate) const PATH_UNLINK_FILE: u64 = 1 << 26;
pub(crate) const POLL_FD_READWRITE: u64 = 1 << 27;

/// All that means something for a file.
pub(crate) const FILE: u64 = FD_DATASYNC
    | FD_READ
    | FD_SEEK
    | FD_FDSTAT_SET_FLAGS
    | FD_SYNC
    | FD_TELL
    | FD_WRITE
    | FD_ADVISE
    | FD_ALLOCATE
    | FD_FILESTAT_GET
    | FD_FILESTAT_SET_SIZE
    | FD_FILESTAT_SET_TIMES
    | POLL_FD_READWRITE;

/// All that means something for a directory.
pub(crate) const DIRECTORY: u64 = FD_DATASYNC
    | FD_FDSTAT_SET_FLAGS
    | FD_SYNC
    | PATH_CREATE_DIRECTORY
    | PATH_CREATE_FILE
    | PATH_LINK_SOURCE
    | PATH_LINK_TARGET
    | PATH_OPEN
    | FD_READDIR
    | PATH_READLINK
    | PATH_RENAME_SOURCE
    | PATH_RENAME_TARGET
    | PATH_FILESTAT_GET
    | PATH_FILESTAT_SET_SIZE
    | PATH_FILESTAT_SET_TIMES
    | FD_FILESTAT_GET
    | FD_FILESTAT_SET_TIMES
    | PATH_SYMLINK
    | PATH_REMOVE_DIRECTORY
    | PATH_UNLINK_FILE
    | POLL_FD_READWRITE;

/// Of a stream that is read.
pub(crate) const INPUT: u64 = FD_READ | FD_FILESTAT_GET | POLL_FD_READWRITE;
/// Of a stream that is written.
pub(crate) const OUTPUT: u64 = FD_WRITE | FD_DATASYNC | FD_SYNC | FD_FILESTAT_GET | POLL_FD_READWRITE;
