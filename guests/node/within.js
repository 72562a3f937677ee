// SPDX-License-Identifier: Apache-2.0
/*
 * Functions that an instance calls within itself, for they are together with the one that it is
 * (`docs/spec/functions.md`, section 9): what the node has said of them, their handlers, and what it
 * is told of their calls.
 *
 * The node puts this text behind that of `lines.js`, in one function scope. A call that runs here has a turn
 * of its own, whose root is the call of the node's in which it runs: it has that one's number, output and end,
 * and names, deadline and depth as a call by the node would have.
 *
 * Invariants: of one root, calls run here one in the other and never beside each other, for handlers are promised
 * one request at a time; what is asked beside that is asked of the node, for another instance. What runs here
 * runs in an asynchronous context that is no other call's.
 */

/* Kinds of frames. */
const [ASK_WITHIN, SERVED_WITHIN] = [34, 35];
/* Of a call that failed: it raised, gave no answer, or took too long. */
const [WITHIN_RAISED, WITHIN_BAD, WITHIN_LATE] = [6, 7, 14];
/* Of what the node says of a function: before its name. */
const WITHIN_HEAD_BYTES = 26;
/* What a function is called that names no handler. */
const WITHIN_HANDLER = 'index.handler';

/* How long a call waits for others that runs within another one, which waits for them as well. */
class WaitingWithin extends Waiting {
  constructor(outer) {
    super();
    this.outer = outer;
  }

  begin(isSeen = false) {
    super.begin();
    this.outer.begin(isSeen);
  }

  end(isSeen = false) {
    super.end();
    this.outer.end(isSeen);
  }
}

class Withins {
  constructor(instance) {
    this.instance = instance;
    /* What the node has said, by name; and handlers, by theirs. */
    this.told = new Map();
    this.handlers = new Map();
    this.reports = [];
    this.timer = null;
    this.spans = { spans: NO_BYTES };
  }

  /* The node says of a function that it is called here, in the place of an answer. */
  add(payload) {
    const { instance } = this;
    const nameEnd = WITHIN_HEAD_BYTES + payload.readUInt16LE(24);
    const told = {
      number: payload.readUInt32LE(4),
      version: readWide(payload, 8),
      timeoutMs: readWide(payload, 16),
      name: payload.toString('utf8', WITHIN_HEAD_BYTES, nameEnd),
      handler: payload.toString('utf8', nameEnd) || WITHIN_HANDLER,
    };
    this.told.set(told.name, told);
    instance.tellTurnsApart();
    const id = payload.readUInt32LE(0);
    const asked = instance.asked.get(id);
    if (!asked) return;
    instance.forget(id, asked);
    if (this.toldOf(asked.name, asked.turn) !== null) return this.begin(told, { ...asked, type: asked.type.latin1Slice() });
    // Something else runs here by now.
    asked.isForOthers = true;
    instance.askNode(asked, null);
  }

  /* What the node has said of a function, if it is called here, the caller's calls may be told of, and nothing runs here
   * beside who calls; or null. */
  toldOf(name, turn) {
    const told = this.told.get(name);
    if (told === undefined || !isInnermost(turn)) return null;
    if (turn.within !== null) return turn.within.depth < LINE_DEPTH_MAX ? told : null;
    if (turn.identity === undefined) turn.identity = identityOf(turn);
    return turn.identity === null ? null : told;
  }

  begin(told, asked) {
    const { turn, type, body } = asked;
    const { id, requestId, deadline: callersMs, depth: callersDepth, seal, trace, span: parent, flags } = turn.within ?? turn.identity;
    const ownMs = lineWall() + told.timeoutMs;
    const [deadline, depth] = [Math.min(callersMs, ownMs), callersDepth + 1];
    const span = this.instance.lines.span(this.spans);
    const of = { function: told.name, version: told.version, caller: nameOf(turn) };
    const heads = headsOf(of, requestId, type, deadline, depth, seal, trace, span, flags);
    const within = { told, asked, heads, isOver: false, timer: null, onLeft: [], kept: [], keptBytes: 0, begun: lineClock(), received: body.length, deadline, depth, parent, span, seal, trace, flags, id, requestId };
    const inner = { number: turn.number, root: turn.root, outer: turn, isSettled: false, innermost: null, within, identity: null, head: undefined, asks: undefined, onLine: null, waiting: new WaitingWithin(turn.waiting) };
    // Else the caller's time is up first, and all of this ends with it.
    if (ownMs < callersMs) within.timer = lineTimer(() => this.late(inner), told.timeoutMs);
    turn.root.innermost = inner;
    // It has nothing of what the caller keeps for what follows from it.
    this.instance.apart.runInAsyncScope(() => this.instance.whose.run(inner, () => this.run(inner)));
  }

  async run(inner) {
    // Who calls goes on first, as where the other one is elsewhere, and is in no stack of what is called.
    await null;
    const { told, asked, heads } = inner.within;
    try {
      const handler = this.handlers.get(told.handler) ?? (await this.load(told.handler));
      const result = await handler(NO_BYTES, heads, asked.body);
      this.ended(inner, result);
    } catch (error) {
      this.raised(inner, error);
    } finally {
      settled(inner);
    }
  }

  async load(name) {
    // What it sets up is not this call's.
    const handler = await this.instance.apart.runInAsyncScope(() => this.instance.whose.exit(() => this.instance.applyOf(name)));
    this.handlers.set(name, handler);
    return handler;
  }

