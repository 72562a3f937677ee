/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One end of a line to another instance (line.c). It is part of the native core
 * of the templates, and of what native functions are linked with (guests/native).
 */
#ifndef SINEW_LINE_H
#define SINEW_LINE_H

#include <stddef.h>
#include <stdint.h>

/* Who has all of it in one file needs no symbols. */
#ifndef LINE_API
#define LINE_API __attribute__((visibility("default")))
#endif

/* Lines of an instance: sixteen that are asked, and one that is served. */
#define LINES_MAX 17

/* Lines between instances (line.c). A line is known by a number from line_open(),
 * which takes the descriptors over. What fails returns a negative errno:
 * EPIPE where the other end is closed, EPROTO where it broke the rules. */
LINE_API int line_open(int in, int out, int bell);
/* Nothing more is sent; the number may be another line's from now on. */
LINE_API void line_close(int line);
/* Whether either direction is closed: nothing more can be asked. */
LINE_API int line_is_closed(int line);
LINE_API int line_send(int line, const void *message, size_t length);
/* Waits for the next message, for so long or (below 0) for ever; EINTR after a
 * signal, ETIMEDOUT. */
LINE_API int64_t line_next(int line, void *into, size_t size, int64_t timeout_us);
/* The next message, if there is one; EAGAIN: the bell will ring when there is. */
LINE_API int64_t line_look(int line, void *into, size_t size);
/* Sends a message and waits for the next one; ESHUTDOWN if it was not sent. */
LINE_API int64_t line_ask(int line, const void *message, size_t length, void *into, size_t size);
/* Whether the other end has taken all that was sent. */
LINE_API int line_is_taken(int line);
/* A request was taken, and is served from now on. */
LINE_API void line_serves(int line);
/* The next request; from then on it is served. */
LINE_API int64_t line_take(int line, void *into, size_t size, int64_t timeout_us);
/* Sends the answer of the request that is served. */
LINE_API int line_answer(int line, const void *message, size_t length);

#endif
