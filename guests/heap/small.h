/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small pieces of the first half of a segment: spans of 64 KiB, each of pieces of
 * one size, which are given out in the order of their addresses, and again when
 * they were given back. Whoever calls has the interpreter's lock.
 */
#ifndef SINEW_SMALL_H
#define SINEW_SMALL_H

#include "segment.h"

#define SMALL_MAX (32ul << 10)
#define SMALL_CLASSES 57
/* What comes from elsewhere before anything is taken here. */
#define SMALL_DECLINED_MAX (256ul << 10)

struct small {
    uintptr_t base, end;
    /* Where spans that were never used begin. */
    uintptr_t unused;
    size_t live;
    /* Of each size: what was given back, and what of its last span was not given out yet. */
    void *returned[SMALL_CLASSES];
    uintptr_t fresh[SMALL_CLASSES], fresh_end[SMALL_CLASSES];
    /* Of each span: how many of its pieces are taken, and their size. */
    struct span {
        uint16_t live;
        uint8_t class;
    } spans[];
};

/* What the current segment has; NULL if there is none, or no more is to be taken. */
extern struct small *small_current;
/* How many bytes more are asked for in vain before there is one, if one is offered: most calls make little, and pages of a
 * segment are to be made first. */
extern size_t small_declined;

/* Sizes are rounded up to one of each class: which one a size is of, and how long its pieces are. */
unsigned small_class(size_t size);
size_t small_class_size(unsigned class);

/* Of so many bytes from `base` on; NULL if there is no memory for what is kept of it. */
struct small *small_new(uintptr_t base, size_t length);
void small_free(struct small *small);

/* NULL if there is no room, it is not small, or little has been asked for so far. */
void *small_take(size_t size);
/* It is no piece of the current segment that is given again. */
void small_give(struct small *small, void *piece);
/* Has what is still taken be memory of this process's own, at the same addresses, and all else of the
 * `length` bytes from the base on be none: the file that was mapped there is let go. 0, or a negative errno. */
int small_move_out(struct small *small, size_t length);
/* Gives the memory of spans back in which nothing is taken, where many lie side by side; nothing may be taken any more. */
void small_drop_empty(const struct small *small);
/* Bytes of the spans in which something is taken. */
size_t small_live(const struct small *small);
/* Bytes of all spans that were ever begun, and of the pieces that are taken. */
struct use small_use(const struct small *small);
size_t small_size(const struct small *small, const void *piece);

#endif
