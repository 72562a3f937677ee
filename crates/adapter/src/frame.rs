// SPDX-License-Identifier: Apache-2.0
//! The numbers of the wire between the node and an instance, for both of its
//! ends that are in Rust: this adapter's and the node's, which draws the frames
//! (`sandbox/src/process/channel.rs`).

/// Of the wire; the templates say the same number.
pub const VERSION: u16 = 9;
/// Instance to node, the first frame.
pub const HELLO: u8 = 1;
/// Node to instance: the function.
pub const LOAD: u8 = 2;
/// Instance to node: it can be called.
pub const LOADED: u8 = 3;
/// Node to instance: a call.
pub const CALL: u8 = 4;
/// Instance to node: what a call returned.
pub const RESULT: u8 = 5;
/// Instance to node: what loading or a call raised.
pub const RAISED: u8 = 6;
/// Instance to node: why what a call returned is no answer.
pub const BAD_RESULT: u8 = 7;
/// Instance to node: what was printed.
pub const LOG: u8 = 8;
/// Instance to node: why there is none, in the place of [`HELLO`].
pub const UNCONFINED: u8 = 9;
/// Instance to node: to call another function.
pub const ASK: u8 = 10;
/// Node to instance: what the other function answered.
pub const TOLD: u8 = 11;
/// Instance to node: the next bytes of a result; none: that was all of it, but the call goes on.
pub const PIECE: u8 = 12;
/// Node to instance: how many more bytes of a result it may send.
pub const ROOM: u8 = 13;
/// Node to instance: nobody waits for a result any more. With a byte, [`OVERDUE`], it is to be ended: it has used up its time.
pub const LEFT: u8 = 14;
/// Of [`LEFT`].
pub const OVERDUE: u8 = 1;
/// Node to instance: the next bytes of the call's body; none: that was all of it.
pub const BODY: u8 = 15;
/// Node to instance: no more of the body will come, though that was not all of it.
pub const BODY_LOST: u8 = 16;
/// Instance to node: how many more bytes of the body may come.
pub const WANTS: u8 = 17;
/// Node to instance: serve what comes over a line, until that is closed.
pub const SERVE: u8 = 18;
/// Node to instance: a line to a function.
pub const LINE: u8 = 19;
/// Instance to node: requests that were served over a line.
pub const SERVED: u8 = 20;
/// Instance to node: what the request was told that is being served over a line.
pub const SERVING: u8 = 21;
/// Instance to node: how long a call has waited for answers on lines.
pub const WAITED: u8 = 22;
/// Instance to node: a call of another function that was begun on a line, and has no answer there.
pub const ASK_AGAIN: u8 = 23;
/// Instance to node: nobody waits any more for what is under way on a line.
pub const DROPPED: u8 = 24;

/// Instance to node: a result is in the call's outbox, and so long.
pub const OUTBOX: u8 = 25;
/// From an instance: the same for a result that is mapped by others at the addresses that were given for it.
pub const MAPPED: u8 = 26;
/// Instance to node: it ends now, and has begun no call that it has not answered.
pub const LEAVING: u8 = 27;
/// Instance to node: how long the parts of a step took, and what of its result was pickled.
pub const PHASES: u8 = 28;
/// The word by which calls in line are recalled.
pub const TURNS: u8 = 29;

/// Instance to node: what the call was lent to put a result there is as it was, and the next call's.
pub const KEEPS: u8 = 30;
/// Instance to node: it has said where it is, as the signal had asked.
pub const SAID: u8 = 31;
/// Node to instance, in the place of [`TOLD`]: the function is called within the instance.
pub const WITHIN: u8 = 32;
/// Node to instance: it calls no function within itself any more before it is told so again.
pub const WITHIN_OVER: u8 = 33;
/// Instance to node: an [`ASK`] that has to do with functions that it calls within itself.
pub const ASK_WITHIN: u8 = 34;
/// Instance to node: what follows the call of this turn is not begun.
pub const ALONE: u8 = 36;
/// Instance to node: calls of a function within it that have ended.
pub const SERVED_WITHIN: u8 = 35;
/// Node to instance: with a descriptor, for what is written past the language's own streams.
pub const PRINTS: u8 = 37;

/// Names a call on its instance.
pub type Turn = u32;
/// The turn of what happens outside of calls.
pub const OUTSIDE: Turn = 0;

/// Names a nested call among those of its instance that have no answer yet.
pub type AskId = u32;
/// Nested calls of one instance that have no answer yet.
pub const ASKS_MAX: usize = 64;
/// Lines of one instance to functions.
pub const LINES_MAX: usize = 16;
/// Bytes of what a request on a line was told.
pub const LINE_HEAD_MAX: usize = 8 << 10;
/// Requests of one report.
pub const REPORTS_MAX: usize = 32;
/// Bytes of the name that is called.
pub const ASK_NAME_MAX: usize = 128;
/// Bytes of what the body of a nested call is said to be.
pub const ASK_TYPE_MAX: usize = 256;
/// Bytes of the body of a nested call.
pub const ASK_BODY_MAX: usize = 16 << 20;
/// Bytes of a result that may be sent before the node asks for more.
pub const STREAM_WINDOW: usize = 256 << 10;
/// Bytes of one piece of a result; the first has all of its head.
pub const PIECE_MAX: usize = 64 << 10;
/// Bytes of a result that somebody hears as it comes.
pub const STREAM_MAX: u64 = 1 << 30;
/// Bytes of the bodies of all nested calls of one instance that have no answer yet.
pub const ASKS_BYTES_MAX: usize = 32 << 20;
/// Types of objects that one step says it has pickled; all others are one more.
pub const PICKLED_TYPES_MAX: usize = 16;
/// Bytes of the name of one.
pub const PICKLED_NAME_MAX: usize = 128;
/// Bytes of each of the texts of a failure.
pub const TEXT_LEN_MAX: usize = 4096;
