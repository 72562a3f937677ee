/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an instance of Node's reads in its event loop: its channel, by which
 * descriptors may come, and lines (line.c), whose bells ring.
 *
 * Who is at the other end of a line may ring without a reason, fill the bell,
 * close it, and write anything to the memory. Nothing here waits for it, and
 * each ring costs a few system calls: after RINGS_MAX without a message the
 * line is over.
 */
#define _GNU_SOURCE
#include "napi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Descriptors that may come with one read, and that wait for their frame. */
#define RIGHTS_MAX 8
#define DESCRIPTORS_MAX 64
/* Of a line: both directions and the bell. */
#define LINE_DESCRIPTORS 3
/* Rings that are taken at once, and how many may say nothing. */
#define RINGS_AT_ONCE 16
#define RINGS_MAX 256
/* What the flag says of a callback that is under way, and what it is set to by
 * whoever wants to be called at its end. */
#define UNDER_WAY 1
#define WANTED 2

/* Who is told, with a number, and the buffer that this is about, so that it stays. */
struct told {
    napi_env env;
    void *bytes;
    size_t length;
    napi_ref buffer, received;
};

/* A stream that is read as soon as something has come, into one buffer. */
struct attended {
    struct told told;
    int fd;
};

/* One end of a line. */
struct bell {
    struct told told;
    int line, fd;
    int serves;
    /* The next message is wanted, and its bell will ring. */
    int is_waiting;
    /* Nobody rings it any more. */
    int is_over;
    /* Since the last message. */
    int rings;
};

/* What came by the channel and nobody has taken, in order. */
static int descriptors[DESCRIPTORS_MAX];
static size_t descriptors_count;
/* The ends of lines, by their numbers. */
static uv_handle_t *bells[LINES_MAX];
/* Who is called after a line's callback, and how that is asked for. */
static struct told settled;

napi_value number(napi_env env, int value) {
    napi_value result = NULL;

    napi_create_int32(env, value, &result);
    return result;
}

int argument(napi_env env, napi_callback_info info, void **bytes, size_t *length) {
    napi_value given;
    size_t count = 1;

    *bytes = NULL;
    *length = 0;
    return napi_get_cb_info(env, info, &count, &given, NULL, NULL) == 0 && count == 1
        && napi_get_buffer_info(env, given, bytes, length) == 0;
}

/* Keeps a buffer and a function; 0, or -1. */
static int keep(struct told *told, napi_env env, napi_value buffer, napi_value received) {
    told->env = env;
    if (napi_get_buffer_info(env, buffer, &told->bytes, &told->length) != 0
        || napi_create_reference(env, buffer, 1, &told->buffer) != 0)
        return -1;
    if (napi_create_reference(env, received, 1, &told->received) == 0)
        return 0;
    napi_delete_reference(env, told->buffer);
    return -1;
}

static void forget(struct told *told) {
    napi_delete_reference(told->env, told->buffer);
    napi_delete_reference(told->env, told->received);
}

/* Calls JavaScript from the event loop, with a number; what it throws, and
 * nobody catches, is handled as everything of that kind. */
static void tell(const struct told *told, int value) {
    napi_env env = told->env;
    napi_handle_scope scope;
    napi_value received, given, error;

    if (napi_open_handle_scope(env, &scope) != 0)
        _exit(1);
    given = number(env, value);
    napi_get_reference_value(env, told->received, &received);
    if (napi_make_callback(env, NULL, received, received, 1, &given, NULL) != 0
        && napi_get_and_clear_last_exception(env, &error) == 0)
        napi_fatal_exception(env, error);
    napi_close_handle_scope(env, scope);
}

/* The same, and afterwards who wants to know that all is done that this had put
 * off: promises that are settled, and rejections that nobody handles. */
static void tell_of_line(const struct told *told, int value) {
    unsigned char *flag = settled.bytes;

    if (flag == NULL)
        return tell(told, value);
    *flag = UNDER_WAY;
    tell(told, value);
    value = *flag == WANTED;
    *flag = 0;
    if (value)
        tell(&settled, 0);
}

/* onSettled(flag, settled): has `settled` called at the end of callbacks for which
 * the flag's first byte, which is 1 then, was set to 2. 0, or -1. */
napi_value on_settled(napi_env env, napi_callback_info info) {
    napi_value given[2];
    size_t count = 2;
    int kept = -1;

    if (napi_get_cb_info(env, info, &count, given, NULL, NULL) == 0 && count == 2)
        kept = keep(&settled, env, given[0], given[1]);
    return number(env, kept == 0 && settled.length > 0 ? 0 : -1);
}

/* -------------------------------------------------------------- the channel */

static void let_go(uv_handle_t *handle) {
    struct attended *stream = uv_handle_get_data(handle);

    close(stream->fd);
    forget(&stream->told);
    free(stream);
    free(handle);
}

