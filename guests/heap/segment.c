/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "segment.h"
#include "small.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Segments that were filled and stay mapped shared; more are made private. */
#define FILES_MAX 8
/* Large pieces that are moved out at once: each may be a mapping of its own. */
#define MOVED_PIECES_MAX 256

/* A part of a segment: one that was taken, or a gap that was given back. */
struct piece {
    uintptr_t begin;
    size_t length;
    /* As which kind; a gap if 0. */
    int is_taken;
};

struct segment {
    uintptr_t base;
    size_t length;
    /* Where what was never taken begins. */
    uintptr_t end;
    /* In the order of their addresses, without space between them. */
    struct piece *pieces;
    size_t count, taken;
    /* Bytes that had memory before they were written to, at most a quarter of the length. */
    size_t filled;
    /* Bytes at the end that were taken for libraries. */
    size_t of_libraries;
    struct small *small;
    /* What it is mapped from, as long as it is mapped shared; none if below 0. */
    struct file {
        int fd;
        dev_t device;
        ino_t number;
    } file;
    /* Nothing of the file is mapped any more. */
    int is_moved_out;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct segment segments[SEGMENTS_MAX];
static size_t segments_count;
/* The one that is being filled; none if below 0. */
static int current = -1;
/* What is taken from it, and whether the rest of it belongs to somebody. */
static int takes, is_spoken_for;
/* What is to be filled, before it is mapped; its file is none if below 0. */
static struct {
    struct file file;
    uintptr_t base;
    size_t length;
} offered = {.file = {.fd = -1}};
/* Whether that waits for the next call: nothing is taken from it then. */
static int is_withdrawn;
/* Whether signals wait for the end of the filling, and which did before. */
static int is_held;
static sigset_t signals_before;

/* Whether the descriptor still is the file's: whoever closes all that a process has gives its number to others. */
static int is_there(const struct file *file)
{
    struct stat found;
    return file->fd >= 0 && fstat(file->fd, &found) == 0 && found.st_dev == file->device && found.st_ino == file->number;
}

static void close_file(struct file *file)
{
    if (is_there(file))
        close(file->fd);
    file->fd = -1;
}

/* Whatever this process does there from now on happens to pages of its own. */
static int make_private(struct segment *segment)
{
    int flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
    if (!is_there(&segment->file))
        return -EBADF;
    if (mmap((void *)segment->base, segment->length, PROT_READ | PROT_WRITE, flags, segment->file.fd, 0) == MAP_FAILED)
        return -errno;
    close_file(&segment->file);
    return 0;
}

static void forget(size_t index)
{
    struct segment *segment = &segments[index];
    close_file(&segment->file);
    munmap(segment->pieces, PIECES_MAX * sizeof *segment->pieces);
    small_free(segment->small);
    munmap((void *)segment->base, segment->length);
    segments_count--;
    if (index != segments_count)
        segments[index] = segments[segments_count];
}

/* What was ever taken of its file. */
static size_t segment_bytes(const struct segment *segment)
{
    return segment->small->unused - segment->base + segment->end - segment->small->end;
}

static int is_left(const struct segment *segment)
{
    return segment->taken == 0 && segment->small->live == 0;
}

static void sweep(void)
{
    for (size_t index = segments_count; index-- > 0;)
        if ((int)index != current && is_left(&segments[index])) {
            if (current == (int)segments_count - 1)
                current = (int)index;
            forget(index);
        }
}

/* What is kept of a segment: not in a heap whose memory may itself come from it. */
static int open_tables(struct segment *segment)
{
    void *pieces = mmap(0, PIECES_MAX * sizeof(struct piece), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pieces == MAP_FAILED)
        return -errno;
    segment->small = small_new(segment->base, segment->length / 2);
    if (!segment->small) {
        munmap(pieces, PIECES_MAX * sizeof(struct piece));
        return -ENOMEM;
    }
    segment->pieces = pieces;
    return 0;
}

/* What is asked for from now on is taken from what is offered. */
static void take_from_it(int taking)
{
    takes = taking;
    small_declined = taking & TAKES_SMALL ? SMALL_DECLINED_MAX : 0;
}

/* What was offered is no more; gives its file. */
static struct file take_offer(void)
{
    struct file file = offered.file;
    offered.file.fd = -1;
    is_withdrawn = 0;
    small_declined = 0;
    return file;
}

static void drop_offer(void)
{
    struct file file = take_offer();
    close_file(&file);
}

static int open_locked(int fd, uintptr_t base, size_t length, int taking)
{
    if (is_withdrawn)
        drop_offer();
    if (current >= 0 || offered.file.fd >= 0)
        return -EBUSY;
    sweep();
    if (segments_count == SEGMENTS_MAX)
        return -ENOSPC;
    struct stat file;
    int own = fstat(fd, &file) < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return -errno;
    offered.file = (struct file){own, file.st_dev, file.st_ino};
    offered.base = base;
    offered.length = length;
    take_from_it(taking);
    return 0;
}

static int begin_locked(void)
{
    if (offered.file.fd < 0 || is_withdrawn)
        return -EINVAL;
    struct segment segment = {.base = offered.base, .length = offered.length, .file = take_offer()};
    segment.end = segment.base + whole_pages(segment.length / 2);
    int done = is_there(&segment.file) ? map_new(segment.base, segment.length, MAP_SHARED, segment.file.fd) : -EBADF;
    if (done == 0 && (done = open_tables(&segment)) < 0)
        munmap((void *)segment.base, segment.length);
    if (done < 0) {
        close_file(&segment.file);
        return done;
    }
    segments[segments_count] = segment;
    current = (int)segments_count++;
    small_current = takes & TAKES_SMALL ? segment.small : NULL;
    is_spoken_for = 0;
    return 0;
}

int segment_begin(void)
{
    pthread_mutex_lock(&lock);
    int done = begin_locked();
    pthread_mutex_unlock(&lock);
    return done == 0;
}

/* Descriptors are few. */
static void keep_few_files(void)
{
    size_t files = 0;
    for (size_t index = segments_count; index-- > 0;)
        if (segments[index].file.fd >= 0 && ++files > FILES_MAX)
            make_private(&segments[index]);
}

static int close_locked(int keep)
{
    int done = keep ? make_private(&segments[current]) : 0;
    current = -1;
    small_current = NULL;
    keep_few_files();
    return done;
}

/* They wait no longer. */
static void release_signals(void)
{
    if (is_held)
        pthread_sigmask(SIG_SETMASK, &signals_before, NULL);
    is_held = 0;
}

/* A process that is forked must not write to what this one has filled, nor see what this one writes to it
 * from then on: what is filled is filled no more, and all that is still mapped shared, whether it was handed over or
 * not, becomes private first. What cannot be, it does not get. */
static void before_fork(void)
{
    pthread_mutex_lock(&lock);
    release_signals();
    if (current >= 0)
        close_locked(0);
    else if (offered.file.fd >= 0)
        drop_offer();
    for (size_t index = 0; index < segments_count; index++) {
        struct segment *segment = &segments[index];
        if (segment->file.fd >= 0 && make_private(segment) < 0)
            madvise((void *)segment->base, segment->length, MADV_DONTFORK);
    }
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

static void mind_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork);
}

