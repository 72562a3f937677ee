/* SPDX-License-Identifier: Apache-2.0 */
/* Segments that others filled, and this process has mapped. */
#define _GNU_SOURCE
#include "huge.h"
#include "pagemap.h"
#include "segment.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

/* Fewer copies of pages than this are not worth to be compared. */
static size_t copies_min = 256;
/* Pages that are asked for at once. */
#define PAGES_MAX 4096
/* Ends of calls at which there were other threads, until no more is tried. */
#define TRIES_MAX 8
/* How long is waited for the end of a thread. */
#define WAITS_MAX 40
#define WAIT_US 50

/* What of others is mapped here: it stays, for nobody knows who refers to it. */
static struct mapping {
    uintptr_t base;
    size_t length;
    dev_t device;
    ino_t file;
    /* Whether its copies are looked at in the end, by the file that is open for that. */
    int is_watched, fd, tries;
    /* Whether it was mapped again since copies were given back the last time. */
    int was_mapped_again;
} mappings[MAPPINGS_MAX];
static size_t mappings_count;
static int watched;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* What a kernel that does not know the flag does is put anywhere. */
int map_new(uintptr_t base, size_t length, int flags, int fd)
{
    void *at = mmap((void *)base, length, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE | MAP_NORESERVE, fd, 0);
    if (at == MAP_FAILED)
        return -errno;
    if (at == (void *)base)
        return 0;
    munmap(at, length);
    return -EEXIST;
}

/* As it was: whatever was written to it is gone, and what refers to it refers to what was there before.
 * Not what lasts: strings, which the interpreter may have in its own tables by now. */
static int map_again(struct mapping *mapping, int fd, size_t lasting)
{
    mapping->was_mapped_again = 1;
    if (lasting == mapping->length)
        return 1;
    void *at = mmap((void *)(mapping->base + lasting), mapping->length - lasting, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd, (off_t)lasting);
    return at == MAP_FAILED ? -errno : 1;
}

static int map_locked(int fd, uintptr_t base, size_t length, size_t lasting)
{
    struct stat file;
    if (fstat(fd, &file) < 0)
        return -errno;
    for (size_t index = 0; index < mappings_count; index++)
        if (mappings[index].base == base && mappings[index].length == length && mappings[index].device == file.st_dev &&
            mappings[index].file == file.st_ino)
            return map_again(&mappings[index], fd, lasting);
    if (mappings_count == MAPPINGS_MAX)
        return -ENOSPC;
    segment_sweep_empty();
    int done = map_new(base, length, MAP_PRIVATE, fd);
    if (done == 0)
        mappings[mappings_count++] = (struct mapping){.base = base, .length = length, .device = file.st_dev, .file = file.st_ino};
    return done;
}

int segment_map(int fd, uintptr_t base, size_t length, size_t lasting)
{
    length = whole_pages(length);
    if (!is_placed(base, length) || lasting % PAGE || lasting > length)
        return -EINVAL;
    pthread_mutex_lock(&lock);
    int done = map_locked(fd, base, length, lasting);
    pthread_mutex_unlock(&lock);
    return done;
}

size_t segment_mapped(uintptr_t at)
{
    size_t bytes = 0;
    pthread_mutex_lock(&lock);
    for (size_t index = 0; index < mappings_count && !bytes; index++)
        if (at - mappings[index].base < mappings[index].length)
            bytes = mappings[index].base + mappings[index].length - at;
    pthread_mutex_unlock(&lock);
    return bytes;
}

void segment_compare_from(size_t pages)
{
    copies_min = pages;
}

void segment_watch(int fd, uintptr_t base)
{
    pthread_mutex_lock(&lock);
    for (size_t index = mappings_count; index-- > 0;) {
        struct mapping *mapping = &mappings[index];
        if (mapping->base != base || mapping->is_watched || mapping->length < copies_min * PAGE || watched == WATCHED_MAX)
            continue;
        mapping->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        mapping->is_watched = mapping->fd >= 0;
        mapping->tries = 0;
        watched += mapping->is_watched;
    }
    pthread_mutex_unlock(&lock);
}

int segment_watched(void)
{
    return watched;
}

