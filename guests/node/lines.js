// SPDX-License-Identifier: Apache-2.0
/*
 * Both ends of lines, by which functions call each other without the node
 * (`docs/spec/lines.md`).
 *
 * The node puts this text before that of `template.js`, in one function scope. What is native is in
 * `guests/template`: `line.c`, which takes care of an other end that lies, and
 * `node_streams.c`, by which the event loop hears of messages.
 */

/* Of lines (docs/spec/lines.md): bytes of a message; functions that may wait for one another. */
const LINE_BYTES_MAX = (64 << 10) - 4;
const LINE_DEPTH_MAX = 16;
/* What a message has beside type and body, at most. */
const LINE_OVERHEAD = 512;
const LINE_TYPE_MAX = 256;
/* Of a report, and how long the first of them may wait for others. */
const REPORTS_MAX = 32;
const REPORT_AFTER_MS = 5;
/* Before the request's id, type and body: number, deadline, depth, seal, trace, span, flags, both lengths. */
const LINE_REQUEST_BYTES = 60;
/* Before the request's id: times, bytes, status, both spans, trace, seal, flags, length. */
const REPORT_BYTES = 72;
/* Of a result's first word: the length of its head. */
const HEAD_LENGTH = 0x3fffffff;
const HEADS_MAX = 64;
const SPAN_BYTES = 8;
const REQUEST_BYTES = 16;
const NO_BYTES = Buffer.alloc(0);
/* Of calls of other functions that have no answer of the node's yet: how many, and bytes of their bodies. */
const ASKS_MAX = 64;
const ASKS_BYTES_MAX = 32 << 20;
/* Kinds of frames. */
const [LINE_RESULT, LINE_SERVED, LINE_SERVING, LINE_WAITED, LINE_DROPPED] = [5, 20, 21, 22, 24];
/* What the native core says: the next message will come; nothing was sent. */
const NOT_YET = -11;
const NOT_SENT = -108;
/* What the flag is that native callbacks are under way, and how their end is asked for (node_streams.c). */
const [CALLBACK_UNDER_WAY, CALLBACK_END_WANTED] = [1, 2];

/* Milliseconds, with fractions; functions may replace what they find. */
const lineClock = performance.now.bind(performance);
const lineTimer = setTimeout;
const lineTimerEnd = clearTimeout;
const lineLater = setImmediate;
const lineWall = Date.now;
const lineRandom = require('crypto').randomFillSync;

/* One end of a line to another instance. */
class Line {
  constructor(core, number, name) {
    this.core = core;
    this.number = number;
    this.name = name;
    this.data = Buffer.allocUnsafeSlow(LINE_BYTES_MAX);
    this.end = -1;
    this.last = 0;
    /* What has no answer yet, and whether one is there that is not told. */
    this.asked = null;
    this.isThere = false;
  }

  /* Takes the end whose descriptors have come; whether that went well. */
  open(serves, heard) {
    this.end = this.core.lineOpen(this.data, heard, serves ? 1 : 0);
    return this.end >= 0;
  }

  close() {
    if (this.end >= 0) this.core.lineClose(this.end);
    this.end = -1;
  }

  send(message) {
    return this.core.lineSend(this.end, message);
  }

  isClosed() {
    return this.core.lineIsClosed(this.end) === 1;
  }

  message(length) {
    return Buffer.from(this.data.subarray(0, length));
  }
}

/* For what a call runs, as calls on lines hand it down: all of a request that is the same for each. */
function requestHead(requestId, deadlineMs, depth, seal, trace, span, flags) {
  const head = Buffer.alloc(LINE_REQUEST_BYTES + requestId.length);
  writeWide(head, 4, deadlineMs);
  head.writeUInt32LE(depth + 1, 12);
  seal.copy(head, 16);
  trace.copy(head, 32);
  span.copy(head, 48);
  head[56] = flags;
  head[57] = requestId.length;
  requestId.copy(head, LINE_REQUEST_BYTES);
  return head;
}

function writeWide(bytes, at, value) {
  bytes.writeUInt32LE(value % 0x100000000, at);
  bytes.writeUInt32LE(Math.floor(value / 0x100000000), at + 4);
}

