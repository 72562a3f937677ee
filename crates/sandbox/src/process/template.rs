// SPDX-License-Identifier: Apache-2.0
//! The template process, seen from the node.
//!
//! It runs `guests/python/template.py` and takes orders over a socket of
//! whole messages, integers little-endian:
//!
//! ```text
//!  H ← version u16, pid u32, layout digest, "python version\0prefix\0base prefix"
//!  ! ← why it cannot serve
//!  F → id u64, setns flags u32, uid u32, gid u32, limits u16, joins u16, program u32,
//!      limits × (resource u32, soft i64, hard i64), the seccomp program;
//!      descriptors: the channel, the pidfd if there are flags, the cgroups to join
//!  R ← id u64, pid u32              forked
//!  E ← id u64, why                  not forked
//!  X ← id u64, wait status i32      a child of that request has ended
//! ```
//!
//! It runs no function, but it may be stuck or broken, for libraries are
//! imported in it: every wait is bounded, after which it is killed. Instances
//! live on without it; how they end is no longer told then.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linux::Packets;
use parking_lot::{Condvar, Mutex};

use super::place::{Confinement, Place};

const SOURCE: &str = include_str!("../../../../guests/python/template.py");
const VERSION: u16 = 1;
const MESSAGE_LEN_MAX: usize = 16 << 10;
/// A fork takes milliseconds; one that takes this long never ends.
const FORK_TIMEOUT: Duration = Duration::from_secs(5);
/// The heap of functions: blocks of up to 32 MiB come from it, as far as the
/// C library would go by itself, and up to 16 MiB at its end are kept when
/// they are free.
const HEAP: &str = "glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=16777216";

/// What a template is started with.
#[derive(Debug, Clone)]
pub(crate) struct TemplateOptions {
    pub(crate) interpreter: PathBuf,
    pub(crate) imports: Vec<String>,
    /// Within which it must have imported everything.
    pub(crate) start_timeout: Duration,
}

/// What a template says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Where types and mapped files lie; the same at every start.
    pub(crate) digest: [u8; 32],
    pub(crate) pid: u32,
    pub(crate) version: String,
    /// The directories that the interpreter and its libraries lie in.
    pub(crate) prefixes: Vec<PathBuf>,
}

/// How the end of one instance becomes known.
pub(crate) struct Watch {
    status: Mutex<Option<Ended>>,
    changed: Condvar,
    /// Shut when the process has ended, so that nobody waits for a word of it
    /// although a child of its own holds the other end.
    channel: UnixStream,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Exited(i32),
    Signalled(i32),
}

impl Watch {
    pub(crate) fn new(channel: UnixStream) -> Arc<Self> {
        Arc::new(Self { status: Mutex::new(None), changed: Condvar::new(), channel })
    }

    /// Ends all waiting for the instance's words.
    pub(crate) fn shut(&self) {
        // It fails only when the peer is gone already.
        _ = self.channel.shutdown(std::net::Shutdown::Both);
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        *self.status.lock()
    }

    /// Waits for the end; `None` if it does not come in time.
    pub(crate) fn wait(&self, patience: Duration) -> Option<Ended> {
        let deadline = Instant::now() + patience;
        let mut status = self.status.lock();
        while status.is_none() && !self.changed.wait_until(&mut status, deadline).timed_out() {}
        *status
    }

    fn end(&self, wait_status: i32) {
        let signal = wait_status & 0x7f;
        let ended =
            if signal == 0 { Ended::Exited((wait_status >> 8) & 0xff) } else { Ended::Signalled(signal) };
        *self.status.lock() = Some(ended);
        self.changed.notify_all();
        self.shut();
    }
}

/// A running template.
pub(crate) struct Template {
    orders: Arc<Orders>,
    pub(crate) hello: Hello,
    child: Mutex<Child>,
    reader: Option<JoinHandle<()>>,
}

struct Orders {
    packets: Packets,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    last_id: u64,
    answers: HashMap<u64, Result<u32, String>>,
    watches: HashMap<u64, Arc<Watch>>,
    /// Its socket is at its end, or it was given up.
    over: bool,
}

