// SPDX-License-Identifier: Apache-2.0
/*
 * The template process that Node functions are forked from.
 *
 * The node starts it with a SEQPACKET socket as standard input, at addresses
 * and with seeds that are the same every time. It loads the modules that it is
 * told, settles its memory, says hello, and then forks an instance per order;
 * it never runs a function itself. Orders, fork and confinement are in native
 * code, `guests/template`, which it loads from the descriptor that its second
 * argument names; the channel of an instance is described in
 * `process/channel.rs`. The node puts the texts of `lines.js`,
 * `replaced.js` and `failures.js` before this one.
 *
 * Invariants: the template has one thread whenever it forks, and nothing open
 * that an event loop would wait for; a child is confined before it reads a byte
 * of the function; what is random differs from one instance to the next.
 *
 * A function scope holds all of it, for what a script declares at its top is
 * seen by every other script.
 */
(() => {
  'use strict';

  const crypto = require('crypto');
  const fs = require('fs');
  const path = require('path');
  const v8 = require('v8');
  const vm = require('vm');
  const { Module, builtinModules } = require('module');
  const { AsyncLocalStorage, AsyncResource } = require('async_hooks');

  const VERSION = 9;
  const CHANNEL = 3;
  const LOG_PIECE_BYTES = 32 << 10;
  /* What is read at once, and what is written at once of several pieces. */
  const READ_BYTES = 64 << 10;
  const WRITE_BYTES = 64 << 10;
  /* What is kept of what timers print between two calls. */
  const LOG_IDLE_BYTES = 32 << 10;
  /* After so many milliseconds without a function, an instance is one that waits. */
  const WAITING_MS = 20;
  const HEADER_BYTES = 9;
  const LOAD_HEAD_BYTES = 20;
  /* The turn of what happens outside of calls. */
  const OUTSIDE = 0;
  const [HELLO, LOAD, LOADED, CALL, RESULT, RAISED, BAD_RESULT, LOG, UNCONFINED] = [1, 2, 3, 4, 5, 6, 7, 8, 9];
  const [ASK, TOLD, PIECE, ROOM, LEFT, BODY, BODY_LOST, WANTS] = [10, 11, 12, 13, 14, 15, 16, 17];
  const [SERVE, LINE, ASK_AGAIN, LEAVING, TURNS, WITHIN, WITHIN_OVER, PRINTS] = [18, 19, 23, 27, 29, 32, 33, 37];
  /* Of calls of other functions: bytes of name, type and body. */
  const [ASK_NAME_MAX, ASK_TYPE_MAX, ASK_BODY_MAX] = [128, 256, 16 << 20];
  /* Of a result that is sent in pieces: bytes before the node asks for more, and of one piece. */
  const STREAM_WINDOW = 256 << 10;
  const PIECE_BYTES_MAX = 64 << 10;
  /* Modules that are globals of every program, not only of one from the command line. */
  const GLOBAL_ANYWAY = new Set(['console', 'crypto', 'process']);
  /* What may be pending when a child is forked: it needs no descriptor. */
  const HARMLESS = new Set(['Timeout', 'Immediate']);
  const NOT_ASKED = 'it was only asked where it lies';
  const SHARES = 'after the imports there is memory that all instances would share, so that forking is not safe';
  const REHEARSAL = rehearsal();
  // Functions that talk to others find it loaded.
  require('net');

  // ------------------------------------------------------------- template

  function main() {
    const [role, fd, ...imports] = process.argv.slice(1);
    const core = loadCore(Number(fd));
    if (role === 'instance') return startInstance(core, imports);
    // Those that are left are found by serve().
    core.endOwnThreads();
    if (core.begin() < 0) return core.end(1);
    const random = replaceRandom();
    const streams = replaceStreams();
    const why = importAll(imports);
    if (why) return refuse(core, '!', why);
    // What modules put off until the end of a script happens here.
    const refused = (error) => refuse(core, '!', `it cannot start: ${textOf(error)}`);
    process.on('uncaughtException', refused);
    setImmediate(() => setImmediate(() => warm(core, random, streams, () => {
      process.off('uncaughtException', refused);
      serve(core, random, streams, role === 'model');
    })));
  }

  function serve(core, random, streams, isModel) {
    const open = process.getActiveResourcesInfo().filter((name) => !HARMLESS.has(name));
    const threads = core.threads();
    const unforkable = (why) => refuse(core, '?', [why, ...facts()].join('\0'));
    if (isModel) return unforkable(NOT_ASKED);
    if (threads !== 1) {
      return unforkable(`after the imports there are ${threads} threads, so that forking is not safe`);
    }
    if (core.shares() !== 0) return unforkable(SHARES);
    if (open.length > 0) return unforkable(`after the imports there is an open ${open[0]}, which cannot be forked`);
    if (core.tryFork() !== 0) return unforkable('a forked child of this interpreter does not live');
    try {
      settle();
      say(core, hello());
    } catch (error) {
      return refuse(core, '!', `it cannot settle: ${error?.stack}`);
    }
    if (core.serve() === 0) return core.end(0);
    becomeInstance(core, random, streams);
  }

  function refuse(core, kind, why) {
    say(core, cut(Buffer.from(kind + why)));
    core.end(0);
  }

  function say(core, message) {
    core.say(message);
  }

  /* The addon was loaded before the C library already; this finds it again. */
  function loadCore(fd) {
    const addon = { exports: {} };
    process.dlopen(addon, `/proc/self/fd/${fd}`);
    fs.closeSync(fd);
    return addon.exports;
  }

  /* Why a module cannot be imported; nothing if all can. */
  function importAll(names) {
    for (const name of names) {
      try {
        require(name);
      } catch (error) {
        const [kind, message] = describe(error);
        return `cannot import ${name}: ${kind}: ${message.split('\n')[0]}`;
      }
    }
    return '';
  }

  /* Nothing of how it was started is seen by functions, or left as garbage. */
  function settle() {
    process.argv.length = 1;
    process.execArgv = [];
    for (const name of Object.keys(process.env)) delete process.env[name];
    Object.assign(process.env, { PATH: '/usr/bin:/bin', LC_ALL: 'C.UTF-8', HOME: '/tmp', TMPDIR: '/tmp' });
    const given = ['require', 'module', 'exports', '__filename', '__dirname', ...builtinModules];
    for (const name of given) if (!GLOBAL_ANYWAY.has(name)) delete globalThis[name];
    // Only a context that is made meanwhile has the collector.
    v8.setFlagsFromString('--expose-gc');
    const gc = vm.runInNewContext('gc');
    v8.setFlagsFromString('--no-expose-gc');
    for (let round = 0; round < 3; round++) gc();
  }

  /* The interpreter, its version, and the folder that it lies in. */
  function facts() {
    return [process.execPath, process.version.slice(1), `node-${process.versions.modules}`, path.dirname(path.dirname(fs.realpathSync(process.execPath)))];
  }

  /* The first words: where files are mapped, and what was loaded. */
  function hello() {
    const digest = crypto.createHash('sha256').update(process.version);
    for (const name of Object.keys(Module._cache).sort()) digest.update(`${name}\n`);
    for (const line of fs.readFileSync('/proc/self/maps', 'latin1').split('\n')) {
      const fields = line.split(/\s+/);
      if (fields.length > 5 && fields[5].startsWith('/')) digest.update(`${fields[0]} ${fields[5]}\n`);
    }
    const head = Buffer.alloc(7);
    head.write('H');
    head.writeUInt16LE(VERSION, 1);
    head.writeUInt32LE(process.pid, 3);
    // The engine's heap is in pieces that fill no huge page.
    const hugePages = Buffer.alloc(4);
    return Buffer.concat([head, digest.digest(), hugePages, Buffer.from(facts().join('\0'))]);
  }

  /* Does once what every instance does, so that its code is compiled and what
   * it needs is loaded. */
  function warm(core, random, streams, then) {
    const instance = new Instance(() => {}, core);
    streams.attach(instance);
    findOneself(random);
    attend(core, core.streamOf(Buffer.concat([REHEARSAL.bad, REHEARSAL.good])), instance, () => {
      streams.attach(null);
      // What the call put off, and what closing leaves behind, is done first.
      setImmediate(() => setImmediate(then));
    });
  }

  /* An instance that waits for its function does the same again, for memory
   * that was the template's becomes its own when it is written to. */
  function rehearse(streams, instance) {
    const other = new Instance(() => {}, instance.lines.core);
    streams.attach(other);
    other.receive(REHEARSAL.good);
    streams.attach(instance);
  }

  /* The frames of a function that fails to load, and of one that is called. */
  function rehearsal() {
    const load = (source) => {
      const head = Buffer.alloc(LOAD_HEAD_BYTES);
      head.writeUInt16LE(2, 16);
      head.writeUInt16LE(4, 18);
      const payload = Buffer.concat([head, Buffer.from(`warm${source}`)]);
      return Buffer.concat([frameHead(LOAD, OUTSIDE, payload.length), payload]);
    };
    const one = Buffer.from([1, 0, 0, 0, 1, 0, 0, 0, 7]);
    const call = Buffer.concat([frameHead(CALL, 1, one.length), one]);
    const good = load('exports.apply = (x) => { console.log("warm"); console.error("warm"); return x; };');
    return { bad: load('throw new TypeError("warm");'), good: Buffer.concat([good, call]) };
  }

  // ------------------------------------------------------------- instance

  function becomeInstance(core, random, streams) {
    findOneself(random);
    listen(core, streams);
  }

  /* Node remembers who and where it was, and what it drew. */
  function findOneself(random) {
    Object.defineProperty(process, 'pid', { value: ownPid(), enumerable: true, configurable: true });
    process.chdir('/');
    random.reseed();
  }

  /* The number of this process where it is now. */
  function ownPid() {
    return Number(fs.readlinkSync('/proc/self'));
  }

  /* An instance that was not forked: it is confined already, and its channel is
   * its standard input. */
  function startInstance(core, imports) {
    if (core.placeChannel() < 0) return core.end(1);
    const streams = replaceStreams();
    const why = importAll(imports);
    if (why) {
      write(core, frame(UNCONFINED, OUTSIDE, [cut(Buffer.from(why))]));
      return core.end(0);
    }
    settle();
    listen(core, streams);
  }

  function listen(core, streams) {
    const instance = new Instance((pieces) => write(core, pieces), core);
    if (instance.lines.attach() < 0) return core.end(1);
    streams.attach(instance);
    // What Node does at its end waits for threads that a child does not have.
    process.reallyExit = (code) => instance.leave(core, code ?? 0);
    process.on('uncaughtException', (error) => instance.uncaught(core, 'uncaughtException', error));
    process.on('unhandledRejection', (error) => instance.uncaught(core, 'unhandledRejection', error));
    const waiting = setTimeout(() => rehearse(streams, instance), WAITING_MS);
    instance.onFirst = () => clearTimeout(waiting);
    attend(core, CHANNEL, instance, () => core.end(0));
    const head = Buffer.alloc(10);
    head.write('SNWP');
    head.writeUInt16LE(VERSION, 4);
    head.writeUInt32LE(process.pid, 6);
    instance.send(HELLO, OUTSIDE, [head]);
  }

  /* Gives the instance what comes over the channel, until its end. One buffer
   * for all reads: else each would have a new one, of which little is used. */
  function attend(core, fd, instance, end) {
    const buffer = Buffer.allocUnsafeSlow(READ_BYTES);
    const received = (length) => (length > 0 ? instance.receive(Buffer.from(buffer.subarray(0, length))) : end());
    if (core.attend(fd, buffer, received) < 0) core.end(1);
  }

  function frameHead(kind, turn, length) {
    const head = Buffer.allocUnsafe(HEADER_BYTES);
    head.writeUInt32LE(length, 0);
    head[4] = kind;
    head.writeUInt32LE(turn, 5);
    return head;
  }

  /* Frames: length of the rest as u32, kind as u8, turn as u32, the rest. */
  function frame(kind, turn, parts) {
    const length = parts.reduce((sum, part) => sum + part.length, 0);
    return [frameHead(kind, turn, length), ...parts];
  }

  /* What is short is sent at once: each piece would wake who reads. */
  function write(core, pieces) {
    const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
    if (length <= WRITE_BYTES) return core.send(Buffer.concat(pieces, length));
    for (const piece of pieces) core.send(piece);
  }

  class Instance {
    constructor(write, core) {
      this.write = write;
      this.core = core;
      // Calls without the node.
      this.lines = new Lines(this, core);
      this.withins = new Withins(this);
      // Finds what calls another handler of the same code.
      this.applyOf = null;
      // Pieces that are to be written together.
      this.together = null;
      // Calls that have ended in this turn of the loop, with their results.
      this.ended = [];
      this.pieces = [];
      this.held = 0;
      this.apply = null;
      // Whether what is called reads the head of a request as it is, and not as a text.
      this.readsHeads = false;
      // Called when the function comes.
      this.onFirst = () => {};
      this.resultMax = 0;
      this.logMax = 0;
      // What may be printed while no call runs.
      this.outside = { number: OUTSIDE, logLeft: 0, onLine: null, within: null };
      this.outside.root = this.outside;
      // What is being answered: loading, and calls.
      this.turns = new Set();
      // Where one call is served at a time: those that stand in line, and whether the next one may not begin yet.
      this.isSerial = true;
      this.next = [];
      this.isResting = false;
      // Whether a call begins, and was not recalled; and whether that cannot be known here.
      this.begins = () => true;
      this.isUnfit = false;
      // They are served in an asynchronous context that is no call's.
      this.apart = null;
      // Whose turn it is, where several calls run at once.
      this.whose = null;
      // Calls of other functions that have no answer yet, by their ids.
      this.asked = new Map();
      this.askedBytes = 0;
      this.lastAsk = 0;
    }

    send(kind, turn, parts) {
      const pieces = frame(kind, turn, parts);
      if (this.together) this.together.push(...pieces);
      else this.write(pieces);
    }

    receive(data) {
      this.pieces.push(data);
      this.held += data.length;
      while (this.held >= HEADER_BYTES) {
        if (this.pieces[0].length < HEADER_BYTES) this.join();
        const length = this.pieces[0].readUInt32LE(0);
        if (this.held < HEADER_BYTES + length) return;
        this.join();
        const all = this.pieces[0];
        const rest = all.subarray(HEADER_BYTES + length);
        this.pieces = rest.length > 0 ? [rest] : [];
        this.held = rest.length;
        this.act(all[4], all.readUInt32LE(5), all.subarray(HEADER_BYTES, HEADER_BYTES + length));
      }
    }

    join() {
      if (this.pieces.length > 1) this.pieces = [Buffer.concat(this.pieces)];
    }

    act(kind, number, payload) {
      if (kind === LOAD) this.load(payload);
      else if (kind === CALL) this.call(number, payload);
      else if (kind === TOLD) this.told(payload);
      else if (kind === ROOM) this.roomFor(number, payload.readUInt32LE(0));
      else if (kind === LEFT) this.left(number, payload.length > 0);
      else if (kind === BODY || kind === BODY_LOST) this.bodyFor(number, kind, payload);
      else if (kind === SERVE) this.lines.serve(number, payload);
      else if (kind === LINE) this.lines.add(payload);
      else if (kind === TURNS) this.shareTurns();
      else if (kind === PRINTS) this.core.printTo();
      else if (kind === WITHIN) this.withins.add(payload);
      else if (kind === WITHIN_OVER) this.withins.told.clear();
    }

    /* Calls the function of a name: a promise of status, type and body of the
     * answer. If the call that runs ends before, nobody waits for it any more. */
    ask(name, type, body) {
      const turn = this.current();
      if (turn === null || turn.number === OUTSIDE) {
        return Promise.reject(new Error('functions are called while a request is handled, not before or after it'));
      }
      const told = this.withins.toldOf(name, turn);
      if (told !== null && type.length <= ASK_TYPE_MAX && body.length <= ASK_BODY_MAX) {
        return new Promise((resolve, reject) => this.withins.begin(told, { turn, resolve, reject, name, type, body }));
      }
      const [nameBytes, typeBytes] = [Buffer.from(name), Buffer.from(type)];
      if (nameBytes.length > ASK_NAME_MAX || typeBytes.length > ASK_TYPE_MAX) {
        const why = `a function's name has at most ${ASK_NAME_MAX} bytes, a content type ${ASK_TYPE_MAX}`;
        return Promise.reject(new RangeError(why));
      }
      if (body.length > ASK_BODY_MAX) {
        const why = `the payload has ${body.length} bytes; a call of a function takes ${ASK_BODY_MAX}`;
        return Promise.reject(new RangeError(why));
      }
      const why = this.lines.tooMany(body.length);
      if (why) return Promise.reject(new RangeError(why));
      return new Promise((resolve, reject) => {
        const asked = { turn, resolve, reject, name, nameBytes, type: typeBytes, body };
        // Where it could be called here, but something else runs here.
        asked.isForOthers = this.withins.told.has(name) && !isInnermost(turn);
        if (!this.lines.ask(asked)) this.askNode(asked, null);
      });
    }

    /* The same by the node, which knows how it ended if it was begun on the line of this number, and is told
     * if it was begun here. */
    askNode(asked, line, ended = null) {
      const { turn, name, nameBytes = Buffer.from(name), body } = asked;
      const type = Buffer.from(asked.type);
      do this.lastAsk = (this.lastAsk + 1) >>> 0;
      while (this.asked.has(this.lastAsk));
      const id = this.lastAsk;
      const at = line === null ? 0 : 4;
      const head = Buffer.allocUnsafe(at + 8 + nameBytes.length);
      if (line !== null) head.writeUInt32LE(line, 0);
      head.writeUInt32LE(id, at);
      head.writeUInt16LE(nameBytes.length, at + 4);
      nameBytes.copy(head, at + 6);
      head.writeUInt16LE(type.length, at + 6 + nameBytes.length);
      this.asked.set(id, asked);
      this.askedBytes += body.length;
      // Of what came by the channel the node sees how long it waits.
      turn.waiting.begin(turn.root.onLine === null);
      this.lines.tellServing(turn.root);
      const isForOthers = asked.isForOthers === true;
      if (turn.within === null && ended === null && !isForOthers) return this.send(line === null ? ASK : ASK_AGAIN, turn.number, [head, type, body]);
      // Whoever is told how a call ended needs no more of it.
      const rest = ended === null ? body : NO_BYTES;
      this.send(ASK_WITHIN, turn.number, [...this.withins.before(turn, line, ended, isForOthers), head.subarray(at), type, rest]);
    }

    told(payload) {
      const id = payload.readUInt32LE(0);
      const asked = this.asked.get(id);
      // The call that it was for may have ended.
      if (!asked) return;
      this.forget(id, asked);
      const bodyAt = 8 + payload.readUInt16LE(6);
      asked.resolve([payload.readUInt16LE(4), payload.toString('utf8', 8, bodyAt), payload.subarray(bodyAt)]);
    }

    /* The result of the call that runs, for whoever sends it in pieces; the first one has its head, whole. */
    outgoing() {
      const turn = this.current();
      return { send: (bytes) => this.sendPieces(turn, bytes), onLeft: (then) => this.onLeft(turn, then) };
    }

    /* Has something done once nobody waits for the answer any more. */
    onLeft(turn, then) {
      if (turn === null || !this.turns.has(turn.root) || turn.root.stream?.hasLeft) return then();
      turn.within?.onLeft.push(then);
      this.streamOf(turn.root).onLeft.push(then);
    }

    streamOf(turn) {
      return (turn.stream ??= { room: STREAM_WINDOW, hasLeft: false, onRoom: [], onLeft: [] });
    }

    /* Sends bytes at the pace at which the client takes them; one after the other. None of them: they were all. */
    async sendPieces(turn, bytes) {
      if (turn === null) throw new Error('an answer is sent while its request is handled');
      if (!this.turns.has(turn.root) || turn.within?.isOver) throw new Error('nobody waits for the answer any more');
      const keeps = turn.onLine ?? turn.within;
      if (keeps !== null) return this.lines.keep(keeps, bytes);
      const stream = this.streamOf(turn);
      for (let at = 0; at === 0 || at < bytes.length; at += PIECE_BYTES_MAX) {
        const piece = bytes.subarray(at, at + PIECE_BYTES_MAX);
        while (stream.room < piece.length && !stream.hasLeft && this.turns.has(turn)) {
          await new Promise((resolve) => stream.onRoom.push(resolve));
        }
        if (stream.hasLeft || !this.turns.has(turn)) throw new Error('nobody waits for the answer any more');
        stream.room -= piece.length;
        this.send(PIECE, turn.number, [piece]);
      }
    }

    /* A call that runs. */
    turnOf(number) {
      for (const turn of this.turns) if (turn.number === number) return turn;
      return null;
    }

    streamOfNumber(number) {
      const turn = this.turnOf(number);
      return turn === null ? null : this.streamOf(turn);
    }

    /* The body of the call that runs, for whoever takes it while it comes: one piece after the other. */
    incoming() {
      const turn = this.current();
      return { read: () => this.readBody(turn) };
    }

    bodyOf(turn) {
      return (turn.body ??= { pieces: [], end: null, wake: null });
    }

    /* Its next bytes; null after the last of them. */
    async readBody(turn) {
      if (turn === null) throw new Error("a request's body is read while it is handled");
      const body = this.bodyOf(turn);
      while (body.pieces.length === 0 && body.end === null && this.turns.has(turn)) {
        await new Promise((resolve) => (body.wake = resolve));
      }
      const piece = body.pieces.shift();
      if (piece === undefined) {
        if (body.end === BODY) return null;
        throw new Error(body.end === null ? 'the request is over' : 'the client left before the end of the body');
      }
      if (body.end === null && this.turns.has(turn)) {
        const taken = Buffer.allocUnsafe(4);
        taken.writeUInt32LE(piece.length);
        this.send(WANTS, turn.number, [taken]);
      }
      return piece;
    }

    bodyFor(number, kind, payload) {
      const turn = this.turnOf(number);
      // Of a call that has not begun; it comes to it then.
      if (turn === null) return void this.next.find((next) => next[0] === number)?.push([kind, payload]);
      const body = this.bodyOf(turn);
      if (payload.length > 0) body.pieces.push(payload);
      else body.end = kind;
      body.wake?.();
    }

    roomFor(number, bytes) {
      const stream = this.streamOfNumber(number);
      if (stream === null) return;
      stream.room += bytes;
      for (const resolve of stream.onRoom.splice(0)) resolve();
    }

    /* Nobody waits for a call any more; it is answered for where it is overdue. What it does then is of no call. */
    left(number, isOverdue) {
      const turn = this.turnOf(number);
      if (turn === null) return;
      const stream = this.streamOf(turn);
      stream.hasLeft = true;
      const tell = () => [...stream.onRoom.splice(0), ...stream.onLeft.splice(0)].forEach((then) => then());
      if (this.whose) this.whose.run(turn, tell);
      else tell();
      if (isOverdue) this.raised(turn, new Error('it has used up its time'));
    }

    forget(id, asked) {
      this.asked.delete(id);
      this.askedBytes -= asked.body.length;
      asked.turn.waiting.end(asked.turn.root.onLine === null);
    }

    load(payload) {
      this.onFirst();
      this.resultMax = Number(payload.readBigUInt64LE(0));
      this.logMax = Number(payload.readBigUInt64LE(8));
      this.apart = new AsyncResource('sinew');
      this.isSerial = payload.readUInt16LE(16) === 1;
      // It costs every promise something, so that only those have it who need it.
      if (!this.isSerial) this.tellTurnsApart();
      const nameEnd = LOAD_HEAD_BYTES + payload.readUInt16LE(18);
      const name = payload.toString('utf8', LOAD_HEAD_BYTES, nameEnd);
      const turn = this.begin(OUTSIDE);
      try {
        const { apply, ready, readsHeads, applyOf } = compile(name, payload.toString('utf8', nameEnd), this);
        this.apply = apply;
        this.applyOf = applyOf ?? null;
        this.readsHeads = readsHeads === true;
        // A module may need more than this turn of the loop, as ES modules do.
        // What was rejected and not caught is known after the last of them.
        const loaded = () => setImmediate(() => this.answer(turn, LOADED, []));
        if (typeof ready?.then === 'function') ready.then(loaded, (error) => this.raised(turn, error));
        else loaded();
      } catch (error) {
        this.raised(turn, error);
      }
    }

    /* From now on it is known which of several calls runs. */
    tellTurnsApart() {
      this.whose ??= new AsyncLocalStorage();
    }

    call(number, payload) {
      const mustWait = this.turns.size + this.next.length > 0 || this.isResting;
      if (this.isSerial && mustWait) this.next.push([number, payload]);
      else if (this.begins(number)) this.serve(number, payload);
    }

    /* From now on each call is begun in the word that the node shares, or else was recalled and is another
     * instance's. Where there is no such word, nothing more is begun here. */
    shareTurns() {
      this.isUnfit = this.core.turnsOpen() !== 0;
      this.begins = (number) => this.core.turnsBegin(number) === 1;
      if (this.isUnfit) this.goOn();
    }

    serve(number, payload) {
      const count = payload.readUInt32LE(0);
      let at = 4 + 4 * count;
      const given = [];
      for (let index = 0; index < count; index++) {
        const length = payload.readUInt32LE(4 + 4 * index);
        given.push(payload.subarray(at, (at += length)));
      }
      const turn = this.begin(number);
      turn.head = given[1];
      this.start(turn, given);
    }

    start(turn, given) {
      if (this.whose) this.whose.run(turn, () => this.run(turn, given));
      else this.run(turn, given);
    }

    async run(turn, given) {
      let result;
      try {
        result = await this.apply(...given);
      } catch (error) {
        return this.raised(turn, error);
      }
      // What was rejected and not caught is known after this turn of the loop.
      if (this.ended.push([turn, result]) === 1 && !this.lines.tellsSoon()) setImmediate(tellEnded, this);
    }

    /* Answers all calls that have ended, with one write, also where functions have replaced what this calls. */
    tellEnded() {
      const ended = this.ended;
      this.ended = [];
      this.together = [];
      try {
        for (const [turn, result] of ended) this.returned(turn, result);
      } finally {
        const pieces = this.together;
        this.together = null;
        this.write(pieces);
      }
      this.goOn();
    }

    returned(turn, result) {
      const [bytes, why] = this.wholeResult(turn.onLine, result);
      if (bytes === null) this.answer(turn, BAD_RESULT, [Buffer.from(why)]);
      else this.answer(turn, RESULT, [bytes]);
    }

    /* What a call gave, behind the pieces that were kept of it, or null and why that is no result. */
    wholeResult(keeps, result) {
      const last = asBytes(result);
      if (last === null) return [null, `apply returned ${kindOf(result)}, not bytes`];
      const length = last.length + (keeps?.keptBytes ?? 0);
      if (length > this.resultMax) {
        return [null, `apply returned ${length} bytes, more than the ${this.resultMax} that are allowed`];
      }
      return [length > last.length ? Buffer.concat([...keeps.kept, last]) : last, null];
    }

    begin(number) {
      const turn = { number, logLeft: this.logMax, head: undefined, asks: undefined, onLine: null, within: null, innermost: null, identity: undefined, waiting: new Waiting() };
      // Calls that it makes here are its as well.
      turn.root = turn;
      this.turns.add(turn);
      return turn;
    }

    /* The call that runs now; none between two calls. */
    current() {
      const turn = this.whose?.getStore();
      if (turn && this.turns.has(turn.root)) return turn;
      // What an earlier call has set up is of the one that runs, if there is only one.
      if (turn && !this.isSerial) return null;
      return this.turns.size === 1 ? this.turns.values().next().value : null;
    }

    /* One answer to each question; what comes later is too late. */
    answer(turn, kind, parts) {
      if (!this.turns.delete(turn)) return;
      for (const resolve of turn.stream?.onRoom.splice(0) ?? []) resolve();
      turn.body?.wake?.();
      const before = this.asked.size;
      for (const [id, asked] of this.asked) if (asked.turn.root === turn) this.forget(id, asked);
      this.withins.report();
      this.outside.logLeft = Math.min(turn.logLeft, LOG_IDLE_BYTES);
      this.lines.end(turn);
      if (this.asked.size < before) this.lines.tellOver(turn);
      if (turn.onLine !== null) {
        const result = kind === RESULT ? parts[0] : null;
        if (this.lines.answer(turn, result, turn.logLeft < this.logMax)) return;
      }
      this.send(kind, turn.number, parts);
      if (kind === RAISED && this.isSerial) this.rest();
      else if (this.together === null) this.goOn();
    }

    /* What is left of a call that failed is nobody else's: it is known after this turn of the loop. */
    rest() {
      if (this.isResting) return;
      this.isResting = true;
      lineLater(() => {
        this.isResting = false;
        this.goOn();
      });
    }

    /* Serves the next call in line; the answer before it is on its way, or else that would be lost
     * where this one ends the process. */
    goOn() {
      if (this.turns.size > 0 || this.isResting) return;
      if (this.isUnfit) this.leave(this.core, 0);
      let next = this.next.shift();
      while (next !== undefined && !this.begins(next[0])) next = this.next.shift();
      if (next === undefined) return;
      const [number, payload, ...bodies] = next;
      // It has nothing of what the call before it may have kept for what follows from it.
      this.apart.runInAsyncScope(() => this.serve(number, payload));
      for (const [kind, piece] of bodies) this.bodyFor(number, kind, piece);
    }

    raised(turn, error) {
      if (turn.within !== null) this.withins.raised(turn, error);
      else this.answer(turn, RAISED, textsAsParts(error));
    }

    /* During a call it is the call's; else it ends the process, as in Node. If it
     * cannot be said which call's it is, it is that of all; of one that is over
     * it is only told while there are others. A function that listens itself is
     * left to it. */
    uncaught(core, event, error) {
      if (process.listenerCount(event) > 1) return;
      const turn = this.current();
      const isOver = turn === null && this.whose?.getStore() !== undefined;
      if (isOver && this.turns.size > 0) return this.log(2, Buffer.from(`after the call: ${textsOf(error).join('\n')}\n`));
      const turns = turn ? [turn] : [...this.turns];
      if (turns.length === 0) this.leave(core, 1);
      for (const one of turns) this.raised(one, error);
    }

    /* Ends the process. Between two calls it says so: what stands in line then was not begun. */
    leave(core, code) {
      if (this.turns.size === 0 && this.apply !== null) this.send(LEAVING, OUTSIDE, []);
      core.end(code);
    }

    /* Output: what is over the budget of a call is dropped. */
    log(number, data) {
      const turn = (this.current() ?? this.outside).root;
      for (let at = 0; at < data.length && turn.logLeft > 0; at += LOG_PIECE_BYTES) {
        const piece = data.subarray(at, at + Math.min(LOG_PIECE_BYTES, turn.logLeft));
        turn.logLeft -= piece.length;
        this.send(LOG, turn.number, [Buffer.from([number]), piece]);
        if (turn.logLeft === 0) {
          this.send(LOG, turn.number, [Buffer.from(`\x02\n[output over ${this.logMax} bytes was dropped]\n`)]);
        }
      }
    }
  }

  function tellEnded(instance) {
    instance.tellEnded();
  }

  /* What a CommonJS module with this source exports: the function `apply`, and
   * maybe `ready`, a promise. It finds `ask`, `outgoing` and `incoming` in its `module`, and `adapt`,
   * which gives both for a function that is an image. */
  function compile(name, source, instance) {
    const module = new Module(name, null);
    module.ask = (...all) => instance.ask(...all);
    module.outgoing = () => instance.outgoing();
    module.incoming = () => instance.incoming();
    module.adapt = (settings, load) => ADAPTER.adapt(settings, module, load);
    module.filename = `${name}.js`;
    module.paths = [];
    module._compile(source, module.filename);
    module.loaded = true;
    if (typeof module.exports?.apply !== 'function') throw new TypeError('exports.apply is not a function');
    return module.exports;
  }

  function asBytes(result) {
    if (Buffer.isBuffer(result)) return result;
    if (ArrayBuffer.isView(result)) return Buffer.from(result.buffer, result.byteOffset, result.byteLength);
    if (result instanceof ArrayBuffer || result instanceof SharedArrayBuffer) return Buffer.from(result);
    return null;
  }

  main();
})();