function readWide(bytes, at) {
  return bytes.readUInt32LE(at) + bytes.readUInt32LE(at + 4) * 0x100000000;
}

/* What the head of a request says; null: its calls take no lines. */
function headTold(head) {
  const end = head === undefined ? -1 : head.indexOf(10);
  if (end < 0) return null;
  const call = JSON.parse(head.toString('utf8', 0, end));
  if (call.seal === undefined || (call.depth ?? 0) >= LINE_DEPTH_MAX) return null;
  const { headers } = JSON.parse(head.toString('utf8', end + 1));
  const parent = headers.find(([name]) => name === 'traceparent')[1];
  const [, trace, span, flags] = parent.split('-').map((part) => Buffer.from(part, 'hex'));
  const seal = Buffer.from(call.seal, 'hex');
  return requestHead(Buffer.from(call.request_id), call.deadline_ms, call.depth ?? 0, seal, trace, span, flags[0]);
}

/* The same of the call that runs; null: its calls take no lines. */
function asksOf(turn) {
  if (turn.asks === undefined) turn.asks = turn.within === null ? headTold(turn.head) : asksWithin(turn.within);
  return turn.asks;
}

/* What was read of the heads of results: most functions have few. */
class Heads {
  constructor() {
    this.known = new Map();
  }

  /* Status, type and where the body begins; null if it is no result. */
  read(result) {
    if (result.length < 4) return null;
    const begin = 4 + (result.readUInt32LE(0) & HEAD_LENGTH);
    if (begin > result.length) return null;
    const text = result.latin1Slice(4, begin);
    let known = this.known.get(text);
    if (known === undefined) {
      known = readHead(result.toString('utf8', 4, begin));
      if (known === null) return null;
      if (this.known.size >= HEADS_MAX) this.known.clear();
      this.known.set(text, known);
    }
    return { status: known.status, type: known.type, begin };
  }
}

function readHead(text) {
  try {
    const head = text === '' ? {} : JSON.parse(text);
    if (typeof head !== 'object' || Array.isArray(head)) return null;
    const { status = 200, headers = [] } = head;
    const type = headers.find(([name]) => name.toLowerCase() === 'content-type')?.[1] ?? '';
    const isHead = Number.isInteger(status) && status >= 200 && status <= 599 && typeof type === 'string';
    return isHead ? { status, type } : null;
  } catch {
    return null;
  }
}

/* How long a call waits for others, of which the node knows nothing: whenever at least one of them
 * has no answer, and the node does not see for itself that the call waits. */
class Waiting {
  constructor() {
    this.count = 0;
    this.seen = 0;
    this.since = 0;
    this.ms = 0;
  }

  begin(isSeen = false) {
    this.change(1, isSeen);
  }

  end(isSeen = false) {
    this.change(-1, isSeen);
  }

  change(by, isSeen) {
    const now = lineClock();
    this.ms += this.under(now);
    this.since = now;
    if (isSeen) this.seen += by;
    else this.count += by;
  }

  under(now) {
    return this.count > 0 && this.seen === 0 ? now - this.since : 0;
  }

  /* All of it, in microseconds. */
  us() {
    return Math.round((this.ms + this.under(lineClock())) * 1000);
  }
}

/* The lines of an instance: those by which it calls, and the one that it serves. */
class Lines {
  constructor(instance, core) {
    this.instance = instance;
    this.core = core;
    /* Those by which it calls, by name. */
    this.open = new Map();
    /* Those that are to give an answer; one may have been replaced. */
    this.used = new Set();
    this.heads = new Heads();
    this.served = null;
    this.flag = Buffer.alloc(1);
  }

  /* It is those of the instance that this process is. */
  attach() {
    return this.core.onSettled(this.flag, () => this.instance.tellEnded());
  }

  /* Whether who is called at the end of a native callback will tell of what has ended. */
  tellsSoon() {
    if (this.flag[0] === CALLBACK_UNDER_WAY) this.flag[0] = CALLBACK_END_WANTED;
    return this.flag[0] !== 0;
  }

