// SPDX-License-Identifier: Apache-2.0
//
// Written by `sinew sdk node`: it is written over by the next one.
// Types of what a function finds on its node, for editors and compilers.

/** What comes of a call of a function that gave no answer, or one with a status of 400 and more. */
export interface CallError extends Error {
  readonly function: string;
  readonly status: number;
  readonly component: string;
  readonly reason: string;
  readonly requestId: string;
  readonly suggestion: string;
  readonly body: Buffer;
}

export interface Sinew {
  /** Calls the function of a name, in whatever language it is, and promises what it returns; rejects with a `CallError`. */
  call<T = any>(name: string, payload?: unknown): Promise<T>;
  CallError: { new (name: string, status: number, kind: string, body: Buffer): CallError; prototype: CallError };
}

/** The HTTP side of a request. */
export interface Http {
  method: string;
  scheme: string;
  client: string | null;
  path: string;
  route?: string;
  params: Record<string, string>;
  /** Of a name that occurs twice the last value. */
  query: Record<string, string>;
  queryString: string;
  headers: Record<string, string | string[]>;
}

/** What a handler may know about its call. */
export interface Context {
  readonly awsRequestId: string;
  readonly functionName: string;
  readonly functionVersion: number;
  readonly memoryLimitInMB: number;
  callbackWaitsForEmptyEventLoop: boolean;
  readonly request_id: string;
  readonly aws_request_id: string;
  readonly function_name: string;
  readonly function_version: number;
  readonly memory_limit_in_mb: number;
  getRemainingTimeInMillis(): number;
  get_remaining_time_in_millis(): number;
  /** Aborted when nobody waits for the answer any more. */
  readonly signal: AbortSignal;
  /** The attributes of the CloudEvent that the request is; null if it is none. */
  readonly cloudEvent: Record<string, string> | null;
  readonly http: Http;
}

/** `export const handler: Handler<{ name: string }> = async (event, context) => …` */
export type Handler<Event = any, Result = any> = (event: Event, context: Context) => Result | Promise<Result>;

export interface LocalContext {
  requestId?: string;
  functionName?: string;
  functionVersion?: number;
  timeoutMs?: number;
  memoryMb?: number;
  method?: string;
  path?: string;
  query?: string;
  headers?: Record<string, string> | [string, string][];
  route?: string;
  params?: Record<string, string>;
  scheme?: string;
  client?: string | null;
}

/** What a handler is given as its context, for a test. It is here alone, and not on a node. */
export function localContext(given?: LocalContext): Context;

declare global {
  /** What a function may ask of the node that it runs on. */
  const sinew: Sinew;
}

export const sinew: Sinew;
