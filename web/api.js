// SPDX-License-Identifier: Apache-2.0
// The node's HTTP API, as far as the pages need it: docs/reference/http.md.

/** What the node answers at a path. Throws an Error that people can read. */
export async function get(path, query = {}) {
  const wanted = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined);
  const search = wanted.length > 0 ? `?${new URLSearchParams(wanted)}` : "";
  const response = await fetch(`/v1/${path}${search}`, { headers: { accept: "application/json" } });
  if (response.ok) return response.json();
  const problem = await response.json().catch(() => ({}));
  const error = new Error(problem.detail ?? problem.title ?? `the node answered ${response.status}`);
  error.status = response.status;
  throw error;
}

/** A part of a path. */
export const part = encodeURIComponent;
