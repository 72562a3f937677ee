/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of libraries in a segment (docs/spec/memory-map.md, "Memory of libraries").
 *
 * A library in C or C++ has its objects in memory of its own, of which nothing is known: no copy can be made of them.
 * While it is asked to make some that may be handed over, as a model from its text, its memory comes from the
 * segment that is being filled, in *blocks*, so that whoever maps the segment has them where they were made. Before that is
 * done, each word of what is reached is looked at: one that is an address of anything but such a block, or what
 * is never written to of the library itself and of the program, which every process forked from the template has at the
 * same place, is a reason not to. (In the heap of a program that lies low, only what is divisible by sixteen is taken for
 * an address.) A number may look like an address: then the object is pickled, or a block more is
 * handed over, but no word is ever changed.
 *
 * All of it may be called by any thread. No lock of a segment is asked for while that of the blocks is held, but at a fork; segments
 * know nothing of blocks.
 */
#ifndef SINEW_LIBRARY_H
#define SINEW_LIBRARY_H

#include "segment.h"

/* Parts of a segment in which blocks are. More come from where the library has its memory otherwise. */
#define REGIONS_MAX 1024
#define REGION_MIN (256ul << 10)
#define REGION_MAX (4ul << 20)
/* Longer blocks have a region of their own. */
#define BLOCK_SHARED_MAX (128ul << 10)

/* Has memory of the loaded library whose path ends so come from segments between library_begin() and library_end(), and what the
 * standard library of C++ makes for it. ENOENT if none is loaded, ENOSPC if too many are, ENOSYS if it is none that can
 * be. For processes with one thread, before there are segments. */
EXPORTED int library_adopt(const char *path_end);
/* Has a loaded library, one in C, free nothing of what lies in segments, and take it elsewhere where it is to be longer. What it takes
 * itself comes from where it came before. As the other one. */
EXPORTED int library_receive(const char *path_end);

/* Has the long pieces of memory that Pillow's library takes, whose path ends so, come from the segment that is being filled, as arrays
 * do, and what of it lies in segments be freed rightly. As library_adopt(), at any time. */
EXPORTED int library_of_pixels(const char *path_end);

/* What is shorter comes from where it came before. */
#define PIXELS_MIN (64ul << 10)
struct pixels {
    uintptr_t at;
    size_t size;
};
void *pixels_malloc(size_t size);
void *pixels_calloc(size_t count, size_t size);
void *pixels_realloc(void *at, size_t size);
void pixels_free(void *at);

/* Where a library is, and what tells apart in which processes all is at the same place that its objects may refer to: that of
 * what it keeps, and what is there. */
struct place {
    uintptr_t begin, end;
    uint64_t digest;
};
/* What a process that maps its objects must have as well. ENOENT if it has not been adopted. */
EXPORTED int library_place(const char *path_end, struct place *place);

/* What adopted libraries make from library_learn() on and have not freed when library_learned() is called, they keep for all that they make
 * later, and each process that is forked from this one has it at the same place. How many there are; ENOSPC if too many. Once, and
 * for processes with one thread. */
EXPORTED int library_learn(void);
EXPORTED int library_learned(void);

/* From now on, by any thread, until the other has been called as often. */
EXPORTED void library_begin(void);
EXPORTED void library_end(void);

/* Bytes of the blocks that are reached from an address; EXDEV if there is more to it, or it is where no block of the segment
 * begins that is being filled; ENOMEM. Nobody may write there meanwhile, nor ask for this. */
EXPORTED int64_t library_reached(uintptr_t root);
/* Whether what is there is another process's, and so nobody's to free. */
EXPORTED int library_is_mapped(uintptr_t at);

/* Whether one of areas in the order of their addresses, none of which is in another, has an address. */
static inline int is_in_any(const struct area *areas, size_t count, uintptr_t at)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (areas[middle].begin <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low && at < areas[low - 1].end;
}

/* A block; NULL if it is to come from elsewhere. It is all zeros. */
void *library_take(size_t size, size_t align);
/* The same for what any thread may make, but only in the one that has called library_begin(). */
void *library_take_for_others(size_t size);
/* Ends a block. What is none is let be, as in a segment of others. */
void library_give(void *at);
/* Once, before any is taken: a process that is forked can take some as well. */
void library_mind_forks(void);
/* How long it is at least, also in a segment of others. */
size_t library_size(const void *at);
/* Whether an address is of what each process has at the same place: what is never written to of an adopted library, and what
 * it keeps. */
int library_is_constant(uintptr_t at);

#endif