  /* It has answered, or what it gave is no answer. */
  ended(inner, result) {
    const { within } = inner;
    if (within.isOver) return;
    // What kept the event loop until then is late all the same.
    if (within.timer !== null && lineWall() >= within.deadline) return this.late(inner);
    const [bytes, why] = this.instance.wholeResult(within, result);
    const read = bytes === null ? null : this.instance.lines.heads.read(bytes);
    if (read === null) return this.failed(inner, WITHIN_BAD, [Buffer.from(why ?? 'apply returned an answer without a head')]);
    this.isOver(inner);
    const report = reportOf(within, inner.waiting, lineClock(), bytes.length - read.begin, read.status);
    this.reports.push([within.told.number, ...report]);
    if (this.reports.length >= REPORTS_MAX) this.report();
    else this.timer ??= lineTimer(() => this.report(), REPORT_AFTER_MS);
    within.asked.resolve([read.status, read.type, bytes.subarray(read.begin)]);
  }

  isOver({ within, root }) {
    within.isOver = true;
    if (within.timer !== null) lineTimerEnd(within.timer);
    if (within.onLeft.length > 0 && root.stream) root.stream.onLeft = root.stream.onLeft.filter((then) => !within.onLeft.includes(then));
  }

  raised(inner, error) {
    this.failed(inner, WITHIN_RAISED, textsAsParts(error));
  }

  late(inner) {
    if (inner.within.isOver) return;
    this.failed(inner, WITHIN_LATE, []);
    this.instance.whose.run(inner, () => inner.within.onLeft.splice(0).forEach((then) => then()));
  }

  /* It gave no answer: the node tells the caller so, as of any other call, and writes it down. */
  failed(inner, kind, parts) {
    const { within } = inner;
    if (within.isOver) return;
    this.isOver(inner);
    // The caller may have ended, and with it this.
    if (!this.instance.turns.has(inner.root)) return;
    this.instance.askNode(within.asked, null, { within, kind, parts });
  }

  /* What precedes an ask by a function that was called here, maybe once more of what it had begun on a line, of one whose
   * call has ended, or of one that is not to be called here. */
  before({ within }, line, ended, isForOthers) {
    const head = within === null ? NO_BYTES : headText(within.heads);
    const failure = ended === null ? [] : [Buffer.from([ended.kind]), ...ended.parts];
    const asker = Buffer.alloc(6);
    asker.writeUInt32LE(within === null ? 0 : within.told.number, 0);
    asker.writeUInt16LE(head.length, 4);
    const end = Buffer.alloc(17);
    end[0] = isForOthers ? 1 : 0;
    end.writeUInt32LE(line ?? 0, 1);
    if (ended !== null) {
      end.writeUInt32LE(ended.within.told.number, 5);
      end.writeUInt32LE(least((lineClock() - ended.within.begun) * 1000), 9);
      end.writeUInt32LE(failure.reduce((sum, part) => sum + part.length, 0), 13);
    }
    return [asker, head, end, ...failure];
  }

  /* Tells the node of calls that it was not told of: those of a function together. */
  report() {
    if (this.timer !== null) lineTimerEnd(this.timer);
    this.timer = null;
    if (this.reports.length === 0) return;
    const [now, byNumber] = [lineClock(), new Map()];
    for (const [number, ended, report] of this.reports) {
      report.writeUInt32LE(least((now - ended) * 1000), 8);
      if (!byNumber.has(number)) byNumber.set(number, []);
      byNumber.get(number).push(report);
    }
    this.reports = [];
    for (const [number, reports] of byNumber) {
      const head = Buffer.alloc(4);
      head.writeUInt32LE(number);
      this.instance.send(SERVED_WITHIN, 0, [head, ...reports]);
    }
  }
}

/* Whether nothing that was called here runs beside a call. */
function isInnermost(turn) {
  return (turn.root.innermost ?? turn.root) === turn;
}

/* A call has ended, also one that was late; that of its caller may have ended before. */
function settled(inner) {
  const { root } = inner;
  inner.isSettled = true;
  while (root.innermost?.isSettled) root.innermost = root.innermost.outer.within === null ? null : root.innermost.outer;
}

/* How a call is named that calls others. */
function nameOf(turn) {
  if (turn.within !== null) return turn.within.told.name;
  if (turn.onLine !== null) return turn.onLine.served.function;
  return (turn.name ??= JSON.parse(turn.head.toString('utf8', 0, turn.head.indexOf(10))).function ?? '');
}

/* For what a call of the node's runs, as calls within it hand it down; null: there are none. */
function identityOf(turn) {
  const asks = asksOf(turn);
  if (asks === null) return null;
  const id = asks.subarray(LINE_REQUEST_BYTES, LINE_REQUEST_BYTES + asks[57]);
  const [seal, trace, span] = [asks.subarray(16, 32), asks.subarray(32, 48), asks.subarray(48, 56)];
  const [deadline, depth] = [readWide(asks, 4), asks.readUInt32LE(12) - 1];
  return { id, requestId: id.latin1Slice(), deadline, depth, seal, trace, span, flags: asks[56] };
}

/* The head of requests on lines for what is called here. */
function asksWithin({ id, deadline, depth, seal, trace, span, flags }) {
  return depth < LINE_DEPTH_MAX ? requestHead(id, deadline, depth, seal, trace, span, flags) : null;
}
