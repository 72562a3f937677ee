// SPDX-License-Identifier: Apache-2.0
//! Which calls find memory for their results.

use super::*;

/// Says how many places for a result it has, in so many bytes.
const SOURCE: &str = "import os\n\
    def is_place(fd):\n    try: return 'sinew-outbox' in os.readlink(f'/proc/self/fd/{fd}')\n    except OSError: return False\n\
    def apply(x): return str(sum(map(is_place, os.listdir('/proc/self/fd')))).encode().ljust(int(bytes(x)))\n";

#[test]
fn a_step_whose_results_are_small_finds_no_memory_until_one_is_large() {
    let world = World::watched(Language::Python);
    let id = world.created(SOURCE);
    let places = |bytes: &str| {
        let (sender, receiver) = mpsc::channel();
        let call = world.call(SOURCE, &[world.store.keep_blob(bytes.as_bytes())]);
        world.functions.begin(id, call, Box::new(move |ended| sender.send(ended).unwrap()));
        world.text(&receiver.recv_timeout(Duration::from_secs(20)).unwrap().unwrap()).trim().to_owned()
    };
    assert_eq!(places("1"), "0", "it is no step");
    world.functions.seat(id).unwrap().lending.is_for(Lent::WhereUsed);
    for call in 1..16 {
        assert_eq!(places("1"), "1", "call {call}");
    }
    assert_eq!(places("1"), "0");
    assert_eq!(places("20000"), "0", "this one is sent");
    assert_eq!(places("1"), "1");
}
