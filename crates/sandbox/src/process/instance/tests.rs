// SPDX-License-Identifier: Apache-2.0
//! What faults say.
#![allow(clippy::unwrap_used)]

use std::net::{TcpListener, TcpStream};
use std::os::fd::{BorrowedFd, OwnedFd};

use linux::Namespaces;

use super::faults::without_addresses;
use super::*;
use crate::process::container::{Process, Program};
use crate::process::place::{Confinement, Nowhere};
use crate::process::template::TemplateOptions;

#[test]
fn texts_hold_no_addresses() {
    let text = "<object at 0x7ffff7a0b2c0> and 0x10 and 0xdeadbeef, 0x";
    assert_eq!(without_addresses(text), "<object at 0x…> and 0x10 and 0x…, 0x");
}

/// A place that cannot be entered: to join it is to write into a full device.
struct Full(std::fs::File, Option<std::fs::File>);

impl Counted for Full {}

impl Place for Full {
    fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.1.as_ref().map(std::fs::File::as_fd)
    }

    fn joins(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.0.as_fd()]
    }

    fn confinement(&self) -> Confinement {
        let setns_flags = if self.1.is_some() { Namespaces::NET.bits() } else { 0 };
        Confinement { setns_flags, ..Confinement::default() }
    }

    fn attach(&self, _: &[Bind]) -> Result<(), String> {
        Ok(())
    }

    fn connect(&self, _: u16) -> Result<TcpStream, String> {
        Err(String::new())
    }

    fn listen(&self, _: u16) -> Result<TcpListener, String> {
        Err("it has no loopback".to_owned())
    }

    fn memory_bytes(&self) -> Option<u64> {
        None
    }

    fn run(&self, _: &Program, _: [OwnedFd; 3]) -> Result<Process, String> {
        Err("nothing is started here".to_owned())
    }

    fn kill(&self) {}

    fn oom_kills(&self) -> u64 {
        0
    }
}

#[test]
fn what_keeps_a_child_from_being_confined_is_told() {
    let bounds = Bounds { result_bytes_max: 10, log_bytes_max: 10 };
    for language in Language::INTERPRETED {
        let options = TemplateOptions {
            language,
            interpreter: language.interpreter().into(),
            packages: Vec::new(),
            imports: Vec::new(),
            start_timeout: Duration::from_secs(60),
            is_to_fork: true,
            realm: None,
        };
        let nursery = Nursery::new(options).unwrap();
        let open = |path| std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let timeout = Duration::from_secs(20);
        let terms = Terms { language, bounds, memory_bytes: 1, load_timeout: timeout, call_timeout: timeout };
        let fault = Instance::fork(&nursery, Box::new(Full(open("/dev/full"), None)), terms).err().unwrap();
        assert_eq!(fault.code, FailureCode::Resources);
        assert!(fault.detail.contains("cannot join the control groups: No space left"), "{fault}");
        // What is no process cannot be entered; the template lives on.
        let nowhere = Full(open("/dev/full"), Some(open("/dev/null")));
        let fault = Instance::fork(&nursery, Box::new(nowhere), terms).err().unwrap();
        assert!(fault.detail.contains("setns of the process namespace: "), "{fault}");
        assert!(nursery.template().unwrap().is_alive());
        // The negative control.
        assert!(Instance::fork(&nursery, Box::new(Nowhere), terms).is_ok());
    }
}