  // ------------------------------------------------------------- who calls

  /* There is a line to a function. */
  add(payload) {
    // Nobody may have heard that they are over.
    for (const other of this.open.values()) if (other.asked === null && other.isClosed()) this.forget(other);
    const line = new Line(this.core, payload.readUInt32LE(0), payload.toString('utf8', 4));
    if (!line.open(false, (length) => this.heard(line, length))) return this.drop(line);
    const before = this.open.get(line.name);
    this.open.set(line.name, line);
    // One that is in use is closed when that has ended.
    if (before?.asked === null) before.close();
  }

  /* Whoever used it uses it no more. */
  forget(line) {
    this.used.delete(line);
    if (this.open.get(line.name) === line) this.open.delete(line.name);
    line.close();
  }

  /* Nobody wants what is under way on it. */
  drop(line, turn = null) {
    if (turn !== null) this.tellServing(turn);
    const number = Buffer.alloc(4);
    number.writeUInt32LE(line.number);
    this.instance.send(LINE_DROPPED, turn?.number ?? 0, [number]);
    this.forget(line);
  }

  /* Why no call with so many bytes can be begun now; nothing if it can. The node may have to be asked
   * again for each that is under way on a line. */
  tooMany(more) {
    let bytes = this.instance.askedBytes;
    for (const line of this.used) bytes += line.asked.body.length;
    if (this.instance.asked.size + this.used.size >= ASKS_MAX) {
      return `${ASKS_MAX} calls of other functions are under way; await some of them`;
    }
    if (bytes + more <= ASKS_BYTES_MAX) return '';
    return `calls of other functions with ${bytes} bytes are under way, of ${ASKS_BYTES_MAX} at most; await some of them`;
  }

  /* Asks by a line, if there is one and it may be used; else nothing was begun. */
  ask(asked) {
    const line = this.open.get(asked.name);
    if (line === undefined || line.asked !== null) return false;
    const { turn, type, body } = asked;
    const before = asksOf(turn);
    if (before === null || body.length + type.length > LINE_BYTES_MAX - LINE_OVERHEAD) return false;
    const message = Buffer.allocUnsafe(before.length + type.length + body.length);
    before.copy(message);
    line.last = line.last >= 0xffffffff ? 1 : line.last + 1;
    message.writeUInt32LE(line.last, 0);
    message.writeUInt16LE(type.length, 58);
    type.copy(message, before.length);
    body.copy(message, before.length + type.length);
    line.asked = asked;
    this.used.add(line);
    turn.waiting.begin();
    const got = line.send(message);
    if (got === NOT_YET) return true;
    if (got === NOT_SENT) {
      line.asked = null;
      turn.waiting.end();
      this.forget(line);
      return false;
    }
    // Others come first: who is called may have all answers there without an end.
    line.isThere = true;
    lineLater(() => {
      line.isThere = false;
      if (this.used.has(line)) this.heard(line, got);
    });
    return true;
  }

  /* A message has come, or none will. */
  heard(line, got) {
    // It is closed, which will be found when it is used next.
    if (line.isThere) return;
    const { asked } = line;
    if (asked === null) return this.forget(line);
    line.asked = null;
    this.used.delete(line);
    asked.turn.waiting.end();
    if (got >= 0) {
      const result = line.message(got);
      const read = this.heads.read(result);
      if (read !== null) {
        // Another one has come in its place meanwhile.
        if (this.open.get(line.name) !== line) line.close();
        return asked.resolve([read.status, read.type, result.subarray(read.begin)]);
      }
    }
    const isBegun = got >= 0 || this.core.lineIsTaken(line.end) === 1;
    this.forget(line);
    this.instance.askNode(asked, isBegun ? line.number : null);
  }

  /* A call is over, and with it those that it made. */
  end(turn) {
    for (const line of this.used) if (line.asked.turn.root === turn) this.drop(line, turn);
    const us = turn.waiting.us();
    if (turn.onLine !== null || us === 0) return;
    const told = Buffer.alloc(8);
    writeWide(told, 0, us);
    this.instance.send(LINE_WAITED, turn.number, [told]);
  }