int segment_open(int fd, uintptr_t base, size_t length, int taking)
{
    if (!is_placed(base, length))
        return -EINVAL;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, mind_forks);
    pthread_mutex_lock(&lock);
    int done = open_locked(fd, base, length, taking);
    pthread_mutex_unlock(&lock);
    return done;
}

int segment_withdraw(void)
{
    pthread_mutex_lock(&lock);
    is_withdrawn = offered.file.fd >= 0;
    takes = 0;
    small_declined = 0;
    int done = is_withdrawn;
    pthread_mutex_unlock(&lock);
    return done;
}

int segment_again(int taking)
{
    pthread_mutex_lock(&lock);
    int done = is_withdrawn && current < 0 && is_there(&offered.file) ? 0 : -EINVAL;
    if (done == 0) {
        is_withdrawn = 0;
        take_from_it(taking);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

int segment_filled(struct area *whole)
{
    pthread_mutex_lock(&lock);
    int done = current < 0 ? -EINVAL : 0;
    if (done == 0)
        *whole = (struct area){segments[current].base, segments[current].base + segments[current].length};
    pthread_mutex_unlock(&lock);
    return done;
}

struct area segment_taking(void)
{
    struct area whole = {0, 0};
    pthread_mutex_lock(&lock);
    if (current >= 0 && takes & TAKES_LIBRARY && !is_spoken_for)
        whole = (struct area){segments[current].base, segments[current].base + segments[current].length};
    else if (current < 0 && offered.file.fd >= 0 && takes & TAKES_LIBRARY)
        whole = (struct area){offered.base, offered.base + offered.length};
    pthread_mutex_unlock(&lock);
    return whole;
}

void segment_stop(void)
{
    pthread_mutex_lock(&lock);
    takes = 0;
    small_declined = 0;
    small_current = NULL;
    pthread_mutex_unlock(&lock);
}

/* Divides a gap; the rest stays one. */
static void *taken_from(struct segment *segment, size_t index, size_t size, int kind)
{
    struct piece *piece = &segment->pieces[index];
    if (piece->length > size) {
        if (segment->count == PIECES_MAX)
            return NULL;
        memmove(piece + 2, piece + 1, (segment->count - index - 1) * sizeof *piece);
        piece[1] = (struct piece){piece->begin + size, piece->length - size, 0};
        piece->length = size;
        segment->count++;
    }
    piece->is_taken = kind;
    segment->taken++;
    return (void *)piece->begin;
}

static void *take_locked(size_t size, int kind, int *is_zero)
{
    struct segment *segment = &segments[current];
    for (size_t index = 0; index < segment->count; index++)
        if (!segment->pieces[index].is_taken && segment->pieces[index].length >= size) {
            *is_zero = 0;
            return taken_from(segment, index, size, kind);
        }
    if (segment->count == PIECES_MAX || size > segment->base + segment->length - segment->end)
        return NULL;
    struct piece *piece = &segment->pieces[segment->count++];
    *piece = (struct piece){segment->end, size, kind};
    segment->end += size;
    segment->of_libraries += kind == TAKES_LIBRARY ? size : 0;
    segment->taken++;
    *is_zero = 1;
    return (void *)piece->begin;
}

int segment_fills(size_t size)
{
    int fills = 0;
    pthread_mutex_lock(&lock);
    /* It is twice as long as the process's memory. */
    if (current >= 0 && size <= segments[current].length / 4 - segments[current].filled) {
        segments[current].filled += size;
        fills = 1;
    }
    pthread_mutex_unlock(&lock);
    return fills;
}

void *segment_take(size_t size, int kind, int *is_zero)
{
    int ignored;
    if (size == 0 || size > PLAN_END - PLAN_BEGIN)
        return NULL;
    pthread_mutex_lock(&lock);
    int is_there = takes & kind && (current >= 0 || begin_locked() == 0);
    void *at = is_there && !is_spoken_for ? take_locked(whole_pages(size), kind, is_zero ? is_zero : &ignored) : NULL;
    pthread_mutex_unlock(&lock);
    return at;
}

/* The segment that an address is in. */
static struct segment *segment_of(uintptr_t at)
{
    for (size_t index = segments_count; index-- > 0;)
        if (at - segments[index].base < segments[index].length)
            return &segments[index];
    return NULL;
}

static int is_small(const struct segment *segment, uintptr_t at)
{
    return at - segment->base < segment->length / 2;
}

/* The taken piece that begins there, or whose contents do. */
static struct piece *piece_at(const struct segment *segment, uintptr_t at)
{
    uintptr_t begin = at % PAGE == ITEMS_OFFSET ? at - ITEMS_OFFSET : at;
    size_t low = 0, high = segment->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (segment->pieces[middle].begin < begin)
            low = middle + 1;
        else
            high = middle;
    }
    struct piece *piece = &segment->pieces[low];
    return low < segment->count && piece->begin == begin && piece->is_taken ? piece : NULL;
}

uintptr_t segment_piece_of(const void *at)
{
    uintptr_t begin = 0;
    pthread_mutex_lock(&lock);
    const struct segment *segment = segment_of((uintptr_t)at);
    size_t low = 0, high = segment ? segment->count : 0;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (segment->pieces[middle].begin <= (uintptr_t)at)
            low = middle + 1;
        else
            high = middle;
    }
    if (low > 0 && segment->pieces[low - 1].is_taken == TAKES_LARGE && (uintptr_t)at - segment->pieces[low - 1].begin < segment->pieces[low - 1].length)
        begin = segment->pieces[low - 1].begin;
    pthread_mutex_unlock(&lock);
    return begin;
}