static void keep_descriptor(int fd) {
    if (descriptors_count < DESCRIPTORS_MAX)
        descriptors[descriptors_count++] = fd;
    else
        close(fd);
}

/* Keeps the descriptors of a message for the frame that they came with. Where some were cut off, since
 * there may be no more of them, the others are closed, and the frame has places that lead nowhere: it must
 * not take those of the next one. */
static void keep_descriptors(struct msghdr *message) {
    int is_cut = (message->msg_flags & MSG_CTRUNC) != 0;

    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL; part = CMSG_NXTHDR(message, part)) {
        size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = 0; at < count; at++) {
            int fd;
            memcpy(&fd, CMSG_DATA(part) + at * sizeof fd, sizeof fd);
            if (is_cut)
                close(fd);
            else
                keep_descriptor(fd);
        }
    }
    for (int at = 0; is_cut && at < LINE_DESCRIPTORS; at++)
        keep_descriptor(-1);
}

/* What has come, as recv() tells it. */
static ssize_t receive(const struct attended *stream) {
    union {
        char bytes[CMSG_SPACE(RIGHTS_MAX * sizeof(int))];
        struct cmsghdr aligned;
    } control;
    struct iovec into = {stream->told.bytes, stream->told.length};
    struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t length;

    do
        length = recvmsg(stream->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (length < 0 && errno == EINTR);
    if (length > 0 && (message.msg_controllen > 0 || (message.msg_flags & MSG_CTRUNC) != 0))
        keep_descriptors(&message);
    return length;
}

static void read_attended(uv_handle_t *handle, int status, int events) {
    struct attended *stream = uv_handle_get_data(handle);
    ssize_t length = status == 0 ? receive(stream) : 0;

    (void)events;
    if (length < 0 && errno == EAGAIN)
        return;
    if (length > 0)
        return tell(&stream->told, (int)length);
    /* It has ended, or broken. */
    tell(&stream->told, 0);
    uv_close(handle, let_go);
}

/* attend(fd, buffer, received): calls `received` whenever bytes have come into
 * the buffer, with their number, and with 0 at the end. 0, or -1. */
napi_value attend(napi_env env, napi_callback_info info) {
    struct uv_loop_s *loop = NULL;
    struct attended *stream = calloc(1, sizeof *stream);
    uv_handle_t *handle = calloc(1, uv_handle_size(UV_POLL));
    napi_value given[3];
    size_t count = 3;

    /* An instance that cannot read its channel ends: nothing is given back. */
    if (stream == NULL || handle == NULL || napi_get_uv_event_loop(env, &loop) != 0
        || napi_get_cb_info(env, info, &count, given, NULL, NULL) != 0 || count != 3
        || napi_get_value_int32(env, given[0], &stream->fd) != 0 || keep(&stream->told, env, given[1], given[2]) != 0
        || uv_poll_init(loop, handle, stream->fd) != 0)
        return number(env, -1);
    uv_handle_set_data(handle, stream);
    return number(env, uv_poll_start(handle, UV_READABLE, read_attended) == 0 ? 0 : -1);
}

/* -------------------------------------------------------------------- lines */

static void hang_up(uv_handle_t *handle) {
    struct bell *bell = uv_handle_get_data(handle);

    forget(&bell->told);
    free(bell);
    free(handle);
}

/* The length of the next message; EAGAIN: the bell will ring. */
static int look(struct bell *bell) {
    int64_t taken = line_look(bell->line, bell->told.bytes, bell->told.length);

    bell->is_waiting = taken == -EAGAIN && !bell->is_over;
    if (taken == -EAGAIN && bell->is_over)
        return -EPIPE;
    if (taken >= 0) {
        bell->rings = 0;
        if (bell->serves)
            line_serves(bell->line);
    }
    return (int)taken;
}

static void rung(uv_handle_t *handle, int status, int events) {
    struct bell *bell = uv_handle_get_data(handle);
    ssize_t got = -1;
    char byte;

    (void)events;
    for (int count = 0; status == 0 && count < RINGS_AT_ONCE; count++) {
        got = recv(bell->fd, &byte, sizeof byte, MSG_DONTWAIT);
        if (got <= 0)
            break;
    }
    if (status != 0 || got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR) || ++bell->rings > RINGS_MAX) {
        bell->is_over = 1;
        uv_poll_stop(handle);
    }
    if (bell->is_waiting) {
        int taken = look(bell);
        if (taken != -EAGAIN)
            tell_of_line(&bell->told, taken);
    } else if (bell->is_over || line_is_closed(bell->line)) {
        tell_of_line(&bell->told, -EPIPE);
    }
}

/* The descriptor that came first; -1 if none did. */
static int take_descriptor(void) {
    int fd = descriptors_count > 0 ? descriptors[0] : -1;

    if (descriptors_count > 0)
        memmove(descriptors, descriptors + 1, --descriptors_count * sizeof *descriptors);
    return fd;
}

