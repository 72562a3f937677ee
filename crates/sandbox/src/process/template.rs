// SPDX-License-Identifier: Apache-2.0
//! The template process, seen from the node.
//!
//! It runs `guests/<language>/template.*` on the native core of all languages,
//! `guests/template`, and takes orders over a socket of whole messages,
//! integers little-endian:
//!
//! ```text
//!  H ← version u16, pid u32, layout digest, huge pages i32,
//!      "interpreter\0version\0binary interface\0prefix\0another prefix …"
//!  ! ← why it cannot serve
//!  ? ← "why it cannot fork\0interpreter\0version\0binary interface\0prefix\0another prefix …"
//!  F → id u64, setns flags u32, uid u32, gid u32, flags u32 (1 Landlock, 2 its own user),
//!      limits u16, joins u16, doors u16, program u32,
//!      limits × (resource u32, soft i64, hard i64), the seccomp program;
//!      descriptors: the channel; the namespaces to enter, that of process numbers
//!      first, or if there are no such doors but flags, a pidfd; the cgroups to join
//!  R ← id u64, pid u32              forked
//!  E ← id u64, why                  not forked
//!  X ← id u64, wait status i32      a child of that request has ended
//! ```
//!
//! It runs no function, but it may be stuck or broken, for libraries are
//! imported in it: every wait is bounded, after which it is killed. Instances
//! live on without it; how they end is no longer told then. One in a realm has
//! loaded what nobody trusts: of its words only those count that harm nobody but
//! its own instances.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use adapter::frame::VERSION;
use parking_lot::{Condvar, Mutex};

use super::container::Process;
use super::language::{Language, Role};
use super::options::Interpreter;
use super::place::{Confinement, Place};
use super::realm::Realm;

/// How often a template that is to replace another one is started, if what it
/// starts with has another layout.
const LAYOUT_TRIES: usize = 2;
const LAYOUT_SHOWN_BYTES: usize = 8;
/// Bytes of what a template says of a failure.
const REASON_BYTES_MAX: usize = 4096;
/// Answers of a template to what nobody has asked; then it is given up.
const STRAYS_MAX: u32 = 1024;
/// Bits of an order's flags.
const ORDER_LANDLOCK: u32 = 1;
const ORDER_ONE_USER: u32 = 2;
/// A fork takes milliseconds; one that takes this long never ends.
const FORK_TIMEOUT: Duration = Duration::from_secs(5);

/// What a template is started with.
#[derive(Debug, Clone)]
pub(crate) struct TemplateOptions {
    pub(crate) language: Language,
    pub(crate) interpreter: PathBuf,
    pub(crate) packages: Vec<PathBuf>,
    pub(crate) imports: Vec<String>,
    /// Within which it must have imported everything.
    pub(crate) start_timeout: Duration,
    /// Whether it is to fork, or only to tell where it lies and that it would load.
    pub(crate) is_to_fork: bool,
    /// Where it is started, if not as a child of the node's.
    pub(crate) realm: Option<Arc<Realm>>,
}

/// Why there is no template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Nothing can be run with these options.
    Serve(String),
    /// What was imported keeps it from forking; instances can be started one
    /// by one.
    Fork(Unforkable),
}

/// An interpreter whose imports keep it from forking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unforkable {
    pub(crate) reason: String,
    /// The interpreter's file, absolute.
    pub(crate) interpreter: PathBuf,
    pub(crate) version: String,
    /// What native code for it is made for: its version, and the kind of machine.
    pub(crate) abi: String,
    /// The directories that the interpreter and its libraries lie in.
    pub(crate) prefixes: Vec<PathBuf>,
}

impl Refusal {
    pub(crate) fn reason(self) -> String {
        match self {
            Self::Serve(reason) => reason,
            Self::Fork(unforkable) => unforkable.reason,
        }
    }
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self::Serve(reason)
    }
}

/// Where the parts of an interpreter lie in memory, as a digest. What lies at
/// an address in one process is found there in every one of the same layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout([u8; 32]);

