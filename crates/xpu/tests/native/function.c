/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A native function that the tests ask: it does what its body says, or answers with
 * it. It uses of the library what sinew.h has.
 */
#include "sinew.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_MAX 4096
#define TOO_LONG (4u << 20)

/* Calls `g` so often with the same body; the answers, a comma between two. */
static int call(sinew_request *request, int times) {
    char told[ANSWER_MAX + 1] = "";
    size_t length = 0;

    for (int time = 0; time < times; time++) {
        sinew_reply reply;
        int error = sinew_call("g", "text/plain", "body", 4, &reply);

        if (error < 0)
            return sinew_fail(request, "CallError", strerror(-error));
        if (length + reply.length + 2 < ANSWER_MAX)
            length += (size_t)sprintf(told + length, "%s%.*s", time == 0 ? "" : ",", (int)reply.length, (const char *)reply.body);
        sinew_reply_free(&reply);
    }
    return sinew_answer(request, 200, "text/plain", told, length);
}

static void *call_in_thread(void *told) {
    sinew_reply reply;
    int *status = told;

    *status = sinew_call("g", NULL, NULL, 0, &reply);
    if (*status == 0)
        *status = reply.status;
    sinew_reply_free(&reply);
    return NULL;
}

/* Two threads call at the same time. */
static int call_at_once(sinew_request *request) {
    pthread_t threads[2];
    int statuses[2];
    char told[64];

    for (int at = 0; at < 2; at++)
        pthread_create(&threads[at], NULL, call_in_thread, &statuses[at]);
    for (int at = 0; at < 2; at++)
        pthread_join(threads[at], NULL);
    return sinew_answer(request, 200, NULL, told, (size_t)sprintf(told, "%d %d", statuses[0], statuses[1]));
}

static int tell_head(sinew_request *request) {
    const char *header = sinew_header(request, "x-name");
    char told[ANSWER_MAX];
    int length = snprintf(told, sizeof told, "%s %s %s %s %llu %s", request->method, request->path, request->query,
                          request->request_id, (unsigned long long)request->version, header == NULL ? "-" : header);

    if (sinew_answer_header(request, "x-told", "\"quoted\"") != 0
        || sinew_answer_header(request, "Connection", "close") != -EINVAL
        || sinew_answer_header(request, "x", "a\nb") != -EINVAL)
        return sinew_fail(request, "Error", "headers");
    return sinew_answer(request, 201, "text/plain", told, (size_t)length);
}

/* Each is refused, and the next answer is one all the same. */
static int answer_wrongly(sinew_request *request) {
    char *much = calloc(1, TOO_LONG);
    int is_refused = much != NULL && sinew_answer(request, 200, NULL, much, TOO_LONG) == -EMSGSIZE
                     && sinew_answer(request, 100, NULL, "", 0) == -EINVAL
                     && sinew_answer(request, 200, "a\nb", "", 0) == -EINVAL
                     && sinew_answer(request, 200, "a\xff", "", 0) == -EINVAL
                     && sinew_answer(request, 200, "a\xed\xa0\x80", "", 0) == -EINVAL
                     && sinew_call("g", "\xc0\xaf", "", 0, &(sinew_reply){0}) == -EINVAL
                     && sinew_call("", NULL, "", 0, &(sinew_reply){0}) == -EINVAL
                     && sinew_call("g", NULL, "", SINEW_CALL_BODY_MAX + 1, &(sinew_reply){0}) == -EMSGSIZE;

    free(much);
    if (!is_refused || sinew_answer(request, 200, NULL, "refused", 7) != 0)
        return sinew_fail(request, "Error", "it was taken");
    return sinew_answer(request, 200, NULL, "", 0) == -EALREADY ? 0 : sinew_fail(request, "Error", "twice");
}

/* What `make` makes: a text, by its address. */
struct made {
    char *text;
};

