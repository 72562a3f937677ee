// SPDX-License-Identifier: Apache-2.0
//! Calls of functions by functions: what an instance asks for goes to the
//! gateway, which makes a request of it as of any other.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use gateway::{NestedCalls, NestedEnd, NestedRequest};
use objects::{Handle, TreeView};
use sandbox::{Answered, Audience, Callees, Listener, NestedAnswer, NestedCall, Source};
use store::Store;

use super::{Application, Processes};
use crate::feeds::Feed;
use crate::reactor::Traffic;

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

/// A call of a function by a function, for as long as somebody waits for it.
struct Asking(Arc<Traffic>);

impl Asking {
    fn begin(traffic: Arc<Traffic>) -> Self {
        traffic.asks();
        Self(traffic)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.is_told();
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
        let processes = self.processes.upgrade();
        let counted = processes.map(|processes| {
            processes.waits_for_others(self.procedure);
            Asking::begin(Arc::clone(&processes.options.traffic))
        });
        let NestedCall { function, content_type, body } = nested;
        let (caller_head, deadline) = (self.head(), self.deadline);
        let request = NestedRequest { function, content_type, body, caller_head, deadline };
        let then = |end: NestedEnd| {
            let NestedEnd { status, content_type, body } = end;
            answered(NestedAnswer { status, content_type: &content_type, body: &body });
        };
        Box::new((self.calls.begin(request, then), counted))
    }
}
