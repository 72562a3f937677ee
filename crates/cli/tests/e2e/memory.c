/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of memory.rs: some make a tree of words in memory that others map, and
 * some look into it. Each does what its name says.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sinew.h"

/* Ordered by their texts. */
struct node {
    struct node *less, *more;
    uint64_t count;
    char word[];
};

struct words {
    struct node *root;
    uint64_t different, all;
    /* As much as was asked for, of which nothing is known but that it counts. */
    unsigned char *ballast;
    uint64_t ballast_bytes;
};

/* A number behind a name in the body; 0 if there is none. */
static uint64_t number_of(const sinew_request *request, const char *name) {
    const char *at = memmem(request->body, request->length, name, strlen(name));

    return at == NULL ? 0 : strtoull(at + strlen(name) + 2, NULL, 10);
}

static int add_word(sinew_request *request, struct words *words, const char *word, size_t length) {
    struct node **place = &words->root;

    words->all++;
    while (*place != NULL) {
        int order = strncmp(word, (*place)->word, length);

        order = order == 0 ? -(int)((*place)->word[length] != 0) : order;
        if (order == 0) {
            (*place)->count++;
            return 0;
        }
        place = order < 0 ? &(*place)->less : &(*place)->more;
    }
    *place = sinew_memory(request, sizeof **place + length + 1);
    if (*place == NULL)
        return -errno;
    memcpy((*place)->word, word, length);
    (*place)->count = 1;
    words->different++;
    return 0;
}

static const struct node *find_word(const struct words *words, const char *word) {
    const struct node *at = words->root;

    while (at != NULL && strcmp(word, at->word) != 0)
        at = strcmp(word, at->word) < 0 ? at->less : at->more;
    return at;
}

static int refused(sinew_request *request, const char *what, int error) {
    char text[128];

    snprintf(text, sizeof text, "%s: %s", what, strerror(error));
    return sinew_fail(request, "MemoryTest", text);
}

/* The words of the body, each so often as it is there. */
static int make(sinew_request *request, int is_forged) {
    struct words *words = sinew_memory(request, sizeof *words);
    const char *at = request->body, *end = at + request->length;
    uint64_t ballast = number_of(request, "ballast");
    int error;

    if (words == NULL)
        return errno == ENOTSUP ? sinew_answer(request, 200, "text/plain", "no memory", 9) : refused(request, "no memory", errno);
    while (at < end) {
        const char *begin = at;

        while (at < end && ((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z')))
            at++;
        if (at > begin && (error = add_word(request, words, begin, (size_t)(at - begin))) < 0)
            return refused(request, "no memory for a word", -error);
        at += at < end;
    }
    if (ballast > 0) {
        words->ballast = sinew_memory(request, ballast);
        if (words->ballast == NULL)
            return refused(request, "no memory for ballast", errno);
        words->ballast_bytes = ballast;
        memset(words->ballast, 7, ballast);
    }
    error = sinew_answer_value(request, "application/x-words", words);
    if (error < 0)
        return refused(request, "not answered", -error);
    if (sinew_answer(request, 200, NULL, NULL, 0) != -EALREADY || sinew_answer_value(request, NULL, words) != -EALREADY)
        return sinew_fail(request, "MemoryTest", "it was answered twice");
    if (is_forged)
        /* The head of the file: what it is said to be. */
        memset((char *)words - 512 + 32, 0x41, 24);
    return 0;
}

/* What the value is as a whole, and how often a word is in it. */
static int look(sinew_request *request) {
    char text[512];
    size_t length = 0;

    if (request->values_count == 0)
        return sinew_fail(request, "MemoryTest", "nothing was given");
    for (size_t each = 0; each < request->values_count && length < 400; each++) {
        const sinew_value *value = &request->values[each];
        struct words *words = value->at;
        const struct node *found = find_word(words, "the");

        for (uint64_t at = 0; at < words->ballast_bytes; at += 4096)
            if (words->ballast[at] != 7)
                return sinew_fail(request, "MemoryTest", "there is something else");
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s %llu/%llu the=%llu", each > 0 ? ", " : "",
                                   value->content_type, (unsigned long long)words->different,
                                   (unsigned long long)words->all, (unsigned long long)(found == NULL ? 0 : found->count));
        /* Nobody else sees this, nor does the next call. */
        words->all = 12345;
        words->root = NULL;
    }
    return sinew_answer(request, 200, "text/plain", text, length);
}

/* All words of what others have counted, as a value of its own. */
static int merge_node(sinew_request *request, struct words *words, const struct node *at) {
    int error = 0;

    if (at == NULL)
        return 0;
    for (uint64_t each = 0; each < at->count && error == 0; each++)
        error = add_word(request, words, at->word, strlen(at->word));
    error = error < 0 ? error : merge_node(request, words, at->less);
    return error < 0 ? error : merge_node(request, words, at->more);
}

static int merge(sinew_request *request) {
    struct words *words = sinew_memory(request, sizeof *words);

    if (words == NULL)
        return refused(request, "no memory", errno);
    for (size_t each = 0; each < request->values_count; each++) {
        const struct words *one = request->values[each].at;

        if (merge_node(request, words, one->root) < 0)
            return sinew_fail(request, "MemoryTest", "no memory for all");
    }
    return sinew_answer_value(request, "application/x-words", words);
}

/* Answers with what is in no memory of the request. */
static int outside(sinew_request *request) {
    static const struct words none;
    char *own = sinew_memory(request, 100);
    int errors[] = {sinew_answer_value(request, NULL, &none), sinew_answer_value(request, NULL, own - 1),
                    sinew_answer_value(request, NULL, own + 100), sinew_answer_value(request, "a\nb", own)};
    char text[64];

    snprintf(text, sizeof text, "%d %d %d %d %s", errors[0], errors[1], errors[2], errors[3],
             sinew_memory(request, SIZE_MAX - 4096) == NULL && sinew_memory(request, 1ul << 40) == NULL ? "bounded" : "endless");
    return sinew_answer(request, 200, "text/plain", text, strlen(text));
}

static int handle(sinew_request *request, void *context) {
    const char *name = request->function;

    (void)context;
    if (strcmp(name, "make") == 0 || strcmp(name, "forge") == 0)
        return make(request, name[0] == 'f');
    if (strcmp(name, "merge") == 0)
        return merge(request);
    return strcmp(name, "outside") == 0 ? outside(request) : look(request);
}

int main(void) {
    return sinew_serve(handle, NULL) < 0;
}