impl Template {
    /// Starts a template and waits until it is ready to fork.
    pub(crate) fn start(options: &TemplateOptions) -> Result<Self, String> {
        let (packets, other) = Packets::pair().map_err(|error| format!("no socket: {error}"))?;
        packets.set_send_timeout(FORK_TIMEOUT).map_err(|error| format!("no socket: {error}"))?;
        let mut child = command(options)
            .stdin(Stdio::from(other))
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", options.interpreter.display()))?;
        let packets = Arc::new(packets);
        let hello = hello(&packets, &mut child, options.start_timeout);
        let hello = hello.inspect_err(|_| end(&mut child))?;
        let Some(packets) = Arc::into_inner(packets) else {
            end(&mut child);
            return Err("its first words are still waited for".to_owned());
        };
        let orders = Arc::new(Orders { packets, state: Mutex::default(), changed: Condvar::new() });
        let listening = orders.clone();
        let reader =
            std::thread::Builder::new().name("template".to_owned()).spawn(move || listening.listen());
        match reader {
            Ok(reader) => Ok(Self { orders, hello, child: Mutex::new(child), reader: Some(reader) }),
            Err(error) => {
                end(&mut child);
                Err(format!("no thread to listen to it: {error}"))
            }
        }
    }

    /// Whether it may be asked to fork.
    pub(crate) fn is_alive(&self) -> bool {
        !self.orders.state.lock().over
    }

    /// Forks an instance into a place. Its first word on `channel` says that
    /// it has arrived there; `watch` is told how it ends.
    pub(crate) fn fork(
        &self,
        channel: BorrowedFd<'_>,
        place: &dyn Place,
        watch: &Arc<Watch>,
    ) -> Result<u32, String> {
        let id = {
            let mut state = self.orders.state.lock();
            state.last_id += 1;
            let id = state.last_id;
            state.watches.insert(id, watch.clone());
            id
        };
        let joins = place.joins();
        let message = fork_message(id, &place.confinement(), joins.len());
        let mut fds = vec![channel];
        fds.extend(place.pidfd());
        fds.extend(joins);
        let answer = match self.orders.packets.send(&message, &fds) {
            Ok(()) => self.orders.answer(id),
            Err(error) => Err(format!("it takes no orders: {error}")),
        };
        if answer.is_err() {
            self.orders.state.lock().watches.remove(&id);
        }
        answer.map_err(|reason| match reason.as_str() {
            "" => {
                self.give_up();
                "it did not answer in time and was killed".to_owned()
            }
            _ => reason,
        })
    }

    /// Kills it: it is stuck. The next order finds it over.
    pub(crate) fn give_up(&self) {
        self.orders.state.lock().over = true;
        self.orders.packets.shutdown();
        end(&mut self.child.lock());
    }

    #[cfg(test)]
    pub(crate) fn pid(&self) -> u32 {
        self.child.lock().id()
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        self.give_up();
        if let Some(reader) = self.reader.take() {
            // It only ends; what it might have panicked about is told there.
            _ = reader.join();
        }
    }
}

impl Orders {
    /// The answer to order `id`; an empty reason if none comes in time.
    fn answer(&self, id: u64) -> Result<u32, String> {
        let deadline = Instant::now() + FORK_TIMEOUT;
        let mut state = self.state.lock();
        loop {
            if let Some(answer) = state.answers.remove(&id) {
                return answer;
            }
            if state.over {
                return Err("it has ended".to_owned());
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return state.answers.remove(&id).unwrap_or(Err(String::new()));
            }
        }
    }

    fn listen(&self) {
        let mut buffer = vec![0; MESSAGE_LEN_MAX];
        loop {
            let len = match self.packets.receive(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(len) => len,
            };
            let Some((id, rest)) = buffer[1..len].split_first_chunk() else { break };
            let id = u64::from_le_bytes(*id);
            let number = rest.first_chunk().map(|bytes| i32::from_le_bytes(*bytes));
            let mut state = self.state.lock();
            match (buffer[0], number) {
                // An answer that nobody waits for is not kept.
                (b'R', Some(pid)) if state.watches.contains_key(&id) => {
                    state.answers.insert(id, Ok(pid as u32));
                }
                (b'E', _) if state.watches.contains_key(&id) => {
                    let reason = String::from_utf8_lossy(rest).into_owned();
                    state.answers.insert(id, Err(format!("it cannot fork: {reason}")));
                }
                (b'X', Some(status)) => {
                    if let Some(watch) = state.watches.remove(&id) {
                        watch.end(status);
                    }
                }
                (b'R' | b'E', _) => {}
                _ => break,
            }
            drop(state);
            self.changed.notify_all();
        }
        let mut state = self.state.lock();
        state.over = true;
        state.watches.clear();
        drop(state);
        self.changed.notify_all();
    }
}