/* The file as it is, for a while; none if it cannot be had. Its pages may be huge where it begins at a whole one. */
static const char *map_original(const struct mapping *mapping, void **room)
{
    *room = mmap(NULL, mapping->length + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*room == MAP_FAILED)
        return NULL;
    uintptr_t at = ((uintptr_t)*room + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
    void *original = mmap((void *)at, mapping->length, PROT_READ, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, mapping->fd, 0);
    if (original != MAP_FAILED)
        return original;
    munmap(*room, mapping->length + HUGE_PAGE);
    return NULL;
}

/* Copies among so many pages that are as they were are copies no more; how many. */
static size_t return_pages(uintptr_t at, const char *original, const uint64_t *entries, size_t count)
{
    size_t all = 0, same = 0;
    for (size_t page = 0; page <= count; page++) {
        size_t offset = page * PAGE;
        if (page < count && is_copy(entries[page]) && !memcmp((void *)(at + offset), original + offset, PAGE)) {
            same++;
            continue;
        }
        if (same && madvise((void *)(at + offset - same * PAGE), same * PAGE, MADV_DONTNEED) == 0)
            all += same;
        same = 0;
    }
    return all;
}

static size_t copies_among(const uint64_t *entries, size_t count)
{
    size_t copies = 0;
    for (size_t index = 0; index < count; index++)
        copies += is_copy(entries[index]);
    return copies;
}

/* Where something is in a file from there on, and until where; most of a segment was never written to. The whole rest, where the
 * kernel does not say so. 0 if there is nothing. */
static int next_filled(int fd, size_t at, size_t length, struct area *filled)
{
    off_t begin = lseek(fd, (off_t)at, SEEK_DATA), end = begin < 0 ? -1 : lseek(fd, begin, SEEK_HOLE);
    if (begin < 0 && errno == ENXIO)
        return 0;
    *filled = end < 0 ? (struct area){at, length} : (struct area){(uintptr_t)begin & ~(PAGE - 1), whole_pages((size_t)end)};
    filled->end = filled->end < length ? filled->end : length;
    return filled->begin < filled->end;
}

/* Goes through the pages of a part of a mapping; with the original, copies are compared with it. How many there are, or were. */
static size_t copies_in(const struct mapping *mapping, struct area part, int pagemap, const char *original)
{
    static uint64_t entries[PAGES_MAX];
    size_t copies = 0, step;
    for (size_t at = part.begin; at < part.end; at += step * PAGE) {
        size_t left = (part.end - at) / PAGE, wanted = left < PAGES_MAX ? left : PAGES_MAX;
        step = pagemap_read(pagemap, mapping->base + at, entries, wanted);
        if (step == 0)
            break;
        copies += original ? return_pages(mapping->base + at, original + at, entries, step) : copies_among(entries, step);
    }
    return copies;
}

/* The same of all that the file has. */
static size_t each_copy(const struct mapping *mapping, int pagemap, const char *original)
{
    size_t copies = 0;
    struct area part = {0, 0};
    while (next_filled(mapping->fd, part.end, mapping->length, &part))
        copies += copies_in(mapping, part, pagemap, original);
    return copies;
}

/* Whether the descriptor still is the file's: whoever closes all that a process has gives its number to others. */
static int has_file(const struct mapping *mapping, struct stat *file)
{
    return fstat(mapping->fd, file) == 0 && file->st_ino == mapping->file && file->st_dev == mapping->device;
}

static size_t return_of(const struct mapping *mapping, int pagemap)
{
    if (each_copy(mapping, pagemap, NULL) < copies_min)
        return 0;
    void *room;
    const char *original = map_original(mapping, &room);
    if (!original)
        return 0;
    size_t copies = each_copy(mapping, pagemap, original);
    munmap(room, mapping->length + HUGE_PAGE);
    return copies;
}

static size_t return_locked(int pagemap)
{
    size_t copies = 0;
    for (size_t index = 0; index < mappings_count; index++) {
        struct mapping *mapping = &mappings[index];
        struct stat file;
        int is_over = mapping->is_watched && !mapping->was_mapped_again;
        mapping->was_mapped_again = 0;
        if (!is_over || (pagemap < 0 && ++mapping->tries < TRIES_MAX))
            continue;
        mapping->is_watched = 0;
        watched--;
        if (!has_file(mapping, &file))
            continue;
        /* There is nothing behind the end of a file. */
        if (pagemap >= 0 && whole_pages((size_t)file.st_size) >= mapping->length)
            copies += return_of(mapping, pagemap);
        close(mapping->fd);
    }
    return copies * PAGE;
}

size_t segment_return_pages(int is_ending)
{
    if (watched == 0)
        return 0;
    /* A thread that has ended is seen a little longer. */
    int alone = is_alone();
    for (int wait = 0; is_ending && !alone && wait < WAITS_MAX; wait++) {
        usleep(WAIT_US);
        alone = is_alone();
    }
    int pagemap = alone ? pagemap_open() : -1;
    pthread_mutex_lock(&lock);
    size_t bytes = return_locked(pagemap);
    pthread_mutex_unlock(&lock);
    if (pagemap >= 0)
        close(pagemap);
    return bytes;
}