  // ------------------------------------------------------------ who serves

  /* Serves a line from now on, as the call of this turn. */
  serve(turn, payload) {
    const line = new Line(this.core, 0, '');
    if (!line.open(true, (length) => this.comes(served, length))) {
      return this.instance.send(LINE_RESULT, turn, []);
    }
    const length = payload.readUInt16LE(16);
    const served = {
      line,
      turn,
      timeoutMs: readWide(payload, 0),
      version: readWide(payload, 8),
      function: payload.toString('utf8', 20, 20 + length),
      caller: payload.toString('utf8', 20 + length, 20 + length + payload.readUInt16LE(18)),
      isBusy: false,
      reports: [],
      bytes: 0,
      timer: null,
      spans: Buffer.alloc(0),
    };
    this.served = served;
    this.comes(served, this.core.lineLook(line.end));
  }

  /* A request has come, or none will. While one is served nothing is asked for. */
  comes(served, length) {
    if (this.served !== served || served.isBusy || length === NOT_YET) return;
    if (length >= LINE_REQUEST_BYTES && this.begin(served, served.line.message(length))) return;
    // It is shut, or who calls broke the rules.
    this.leave();
    this.instance.send(LINE_RESULT, served.turn, []);
  }

  /* Calls the handler for a request; whether it is one. */
  begin(served, message) {
    const [idLength, typeLength] = [message[57], message.readUInt16LE(58)];
    const typeAt = LINE_REQUEST_BYTES + idLength;
    const number = message.readUInt32LE(0);
    if (number === 0 || typeLength > LINE_TYPE_MAX || typeAt + typeLength > message.length) return false;
    const id = message.subarray(LINE_REQUEST_BYTES, typeAt);
    if (!id.every((byte) => byte < 128)) return false;
    const type = message.latin1Slice(typeAt, typeAt + typeLength);
    const body = message.subarray(typeAt + typeLength);
    const deadline = Math.min(readWide(message, 4), lineWall() + served.timeoutMs);
    const [depth, flags] = [message.readUInt32LE(12), message[56]];
    const [seal, trace, parent] = [message.subarray(16, 32), message.subarray(32, 48), message.subarray(48, 56)];
    const span = this.span(served);
    const heads = headsOf(served, id.latin1Slice(), type, deadline, depth, seal, trace, span, flags);
    served.isBusy = true;
    const onLine = { served, heads, isTold: false, kept: [], keptBytes: 0, begun: lineClock(), received: body.length, parent, span, seal, trace, flags, id };
    const asks = depth < LINE_DEPTH_MAX ? requestHead(id, deadline, depth, seal, trace, span, flags) : null;
    this.call(served.turn, onLine, asks, body);
    return true;
  }

  call(number, onLine, asks, body) {
    const { instance } = this;
    const turn = Object.assign(instance.begin(number), { onLine, asks });
    // The usual adapter takes the head as it is, and names requests by it.
    if (instance.readsHeads) instance.start(turn, [NO_BYTES, onLine.heads, body]);
    else instance.start(turn, [lineRandom(Buffer.alloc(REQUEST_BYTES)), headText(onLine.heads), body]);
  }

  /* A name for a call, that no other one has. */
  span(served) {
    if (served.spans.length === 0) served.spans = lineRandom(Buffer.allocUnsafe(SPAN_BYTES * REPORTS_MAX));
    const span = served.spans.subarray(0, SPAN_BYTES);
    served.spans = served.spans.subarray(SPAN_BYTES);
    return span.some((byte) => byte !== 0) ? span : Buffer.alloc(SPAN_BYTES, 1);
  }

  /* What the node is to be told before a request on a line asks anything of it. */
  tellServing(turn) {
    if (turn.onLine === null || turn.onLine.isTold) return;
    turn.onLine.isTold = true;
    this.instance.send(LINE_SERVING, turn.number, [headText(turn.onLine.heads)]);
  }

  /* A request is over that has asked the node for something, which it is to stop. */
  tellOver(turn) {
    if (turn.onLine !== null) this.instance.send(LINE_SERVING, turn.number, []);
  }