static int make(sinew_request *request, size_t bytes, int fails) {
    struct made *made = sinew_memory(request, sizeof *made);

    if (made != NULL)
        made->text = sinew_memory(request, bytes);
    if (made == NULL || made->text == NULL)
        return sinew_fail(request, "MemoryError", strerror(errno));
    for (size_t at = 0; at < bytes; at++)
        if (made->text[at] != 0)
            return sinew_fail(request, "Error", "it is not zeros");
    memset(made->text, 'x', bytes - 1);
    if (fails)
        return sinew_fail(request, "Error", "not today");
    /* More may be taken afterwards; it goes with the rest. */
    return sinew_answer_value(request, "text/x-made", made) == 0 && sinew_memory(request, 64) != NULL ? 0 : 7;
}

/* What a forked process has of its parent's memory, which is none. */
static int fork_first(sinew_request *request) {
    int status = -1;
    pid_t child = fork();

    if (child == 0)
        _exit(sinew_memory(request, 10) == NULL && errno == ENOTSUP ? 0 : 1);
    waitpid(child, &status, 0);
    return status == 0 ? make(request, 10, 0) : sinew_fail(request, "Error", "a child has the memory");
}

/* Kilobytes of a piece that are in huge pages once it was written to, by what the kernel says. */
static int count_huge(sinew_request *request, size_t bytes) {
    char line[512], told[32];
    unsigned char *at = sinew_memory(request, bytes);
    FILE *maps = fopen("/proc/self/smaps", "r");
    unsigned long begin, end, kilobytes = 0;
    int is_here = 0;

    if (at == NULL || maps == NULL)
        return sinew_fail(request, "MemoryError", strerror(errno));
    memset(at, 1, bytes);
    while (fgets(line, sizeof line, maps) != NULL) {
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            is_here = begin <= (unsigned long)at && (unsigned long)at < end;
        else if (is_here)
            sscanf(line, "ShmemPmdMapped: %lu", &kilobytes);
    }
    fclose(maps);
    return sinew_answer(request, 200, NULL, told, (size_t)sprintf(told, "%lu", kilobytes));
}

/* The type of each value, and how long the text is that it refers to. */
static int look(sinew_request *request) {
    char told[ANSWER_MAX] = "";
    size_t length = 0;

    for (size_t at = 0; at < request->values_count && length < ANSWER_MAX - 400; at++) {
        const sinew_value *value = &request->values[at];
        struct made *made = value->at;

        length += (size_t)sprintf(told + length, "%s%s %zu", at == 0 ? "" : " ", value->content_type, strlen(made->text));
        made->text[0] = 0;
        made->text = NULL;
    }
    return sinew_answer(request, 200, NULL, told, length);
}

static int handle(sinew_request *request, void *context) {
    const char *body = request->body;

    (void)context;
    if (strncmp(body, "call ", 5) == 0)
        return call(request, atoi(body + 5));
    if (strncmp(body, "make ", 5) == 0)
        return make(request, strcmp(body, "make and fail") == 0 ? 10 : (size_t)atol(body + 5), strcmp(body, "make and fail") == 0);
    if (strcmp(body, "fork") == 0)
        return fork_first(request);
    if (strncmp(body, "huge ", 5) == 0)
        return count_huge(request, (size_t)atol(body + 5));
    if (strcmp(body, "look") == 0)
        return look(request);
    if (strcmp(body, "at once") == 0)
        return call_at_once(request);
    if (strcmp(body, "head") == 0)
        return tell_head(request);
    if (strcmp(body, "wrong") == 0)
        return answer_wrongly(request);
    if (strcmp(body, "none") == 0)
        return 0;
    if (strcmp(body, "long") == 0) {
        char *much = calloc(1, TOO_LONG);

        /* As who does not look whether it was taken. */
        (void)sinew_answer(request, 200, NULL, much, TOO_LONG);
        free(much);
        return 0;
    }
    if (strcmp(body, "fail") == 0)
        return sinew_fail(request, "ValueError", "not today");
    if (strcmp(body, "return") == 0)
        return 7;
    if (strcmp(body, "print") == 0)
        printf("printed\n");
    if (strcmp(body, "abort") == 0) {
        printf("last words\n");
        fflush(stdout);
        abort();
    }
    return sinew_answer(request, 200, NULL, request->body, request->length);
}

int main(void) {
    return sinew_serve(handle, NULL) < 0 ? 3 : 0;
}
