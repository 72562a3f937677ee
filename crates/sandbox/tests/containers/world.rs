// SPDX-License-Identifier: Apache-2.0
//! What the cases share: runtimes with and without defences, and running
//! something in a container with bounds on time and output.

use std::io::{PipeReader, Read as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbox::process::{
    Abilities, Bind, Bounds, Container, Exit, Process, Program, Rootfs, Runtime, RuntimeOptions, Weakness,
};

use crate::control::{control, no_control};

pub(crate) const CGROUP_NAME: &str = "sinew-hostile";
/// How long any attack may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// No attack that is read to its end says more.
const OUTPUT_MAX: usize = 64 << 10;

pub(crate) struct World {
    abilities: Abilities,
    pub(crate) rootfs: Rootfs,
}

/// What became of a program.
#[derive(Debug)]
pub(crate) struct Ran {
    /// `None` if it was killed because its time was over.
    pub(crate) exit: Option<Exit>,
    /// Output and errors together.
    pub(crate) text: String,
}

impl World {
    pub(crate) fn new() -> Result<Self, String> {
        let runtime = runtime(Weakness::NONE).map_err(|error| error.to_string())?;
        let mut rootfs = Rootfs::host_programs();
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        rootfs.read_only.push(Bind { host: this, guest: "/attack".into() });
        rootfs.tmp_bytes = 4 << 20;
        Ok(Self { abilities: runtime.abilities().clone(), rootfs })
    }

    pub(crate) fn is_root(&self) -> bool {
        self.abilities.is_root
    }

    pub(crate) fn limits_memory(&self) -> bool {
        self.abilities.limits_memory && self.abilities.limits_processes && self.abilities.limits_cpu
    }

    pub(crate) fn limits_disk(&self) -> bool {
        self.abilities.limits_disk
    }

    /// A container with these defences off.
    pub(crate) fn container(&self, weakness: Weakness) -> Container {
        self.bounded(weakness, &Bounds::default())
    }

    pub(crate) fn bounded(&self, weakness: Weakness, bounds: &Bounds) -> Container {
        runtime(weakness).unwrap().prepare(&self.rootfs, bounds).unwrap()
    }

    /// Another one like it, to be changed.
    pub(crate) fn again(&self) -> Self {
        Self { abilities: self.abilities.clone(), rootfs: self.rootfs.clone() }
    }

    /// Runs an attack in a container of its own, and takes the container away.
    pub(crate) fn attack(&self, weakness: Weakness, arguments: &[&str]) -> Ran {
        self.attack_by("/attack", weakness, arguments)
    }

    fn attack_by(&self, path: &str, weakness: Weakness, arguments: &[&str]) -> Ran {
        let container = self.container(weakness);
        let mut program = attacker(arguments);
        program.path = path.into();
        let ran = finish(start(&container, &program));
        container.destroy().unwrap();
        ran
    }

    /// The attack is refused, also by each layer alone, and succeeds when all
    /// of them are off. `beside` is off throughout.
    pub(crate) fn assert_stopped(&self, arguments: &[&str], layers: &[Weakness], beside: Weakness) {
        self.assert_program_stopped("/attack", arguments, layers, beside);
    }

    pub(crate) fn assert_program_stopped(
        &self,
        path: &str,
        arguments: &[&str],
        layers: &[Weakness],
        beside: Weakness,
    ) {
        let ran = self.attack_by(path, Weakness::NONE, arguments);
        assert!(ran.text.starts_with("refused"), "{arguments:?} is not stopped: {ran:?}");
        // Without root there is little that could be switched off.
        if !self.is_root() && *layers != [Weakness::ANY_CALL] {
            return no_control("not root");
        }
        // A wall that this kernel does not have stops nothing.
        let is_there =
            |layer: &&Weakness| **layer != Weakness::NO_LANDLOCK || self.abilities.landlock.is_some();
        let layers: Vec<&Weakness> = layers.iter().filter(is_there).collect();
        for layer in layers.iter().filter(|_| layers.len() > 1) {
            let others = layers.iter().filter(|other| *other != layer);
            let weak = others.fold(beside, |weak, other| weak.and(**other));
            let ran = self.attack_by(path, weak, arguments);
            assert!(ran.text.starts_with("refused"), "{arguments:?} passes {layer:?}: {ran:?}");
        }
        let weak = layers.iter().fold(beside, |weak, layer| weak.and(**layer));
        let ran = self.attack_by(path, weak, arguments);
        // 38: this kernel was built without the call.
        if ran.text.starts_with("refused 38 ") {
            return no_control("not in this kernel");
        }
        control(ran.text.starts_with("done"), format!("without defences, {arguments:?}: {ran:?}"));
    }

    /// A neighbour is served at this moment.
    pub(crate) fn assert_others_are_served(&self) {
        let began = Instant::now();
        let ran = self.attack(Weakness::NONE, &["hello"]);
        assert_eq!((ran.exit, ran.text.as_str()), (Some(Exit::Code(0)), "done\n"));
        assert!(began.elapsed() < Duration::from_secs(5), "a neighbour waited {:?}", began.elapsed());
    }
}

pub(crate) fn runtime(weakness: Weakness) -> Result<Arc<Runtime>, sandbox::process::Error> {
    Runtime::new(RuntimeOptions {
        cgroup_name: CGROUP_NAME.to_owned(),
        weakness,
        ..RuntimeOptions::default()
    })
}

pub(crate) fn attacker(arguments: &[&str]) -> Program {
    let mut program = Program::new("/attack");
    program.arguments = ["attack"].iter().chain(arguments).map(Into::into).collect();
    program
}

pub(crate) fn shell(script: &str) -> Program {
    let mut program = Program::new("/bin/sh");
    program.arguments = vec!["-c".into(), script.into()];
    program
}

/// Starts a program with no input; its output and errors come out of the pipe.
pub(crate) fn start(container: &Container, program: &Program) -> (Process, PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    let stdio = [OwnedFd::from(null), writer.try_clone().unwrap().into(), writer.into()];
    (container.run(program, stdio).unwrap(), reader)
}

/// Reads to the end, within bounds, and waits.
pub(crate) fn finish((mut process, mut reader): (Process, PipeReader)) -> Ran {
    let began = Instant::now();
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    while text.len() < OUTPUT_MAX {
        let left = PATIENCE.saturating_sub(began.elapsed());
        if !linux::wait_readable(&reader, left).unwrap() {
            process.kill();
            return Ran { exit: None, text: String::from_utf8_lossy(&text).into_owned() };
        }
        match reader.read(&mut buffer).unwrap() {
            0 => break,
            len => text.extend(&buffer[..len]),
        }
    }
    let exit = process.wait(PATIENCE.saturating_sub(began.elapsed())).unwrap();
    Ran { exit, text: String::from_utf8_lossy(&text).into_owned() }
}