/* turnsOpen(): the word whose descriptor came first; 0, or a negative errno. */
napi_value turns_open_one(napi_env env, napi_callback_info info) {
    (void)info;
    return number(env, turns_open(take_descriptor()));
}

/* printTo(): what is written to the standard streams goes to the descriptor that came first. 0, or a
 * negative errno. */
napi_value print_to_one(napi_env env, napi_callback_info info) {
    (void)info;
    return number(env, template_print_to(take_descriptor()));
}

/* lineOpen(buffer, heard, serves): one end of the line whose descriptors came
 * first; its number, or a negative errno. `heard` is called with the length of a message that
 * came into the buffer, after lineSend or lineLook gave EAGAIN; or with another
 * errno, also while none is wanted. */
napi_value line_open_one(napi_env env, napi_callback_info info) {
    struct uv_loop_s *loop = NULL;
    struct bell *bell = calloc(1, sizeof *bell);
    uv_handle_t *handle = calloc(1, uv_handle_size(UV_POLL));
    napi_value given[3];
    size_t count = 3;
    int line = -EINVAL;

    if (descriptors_count >= LINE_DESCRIPTORS) {
        int in = descriptors[0], out = descriptors[1], fd = descriptors[2];
        descriptors_count -= LINE_DESCRIPTORS;
        memmove(descriptors, descriptors + LINE_DESCRIPTORS, descriptors_count * sizeof *descriptors);
        line = line_open(in, out, fd);
        if (line >= 0 && bell != NULL)
            bell->fd = fd;
    }
    if (line < 0 || bell == NULL || handle == NULL || napi_get_uv_event_loop(env, &loop) != 0
        || napi_get_cb_info(env, info, &count, given, NULL, NULL) != 0 || count != 3
        || napi_get_value_int32(env, given[2], &bell->serves) != 0
        || keep(&bell->told, env, given[0], given[1]) != 0) {
        if (line >= 0)
            line_close(line);
        free(bell);
        free(handle);
        return number(env, line < 0 ? line : -EINVAL);
    }
    bell->line = line;
    if (uv_poll_init(loop, handle, bell->fd) != 0) {
        line_close(line);
        forget(&bell->told);
        free(bell);
        free(handle);
        return number(env, -EINVAL);
    }
    uv_handle_set_data(handle, bell);
    uv_poll_start(handle, UV_READABLE, rung);
    bells[line] = handle;
    return number(env, line);
}

/* The line whose number is the first argument; NULL if there is none. */
static struct bell *given_line(napi_env env, napi_callback_info info, napi_value *given, size_t count) {
    size_t there = count;
    int32_t line;

    if (napi_get_cb_info(env, info, &there, given, NULL, NULL) != 0 || there != count
        || napi_get_value_int32(env, given[0], &line) != 0 || line < 0 || line >= LINES_MAX || bells[line] == NULL)
        return NULL;
    return uv_handle_get_data(bells[line]);
}

/* lineLook(line): the length of the next message, if it is there already. */
napi_value line_look_again(napi_env env, napi_callback_info info) {
    napi_value given;
    struct bell *bell = given_line(env, info, &given, 1);

    return number(env, bell == NULL ? -EINVAL : look(bell));
}

/* lineSend(line, message): sends a request, or the answer to the one that is served, and then does
 * as lineLook; ESHUTDOWN if it was not sent. */
napi_value line_send_one(napi_env env, napi_callback_info info) {
    napi_value given[2];
    struct bell *bell = given_line(env, info, given, 2);
    void *bytes;
    size_t length;
    int sent;

    if (bell == NULL || napi_get_buffer_info(env, given[1], &bytes, &length) != 0)
        return number(env, -EINVAL);
    if (bell->serves)
        sent = line_answer(bell->line, bytes, length);
    else
        sent = bell->is_over ? -EPIPE : line_send(bell->line, bytes, length);
    return number(env, sent < 0 ? -ESHUTDOWN : look(bell));
}

/* lineIsTaken(line): 1 if the other end has taken all that was sent. */
napi_value line_is_all_taken(napi_env env, napi_callback_info info) {
    napi_value given;
    struct bell *bell = given_line(env, info, &given, 1);

    return number(env, bell != NULL && line_is_taken(bell->line));
}

/* lineIsClosed(line): 1 if nothing more is asked there. */
napi_value line_is_shut(napi_env env, napi_callback_info info) {
    napi_value given;
    struct bell *bell = given_line(env, info, &given, 1);

    return number(env, bell == NULL || line_is_closed(bell->line));
}

/* lineClose(line): nobody is told anything of it any more. */
napi_value line_close_one(napi_env env, napi_callback_info info) {
    napi_value given;
    struct bell *bell = given_line(env, info, &given, 1);

    if (bell != NULL) {
        uv_close(bells[bell->line], hang_up);
        bells[bell->line] = NULL;
        line_close(bell->line);
    }
    return number(env, 0);
}
