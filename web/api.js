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
export const put = (path, value) => ask(path, "PUT", value);
export const remove = (path) => ask(path, "DELETE");

/** Calls a function; what it answers is the caller's to read, whatever it is. */
export const call = (url, body, kind, signal) =>
  fetch(url, { method: "POST", body, signal, headers: { "content-type": kind, ...authorization() }, credentials: "omit", redirect: "manual" });

const authorization = () => (key.get() ? { authorization: `Bearer ${key.get()}` } : {});

async function ask(path, method, value) {
  const headers = { accept: "application/json", ...authorization() };
  if (value !== undefined) headers["content-type"] = "application/json";
  const body = value === undefined ? undefined : JSON.stringify(value);
  const response = await fetch(`/v1/${path}`, { method, headers, body, credentials: "omit" });
  if (response.ok) return response.status === 204 ? undefined : response.json();
  const problem = await response.json().catch(() => ({}));
  const error = new Error(problem.detail ?? problem.title ?? `the node answered ${response.status}`);
  error.status = response.status;
  throw error;
}

/** A part of a path. */
export const part = encodeURIComponent;
