// SPDX-License-Identifier: Apache-2.0
//! Codelets pass the contract suite of sandboxes.

use objects::{FailureCode, Handle, Limits};

use super::*;
use crate::contract::{self, Fixture};
use crate::{Sandbox, Spec};

struct CodeletFixture(World);

impl Fixture for CodeletFixture {
    fn sandbox(&self) -> &dyn Sandbox {
        &*self.0.codelets
    }

    fn good(&self) -> Spec {
        Spec { procedure: self.0.store.keep_blob(&plain("(i32.const 3)")), limits: Limits::default() }
    }

    fn bad(&self) -> Spec {
        Spec { procedure: self.0.store.keep_blob(&[7; 64]), limits: Limits::default() }
    }

    fn echo(&self, argument: Handle) -> (Call, Handle) {
        (self.0.call(&plain("(i32.const 3)"), &[argument], Limits::default()), argument)
    }

    fn failing(&self) -> (Spec, Call, FailureCode) {
        let call = self.0.call(&plain("(unreachable)"), &[], Limits::default());
        (Spec { procedure: call.procedure, limits: call.limits }, call, FailureCode::Trap)
    }

    fn endless(&self) -> (Spec, Call) {
        let call = self.0.call(&plain("(loop $l (br $l)) (i32.const 0)"), &[], Limits::default());
        (Spec { procedure: call.procedure, limits: call.limits }, call)
    }
}

#[test]
fn codelets_keep_the_contract() {
    contract::check_all(&CodeletFixture(World::new()));
}

#[test]
fn sandboxes_are_bounded() {
    let world = World::with_options(Options { sandboxes_max: 2, ..Options::default() });
    let fixture = CodeletFixture(world);
    let results = fixture.sandbox().create(&[fixture.good(); 3]);
    assert!(matches!(results[..], [Ok(_), Ok(_), Err(crate::Error::TooMany(2))]));
}

#[test]
fn more_threads_than_invokers_wait_for_their_turn() {
    let world = World::with_options(Options { workers: 1, ..Options::default() });
    let fixture = CodeletFixture(world);
    let id = fixture.sandbox().create(&[fixture.good()]).pop().unwrap().unwrap();
    fixture.sandbox().start(&[id]).pop().unwrap().unwrap();
    std::thread::scope(|scope| {
        for n in 0..6 {
            let (fixture, sandbox) = (fixture.echo(Handle::u64(n)), &fixture.0.codelets);
            scope.spawn(move || assert!(sandbox.invoke(id, fixture.0).is_ok()));
        }
    });
    assert_eq!(fixture.sandbox().state(&[id]).pop().unwrap().unwrap().succeeded, 6);
}
