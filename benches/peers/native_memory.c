/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An index that one function makes and another one looks into: a balanced tree of
 * records. It is handed over as the memory that it is, or sent as an array of its
 * records and made again; or one function does both, and hands nothing over.
 *
 * All are asked with {"records":N,"all":0 or 1}: with 1 each record is looked at, else
 * a thousand are looked for.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sinew.h"

#define LOOKUPS 1000

struct record {
    uint64_t key, value;
};

struct node {
    struct node *less, *more;
    struct record record;
};

/* Where nodes come from: memory that is handed over, or the program's own. */
struct nodes {
    sinew_request *request;
    struct node *own;
    size_t used;
};

static uint64_t number_of(const sinew_request *request, const char *name) {
    const char *at = memmem(request->body, request->length, name, strlen(name));

    return at == NULL ? 0 : strtoull(at + strlen(name) + 2, NULL, 10);
}

static struct record record_of(uint64_t number) {
    return (struct record){.key = number, .value = (number + 1) * 0x9e3779b97f4a7c15u};
}

/* A tree of the records from `begin` up to `end`; records are made if there are none. */
static struct node *tree_of(struct nodes *nodes, const struct record *records, uint64_t begin, uint64_t end) {
    uint64_t middle = begin + (end - begin) / 2;
    struct node *node;

    if (begin == end)
        return NULL;
    node = nodes->own != NULL ? &nodes->own[nodes->used++] : sinew_memory(nodes->request, sizeof *node);
    if (node == NULL)
        return NULL;
    node->record = records == NULL ? record_of(middle) : records[middle];
    node->less = tree_of(nodes, records, begin, middle);
    node->more = tree_of(nodes, records, middle + 1, end);
    return node;
}

static uint64_t sum_of(const struct node *node) {
    return node == NULL ? 0 : node->record.value + sum_of(node->less) + sum_of(node->more);
}

/* The sum of what was asked for. */
static uint64_t looked_at(const struct node *root, uint64_t records, int is_all) {
    uint64_t sum = 0;

    if (is_all)
        return sum_of(root);
    for (uint64_t at = 0; at < LOOKUPS; at++) {
        uint64_t key = at * records / LOOKUPS;
        const struct node *node = root;

        while (node != NULL && node->record.key != key)
            node = key < node->record.key ? node->less : node->more;
        sum += node == NULL ? 0 : node->record.value;
    }
    return sum;
}

static int answer_sum(sinew_request *request, uint64_t sum) {
    char text[64];

    return sinew_answer(request, 200, "application/json", text,
                        (size_t)snprintf(text, sizeof text, "\"%llu\"", (unsigned long long)sum));
}

/* Makes the tree of its own memory, of records that it was sent or that it makes. */
static int look_alone(sinew_request *request, const struct record *records, uint64_t count, int is_all) {
    struct nodes nodes = {.own = malloc((size_t)count * sizeof *nodes.own)};
    int told;

    if (nodes.own == NULL)
        return sinew_fail(request, "OutOfMemory", "no memory for the tree");
    told = answer_sum(request, looked_at(tree_of(&nodes, records, 0, count), count, is_all));
    free(nodes.own);
    return told;
}

/* What is sent says first how much of it there is, and what is to be done with it. */
static int send_records(sinew_request *request, uint64_t count, uint64_t is_all) {
    size_t length = 16 + (size_t)count * sizeof(struct record);
    unsigned char *all = malloc(length);
    int told;

    if (all == NULL)
        return sinew_fail(request, "OutOfMemory", "no memory for the records");
    memcpy(all, &count, 8);
    memcpy(all + 8, &is_all, 8);
    for (uint64_t at = 0; at < count; at++)
        memcpy(all + 16 + at * sizeof(struct record), &(struct record[]){record_of(at)}, sizeof(struct record));
    told = sinew_answer(request, 200, "application/octet-stream", all, length);
    free(all);
    return told;
}

static int look_at_sent(sinew_request *request) {
    uint64_t told[2];
    struct record *records;
    int answered;

    if (request->length < 16)
        return sinew_fail(request, "NoRecords", "nothing was sent");
    memcpy(told, request->body, 16);
    if (told[0] > (request->length - 16) / sizeof *records || (records = malloc(request->length)) == NULL)
        return sinew_fail(request, "NoRecords", "fewer were sent than it says");
    memcpy(records, (const unsigned char *)request->body + 16, request->length - 16);
    answered = look_alone(request, records, told[0], (int)told[1]);
    free(records);
    return answered;
}

static int handle(sinew_request *request, void *context) {
    uint64_t count = number_of(request, "records");
    int is_all = (int)number_of(request, "all");

    (void)context;
    if (strcmp(request->function, "alone") == 0)
        return look_alone(request, NULL, count, is_all);
    if (strcmp(request->function, "send") == 0)
        return send_records(request, count, (uint64_t)is_all);
    if (strcmp(request->function, "look-at-sent") == 0)
        return look_at_sent(request);
    if (strcmp(request->function, "make") == 0) {
        struct nodes nodes = {.request = request};
        struct node *root = tree_of(&nodes, NULL, 0, count);

        return root == NULL ? sinew_fail(request, "OutOfMemory", strerror(errno)) : sinew_answer_value(request, NULL, root);
    }
    if (request->values_count != 1)
        return sinew_fail(request, "NoValue", "nothing was handed over");
    return answer_sum(request, looked_at(request->values[0].at, count, is_all));
}

int main(void) {
    return sinew_serve(handle, NULL) < 0;
}
