// SPDX-License-Identifier: Apache-2.0
/*
 * What a template replaces in Node before any module is loaded: standard output and error,
 * which lead to the instance that prints, and what is random.
 *
 * The node puts this text before that of `template.js`, in one function scope.
 */

const { Writable } = require('stream');
const nodeCrypto = require('crypto');
const { setFlagsFromString } = require('v8');

/* How many numbers Node draws in advance. */
const UUIDS_IN_ADVANCE = 128;
const INTS_IN_ADVANCE = 1024;

/* Standard output and error that lead to the instance, once there is one. */
function replaceStreams() {
  let instance = null;
  const make = (number) => {
    const stream = new Writable({
      decodeStrings: true,
      write(chunk, _, done) {
        instance?.log(number, chunk);
        done();
      },
    });
    stream.fd = number;
    return stream;
  };
  const [out, error] = [make(1), make(2)];
  for (const [name, stream] of [['stdout', out], ['stderr', error]]) {
    Object.defineProperty(process, name, { value: stream, configurable: true, enumerable: true });
  }
  return {
    attach(to) {
      instance = to;
    },
  };
}

/* Randomness that a child can seed anew. Modules may keep what they find, so
 * it is replaced before they are loaded. */
function replaceRandom() {
  const state = new Uint32Array([1, 2, 3, 4]);
  // Chris Doty-Humphrey's sfc32.
  const next = () => {
    const sum = (state[0] + state[1] + state[3]) >>> 0;
    state[3] += 1;
    state[0] = state[1] ^ (state[1] >>> 9);
    state[1] = state[2] + (state[2] << 3);
    state[2] = ((state[2] << 21) | (state[2] >>> 11)) + sum;
    return sum;
  };
  const random = () => ((next() >>> 5) * 67108864 + (next() >>> 6)) / 9007199254740992;
  Object.defineProperty(Math, 'random', { value: random, writable: true, configurable: true });
  const uuids = watch([nodeCrypto, Object.getPrototypeOf(nodeCrypto.webcrypto)], 'randomUUID');
  const ints = watch([nodeCrypto], 'randomInt');
  return {
    reseed() {
      nodeCrypto.randomFillSync(state);
      // Threads seed themselves from the system, not as the template did.
      setFlagsFromString('--random-seed=0');
      // What Node drew in advance for the template is used up.
      if (uuids.drawn) for (let count = 0; count < UUIDS_IN_ADVANCE; count++) nodeCrypto.randomUUID();
      if (ints.drawn) for (let count = 0; count < INTS_IN_ADVANCE; count++) nodeCrypto.randomInt(2);
    },
  };
}

/* Notes whether a function of these objects is ever called. */
function watch(objects, name) {
  const watched = { drawn: false };
  for (const object of objects) {
    const original = object[name];
    const watching = function (...given) {
      watched.drawn = true;
      return original.apply(this, given);
    };
    Object.defineProperty(watching, 'name', { value: name });
    Object.defineProperty(object, name, { value: watching, writable: true, configurable: true, enumerable: true });
  }
  return watched;
}
