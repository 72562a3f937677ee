// SPDX-License-Identifier: Apache-2.0
//! What slow requests do to the others: twelve connections that ask for what is brief, without a pause,
//! and one more that asks each time for what takes a second. Functions have the settings that they have
//! where nothing is said: an instance serves one request at a time, and others stand in line for it.
//!
//! The peer, plain Node, serves all at once. Ours and the peer take turns; a figure is the median over
//! rounds of a percentile of a round, or of its slowest request.

use std::time::Duration;

use crate::figures::{Report, median};
use crate::warm::load::{self, Exchange, Pace, Seen};
use crate::warm::servers::{self, ANSWER, EVENT, Functions, Handler, Server};

const CONNECTIONS: usize = 12;
const ROUNDS: usize = 5;
const WARMING: Duration = Duration::from_secs(3);
const ROUND: Duration = Duration::from_secs(5);
const SLOW: &str = "{\"name\":\"Ada\",\"seconds\":1}";
const PYTHON: &str = "import time\n\
    def handler(event, context):\n    time.sleep(event.get('seconds', 0))\n\
    \x20   return {\"message\": f\"Hello, {event['name']}\"}\n";
const NODE: &str = "exports.handler = async ({ name, seconds }) => {\n\
    \x20 if (seconds) await new Promise((done) => setTimeout(done, 1000 * seconds));\n\
    \x20 return { message: `Hello, ${name}` };\n};\n";

struct Subject<'a> {
    name: &'static str,
    server: &'a Server,
    path: &'static str,
    rounds: Vec<Seen>,
}

impl Subject<'_> {
    /// The brief ones, while slow ones are under way.
    #[expect(clippy::disallowed_methods, reason = "two clients at once")]
    fn load(&self, duration: Duration) -> anyhow::Result<Seen> {
        let exchange = |body| Exchange::post(self.path, body, ANSWER);
        let ask = |exchange: &Exchange, connections| {
            load::run(self.server.address, exchange, connections, Pace::Saturated, duration)
        };
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| ask(&exchange(SLOW), 1));
            let brief = ask(&exchange(EVENT), CONNECTIONS)?;
            slow.join().map_err(|_| anyhow::anyhow!("who asks for what is slow has panicked"))??;
            Ok(brief)
        })
    }

    fn report(&self, report: &mut Report) {
        let name = self.name;
        let each = |of: &dyn Fn(&Seen) -> f64| median(self.rounds.iter().map(of).collect());
        report.add(&format!("{name}_per_s"), each(&|seen| seen.per_second), "/s", "brief requests", ROUNDS);
        for (part, word) in [(0.5, "p50"), (0.99, "p99"), (0.999, "p999"), (1.0, "slowest")] {
            let ms = each(&|seen| seen.percentile_us(part) / 1000.0);
            report.add(&format!("{name}_{word}_ms"), ms, "ms", "of brief requests, beside slow ones", ROUNDS);
        }
    }
}

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let processors = linux::available_cpus().map_or(1, |cpus| cpus.len());
    let functions = Functions::start(&[Handler::python(PYTHON, ""), Handler::node(NODE, "")])?;
    let node_http = servers::node_http(functions.folder(), processors)?;
    let subject = |name, server, path| Subject { name, server, path, rounds: Vec::new() };
    let mut all = [
        subject("python_function", &functions.node, "/function/hello-python"),
        subject("node_function", &functions.node, "/function/hello-node"),
        subject("node_http", &node_http, "/"),
    ];
    for subject in &all {
        servers::await_answer(subject.server, |_| subject.load(WARMING).map(drop))?;
    }
    for _ in 0..ROUNDS {
        for subject in &mut all {
            let seen = subject.load(ROUND)?;
            subject.rounds.push(seen);
        }
    }
    all.iter().for_each(|subject| subject.report(report));
    report.note(format!(
        "{CONNECTIONS} connections ask for what is brief, one for what takes a second; clients and servers share \
         {processors} processors"
    ));
    Ok(())
}
