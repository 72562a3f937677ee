// SPDX-License-Identifier: Apache-2.0
/*
 * What is told of an exception.
 *
 * The node puts this text before that of `template.js`, in one function scope.
 */

const TEXT_BYTES_MAX = 4096;
const STACK_LINES_MAX = 24;
const CAUSES_MAX = 4;

function kindOf(value) {
  if (value === null || typeof value !== 'object') return value === null ? 'null' : typeof value;
  return value.constructor?.name || 'object';
}

/* Type, message and stack, whatever it is. */
function textsOf(error) {
  try {
    return describe(error);
  } catch {
    return ['Error', 'an exception that cannot be described', ''];
  }
}

/* The same, without the frames of the template. */
function describe(error) {
  if (!(error instanceof Error) && !(typeof error?.stack === 'string')) return [kindOf(error), textOf(error), ''];
  const kind = String(error.name || kindOf(error));
  const stacks = [];
  for (let at = error, depth = 0; at && depth < CAUSES_MAX; at = at.cause, depth++) {
    if (depth > 0) stacks.push(`caused by ${at.name ?? kindOf(at)}: ${textOf(at.message ?? at)}`);
    if (typeof at.stack === 'string') stacks.push(...frames(at.stack));
  }
  return [kind, String(error.message), stacks.join('\n')];
}

function frames(stack) {
  const lines = stack.split('\n');
  // A syntax error begins with its place.
  const place = /^\S*:\d+$/.test(lines[0]) ? lines.slice(0, 3) : [];
  const found = lines.filter((line) => /^ {4}at /.test(line));
  const own = found.findIndex((line) => /<template>:\d+/.test(line));
  return [...place, ...(own < 0 ? found : found.slice(0, own)).slice(0, STACK_LINES_MAX)]
    .filter((line) => !/^ {4}at (Module\._compile|async? ?node:internal|wrapSafe) ?\(?node:internal/.test(line));
}

function textOf(value) {
  try {
    return String(value);
  } catch {
    return 'a value that has no text';
  }
}

/* The same as frames have them, each behind its length. */
function textsAsParts(error) {
  const parts = [];
  for (const text of textsOf(error)) {
    const bytes = cut(Buffer.from(text));
    const length = Buffer.alloc(4);
    length.writeUInt32LE(bytes.length);
    parts.push(length, bytes);
  }
  return parts;
}

function cut(bytes) {
  return bytes.subarray(0, TEXT_BYTES_MAX);
}
