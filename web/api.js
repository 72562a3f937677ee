// SPDX-License-Identifier: Apache-2.0
// The node's HTTP API, as far as the pages need it: docs/reference/http.md.
// A key is kept by this tab only, and sent as a header: no other page can have
// a browser send it along.

const KEY = "sinew-key";

/** The key that a reader has given, if any. */
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (text) => (text ? sessionStorage.setItem(KEY, text) : sessionStorage.removeItem(KEY)),
};

/** What the node answers at a path. Throws an Error that people can read. */
export async function get(path, query = {}) {
  const wanted = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined);
  const search = wanted.length > 0 ? `?${new URLSearchParams(wanted)}` : "";
  return ask(path + search, "GET");
}

/** Has the node do something. */
export const post = (path) => ask(path, "POST");

async function ask(path, method) {
  const headers = { accept: "application/json" };
  if (key.get()) headers.authorization = `Bearer ${key.get()}`;
  const response = await fetch(`/v1/${path}`, { method, headers, credentials: "omit" });
  if (response.ok) return response.json();
  const problem = await response.json().catch(() => ({}));
  const error = new Error(problem.detail ?? problem.title ?? `the node answered ${response.status}`);
  error.status = response.status;
  throw error;
}

/** A part of a path. */
export const part = encodeURIComponent;