static void drop_piece(struct segment *segment, struct piece *piece)
{
    size_t index = (size_t)(piece - segment->pieces);
    memmove(piece, piece + 1, (segment->count - index - 1) * sizeof *piece);
    segment->count--;
}

/* A gap becomes one with those beside it. */
static void give_piece(struct segment *segment, struct piece *piece)
{
    piece->is_taken = 0;
    segment->taken--;
    if (piece + 1 < segment->pieces + segment->count && !piece[1].is_taken) {
        piece->length += piece[1].length;
        drop_piece(segment, piece + 1);
    }
    if (piece > segment->pieces && !piece[-1].is_taken) {
        piece[-1].length += piece->length;
        drop_piece(segment, piece);
    }
}

static void give_locked(struct segment *segment, void *at)
{
    if (is_small(segment, (uintptr_t)at)) {
        small_give(segment->small, at);
        return;
    }
    struct piece *piece = piece_at(segment, (uintptr_t)at);
    if (piece)
        give_piece(segment, piece);
}

void segment_give(void *at)
{
    pthread_mutex_lock(&lock);
    struct segment *segment = segment_of((uintptr_t)at);
    if (segment)
        give_locked(segment, at);
    pthread_mutex_unlock(&lock);
}

size_t segment_give_all(void *const *pieces, size_t count)
{
    size_t others = 0;
    struct segment *segment = NULL;
    pthread_mutex_lock(&lock);
    for (size_t index = 0; index < count; index++) {
        uintptr_t at = (uintptr_t)pieces[index];
        /* Mostly they are all of one. */
        if (!segment || at - segment->base >= segment->length)
            segment = segment_of(at);
        if (segment)
            give_locked(segment, pieces[index]);
        others += !segment;
    }
    pthread_mutex_unlock(&lock);
    return others;
}

