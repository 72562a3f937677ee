// SPDX-License-Identifier: Apache-2.0
//! Clients that check what they get.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::world::World;

const PAUSE: Duration = Duration::from_millis(5);
/// So long a call that was taken may need to its end.
const LATER_MAX: Duration = Duration::from_secs(90);

static LAST: AtomicU64 = AtomicU64::new(0);

/// A body that no other request has.
fn event() -> Value {
    let n = LAST.fetch_add(1, Ordering::Relaxed);
    json!({"n": n, "pad": "x".repeat((n * 7919 % 4000) as usize)})
}

/// One client for each function, two for calls that are made later, one that wants
/// callbacks.
pub(super) fn all(world: &Arc<World>) -> Vec<JoinHandle<()>> {
    let mut threads = Vec::new();
    for name in ["py", "js", "exe", "codelet", "chain"] {
        threads.push(world.every(PAUSE, move |world| {
            call(world, name);
            Ok(())
        }));
    }
    for _ in 0..2 {
        threads.push(world.every(PAUSE, later));
    }
    threads.push(world.every(50 * PAUSE, with_callback));
    threads
}

/// Calls a function, and checks its answer.
fn call(world: &World, name: &str) {
    let (life, oldest) = (world.life.load(Ordering::Acquire), world.serving.load(Ordering::Acquire));
    let asked = event();
    let answer = world.ask(&format!("POST /function/{name}"), "", &asked.to_string());
    let newest = world.asked.load(Ordering::Acquire);
    match answer {
        Some((200, body)) => {
            world.count(|counts| counts.answered += 1);
            // What is called by a function is of the age at which it is called.
            if let Err(why) = check(name, &asked, &body, oldest, newest) {
                world.problem(|counts| &mut counts.wrong, why);
            }
        }
        Some((500 | 503, body)) if body.contains("\"component\"") => world.count(|counts| {
            counts.answered += 1;
            counts.failed += 1;
        }),
        Some((status, body)) => {
            world.problem(|counts| &mut counts.wrong, format!("{name} answered {status}: {body:.300}"));
        }
        None if world.was_away(life) => std::thread::sleep(Duration::from_millis(100)),
        None => world.problem(
            |counts| &mut counts.lost,
            format!("{name} gave no answer to {:.60}", asked.to_string()),
        ),
    }
}

fn check(name: &str, asked: &Value, body: &str, oldest: u64, newest: u64) -> Result<(), String> {
    let told = serde_json::from_str::<Value>(body).map_err(|_| format!("{name} answered {body:.300}"))?;
    if told["n"] != asked["n"] || told["pad"] != asked["pad"] {
        return Err(format!("{name} was asked {:.60} and answered {body:.60}", asked.to_string()));
    }
    match told["age"].as_u64() {
        Some(age) if !(oldest..=newest).contains(&age) => {
            Err(format!("{name} answered with code of age {age}, and {oldest} to {newest} serve"))
        }
        None if matches!(name, "py" | "js" | "chain") => Err(format!("{name} answered {body:.300}")),
        _ => Ok(()),
    }
}

/// Has a call made later, and waits for its end.
fn later(world: &World) -> anyhow::Result<()> {
    let asked = event();
    let Some((202, answer)) = world.ask("POST /async-function/py", "", &asked.to_string()) else {
        std::thread::sleep(20 * PAUSE);
        return Ok(());
    };
    let answer: Value = serde_json::from_str(&answer)?;
    let id = answer["id"].as_str().context("a call without an id")?;
    let begun = Instant::now();
    while begun.elapsed() < LATER_MAX {
        match world.ask(&format!("GET /v1/async/{id}/result"), "", "") {
            Some((200, body)) => {
                world.count(|counts| counts.answered += 1);
                if let Err(why) = check("py", &asked, &body, 1, world.asked.load(Ordering::Acquire)) {
                    world.problem(|counts| &mut counts.wrong, why);
                }
                return Ok(());
            }
            Some((status @ (404 | 409), body)) => {
                let why = format!("a call that was taken came to {status}: {body:.300}");
                world.problem(|counts| &mut counts.lost, why);
                return Ok(());
            }
            _ => std::thread::sleep(4 * PAUSE),
        }
    }
    world.problem(|counts| &mut counts.lost, format!("the call {id} did not end"));
    Ok(())
}

/// Results that are expected, by what names them in their body.
static EXPECTED: Mutex<BTreeMap<u64, Value>> = Mutex::new(BTreeMap::new());

fn with_callback(world: &World) -> anyhow::Result<()> {
    let asked = event();
    let n = asked["n"].as_u64().context("no number")?;
    let header = format!("X-Callback-Url: http://{}/\r\n", world.callbacks);
    // It may come before the answer to this.
    EXPECTED.lock().unwrap_or_else(PoisonError::into_inner).insert(n, asked.clone());
    let answer = world.ask("POST /async-function/py", &header, &asked.to_string());
    if answer.is_none_or(|(status, _)| status != 202) {
        // Whether it was taken is not known.
        EXPECTED.lock().unwrap_or_else(PoisonError::into_inner).remove(&n);
    }
    Ok(())
}

/// Who takes results.
pub(super) struct Receiver {
    world: Arc<World>,
}

impl Receiver {
    pub(super) fn start(world: Arc<World>) -> anyhow::Result<Self> {
        let listener = world.take_listener().context("it listens already")?;
        let receiving = Arc::clone(&world);
        #[expect(clippy::disallowed_methods, reason = "a server is a thread, until the process ends")]
        std::thread::spawn(move || serve(&listener, &receiving));
        Ok(Self { world })
    }

    /// Waits for the results that have not come; those that do not are lost.
    pub(super) fn wait_for_the_rest(&self) {
        let begun = Instant::now();
        let left = || EXPECTED.lock().unwrap_or_else(PoisonError::into_inner).len();
        while left() > 0 && begun.elapsed() < LATER_MAX {
            std::thread::sleep(Duration::from_millis(100));
        }
        for n in EXPECTED.lock().unwrap_or_else(PoisonError::into_inner).keys() {
            self.world.problem(|counts| &mut counts.lost, format!("the result of call {n} was not sent"));
        }
    }
}

fn serve(listener: &TcpListener, world: &World) {
    for stream in listener.incoming().flatten() {
        let Some(body) = received(stream) else { continue };
        let told: Value = serde_json::from_str(&body).unwrap_or_default();
        let expected = told["n"]
            .as_u64()
            .and_then(|n| EXPECTED.lock().unwrap_or_else(PoisonError::into_inner).remove(&n));
        // It may come twice.
        let Some(asked) = expected else { continue };
        world.count(|counts| counts.answered += 1);
        if let Err(why) = check("py", &asked, &body, 1, world.asked.load(Ordering::Acquire)) {
            world.problem(|counts| &mut counts.wrong, why);
        }
    }
}

/// The body of a request, which is answered.
fn received(mut stream: TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let mut seen = String::new();
    loop {
        if let Some((head, body)) = seen.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok()
            });
            if length.is_some_and(|length| body.len() >= length) {
                stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").ok()?;
                return Some(body.to_owned());
            }
        }
        let mut piece = [0; 8192];
        let len = stream.read(&mut piece).ok().filter(|len| *len > 0)?;
        seen.push_str(std::str::from_utf8(&piece[..len]).ok()?);
    }
}
