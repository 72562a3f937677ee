/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions in native code: a program that is deployed with runtime = "executable"
 * and mode = "native" calls sinew_serve(), and is a function. No HTTP and no other
 * process stands between it and the node, and functions that call each other often
 * do so through shared memory, without the node.
 *
 *     static int handle(sinew_request *request, void *context) {
 *         return sinew_answer(request, 200, "text/plain", "hello", 5);
 *     }
 *
 *     int main(void) {
 *         return sinew_serve(handle, NULL);
 *     }
 *
 * Written by `sinew sdk c`; compile it with the program: cc main.c sinew.c -pthread
 * or, for C++, cc -c sinew.c && c++ main.cpp sinew.o -pthread
 * It needs Linux, C11 and POSIX threads, and no library. All names begin with sinew_.
 *
 * Errors are negative numbers of errno. Texts are UTF-8 and end with a NUL; none is
 * ever NULL. Nothing that is given to these functions is kept: it can be changed or
 * freed as soon as they return.
 */
#ifndef SINEW_H
#define SINEW_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Calls of other functions that may be under way at a time, and bytes of all their bodies. */
#define SINEW_CALLS_MAX 64
#define SINEW_CALLS_BYTES_MAX (32u << 20)
/* Bytes of the body of a call, of the name that is called, and of a content type. */
#define SINEW_CALL_BODY_MAX (16u << 20)
#define SINEW_NAME_MAX 128
#define SINEW_TYPE_MAX 256
/* Bytes of the status, the content type and the headers of an answer, as JSON. */
#define SINEW_ANSWER_HEAD_MAX (64u << 10)
/* Values of others that a step is given. */
#define SINEW_VALUES_MAX 100

/* A value that another function has made, in memory that is mapped where it was made: a
 * pointer in it leads to what it led to there. What is written to it is this process's own,
 * and is gone when the handler returns. */
typedef struct sinew_value {
    /* What sinew_answer_value() was given there. It has not been looked at: who trusts that
     * function less than this one checks it as it would what comes from outside. */
    void *at;
    /* All memory that was made with it, and bytes of that. */
    const void *memory;
    size_t length;
    /* What it was said to be; empty if nothing was said. */
    const char *content_type;
} sinew_value;

/* A request. It, and all that it leads to, is the library's, and is there until the
 * handler returns. */
typedef struct sinew_request {
    /* The body, and how long it is. */
    const void *body;
    size_t length;
    /* What the body is said to be; empty if nothing is said. */
    const char *content_type;
    const char *method, *path, *query;
    /* The same for all that one request of a client leads to. */
    const char *request_id;
    /* This function, the version of it, and the function that calls; empty if none does. */
    const char *function;
    uint64_t version;
    const char *caller;
    /* When nobody waits for the answer any more, in ms since 1970; 0 for a pure function. */
    uint64_t deadline_ms;
    /* Values of other steps of the workflow. {"$value": 0} in the body stands for the first
     * one, and so on. Whoever asks may have written such a thing too, where the workflow hands on what it was
     * asked with: look whether there are so many. */
    const sinew_value *values;
    size_t values_count;
} sinew_request;

/* What another function answered. */
typedef struct sinew_reply {
    /* As of HTTP. That the function failed, or that there is none, is a status of 400
     * or more, and the body a problem in JSON (application/problem+json). */
    int status;
    const char *content_type;
    const void *body;
    size_t length;
    /* The library's: what the others point to. */
    void *memory;
} sinew_reply;

/* Handles a request; it is called by the thread that serves, for one request at a
 * time. 0: what was answered is the answer, or an empty one with status 204. Anything
 * else: the call has failed, for the reason that sinew_fail() was told. */
typedef int (*sinew_handler)(sinew_request *request, void *context);

/* Serves requests with a handler, which gets the context. Does not return while there
 * is a node, and the process ends with the node's leaving. Otherwise -ENOTCONN if no
 * node started the program, -EPROTONOSUPPORT if it is one with another library, or
 * what the kernel refused; why is on standard error as well. From here on the
 * program's standard output and error go to the logs of the request that is handled.
 * What C's stdout has buffered is flushed before each answer; other buffers, as those of
 * Rust and C++, are the handler's to flush. */
int sinew_serve(sinew_handler handler, void *context);

/* The value of a header of the request, by its name in lower case; NULL if it has
 * none. It is there until the handler returns. For the thread that serves. */
const char *sinew_header(sinew_request *request, const char *name);

/* One more header of the answer, before that is given. -EINVAL for one that is none,
 * or whose name ends, as `connection` does, at the node; -EMSGSIZE if there are too
 * many; -EALREADY after the answer. For the thread that serves, or for one that it
 * waits for, as all that has to do with an answer. */
int sinew_answer_header(sinew_request *request, const char *name, const char *value);

/* Answers with a status of 200 to 599 and a body. The content type may be NULL: there is none.
 * -EALREADY if it was answered; -EINVAL for a status or type that is none; -EMSGSIZE
 * if it is longer than the node takes; -ENOMEM. */
int sinew_answer(sinew_request *request, int status, const char *content_type, const void *body, size_t length);

/* Says why the call fails; returns -1, for the handler to return. The kind is what
 * others call an exception. Each text is cut at 4096 bytes. */
int sinew_fail(sinew_request *request, const char *kind, const char *message);

/* Memory for a value that other functions map where it is, instead of being sent it: all
 * zeros, and aligned for every type; pieces of over a page for a cache line. It cannot be given back: it is there until the handler returns. Any thread of the
 * handler's may ask for it, and write to it until then; a process that is forked has none of it.
 * NULL with an errno of ENOTSUP where the request is not a step's of a declared workflow, or the
 * function is not deployed with values = "map"; or ENOMEM, if it would be more than twice the
 * function's memory limit, or values take all the memory or addresses that the node has for them; or what the kernel refuses. What is written to counts for that limit, and of pieces that are not longer than
 * half of it the rest as well. */
void *sinew_memory(sinew_request *request, size_t size);

/* Answers with a value in that memory, for other steps to map. It may have pointers, to memory of this
 * request alone, or to nothing: not to other memory of the process, its functions or its
 * constants, nor into values that it was given, for whoever maps it has none of these. The
 * content type may be NULL. The status is 200, and there are no headers.
 * -EALREADY if it was answered; -EINVAL for a type that is none, or for what is not in
 * memory of this request. */
int sinew_answer_value(sinew_request *request, const char *content_type, const void *value);

/* Calls another function, NAME, NAME:ALIAS or NAME:VERSION, while a request is handled,
 * and waits for its answer. Any thread may, and several at a time. The content type may be NULL.
 * 0: there is a reply, which sinew_reply_free() is to be told of. Otherwise there is none, and nothing
 * to free: -EINVAL for a name or type that is too long or none; -EMSGSIZE for a body that is too long;
 * -EAGAIN if too much is under way; -ENOTCONN if no request is handled;
 * -ECANCELED if the request ended meanwhile; -ENOMEM. */
int sinew_call(const char *name, const char *content_type, const void *body, size_t length, sinew_reply *reply);

/* Frees what a reply points to. */
void sinew_reply_free(sinew_reply *reply);

#ifdef __cplusplus
}
#endif

#endif