#[expect(clippy::disallowed_methods, reason = "this is where the template's process is started")]
fn command(options: &TemplateOptions) -> Command {
    let mut command = Command::new(&options.interpreter);
    // Not -I: it would ignore the fixed hash seed. The environment holds
    // nothing else of Python's, and the template empties it.
    command.args(["-s", "-P", "-B", "-X", "frozen_modules=on", "-c", SOURCE]).args(&options.imports);
    command.env_clear();
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    command.env("PATH", path).env("LC_ALL", "C.UTF-8").env("PYTHONHASHSEED", "0");
    // The libraries make their threads when they are loaded; with threads
    // nothing may be forked.
    for name in ["MALLOC_ARENA_MAX", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"] {
        command.env(name, "1");
    }
    // What a call frees, the next finds in the heap. Otherwise the C library
    // gives large arrays back to the kernel as soon as they are freed, and each
    // 4 KiB of the next ones costs a page fault of 2 µs.
    command.env("GLIBC_TUNABLES", HEAP);
    command.current_dir("/").stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn end(child: &mut Child) {
    // Both fail only when it has ended, which is what is wanted.
    _ = child.kill();
    _ = child.wait();
}

/// The first words of a template. A thread waits for them, which the end of
/// the process ends too.
fn hello(packets: &Arc<Packets>, child: &mut Child, patience: Duration) -> Result<Hello, String> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let listening = packets.clone();
    let listener = std::thread::Builder::new().name("template hello".to_owned()).spawn(move || {
        let mut buffer = vec![0; MESSAGE_LEN_MAX];
        let message = listening.receive(&mut buffer).map(|len| buffer[..len].to_vec());
        drop(listening);
        // Nobody is there to hear it after the time has passed.
        _ = sender.send(message);
    });
    let listener = listener.map_err(|error| format!("no thread to listen to it: {error}"))?;
    let message = receiver.recv_timeout(patience);
    if message.is_err() {
        packets.shutdown();
        end(child);
    }
    // It ends now at the latest; it cannot panic.
    _ = listener.join();
    let silent = format!("it said nothing within {} s", patience.as_secs());
    parse_hello(&message.map_err(|_| silent)?)
}

fn parse_hello(message: &io::Result<Vec<u8>>) -> Result<Hello, String> {
    let message = message.as_ref().map_err(|error| format!("it cannot be heard: {error}"))?;
    match message.split_first() {
        Some((b'H', rest)) => parse_facts(rest).ok_or_else(|| "its first words make no sense".to_owned()),
        Some((b'!', reason)) => Err(String::from_utf8_lossy(reason).into_owned()),
        Some(_) => Err("its first words make no sense".to_owned()),
        None => Err("it ended before it said anything; is this Python 3.11 or later?".to_owned()),
    }
}

fn parse_facts(facts: &[u8]) -> Option<Hello> {
    let (version, rest) = facts.split_first_chunk()?;
    let (pid, rest) = rest.split_first_chunk()?;
    let (digest, rest) = rest.split_first_chunk()?;
    let mut texts = std::str::from_utf8(rest).ok()?.split('\0');
    let python = texts.next()?.to_owned();
    let prefixes = texts.map(PathBuf::from).collect();
    let hello = Hello { digest: *digest, pid: u32::from_le_bytes(*pid), version: python, prefixes };
    (u16::from_le_bytes(*version) == VERSION).then_some(hello)
}

fn fork_message(id: u64, confinement: &Confinement, joins: usize) -> Vec<u8> {
    let mut message = vec![b'F'];
    message.extend(id.to_le_bytes());
    message.extend(confinement.setns_flags.to_le_bytes());
    message.extend(confinement.uid.to_le_bytes());
    message.extend(confinement.gid.to_le_bytes());
    message.extend((confinement.rlimits.len() as u16).to_le_bytes());
    message.extend((joins as u16).to_le_bytes());
    message.extend((confinement.seccomp.len() as u32).to_le_bytes());
    for (resource, soft, hard) in &confinement.rlimits {
        message.extend(resource.to_le_bytes());
        message.extend(soft.to_le_bytes());
        message.extend(hard.to_le_bytes());
    }
    message.extend(&confinement.seccomp);
    message
}

/// The template of a node: started when needed, again when it has died.
pub(crate) struct Nursery {
    options: TemplateOptions,
    current: Mutex<Arc<Template>>,
}

impl Nursery {
    pub(crate) fn new(options: TemplateOptions) -> Result<Self, String> {
        let current = Mutex::new(Arc::new(Template::start(&options)?));
        Ok(Self { options, current })
    }

    /// A template that lives, as far as is known.
    pub(crate) fn template(&self) -> Result<Arc<Template>, String> {
        let mut current = self.current.lock();
        if !current.is_alive() {
            *current = Arc::new(Template::start(&self.options)?);
        }
        Ok(current.clone())
    }
}

#[cfg(test)]
mod tests;
