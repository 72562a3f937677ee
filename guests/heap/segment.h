/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that one process fills and others map at the same addresses
 * (docs/spec/memory-map.md). It knows nothing of any language.
 *
 * A segment is a file in memory that lies at an address of the plan, which
 * nobody else has while it lives. Whoever fills it maps it shared, and large
 * pieces of its memory are taken from it while it works; when it is handed
 * over, the filler's mapping becomes private, so that the file is from then on
 * as it was at that moment. Whoever is given it maps it privately: what is
 * written there is the writer's own.
 *
 * All of it may be called by any thread. What fails returns a negative errno.
 */
#ifndef SINEW_SEGMENT_H
#define SINEW_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))

/* Where segments may lie: far from the program, its heap and its libraries. */
#define PLAN_BEGIN 0x100000000000ul
#define PLAN_END 0x500000000000ul
#define PAGE 4096ul
/* What a large piece may have before its contents. */
#define ITEMS_OFFSET 64
/* What a process has of segments that it filled and has not left yet. */
#define SEGMENTS_MAX 64
/* Pieces that were taken from one segment and not given back, and gaps between them. */
#define PIECES_MAX 4096
/* Segments of others that a process has mapped. */
#define MAPPINGS_MAX 1024

/* Whether an address is the plan's. */
static inline int in_plan(uintptr_t address)
{
    return address - PLAN_BEGIN < PLAN_END - PLAN_BEGIN;
}

/* Whether a place is the plan's, whole. */
static inline int is_placed(uintptr_t base, size_t length)
{
    return base % PAGE == 0 && length % PAGE == 0 && length > 0 && in_plan(base) && length <= PLAN_END - base;
}

static inline size_t whole_pages(size_t size)
{
    return (size + PAGE - 1) & ~(PAGE - 1);
}

/* The pieces that are taken from a segment; others come from elsewhere. */
#define TAKES_SMALL 1
#define TAKES_LARGE 2
/* For libraries (library.h): among the large ones, but none of those of which segment_use() tells. */
#define TAKES_LIBRARY 4

/* Has a file of `length` bytes filled from now on; there is one such at a time. Its first
 * page is the caller's, its first half is for small pieces (small.h), and the rest for
 * large ones. It is mapped once something is to be there. EBUSY if one is being filled,
 * ENOSPC if too many segments are still in use. */
EXPORTED int segment_open(int fd, uintptr_t base, size_t length, int takes);
/* Whether nothing was made there: then it is as it was, and segment_again() offers it to the next call, as long as no other one
 * has been opened, nor has the process forked. */
EXPORTED int segment_withdraw(void);
/* EINVAL if there is none that was withdrawn, or its descriptor is another file's by now. */
EXPORTED int segment_again(int takes);
/* Maps what segment_open() was given; 0 if there is none, or it cannot be. */
int segment_begin(void);

/* A large piece of the segment that is being filled, at a whole page; none if there
 * is none, or no room, or pieces of this kind are not taken. Whether it is all zeros, if that is asked. */
EXPORTED void *segment_take(size_t size, int kind, int *is_zero);

/* Whether all of what was just taken is to have memory at once: of one segment that is as much as half of what
 * the process may have, for not all of it may be written to. */
int segment_fills(size_t size);

/* Gives a piece back, a small one too. What is not a piece is let be: it is in memory
 * that was mapped, and stays. */
EXPORTED void segment_give(void *piece);
/* The same of many that are small or large; how many are in no segment. */
size_t segment_give_all(void *const *pieces, size_t count);

/* Bytes of a piece from there on, which is its beginning or ITEMS_OFFSET after it; 0 for
 * what is none. */
EXPORTED size_t segment_piece(const void *piece);
/* Where the large piece begins that an address is in; 0 if it is in none, or a library's. */
uintptr_t segment_piece_of(const void *at);
/* Makes a piece longer where it lies; 0 if it cannot be. */
int segment_grow(void *piece, size_t size);

/* A part of a segment. */
struct area {
    uintptr_t begin, end;
};

/* The segment that is being filled, whole; EINVAL if there is none. */
int segment_filled(struct area *whole);
/* The same as long as pieces for libraries are taken from it, or of one that is offered for them; else none. */
struct area segment_taking(void);

/* Nothing more is taken: what is to be handed over has been made. */
EXPORTED void segment_stop(void);

/* What of each half was never taken, and so is zeros; from then on no pieces are
 * taken, and gaps, and spans in which nothing is left, take no memory any more. `base` is where the segment begins. EINVAL if none is being filled. */
EXPORTED int segment_rest(uintptr_t *base, struct area halves[2]);

/* Bytes of one half: those that were taken ever, and those that were not given back; what libraries took is not among them. */
struct use {
    uint64_t taken, left;
};
/* What of the two halves is used, as long as it is being filled; zeros if none is. */
EXPORTED void segment_use(struct use halves[2]);

/* Whether a segment is being filled, and nothing runs in this process but the thread that asks, nor will until segment_close():
 * signals wait until then. */
EXPORTED int segment_hold(void);

/* Ends the filling. With `keep`, what the file holds then never changes through
 * this process. EINVAL if that was so already, as after a fork. */
EXPORTED int segment_close(int keep);

/* Lets go of segments that nothing is left of, and of the files of those of which little is, or only
 * small pieces: these are memory of the process's own then. The bytes of the others' files. */
EXPORTED size_t segment_sweep(void);

/* Lets go of segments that nothing is left of. */
void segment_sweep_empty(void);

/* Whether no other thread may be at an array, which takes no lock, or take memory. */
int is_alone(void);

/* Maps a file where nothing else lies; EEXIST if something does. */
int map_new(uintptr_t base, size_t length, int flags, int fd);

/* Maps a segment that another one filled; one that is mapped here is made as it was
 * when it was handed over, but for its first `lasting` bytes: that returns 1. EEXIST if something else lies there, ENOSPC if too much is mapped. */
EXPORTED int segment_map(int fd, uintptr_t base, size_t length, size_t lasting);

/* Bytes from there on of a segment of others that is mapped; 0 where none is. */
size_t segment_mapped(uintptr_t at);

/* Of segments of others (mapping.c): whoever only reads one may write to it all the same, as where references
 * are counted, and has pages of its own then that are in the end as they were. */

/* Has these pages given back by the next segment_return_pages(), if there are many; `fd` is the file's. That of so many is
 * kept open until then, for descriptors are few; of others they stay. */
#define WATCHED_MAX 16
void segment_watch(int fd, uintptr_t base);
/* Mappings of which that is not done yet. */
int segment_watched(void);
/* Gives back pages of this process's own that have what their file has; of what was mapped again meanwhile only
 * when a call has done without it, for others of its run may need it. Bytes. Not while there are other threads, which may
 * write there: then it is tried again, but not for ever. Whether one of them is about to end is waited for. */
EXPORTED size_t segment_return_pages(int is_ending);
/* From how many such pages of a mapping on that is done; 256 if nothing is said. */
EXPORTED void segment_compare_from(size_t pages);

#endif
