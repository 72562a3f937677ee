// SPDX-License-Identifier: Apache-2.0
//
// What `sinew sdk node` writes: contexts and calls without a node, and beside the one of `SINEW_NODE`.
import assert from "node:assert/strict";
import test, { mock } from "node:test";

import { localContext, sinew as own } from "./sinew.mjs";

const beside = { skip: !process.env.SINEW_NODE };

test("it is a global, as on a node", () => assert.equal(own, globalThis.sinew));

test("a context is made", () => {
  const context = localContext({ query: "a=1&b=2", headers: { "Ce-Specversion": "1.0", "X-Y": "z" }, memoryMb: 1024, timeoutMs: 90_000, params: { id: "7" } });
  assert.deepEqual([context.functionName, context.memoryLimitInMB, context.memory_limit_in_mb], ["local", 1024, 1024]);
  assert.deepEqual([context.http.query, context.http.params, context.http.headers["x-y"]], [{ a: "1", b: "2" }, { id: "7" }, "z"]);
  assert.deepEqual(context.cloudEvent, { specversion: "1.0" });
  assert.ok(context.getRemainingTimeInMillis() > 60_000 && !context.signal.aborted);
});

test("calls can be replaced", async () => {
  const replaced = mock.method(sinew, "call", async (name, payload) => ({ name, payload }));
  assert.deepEqual(await sinew.call("price", 1), { name: "price", payload: 1 });
  replaced.mock.restore();
});

test("where no node is it says what to do", async () => {
  const before = process.env.SINEW_NODE;
  for (const [node, told] of [["http://127.0.0.1:1", /ECONNREFUSED.*sinew up/], ["/no/such.sock", /ENOENT.*sinew up/]]) {
    process.env.SINEW_NODE = node;
    await assert.rejects(sinew.call("price"), (error) => error instanceof sinew.CallError && told.test(error.message) && error.status === 503);
  }
  process.env.SINEW_NODE = "ftp://there";
  await assert.rejects(sinew.call("price"), /SINEW_NODE is ftp:\/\/there/);
  await assert.rejects(sinew.call("price", { a: 1n }), /the payload\.a cannot be written as JSON/);
  if (before) process.env.SINEW_NODE = before;
  else delete process.env.SINEW_NODE;
});

test("functions of the node are called", beside, async () => {
  const answer = await sinew.call("greet", { name: "Ada" });
  assert.deepEqual([answer.hello, answer.of], ["Ada", "greet"]);
  await assert.rejects(sinew.call("refuse", {}), (error) => error.status === 500 && error.function === "refuse" && /no such item/.test(error.reason) && error.requestId !== "");
  await assert.rejects(sinew.call("nobody", {}), (error) => error.status === 404);
});
