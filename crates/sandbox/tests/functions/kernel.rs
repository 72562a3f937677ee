// SPDX-License-Identifier: Apache-2.0
//! What functions can have the kernel keep for them, and functions that fork while
//! they are loaded.

use std::time::Duration;

use sandbox::Sandbox as _;
use sandbox::process::{FunctionsOptions, Language, Weakness};

use crate::Case;
use crate::control::control;
use crate::world::{World, options};

pub(crate) const CASES: &[Case] = &[
    ("programs_during_load", programs_during_load),
    ("a_fork_during_load", fork_during_load),
    ("keys_of_pages", keys_of_pages),
];

pub(crate) const HOSTILE: &[Case] =
    &[("memory_of_sockets", memory_of_sockets), ("memory_of_inotify", memory_of_inotify)];

/// More than the memory that a function has here unless it asks for more.
const WANTED: usize = 100 << 20;

/// What waits in sockets that nobody reads is the kernel's memory, and the container's.
fn memory_of_sockets(language: Language) {
    let fill = "import socket\n\
         kept, filled = [], 0\n\
         while filled < WANTED:\n    \
         pair = socket.socketpair()\n    \
         kept.append(pair)\n    \
         for end in pair:\n        \
         end.setblocking(False)\n        \
         try:\n            \
         while True: filled += end.send(bytes(32 << 10))\n        \
         except BlockingIOError: pass\n\
         return str(filled).encode()";
    assert_bounded(language, fill);
}

/// So is what waits in queues of events that nobody reads.
fn memory_of_inotify(language: Language) {
    let fill = "import array, fcntl\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         watchers = [libc.inotify_init1(0o4000) for _ in range(64)]\n\
         os.mkdir('/tmp/seen')\n\
         assert all(libc.inotify_add_watch(fd, b'/tmp/seen', 0xc0) > 0 for fd in watchers), 'no watch'\n\
         names = ['/tmp/seen/' + letter * 250 for letter in 'ab']\n\
         open(names[0], 'w').close()\n\
         filled, made = 0, 0\n\
         while filled < WANTED and made < 8000:\n    \
         os.rename(names[made % 2], names[1 - made % 2])\n    \
         made += 1\n    \
         if made % 200 == 0:\n        \
         waiting = array.array('i', [0])\n        \
         filled = sum(waiting[0] for fd in watchers if fcntl.ioctl(fd, 0x541b, waiting) == 0)\n\
         return str(filled).encode()";
    assert_bounded(language, fill);
}

/// Without a control group so much is kept; with one the function ends, or gets less.
fn assert_bounded(language: Language, fill: &str) {
    // With the usual number of files less than its memory is to be had.
    let patient =
        || FunctionsOptions { call_timeout: Duration::from_secs(60), files: 4096, ..options(language) };
    let fill = fill.replace("WANTED", &WANTED.to_string());
    let kept = |said: &str| said.parse::<usize>().unwrap_or(0);
    let world = World::with(patient(), Weakness::NONE);
    let said = world.says(&fill);
    assert!(kept(&said) < WANTED, "{said}");
    assert!(kept(&said) > 0 || said.starts_with("fault memory"), "{said}");
    world.assert_others_are_served();
    drop(world);
    let unbounded = World::with(patient(), Weakness::NO_GROUP);
    let said = unbounded.says(&fill);
    control(kept(&said) >= WANTED, said);
}

/// What a module starts and waits for while it is loaded is its own affair.
fn programs_during_load(language: Language) {
    let world = World::new(language);
    let source = match language {
        Language::Node => {
            "const { execFileSync } = require('child_process');\n\
             const said = execFileSync('/bin/echo', ['loaded']);\nexports.apply = () => said;"
        }
        _ => {
            "import os, subprocess\nsaid = subprocess.run(['/bin/echo', 'loaded'], capture_output=True).stdout\n\
             pid = os.fork()\nif pid == 0: os._exit(7)\nended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n\
             assert ended == 7\ndef apply(x): return said"
        }
    };
    assert_eq!(world.run(source).unwrap(), b"loaded\n");
    world.assert_others_are_served();
}

/// A child that goes on as if it were the instance has the same channel. Its function may
/// come to harm by that, others do not, and both end.
fn fork_during_load(language: Language) {
    if language != Language::Python {
        return;
    }
    let world = World::new(language);
    let source = "import os\nos.fork()\ndef apply(x): return str(os.getpid()).encode()";
    let created = world.functions.create(&[world.spec(source)]).pop().unwrap();
    if let Ok(id) = created {
        world.functions.start(&[id]).pop().unwrap().unwrap();
        // Whichever of them answers, or none.
        _ = world.invoke(id, source, b"");
        world.assert_others_are_served();
        world.end(id);
    }
    world.assert_others_are_served();
}

/// Pages get keys as outside: who asked for a key before the container confined it, as
/// V8 does in a template for its WebAssembly, gives it to pages after.
fn keys_of_pages(language: Language) {
    if language != Language::Python {
        return;
    }
    let number = linux::call_number("pkey_mprotect").unwrap();
    // No key, as most have: processors without keys, too, know what that is.
    let lines = format!(
        "import mmap\nlibc = ctypes.CDLL(None, use_errno=True)\nlibc.syscall.restype = ctypes.c_long\n\
         pages = mmap.mmap(-1, 4096)\n\
         at = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(pages)))\n\
         done = libc.syscall({number}, at, ctypes.c_size_t(4096), 1, -1)\n\
         return b'%d %d' % (done, ctypes.get_errno())"
    );
    let outside = std::process::Command::new("python3")
        .args(["-c", &format!("{}sys.stdout.buffer.write(apply(b''))", crate::world::apply(&lines))])
        .output()
        .unwrap();
    assert!(outside.status.success(), "{outside:?}");
    assert_eq!(World::new(language).says(&lines).as_bytes(), outside.stdout);
}