impl fmt::Display for Layout {
    /// As much of it as people compare.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..LAYOUT_SHOWN_BYTES].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What a template says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Where types and mapped files lie; the same at every start.
    pub(crate) layout: Layout,
    /// Huge pages that its memory is in, or the negated number of what the
    /// kernel had against them.
    pub(crate) huge_pages: i32,
    pub(crate) pid: u32,
    /// The interpreter's file, absolute.
    pub(crate) interpreter: PathBuf,
    pub(crate) version: String,
    /// What native code for it is made for: its version, and the kind of machine.
    pub(crate) abi: String,
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

    fn end_by(&self, wait_status: i32) {
        let signal = wait_status & 0x7f;
        self.end(if signal == 0 {
            Ended::Exited((wait_status >> 8) & 0xff)
        } else {
            Ended::Signalled(signal)
        });
    }

    /// The process has ended.
    pub(crate) fn end(&self, ended: Ended) {
        *self.status.lock() = Some(ended);
        self.changed.notify_all();
        self.shut();
    }
}

/// Why a template has not forked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotForked {
    /// It is not there any more: the next one may.
    Ended,
    /// It did not answer, and was killed.
    Silent,
    /// It says why.
    Refused(String),
}

impl fmt::Display for NotForked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("it has ended"),
            Self::Silent => f.write_str("it did not answer in time and was killed"),
            Self::Refused(reason) => write!(f, "it cannot fork: {reason}"),
        }
    }
}

/// A running template.
pub(crate) struct Template {
    orders: Arc<Orders>,
    pub(crate) hello: Hello,
    body: Mutex<Body>,
    reader: Option<JoinHandle<()>>,
}

/// The process that it is.
enum Body {
    Child(Child),
    InRealm(Process),
}

impl Body {
    fn end(&mut self) {
        match self {
            Self::Child(child) => {
                // Both fail only when it has ended, which is what is wanted.
                _ = child.kill();
                _ = child.wait();
            }
            // The realm's init reaps it.
            Self::InRealm(process) => process.kill(),
        }
    }
}

struct Orders {
    socket: OwnedFd,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    last_id: u64,
    /// Of the orders that somebody waits for.
    answers: HashMap<u64, Option<Result<(), NotForked>>>,
    watches: HashMap<u64, Arc<Watch>>,
    /// Its socket is at its end, or it was given up.
    over: bool,
}

impl State {
    /// Takes the answer to an order, if it has none yet and somebody waits.
    fn answer(&mut self, id: u64, answer: Result<(), NotForked>) -> Option<()> {
        let slot = self.answers.get_mut(&id).filter(|slot| slot.is_none())?;
        *slot = Some(answer);
        Some(())
    }
}

