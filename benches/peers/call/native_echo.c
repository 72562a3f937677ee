/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What echo.c does, as a native function: it answers with its body. Asked with
 * "rounds N", it calls the function `native-echo` N times itself, one call after the
 * other, and answers with what each took, as a JSON list of nanoseconds.
 */
#include "sinew.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS_MAX 10000
#define CALLED "native-echo"
#define PAYLOAD "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static long now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

/* Calls the other function once: nanoseconds, or -1. */
static long call(void) {
    long begun = now_ns(), took;
    sinew_reply reply;
    int is_right;

    if (sinew_call(CALLED, NULL, PAYLOAD, sizeof PAYLOAD - 1, &reply) < 0)
        return -1;
    took = now_ns() - begun;
    is_right = reply.status == 200 && reply.length == sizeof PAYLOAD - 1 && memcmp(reply.body, PAYLOAD, reply.length) == 0;
    sinew_reply_free(&reply);
    return is_right ? took : -1;
}

static int handle(sinew_request *request, void *context) {
    static char list[ROUNDS_MAX * 12];
    size_t length = 1;
    long rounds;

    (void)context;
    if (strncmp(request->body, "rounds ", 7) != 0)
        return sinew_answer(request, 200, NULL, request->body, request->length);
    rounds = atol((const char *)request->body + 7);
    if (rounds < 1 || rounds > ROUNDS_MAX)
        return sinew_fail(request, "ValueError", "there are 1 to 10000 rounds");
    list[0] = '[';
    for (long round = 0; round < rounds; round++) {
        long took = call();
        if (took < 0 || length + 24 > sizeof list)
            return sinew_fail(request, "CallError", "a call was not answered as it should");
        length += (size_t)sprintf(list + length, "%ld,", took);
    }
    list[length - 1] = ']';
    return sinew_answer(request, 200, "application/json", list, length);
}

int main(void) {
    return sinew_serve(handle, NULL) < 0;
}
