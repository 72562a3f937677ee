// SPDX-License-Identifier: Apache-2.0
// A function: what `handler` returns becomes the answer, an object as JSON.

// Runs once for each instance, before its first request.
const greeting = process.env.GREETING ?? "Hello";

/** The event is the request's body, parsed if it is JSON. */
export async function handler(event, context) {
  const name = typeof event === "string" ? event : (event.name ?? "world");
  console.log(`greeting ${name} for request ${context.awsRequestId}`);
  return { message: `${greeting}, ${name}!` };
}
