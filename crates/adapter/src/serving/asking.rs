// SPDX-License-Identifier: Apache-2.0
//! Programs that ask for their events (`lambda.rs`): how they are started, and what comes of what they say.

use std::io;
use std::time::{Duration, Instant};

use super::{Asked, Running, Serving};
use crate::frame::Turn;
use crate::lambda::Said;
use crate::poller::Source;
use crate::program::{Failed, START_MAX, Server, ending};

/// How often it is looked whether a program that is started has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Serving {
    /// Starts the program, and waits until it asks for an event.
    pub(super) fn load_asking(&mut self) -> Result<(), Failed> {
        self.start_asking()?;
        let begun = Instant::now();
        while self.program.state != Server::Listening {
            if begun.elapsed() > START_MAX {
                return Err(Failed::program(format!(
                    "the program did not ask for an event within {} s, at AWS_LAMBDA_RUNTIME_API; one that serves HTTP \
                     needs mode = \"http\"",
                    START_MAX.as_secs()
                )));
            }
            self.channel.flush()?;
            for source in self.poller.wait(Some(LOOK_EVERY))? {
                match source {
                    Source::Printed => self.logs.pass(&mut self.channel)?,
                    Source::Runtime | Source::RuntimeSays(_) => {
                        for said in self.said(source)? {
                            match said {
                                Said::Ready => self.program.state = Server::Listening,
                                Said::Unready(failed) => return Err(failed),
                                Said::Ended(..) => {}
                            }
                        }
                    }
                    _ => {}
                }
            }
            if let Some(status) = self.program.ended(&self.poller)? {
                return Err(Failed::program(format!(
                    "the program {} before it asked for an event",
                    ending(status)
                )));
            }
        }
        Ok(())
    }

    pub(super) fn start_asking(&mut self) -> Result<(), Failed> {
        if let Some(runtime) = &mut self.runtime {
            runtime.starts(&self.poller)?;
        }
        self.program.start_asking(&self.logs, &self.poller)
    }

    /// The same, for an event that waits.
    pub(super) fn start_for_event(&mut self) -> io::Result<()> {
        self.logs.starts();
        match self.start_asking() {
            Ok(()) => Ok(()),
            Err(Failed::Channel(error)) => Err(error),
            Err(failed) => self.fail_event(failed),
        }
    }

    fn said(&mut self, source: Source) -> io::Result<Vec<Said>> {
        match (&mut self.runtime, source) {
            (Some(runtime), Source::RuntimeSays(number)) => runtime.go_on(number, &self.poller),
            (Some(runtime), _) => runtime.accept(&self.poller).map(|()| Vec::new()),
            (None, _) => Ok(Vec::new()),
        }
    }

    /// Acts on what the program says.
    pub(super) fn runtime_says(&mut self, source: Source) -> io::Result<()> {
        for said in self.said(source)? {
            match said {
                Said::Ready => self.program.state = Server::Listening,
                Said::Ended(turn, result) => self.end(turn, result)?,
                // It is started again for the next call.
                Said::Unready(failed) => self.fail_event(failed)?,
            }
        }
        Ok(())
    }

    /// The event that there is has failed.
    pub(super) fn fail_event(&mut self, failed: Failed) -> io::Result<()> {
        let is_event =
            |(turn, running): (&Turn, &Running)| matches!(running.asked, Asked::Event).then_some(*turn);
        match self.running.iter().find_map(is_event) {
            Some(turn) => self.end(turn, Err(failed)),
            None => Ok(()),
        }
    }
}
