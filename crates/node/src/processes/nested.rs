// SPDX-License-Identifier: Apache-2.0
//! Calls of functions by functions: what an instance asks for goes to the
//! gateway, which makes a request of it as of any other.

use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use gateway::{NestedCalls, NestedEnd, NestedRequest};
use objects::{Handle, TreeView};
use parking_lot::Mutex;
use sandbox::{
    Answered, Audience, Callees, Line, LineAsk, LineOffer, Listener, NestedAnswer, NestedCall, Source, Within,
};
use store::Store;

use super::lines::Opening;
use super::{Application, Processes, reports};
use crate::feeds::Feed;
use crate::reactor::{Asked, Traffic};

/// Where the head of a request stands in an application of a function.
const HEAD_INDEX: usize = super::REQUEST_INDEX + 1;

/// Who makes the calls; nobody does before there is a gateway.
#[derive(Default)]
pub(super) struct Nested(OnceLock<NestedCalls>);

/// One application that may call others, and whose result may be heard.
pub(super) struct Caller {
    calls: NestedCalls,
    store: Arc<Store>,
    head: Option<Handle>,
    deadline: Instant,
    processes: Weak<Processes>,
    procedure: Handle,
    /// For whom the application is.
    request: Option<u64>,
    /// Its body, if that comes while it runs.
    body: Option<Arc<Feed>>,
}

impl Nested {
    pub(super) fn connect(&self, calls: NestedCalls) {
        // Once, by the node's server.
        _ = self.0.set(calls);
    }

    /// Who makes the calls of this application, and has its result heard.
    pub(super) fn caller(
        &self,
        processes: &Arc<Processes>,
        application: &Application,
        deadline: Instant,
        body: Option<Arc<Feed>>,
    ) -> Option<Arc<Caller>> {
        let (calls, store) = (self.0.get()?.clone(), processes.store.clone());
        let head = TreeView::from_checked(&application.data).get(HEAD_INDEX);
        let (processes, procedure) = (Arc::downgrade(processes), application.procedure);
        let request = application.request_id();
        Some(Arc::new(Caller { calls, store, head, deadline, processes, procedure, request, body }))
    }
}

impl Nested {
    /// Who makes the calls of an instance that serves a line.
    pub(super) fn callees_of_line(
        &self,
        processes: &Arc<Processes>,
        line: &Line,
        procedure: Handle,
    ) -> Option<Arc<dyn Callees>> {
        let (calls, processes) = (self.0.get()?.clone(), Arc::downgrade(processes));
        let (function, timeout) = (line.terms().function.clone(), line.terms().timeout);
        Some(Arc::new(OnLine { calls, processes, procedure, function, timeout }))
    }
}

impl Caller {
    /// What the caller was told of its own request: here for as long as it runs.
    fn head(&self) -> Vec<u8> {
        let Some(head) = self.head else { return Vec::new() };
        match head.literal_bytes() {
            Some(bytes) => bytes.to_vec(),
            None => self.store.local(head).map_or_else(Vec::new, |head| head.bytes().to_vec()),
        }
    }
}

/// A call of a function by a function, or of a run by its workflow, for as long as somebody waits for it.
struct Asking(Arc<Traffic>, Asked);

impl Asking {
    fn begin(traffic: Arc<Traffic>, asked: Asked) -> Self {
        traffic.asks(asked);
        Self(traffic, asked)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.is_told(self.1);
    }
}

impl Audience for Caller {
    fn begins(&self, source: Box<dyn Source>) -> Option<Box<dyn Listener>> {
        self.processes.upgrade()?.visiting.begins(self.request?, source)
    }

    fn body(&self) -> Option<Arc<dyn sandbox::Feed>> {
        self.body.clone().map(|body| body as _)
    }
}

impl Callees for Caller {
    fn call(&self, nested: NestedCall, answered: Answered) -> Box<dyn Send> {
        let mut nested = nested;
        // Or that of a function that was called within the instance.
        let own_head = Caller::head(self);
        let asker = match nested.line.head.take() {
            Some(head) => Asker { head, on_line: nested.line.function.take(), root_head: Some(own_head) },
            None => Asker { head: own_head, on_line: None, root_head: None },
        };
        let asks = Asks { calls: &self.calls, processes: &self.processes, procedure: self.procedure };
        asks.begin(nested, asker, self.deadline, answered)
    }

    fn within(&self, nested: &NestedCall) -> Option<Within> {
        let asks = Asks { calls: &self.calls, processes: &self.processes, procedure: self.procedure };
        asks.within(nested, || Caller::head(self))
    }

    fn head(&self) -> Option<Vec<u8>> {
        Some(Caller::head(self))
    }
}

/// An instance that serves a line, and may call others meanwhile.
struct OnLine {
    calls: NestedCalls,
    processes: Weak<Processes>,
    procedure: Handle,
    function: String,
    timeout: Duration,
}

