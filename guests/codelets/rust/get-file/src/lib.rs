// SPDX-License-Identifier: Apache-2.0
//! `get-file(path, info, directory)`: the file at a path below a directory,
//! found step by step without fetching what lies beside the path.
//!
//! A directory is a tree `[info, child…]`. Its info is a blob with one line
//! per child, in the children's order: `f name` for a file, which is a blob, or
//! `d name` for a directory, and a line feed. Names hold neither `/` nor line
//! feeds. The arguments are the path, the directory's info, and the directory
//! itself, best as a ref: only the info is read.
#![cfg_attr(target_arch = "wasm32", no_std)]

use sinew_guest::{Call, Handle, Reader, blob, codelet, fail, with_piece};

use lookup::{Found, Lookup};

mod lookup;

/// The longest path in bytes, as on Linux.
const PATH_LEN_MAX: usize = 4096;

fn get_file(call: Call) -> Handle {
    let [path, info, directory] = call.arguments();
    if path.size() > PATH_LEN_MAX as u64 {
        fail("a path of over 4096 bytes");
    }
    let mut buffer = [0; PATH_LEN_MAX];
    let len = path.read(0, &mut buffer);
    let (name, rest) = lookup::first_component(buffer.get(..len).unwrap_or_default());
    if name.is_empty() {
        fail("the path is empty");
    }
    // Entry 0 is the info.
    let Found { line, is_directory } = find(name, info);
    let child = directory.selection(1 + line);
    if rest.is_empty() {
        return child;
    }
    if !is_directory {
        fail("a file in the middle of the path");
    }
    let info = child.selection(0).strict();
    call.apply(call.procedure(), [blob(rest), info, child.shallow()])
}

fn find(name: &[u8], info: Handle) -> Found {
    let mut lines = Reader::new(info);
    let mut lookup = Lookup::new(name);
    with_piece(|piece| {
        loop {
            let len = lines.read(piece);
            if len == 0 {
                fail("no such file or directory");
            }
            if let Some(found) = lookup.feed(piece.get(..len).unwrap_or_default()) {
                return found;
            }
        }
    })
}

codelet!(get_file);