  /* A piece of an answer, which is not sent before it is whole. */
  keep(onLine, bytes) {
    onLine.keptBytes += bytes.length;
    // What is too long is only counted.
    if (onLine.keptBytes > this.instance.resultMax) onLine.kept = [];
    else onLine.kept.push(Buffer.from(bytes));
  }

  /* Answers a request there; false: it is for the node to tell, as the end of the line. */
  answer(turn, result, hasPrinted) {
    const { served } = turn.onLine;
    const read = result !== null && result.length <= LINE_BYTES_MAX ? this.heads.read(result) : null;
    const ended = lineClock();
    const got = read === null || this.served !== served ? NOT_SENT : served.line.send(result);
    if (got === NOT_SENT) {
      this.leave();
      return false;
    }
    this.took(turn, ended, result.length - read.begin, read.status);
    if (hasPrinted || served.reports.length >= REPORTS_MAX) this.report(served);
    else served.timer ??= lineTimer(() => this.report(served), REPORT_AFTER_MS);
    // Others come first: who calls may have something to say without an end. Until then it is busy, for
    // what was taken must not be lost when the line is shut meanwhile.
    if (got === NOT_YET) {
      served.isBusy = false;
    } else {
      lineLater(() => {
        served.isBusy = false;
        this.comes(served, got);
      });
    }
    return true;
  }

  /* One request more has had its answer. */
  took({ onLine, waiting }, ended, sent, status) {
    onLine.served.reports.push(reportOf(onLine, waiting, ended, sent, status));
  }

  /* Tells the node of those that it was not told of. How long ago that was is known now. */
  report(served) {
    if (served.timer !== null) lineTimerEnd(served.timer);
    served.timer = null;
    if (served.reports.length === 0) return;
    const now = lineClock();
    const parts = served.reports.map(([ended, report]) => {
      report.writeUInt32LE(least((now - ended) * 1000), 8);
      return report;
    });
    served.reports = [];
    this.instance.send(LINE_SERVED, served.turn, parts);
  }

  leave() {
    const { served } = this;
    this.served = null;
    if (served === null) return;
    this.report(served);
    served.line.close();
  }
}

/* What the node is told of a call that it had no part in, and when that ended: how long ago is written when it is told. */
function reportOf({ begun, received, parent, span, trace, seal, flags, id }, waiting, ended, sent, status) {
  const report = Buffer.allocUnsafe(REPORT_BYTES + id.length);
  report.writeUInt32LE(least((ended - begun) * 1000), 0);
  report.writeUInt32LE(least(waiting.us()), 4);
  report.writeUInt32LE(received, 12);
  report.writeUInt32LE(sent, 16);
  report.writeUInt16LE(status, 20);
  parent.copy(report, 22);
  span.copy(report, 30);
  trace.copy(report, 38);
  seal.copy(report, 54);
  report[70] = flags;
  report[71] = id.length;
  id.copy(report, REPORT_BYTES);
  return [ended, report];
}

/* Both parts of the head of a request, as the node would write them but for its seal; the second one when it is asked for. */
function headsOf(served, id, type, deadline, depth, seal, trace, span, flags) {
  const call = {
    request_id: id,
    function: served.function,
    version: served.version,
    deadline_ms: deadline,
    source: 'call',
    caller: served.caller,
    depth,
  };
  if (type !== '') call.content_type = type;
  const http = () => {
    const parent = `00-${trace.hexSlice()}-${span.hexSlice()}-${flags.toString(16).padStart(2, '0')}`;
    const headers = type === '' ? [] : [['content-type', type]];
    return { method: 'POST', path: '/', query: '', headers: [...headers, ['traceparent', parent]] };
  };
  return { call, http, seal };
}

function headText({ call, http, seal }) {
  return Buffer.from(`${JSON.stringify({ ...call, seal: seal.hexSlice() })}\n${JSON.stringify(http())}`);
}

function least(number) {
  return Math.min(Math.max(Math.round(number), 0), 0xffffffff);
}

