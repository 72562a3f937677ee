/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arenas that an interpreter has its small objects in. One in which nothing is left goes back to the
 * kernel at once, and the objects of the next call need it again: each of its pages is a fault, and is made zeros.
 * So some are kept. The kernel is told that it may have their pages (MADV_FREE), and takes these before it ends
 * a process that is at its limit; those that it leaves are used again for nothing.
 */
#define _GNU_SOURCE
#include "heap.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

/* As much as the C library keeps of large blocks (HEAP in language.rs). */
#define KEPT_BYTES_MAX (32ul << 20)
#define KEPT_MAX 128

static struct arena_allocator usual;
static void *kept[KEPT_MAX];
static size_t kept_count, kept_size;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *arena_alloc(void *context, size_t size)
{
    void *arena = NULL;
    (void)context;
    pthread_mutex_lock(&lock);
    if (kept_count && size == kept_size)
        arena = kept[--kept_count];
    pthread_mutex_unlock(&lock);
    return arena ? arena : usual.alloc(usual.context, size);
}

/* Whether there is room for one more; an interpreter's arenas have all one size. */
static int is_room(size_t size)
{
    return kept_count == 0 || (size == kept_size && kept_count < KEPT_MAX && (kept_count + 1) * size <= KEPT_BYTES_MAX);
}

static void arena_free(void *context, void *arena, size_t size)
{
    int is_kept = 0;
    (void)context;
    pthread_mutex_lock(&lock);
    if (is_room(size) && madvise(arena, size, MADV_FREE) == 0) {
        kept[kept_count++] = arena;
        kept_size = size;
        is_kept = 1;
    }
    pthread_mutex_unlock(&lock);
    if (!is_kept)
        usual.free(usual.context, arena, size);
}

int arenas_keep(void)
{
    if (!PyObject_GetArenaAllocator || !PyObject_SetArenaAllocator)
        return -ENOSYS;
    if (usual.alloc)
        return -EALREADY;
    PyObject_GetArenaAllocator(&usual);
    struct arena_allocator ours = {NULL, arena_alloc, arena_free};
    PyObject_SetArenaAllocator(&ours);
    return 0;
}