size_t segment_piece(const void *at)
{
    size_t length = 0;
    pthread_mutex_lock(&lock);
    const struct segment *segment = segment_of((uintptr_t)at);
    if (segment && is_small(segment, (uintptr_t)at)) {
        length = small_size(segment->small, at);
    } else if (segment) {
        const struct piece *piece = piece_at(segment, (uintptr_t)at);
        length = piece ? piece->begin + piece->length - (uintptr_t)at : 0;
    }
    pthread_mutex_unlock(&lock);
    return length;
}

/* Only the last one grows: what is behind it was never taken. */
static int grow_last(struct segment *segment, struct piece *piece, size_t length)
{
    size_t more = whole_pages(length) - piece->length;
    if (piece + 1 != segment->pieces + segment->count || piece->begin + piece->length != segment->end ||
        more > segment->base + segment->length - segment->end)
        return 0;
    piece->length += more;
    segment->end += more;
    return 1;
}

int segment_grow(void *at, size_t size)
{
    int done = 0;
    pthread_mutex_lock(&lock);
    struct segment *segment = segment_of((uintptr_t)at);
    if (segment && !is_small(segment, (uintptr_t)at) && current >= 0 && segment == &segments[current] && !is_spoken_for) {
        struct piece *piece = piece_at(segment, (uintptr_t)at);
        size_t before = piece ? (uintptr_t)at - piece->begin : 0;
        done = piece && size < segment->length && grow_last(segment, piece, before + size);
        if (done && before)
            ((uint64_t *)at)[-2] = piece->length - before;
    }
    pthread_mutex_unlock(&lock);
    return done;
}

int segment_rest(uintptr_t *base, struct area halves[2])
{
    pthread_mutex_lock(&lock);
    int done = current < 0 ? begin_locked() : 0;
    if (done == 0) {
        struct segment *segment = &segments[current];
        *base = segment->base;
        halves[0] = (struct area){segment->small->unused, segment->small->end & ~(PAGE - 1)};
        halves[1] = (struct area){segment->end, segment->base + segment->length};
        /* Not later: what is given back while a value is written may be a part of it. */
        for (size_t index = 0; index < segment->count && !is_spoken_for; index++)
            if (!segment->pieces[index].is_taken)
                /* Where that cannot be done, they only take memory. */
                madvise((void *)segment->pieces[index].begin, segment->pieces[index].length, MADV_REMOVE);
        if (!is_spoken_for)
            small_drop_empty(segment->small);
        is_spoken_for = 1;
        small_current = NULL;
    }
    pthread_mutex_unlock(&lock);
    return done;
}

