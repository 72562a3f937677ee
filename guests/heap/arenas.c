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
#include <sys/resource.h>

#define KEPT_BYTES_MAX (32ul << 20)
#define KEPT_MAX 128
/* What is smaller has the frames of calls that are nested deeply, 16 KiB at a time. */
#define ARENA_MIN (256ul << 10)
#define FRAMES_BYTES_MAX (64ul << 10)

static struct arena_allocator usual;
/* An interpreter's arenas have all one size, and so have what it has frames in. */
static struct pool {
    size_t bytes_max, size, count;
    void *kept[KEPT_MAX];
} arenas_pool = {.bytes_max = KEPT_BYTES_MAX}, frames_pool = {.bytes_max = FRAMES_BYTES_MAX};
/* Interpreters with a lock of their own each are in one process. Nobody waits for it: who is forked while another thread
 * holds it would wait for ever. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct pool *pool_of(size_t size)
{
    return size < ARENA_MIN ? &frames_pool : &arenas_pool;
}

static void *arena_alloc(void *context, size_t size)
{
    struct pool *pool = pool_of(size);
    void *arena = NULL;
    (void)context;
    if (pthread_mutex_trylock(&lock) == 0) {
        if (pool->count && size == pool->size)
            arena = pool->kept[--pool->count];
        pthread_mutex_unlock(&lock);
    }
    return arena ? arena : usual.alloc(usual.context, size);
}

/* A large piece of frames is smaller than an arena, and not to be in the place of arenas. */
static int is_room(struct pool *pool, size_t size)
{
    while (pool->count && size > pool->size)
        usual.free(usual.context, pool->kept[--pool->count], pool->size);
    return (pool->count == 0 || size == pool->size) && pool->count < KEPT_MAX && (pool->count + 1) * size <= pool->bytes_max;
}

static void arena_free(void *context, void *arena, size_t size)
{
    struct pool *pool = pool_of(size);
    int is_kept = 0;
    (void)context;
    if (pthread_mutex_trylock(&lock) == 0) {
        if (is_room(pool, size) && madvise(arena, size, MADV_FREE) == 0) {
            pool->kept[pool->count++] = arena;
            pool->size = size;
            is_kept = 1;
        }
        pthread_mutex_unlock(&lock);
    }
    if (!is_kept)
        usual.free(usual.context, arena, size);
}

int is_bound_by_addresses(void)
{
    struct rlimit addresses;
    return getrlimit(RLIMIT_DATA, &addresses) < 0 || addresses.rlim_cur != RLIM_INFINITY;
}

int arenas_keep(void)
{
    if (!PyObject_GetArenaAllocator || !PyObject_SetArenaAllocator)
        return -ENOSYS;
    if (usual.alloc)
        return -EALREADY;
    if (is_bound_by_addresses())
        return -EPERM;
    PyObject_GetArenaAllocator(&usual);
    struct arena_allocator ours = {NULL, arena_alloc, arena_free};
    PyObject_SetArenaAllocator(&ours);
    return 0;
}

void arenas_give_back(void)
{
    struct pool *pools[] = {&arenas_pool, &frames_pool};
    if (pthread_mutex_trylock(&lock) != 0)
        return;
    for (size_t at = 0; at < sizeof pools / sizeof *pools; at++)
        while (pools[at]->count)
            usual.free(usual.context, pools[at]->kept[--pools[at]->count], pools[at]->size);
    pthread_mutex_unlock(&lock);
}

size_t arenas_kept(void)
{
    return arenas_pool.count * arenas_pool.size + frames_pool.count * frames_pool.size;
}
