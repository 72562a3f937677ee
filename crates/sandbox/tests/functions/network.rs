// SPDX-License-Identifier: Apache-2.0
//! The network, and above all the address at which clouds tell secrets to
//! whoever asks. Nothing answers there on most machines, so that an attack
//! that fails proves nothing: here something does, in a network of the test's
//! own, and with the wall down the function reaches it.

use std::net::TcpListener;
use std::process::Command;

use sandbox::process::{Language, Weakness};

use crate::Case;
use crate::control::{control, no_control};
use crate::world::{World, options};

pub(crate) const HOSTILE: &[Case] = &[("metadata_address", metadata_address)];

const METADATA: &str = "169.254.169.254";
const PORT: u16 = 80;

/// Gives this thread, and what it starts, a network of its own, in which the
/// metadata address is this machine; why not, otherwise.
#[allow(unsafe_code)]
fn own_network() -> Result<TcpListener, String> {
    // SAFETY: the call takes a number, and changes nothing but this thread.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err("a network namespace cannot be made".to_owned());
    }
    let address = format!("{METADATA}/32");
    for arguments in [&["link", "set", "lo", "up"][..], &["addr", "add", &address, "dev", "lo"]] {
        let set = Command::new("ip").args(arguments).status().map_err(|error| format!("ip: {error}"))?;
        if !set.success() {
            return Err(format!("ip {}: {set}", arguments.join(" ")));
        }
    }
    TcpListener::bind((METADATA, PORT)).map_err(|error| error.to_string())
}

/// A function that says whether it could connect.
fn connecting(language: Language) -> String {
    match language {
        Language::Python => format!(
            "import socket\ndef apply(x):\n    try: socket.create_connection(('{METADATA}', {PORT}), 2)\n    \
             except OSError as error: return b'refused %d' % error.errno\n    return b'done'\n"
        ),
        Language::Node => format!(
            "exports.apply = () => new Promise((done) => require('net').connect({PORT}, '{METADATA}')\n\
             .on('connect', () => done(Buffer.from('done')))\n\
             .on('error', (error) => done(Buffer.from(`refused ${{error.errno}}`))));\n"
        ),
        Language::Executable => unreachable!("the two with a template are tried"),
    }
}

fn metadata_address(language: Language) {
    // The thread's network ends with it.
    let tried = std::thread::spawn(move || {
        let _listener = own_network()?;
        let said = |weakness| {
            let world = World::with(options(language), weakness);
            String::from_utf8(world.run(&connecting(language)).unwrap()).unwrap()
        };
        Ok::<_, String>((said(Weakness::NONE), said(Weakness::HOST_NETWORK)))
    });
    match tried.join().unwrap() {
        Ok((contained, uncontained)) => {
            assert!(contained.starts_with("refused"), "{contained}");
            control(uncontained == "done", uncontained);
        }
        Err(why) => no_control(&why),
    }
}