int segment_hold(void)
{
    if (!is_alone())
        return 0;
    pthread_mutex_lock(&lock);
    sigset_t all;
    sigfillset(&all);
    is_held = current >= 0 && is_there(&segments[current].file) && pthread_sigmask(SIG_SETMASK, &all, &signals_before) == 0;
    int done = is_held;
    pthread_mutex_unlock(&lock);
    return done;
}

int segment_close(int keep)
{
    pthread_mutex_lock(&lock);
    int done = current < 0 ? -EINVAL : close_locked(keep);
    if (offered.file.fd >= 0)
        drop_offer();
    release_signals();
    pthread_mutex_unlock(&lock);
    return done;
}

/* What is not in gaps, nor was never taken, and of one of these kinds. */
static size_t taken_bytes(const struct segment *segment, int kinds)
{
    size_t bytes = 0;
    for (size_t index = 0; index < segment->count; index++)
        bytes += segment->pieces[index].is_taken & kinds ? segment->pieces[index].length : 0;
    return bytes;
}

void segment_use(struct use halves[2])
{
    pthread_mutex_lock(&lock);
    halves[0] = halves[1] = (struct use){0, 0};
    if (current >= 0) {
        const struct segment *segment = &segments[current];
        halves[0] = small_use(segment->small);
        halves[1] = (struct use){segment->end - segment->small->end - segment->of_libraries, taken_bytes(segment, TAKES_LARGE)};
    }
    pthread_mutex_unlock(&lock);
}

static void copy_taken(const struct segment *segment, char *copies, int back)
{
    for (size_t index = 0; index < segment->count; index++) {
        const struct piece *piece = &segment->pieces[index];
        if (!piece->is_taken)
            continue;
        /* Objects are there that others refer to: without them nothing can go on. */
        if (back && mprotect((void *)piece->begin, piece->length, PROT_READ | PROT_WRITE) < 0)
            abort();
        memcpy(back ? (void *)piece->begin : copies, back ? copies : (void *)piece->begin, piece->length);
        copies += piece->length;
    }
}

void segment_sweep_empty(void)
{
    pthread_mutex_lock(&lock);
    sweep();
    pthread_mutex_unlock(&lock);
}

int is_alone(void)
{
    struct stat threads;
    /* Links of a folder: two, and one more for each. */
    return stat("/proc/self/task", &threads) == 0 && threads.st_nlink == 3;
}

/* Has what is left be memory of this process's own, if that is less than the file. */
static int move_out(struct segment *segment)
{
    size_t taken = taken_bytes(segment, TAKES_LARGE | TAKES_LIBRARY), all = segment_bytes(segment);
    if (taken && (segment->taken > MOVED_PIECES_MAX || (taken + small_live(segment->small)) * 2 > all || !is_alone()))
        return 0;
    char *copies = malloc(taken ? taken : 1);
    if (!copies)
        return 0;
    copy_taken(segment, copies, 0);
    int done = small_move_out(segment->small, segment->length);
    if (done == 0)
        copy_taken(segment, copies, 1);
    free(copies);
    if (done == 0)
        close_file(&segment->file);
    return done == 0;
}

size_t segment_sweep(void)
{
    size_t bytes = 0;
    pthread_mutex_lock(&lock);
    sweep();
    for (size_t index = 0; index < segments_count; index++) {
        struct segment *segment = &segments[index];
        if ((int)index == current)
            continue;
        segment->is_moved_out = segment->is_moved_out || move_out(segment);
        /* What was moved out is memory like any other. */
        bytes += segment->is_moved_out ? 0 : segment_bytes(segment);
    }
    /* With as many as there may be, there is no room for the next one. */
    if (segments_count == SEGMENTS_MAX)
        bytes = SIZE_MAX;
    pthread_mutex_unlock(&lock);
    return bytes;
}