impl Callees for OnLine {
    fn call(&self, mut nested: NestedCall, answered: Answered) -> Box<dyn Send> {
        let head = nested.line.head.take().unwrap_or_default();
        let asks = Asks { calls: &self.calls, processes: &self.processes, procedure: self.procedure };
        let function = nested.line.function.take().unwrap_or_else(|| self.function.clone());
        let asker = Asker { head, on_line: Some(function), root_head: None };
        asks.begin(nested, asker, Instant::now() + self.timeout, answered)
    }

    fn within(&self, nested: &NestedCall) -> Option<Within> {
        let asks = Asks { calls: &self.calls, processes: &self.processes, procedure: self.procedure };
        asks.within(nested, Vec::new)
    }
}

/// Who asks: what it was told, and which function it is where that is its instance's word.
struct Asker {
    head: Vec<u8>,
    on_line: Option<String>,
    /// What the application was told within which it was called.
    root_head: Option<Vec<u8>>,
}

/// What makes calls for one application, or one line.
struct Asks<'a> {
    calls: &'a NestedCalls,
    processes: &'a Weak<Processes>,
    procedure: Handle,
}

impl Asks<'_> {
    /// What an instance is told of a function that it is to call within itself, if it is; `own_head` is what it
    /// was told, where the ask does not say so.
    fn within(&self, nested: &NestedCall, own_head: impl FnOnce() -> Vec<u8>) -> Option<Within> {
        let LineAsk { head, again: None, ended: None, is_for_others: false, .. } = &nested.line else {
            return None;
        };
        let processes = self.processes.upgrade()?;
        let together = processes.together(self.procedure)?;
        let since = processes.changes.now();
        let offer = match head {
            Some(head) => self.calls.within(&nested.function, head),
            None => self.calls.within(&nested.function, &own_head()),
        }?;
        processes.told_within(offer, together, since)
    }

    fn begin(self, nested: NestedCall, asker: Asker, deadline: Instant, answered: Answered) -> Box<dyn Send> {
        let counted = self.processes.upgrade().map(|processes| {
            processes.waits_for_others(self.procedure);
            let asked = if gateway::is_order(&nested.function) { Asked::Run } else { Asked::Function };
            Asking::begin(Arc::clone(&processes.options.traffic), asked)
        });
        let NestedCall { function, content_type, body, line } = nested;
        let Asker { head: caller_head, on_line, root_head } = asker;
        let request = NestedRequest {
            function,
            content_type,
            body,
            caller_head,
            deadline,
            on_line,
            root_head,
            begun: None,
        };
        let (processes, calls) = (self.processes.clone(), self.calls.clone());
        let then = move |end: NestedEnd| {
            let NestedEnd { status, content_type, body, line } = end;
            let line = line.map(|offer| Box::new(Opening { processes, offer }) as Box<dyn LineOffer>);
            answered(NestedAnswer { status, content_type: &content_type, body: &body }, line);
        };
        let Some(again) = line.again else {
            let ended = line.ended.map(|end| gateway::LineEnd { is_within: true, ..told(end) });
            let request = NestedRequest { begun: ended, ..request };
            return Box::new((calls.begin(request, then), counted));
        };
        let (later, loops) = (Later::default(), tokio::runtime::Handle::try_current());
        let begun = later.beginning();
        again.when_over(move |end| {
            // Whoever tells is not on the event loop, maybe.
            let _entered = loops.as_ref().map(tokio::runtime::Handle::enter);
            let begin = || calls.begin(NestedRequest { begun: end.map(told), ..request }, then);
            begun.begin(|| Box::new(begin()));
        });
        Box::new((later, counted))
    }
}

/// A call that begins later, unless it is not wanted any more: dropping this stops it.
#[derive(Default)]
pub(super) struct Later(Arc<Mutex<Call>>);

/// Who begins it.
pub(super) struct Beginning(Arc<Mutex<Call>>);

#[derive(Default)]
struct Call {
    is_stopped: bool,
    /// What stops it when it is dropped.
    begun: Option<Box<dyn Send>>,
}

impl Later {
    pub(super) fn beginning(&self) -> Beginning {
        Beginning(Arc::clone(&self.0))
    }
}

impl Beginning {
    /// Begins it, if it is wanted still. No lock is held meanwhile: it may have its answer before this returns.
    pub(super) fn begin(self, begin: impl FnOnce() -> Box<dyn Send>) {
        let is_wanted = !self.0.lock().is_stopped;
        if is_wanted {
            let begun = begin();
            let mut call = self.0.lock();
            if !call.is_stopped {
                call.begun = Some(begun);
            }
        }
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        let mut call = self.0.lock();
        call.is_stopped = true;
        let begun = call.begun.take();
        drop(call);
        drop(begun);
    }
}

/// The end of a line, in words of the gateway.
pub(super) fn told(end: sandbox::LineEnd) -> gateway::LineEnd {
    let sandbox::LineEnd { result, log, spent } = end;
    let spent = spent.as_deref().map(reports::told);
    let result = result.map_err(|fault| (fault.code, fault.detail));
    gateway::LineEnd { result, log: reports::printed(log), spent, is_within: false }
}
