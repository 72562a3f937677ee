// SPDX-License-Identifier: Apache-2.0
//! Who hands values over: a node in two ways, and its peers.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use anyhow::Context as _;
use serde_json::Value;

use super::Kind;
use crate::python_peer::{Peer, Redis};
use crate::warm::servers::PEERS as FILES;
use crate::workflow_node::WorkflowNode;

/// What this is all about, and the same node that sends messages.
pub(super) const OURS: &str = "ours";
pub(super) const MESSAGES: &str = "messages";
/// The same as ours, of a step that is not to follow the one before it in its instance.
pub(super) const APART: &str = "apart";
pub(super) const ARROW: &str = "arrow";
pub(super) const PEERS: [&str; 4] = ["redis", "shm", ARROW, "ray"];

/// The node's sides: the workflow of each, and what the manifest says of it besides what it says of all. Values are mapped if it
/// says nothing.
const OF_THE_NODE: [(&str, &str, &str); 3] =
    [(OURS, "handed", ""), (MESSAGES, "handed", "values = \"send\"\n"), (APART, "handed_apart", "")];

/// Five or six instances of 2.5 GiB and three workflows are two thirds of the rest; little else is used at the same time.
const LEFT_TO_PEERS_BYTES: u64 = 2 << 30;

/// How long a value took, in nanoseconds from when its producer returned.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    /// Until the consumer had it in hand.
    pub(super) handed: f64,
    /// Until the consumer had read all of it.
    pub(super) read: f64,
}

impl Times {
    pub(super) fn of(told: &Value) -> anyhow::Result<Self> {
        let field = |name: &str| told[name].as_f64().with_context(|| format!("there is no {name} in {told}"));
        Ok(Self { handed: field("handed_ns")?, read: field("read_ns")? })
    }
}

/// One that hands values over when it is told to.
pub(super) struct Side {
    pub(super) name: &'static str,
    way: Way,
}

enum Way {
    /// A workflow of the node, called as the side is.
    Node(Rc<RefCell<Node>>),
    /// A program, and what it passes values through; nothing if it could not be started again.
    Peer { running: Option<(Peer, Option<Redis>)>, start: Start },
}

/// Starts a peer.
pub(super) type Start = Box<dyn Fn() -> anyhow::Result<(Peer, Option<Redis>)>>;

/// The node of two sides; nothing if it could not be started again.
pub(super) struct Node {
    running: Option<WorkflowNode>,
    start: Box<dyn Fn() -> anyhow::Result<WorkflowNode>>,
}

impl Side {
    pub(super) fn peer(name: &'static str, start: Start) -> anyhow::Result<Self> {
        Ok(Self { name, way: Way::Peer { running: Some(start()?), start } })
    }

    pub(super) fn takes(&self, kind: &Kind) -> bool {
        match self.name {
            ARROW => kind.is_for_arrow,
            _ => true,
        }
    }

    /// What became of one value.
    pub(super) fn hand(&mut self, order: &Value) -> anyhow::Result<Value> {
        match &mut self.way {
            Way::Node(node) => {
                let node = node.borrow();
                Ok(node.running.as_ref().context(GONE)?.run(self.name, order)?.1)
            }
            Way::Peer { running, .. } => running.as_mut().context(GONE)?.0.ask(&order.to_string()),
        }
    }

    /// Begins again after something went wrong: what is left of that would be the next value's.
    pub(super) fn restart(&mut self) -> anyhow::Result<()> {
        match &mut self.way {
            Way::Node(node) => {
                let mut node = node.borrow_mut();
                // It has its home for itself.
                node.running = None;
                node.running = Some((node.start)()?);
            }
            Way::Peer { running, start } => {
                *running = None;
                *running = Some(start()?);
            }
        }
        Ok(())
    }
}

const GONE: &str = "it could not be started again";

/// A node with the workflow, as it is and by messages.
pub(super) fn of_a_node(folder: &Path, python: &Path) -> anyhow::Result<Vec<Side>> {
    let code = folder.join("code");
    std::fs::create_dir(&code)?;
    for file in ["main.py", "values.py"] {
        std::fs::copy(format!("{FILES}/transfer/{file}"), code.join(file))?;
    }
    let functions = OF_THE_NODE.map(|(name, handler, further)| {
        format!(
            "[functions.{name}]\nruntime = \"python\"\nhandler = \"main.{handler}\"\nworkflow = true\nmemory = \"256MiB\"\n\
             imports = [\"numpy\", \"pandas\", \"PIL.Image\", \"lightgbm\", \"sklearn.ensemble\"]\nsource = \"code\"\n{further}\n"
        )
    });
    std::fs::write(folder.join("sinew.toml"), functions.concat())?;
    let machine = linux::total_memory_bytes().context("the kernel does not tell how much memory there is")?;
    let memory = format!("{}MiB", machine.saturating_sub(LEFT_TO_PEERS_BYTES) >> 20);
    let (folder, python) = (folder.to_owned(), python.to_owned());
    let start: Box<dyn Fn() -> _> =
        Box::new(move || WorkflowNode::start(&folder, &python, &["--memory", &memory]));
    let node = Rc::new(RefCell::new(Node { running: Some(start()?), start }));
    Ok(OF_THE_NODE.map(|(name, ..)| Side { name, way: Way::Node(node.clone()) }).into())
}
