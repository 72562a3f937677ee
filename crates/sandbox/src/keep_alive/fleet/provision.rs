// SPDX-License-Identifier: Apache-2.0
//! What is said of functions beside their calls: that they are to have instances,
//! that they serve no more, that what they were made with has changed.

use objects::Handle;

use super::{Decision, Fleet, Function, FunctionId, Policy, Spec};

impl Fleet {
    /// From now on a function has at least so many instances, as far as it may have them and there is memory: they are
    /// made at once, and again when they end. At most half of all memory is held so. Zero: as others.
    pub fn provide(&self, function: &Function, least: u32) {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        if least == 0 && !state.ids.contains_key(&function.spec) {
            return;
        }
        let id = state.id_of(function);
        let decisions = state.policy.provide(shared.now(), id, function.settings(), least);
        shared.act(&mut state, decisions);
        if !state.policy.knows(id) {
            state.forget(id);
        }
    }

    /// How many instances of a function there are that can serve, and how many are being made.
    pub fn ready_of(&self, spec: &Spec) -> (u32, u32) {
        let state = self.shared.state.lock();
        state.ids.get(spec).map_or((0, 0), |id| state.policy.ready_of(*id))
    }

    /// No further calls of this procedure are expected: its instances end, each
    /// after the call that it runs.
    pub fn retire(&self, procedure: Handle) {
        self.each_function(procedure, Policy::retire);
    }

    /// What instances of this procedure were made with has changed: the next
    /// calls get new ones.
    pub fn renew(&self, procedure: Handle) {
        self.each_function(procedure, Policy::renew);
    }

    fn each_function(&self, procedure: Handle, tell: fn(&mut Policy, u64, FunctionId) -> Vec<Decision>) {
        let mut state = self.shared.state.lock();
        let ids: Vec<FunctionId> =
            state.ids.iter().filter(|(spec, _)| spec.procedure == procedure).map(|(_, id)| *id).collect();
        for id in ids {
            let decisions = tell(&mut state.policy, self.shared.now(), id);
            self.shared.act(&mut state, decisions);
        }
    }
}