impl Template {
    /// Starts a template and waits until it is ready to fork.
    pub(crate) fn start(options: &TemplateOptions) -> Result<Self, Refusal> {
        let no_socket = |error: io::Error| format!("no socket: {error}");
        let (socket, other) = linux::message_pair().map_err(no_socket)?;
        linux::limit_sending(&socket, FORK_TIMEOUT).map_err(no_socket)?;
        // As far as the kernel can: from 6.16 on.
        _ = linux::refuse_descriptors(&socket);
        let core = linux::memory_file("template", options.language.core());
        let core = core.map_err(|error| format!("no memory for its library: {error}"))?;
        let source = linux::memory_file("source", options.language.source().as_bytes());
        let source = source.map_err(|error| format!("no memory for its source: {error}"))?;
        let mut body = match &options.realm {
            Some(realm) => {
                let (language, interpreter) = (options.language, &realm.interpreter().program);
                let program =
                    language.contained(Role::Template, interpreter, realm.packages(), &options.imports);
                Body::InRealm(realm.run(&program, [other, core, source])?)
            }
            None => {
                let child = command(options, core, source).stdin(Stdio::from(other)).spawn();
                let cannot = |error| format!("cannot start {}: {error}", options.interpreter.display());
                Body::Child(child.map_err(cannot)?)
            }
        };
        let hello = hello(&socket, options);
        let mut hello = hello.inspect_err(|_| body.end())?;
        if let Some(realm) = &options.realm {
            // Containers see what lies in these folders.
            let Interpreter { program, prefixes } = realm.interpreter().clone();
            (hello.interpreter, hello.prefixes) = (program, prefixes);
        }
        let orders = Arc::new(Orders { socket, state: Mutex::default(), changed: Condvar::new() });
        let listening = orders.clone();
        let reader =
            std::thread::Builder::new().name("template".to_owned()).spawn(move || listening.listen());
        match reader {
            Ok(reader) => Ok(Self { orders, hello, body: Mutex::new(body), reader: Some(reader) }),
            Err(error) => {
                body.end();
                Err(format!("no thread to listen to it: {error}").into())
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
    ) -> Result<(), NotForked> {
        let id = {
            let mut state = self.orders.state.lock();
            state.last_id += 1;
            let id = state.last_id;
            state.watches.insert(id, watch.clone());
            state.answers.insert(id, None);
            id
        };
        let (joins, doors) = (place.joins(), place.doors());
        let message = fork_message(id, &place.confinement(), joins.len(), doors.len());
        let mut fds = vec![channel];
        match doors.is_empty() {
            true => fds.extend(place.pidfd()),
            false => fds.extend(doors.iter().map(OwnedFd::as_fd)),
        }
        fds.extend(joins);
        let answer = match linux::send_message(&self.orders.socket, &message, &fds) {
            Ok(()) => self.orders.answer(id),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(NotForked::Silent),
            Err(_) => Err(NotForked::Ended),
        };
        let mut state = self.orders.state.lock();
        state.answers.remove(&id);
        if let Err(why) = &answer {
            state.watches.remove(&id);
            drop(state);
            if !matches!(why, NotForked::Refused(_)) {
                self.give_up();
            }
        }
        answer
    }

    /// Kills it: it is stuck. The next order finds it over.
    pub(crate) fn give_up(&self) {
        self.orders.state.lock().over = true;
        linux::end_messages(&self.orders.socket);
        self.body.lock().end();
    }

    /// Its number, as the node sees it; in a realm it says another one.
    pub(crate) fn pid(&self) -> io::Result<u32> {
        match &*self.body.lock() {
            Body::Child(child) => Ok(child.id()),
            Body::InRealm(process) => linux::process_number(process.pidfd()),
        }
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
    /// The answer to order `id`.
    fn answer(&self, id: u64) -> Result<(), NotForked> {
        let deadline = Instant::now() + FORK_TIMEOUT;
        let mut state = self.state.lock();
        loop {
            if let Some(Some(answer)) = state.answers.get(&id) {
                return answer.clone();
            }
            if state.over {
                return Err(NotForked::Ended);
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return state.answers.get(&id).cloned().flatten().unwrap_or(Err(NotForked::Silent));
            }
        }
    }

    fn listen(&self) {
        let mut strays = 0;
        while let Ok(Some((message, _))) = linux::receive_message(&self.socket) {
            let Some((kind, rest)) = message.split_first() else { break };
            let Some((id, rest)) = rest.split_first_chunk() else { break };
            let id = u64::from_le_bytes(*id);
            let number = rest.first_chunk().map(|bytes| i32::from_le_bytes(*bytes));
            let mut state = self.state.lock();
            let told = match (*kind, number) {
                (b'R', Some(_)) => state.answer(id, Ok(())),
                (b'E', _) => state.answer(id, Err(NotForked::Refused(text_of(rest)))),
                (b'X', Some(status)) => state.watches.remove(&id).map(|watch| watch.end_by(status)),
                _ => break,
            };
            drop(state);
            self.changed.notify_all();
            // It may answer what nobody waits for any more, but not for ever.
            strays += u32::from(told.is_none());
            if strays > STRAYS_MAX {
                break;
            }
        }
        let mut state = self.state.lock();
        state.over = true;
        state.watches.clear();
        drop(state);
        self.changed.notify_all();
    }
}

/// The interpreter, about to become a template. Its addresses are the same at
/// each start, and it has the core and its source open, where one in a realm has
/// them too. Nothing of this node's own is in its environment and its arguments, not
/// even their length: both are copied to the heap before anything else is.
#[expect(clippy::disallowed_methods, reason = "this is where the template's process is started")]
#[allow(unsafe_code)]
fn command(options: &TemplateOptions, core: OwnedFd, source: OwnedFd) -> Command {
    let role = if options.is_to_fork { Role::Template } else { Role::Model };
    let program = found(&options.interpreter);
    let program = options.language.contained(role, &program, &options.packages, &options.imports);
    let mut command = Command::new(program.path);
    command.args(program.arguments).env_clear().envs(program.environment);
    command.current_dir(program.directory).stdout(Stdio::from(core)).stderr(Stdio::from(source));
    // SAFETY: it is a single call of the kernel, which neither allocates nor takes a
    // lock.
    unsafe {
        command.pre_exec(|| {
            // Without fixed addresses it serves as well; its digest differs.
            _ = linux::fix_addresses();
            Ok(())
        });
    }
    command
}

/// The first words of a template. Its end ends the waiting too.
fn hello(socket: &OwnedFd, options: &TemplateOptions) -> Result<Hello, Refusal> {
    let patience = options.start_timeout;
    let unheard = |error: io::Error| Refusal::Serve(format!("it cannot be heard: {error}"));
    if !linux::wait_readable(socket, patience).map_err(unheard)? {
        return Err(Refusal::Serve(format!("it said nothing within {} s", patience.as_secs())));
    }
    let message = linux::receive_message(socket).map_err(unheard)?;
    parse_hello(message.map(|(bytes, _)| bytes), options.language)
}

fn parse_hello(message: Option<Vec<u8>>, language: Language) -> Result<Hello, Refusal> {
    let Some(message) = message else {
        let wanted = language.requirement();
        return Err(Refusal::Serve(format!("it ended before it said anything; is this {wanted}?")));
    };
    let senseless = || Refusal::Serve("its first words make no sense".to_owned());
    match message.split_first() {
        Some((b'H', rest)) => parse_facts(rest).ok_or_else(senseless),
        Some((b'!', text)) => Err(Refusal::Serve(text_of(text))),
        Some((b'?', text)) => Err(parse_unforkable(text).map_or_else(senseless, Refusal::Fork)),
        _ => Err(senseless()),
    }
}

/// A template's own words, as many as people read.
fn text_of(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(REASON_BYTES_MAX)]);
    text.chars().filter(|letter| !letter.is_control() || *letter == '\n').collect()
}

fn parse_unforkable(text: &[u8]) -> Option<Unforkable> {
    let mut texts = std::str::from_utf8(text).ok()?.split('\0');
    let (reason, interpreter) = (text_of(texts.next()?.as_bytes()), PathBuf::from(texts.next()?));
    let (version, abi) = (texts.next()?.to_owned(), texts.next()?.to_owned());
    let prefixes = texts.map(PathBuf::from).collect();
    interpreter.is_absolute().then_some(Unforkable { reason, interpreter, version, abi, prefixes })
}

fn parse_facts(facts: &[u8]) -> Option<Hello> {
    let (version, rest) = facts.split_first_chunk()?;
    let (pid, rest) = rest.split_first_chunk()?;
    let (digest, rest) = rest.split_first_chunk()?;
    let (huge_pages, rest) = rest.split_first_chunk()?;
    let mut texts = std::str::from_utf8(rest).ok()?.split('\0');
    let (interpreter, says) = (PathBuf::from(texts.next()?), texts.next()?.to_owned());
    let abi = texts.next()?.to_owned();
    let prefixes = texts.map(PathBuf::from).collect();
    let (layout, pid) = (Layout(*digest), u32::from_le_bytes(*pid));
    let huge_pages = i32::from_le_bytes(*huge_pages);
    let is_ours = u16::from_le_bytes(*version) == VERSION && interpreter.is_absolute();
    is_ours.then_some(Hello { layout, huge_pages, pid, interpreter, version: says, abi, prefixes })
}

fn fork_message(id: u64, confinement: &Confinement, joins: usize, doors: usize) -> Vec<u8> {
    let mut message = vec![b'F'];
    message.extend(id.to_le_bytes());
    message.extend(confinement.setns_flags.to_le_bytes());
    message.extend(confinement.uid.to_le_bytes());
    message.extend(confinement.gid.to_le_bytes());
    let landlock = if confinement.landlock { ORDER_LANDLOCK } else { 0 };
    let one_user = if confinement.has_one_user { ORDER_ONE_USER } else { 0 };
    message.extend((landlock | one_user).to_le_bytes());
    message.extend((confinement.rlimits.len() as u16).to_le_bytes());
    message.extend((joins as u16).to_le_bytes());
    message.extend((doors as u16).to_le_bytes());
    message.extend((confinement.seccomp.len() as u32).to_le_bytes());
    for (resource, soft, hard) in &confinement.rlimits {
        message.extend(resource.to_le_bytes());
        message.extend(soft.to_le_bytes());
        message.extend(hard.to_le_bytes());
    }
    message.extend(&confinement.seccomp);
    message
}

/// The file that is run for a program: itself, or the one of its name in `PATH`.
fn found(program: &Path) -> PathBuf {
    if program.components().count() > 1 {
        return program.to_owned();
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut all = std::env::split_paths(&folders).map(|folder| folder.join(program));
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    // What is not there is said by whoever tries to start it.
    all.find(is_program).unwrap_or_else(|| program.to_owned())
}

/// The template of a node: started when needed, again when it has died.
pub(crate) struct Nursery {
    options: TemplateOptions,
    /// Of the first template.
    layout: Layout,
    current: Mutex<Current>,
}

struct Current {
    template: Arc<Template>,
    /// Why there may be instances that are not laid out as those of the first.
    strangeness: Option<String>,
}

impl Nursery {
    pub(crate) fn new(options: TemplateOptions) -> Result<Self, Refusal> {
        let template = Arc::new(Template::start(&options)?);
        let layout = template.hello.layout;
        Ok(Self { options, layout, current: Mutex::new(Current { template, strangeness: None }) })
    }

    /// A template that lives, as far as is known.
    pub(crate) fn template(&self) -> Result<Arc<Template>, String> {
        let mut current = self.current.lock();
        if !current.template.is_alive() {
            let (template, strangeness) = self.again().map_err(Refusal::reason)?;
            current.template = Arc::new(template);
            // Instances of a strange one may live on after it.
            current.strangeness = current.strangeness.take().or(strangeness);
        }
        Ok(current.template.clone())
    }

    /// Where everything lies in all instances there ever were, as long as that
    /// is one layout. Else whoever passes addresses from one to another must
    /// not, and the error tells why; functions are served as before.
    pub(crate) fn layout(&self) -> Result<Layout, String> {
        self.current.lock().strangeness.clone().map_or(Ok(self.layout), Err)
    }

    /// Another template, with the layout of the first if that can be had; why not.
    fn again(&self) -> Result<(Template, Option<String>), Refusal> {
        let mut template = Template::start(&self.options)?;
        for _ in 1..LAYOUT_TRIES {
            // In a realm nobody asks for it, and starting may take as long as it likes.
            if self.options.realm.is_some() || template.hello.layout == self.layout {
                break;
            }
            template = Template::start(&self.options)?;
        }
        let now = template.hello.layout;
        let strangeness = (now != self.layout).then(|| {
            format!(
                "the {} template was started again, and its memory is laid out differently ({now}, before {}): \
                 its interpreter, its libraries or what they load has changed since the node was started; \
                 start the node again to have one layout",
                self.options.language.name(),
                self.layout
            )
        });
        Ok((template, strangeness))
    }
}

#[cfg(test)]
mod tests;
