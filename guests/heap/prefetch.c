/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "prefetch.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* So that who touches a page meanwhile need not wait long. */
#define STEP (256ul << 10)
#define STACK (64ul << 10)
/* What is less is touched before a thread has begun. */
#define PREFETCH_MIN (128ul << 10)

static size_t length_of(const struct area *part)
{
    return part->end > part->begin ? part->end - part->begin : 0;
}

/* Bytes that are left of the bound; 0 if there is no use in going on. */
static size_t populate(const struct area *part, size_t left)
{
    uintptr_t at = part->begin & ~(PAGE - 1);
    for (; at < part->end && left >= STEP; at += STEP, left -= STEP) {
        size_t step = part->end - at < STEP ? (part->end - at + PAGE - 1) & ~(PAGE - 1) : STEP;
        if (madvise((void *)at, step, MADV_POPULATE_WRITE) < 0)
            return 0;
    }
    return left;
}

static void *run(void *argument)
{
    struct area *parts = argument;
    size_t left = PREFETCH_MAX;
    for (int index = 0; index < 2; index++)
        left = populate(&parts[index], left);
    free(parts);
    return NULL;
}

static int start(struct area *parts)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    if (pthread_attr_init(&attributes))
        return 0;
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    /* Signals are for the threads that expect them. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int done = pthread_create(&thread, &attributes, run, parts);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return done == 0;
}

void prefetch(const struct area parts[2])
{
    if (length_of(&parts[0]) + length_of(&parts[1]) < PREFETCH_MIN)
        return;
    struct area *own = malloc(2 * sizeof *own);
    if (!own)
        return;
    own[0] = parts[0];
    own[1] = parts[1];
    if (!start(own))
        free(own);
}
