/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where Python's memory comes from: objects and large arrays from the segment
 * that is being filled, all else, as the items of lists, from where it came before. What lies in a
 * segment that was mapped is nobody's to free.
 */
#include "heap.h"
#include "huge.h"
#include "small.h"

#include <errno.h>
#include <string.h>

enum { RAW, MEMORY, OBJECTS, DOMAINS };

static struct allocator usual[DOMAINS];
static struct array_allocator *usual_arrays;

void *large_taken(size_t size, int is_zero)
{
    int was_zero;
    void *at = segment_take(size, TAKES_LARGE, &was_zero);
    if (at && is_zero && !was_zero)
        memset(at, 0, size);
    /* What is to be zeros may stay so for the most part, and takes no memory there. */
    if (at && !is_zero && was_zero && size >= HUGE_PAGE && segment_fills(size))
        make_huge((uintptr_t)at, (uintptr_t)at + size);
    return at;
}

/* Items of long lists: their length stands before them, for whoever maps them. */
static void *items_taken(size_t size)
{
    char *at = size >= ITEMS_MIN && size < SIZE_MAX - ITEMS_OFFSET ? large_taken(size + ITEMS_OFFSET, 0) : NULL;
    if (!at)
        return NULL;
    at += ITEMS_OFFSET;
    ((uint64_t *)at)[-2] = segment_piece(at);
    return at;
}

static void *any_malloc(void *context, size_t size)
{
    const struct allocator *of = context;
    return of->malloc(of->context, size);
}

static void *any_calloc(void *context, size_t count, size_t size)
{
    const struct allocator *of = context;
    return of->calloc(of->context, count, size);
}

static void *object_malloc(void *context, size_t size)
{
    void *at = size <= SMALL_MAX ? small_take(size) : large_taken(size, 0);
    return at ? at : any_malloc(context, size);
}

static void *object_calloc(void *context, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size)
        return NULL;
    size_t all = count * size;
    void *at = all <= SMALL_MAX ? small_take(all) : large_taken(all, 1);
    if (at && all <= SMALL_MAX)
        memset(at, 0, all);
    return at ? at : any_calloc(context, count, size);
}

/* Bytes that may be read from there: of a piece, or of what the writer put the size before. */
static size_t length_of(const void *at)
{
    size_t length = segment_piece(at);
    return length ? length : ((const uint64_t *)at)[-2];
}

static void *memory_malloc(void *context, size_t size)
{
    void *at = items_taken(size);
    return at ? at : any_malloc(context, size);
}

static void *new_memory(struct allocator *of, size_t size)
{
    return of == &usual[OBJECTS] ? object_malloc(of, size) : of == &usual[MEMORY] ? memory_malloc(of, size) : any_malloc(of, size);
}

/* Items that were few enough to lie elsewhere, and grow on. */
static void *grown(struct allocator *of, void *at, size_t size)
{
    void *other = of->realloc(of->context, at, size);
    if (!other || of != &usual[MEMORY] || size < ITEMS_MIN || size > ITEMS_MOVED_MAX)
        return other;
    void *here = items_taken(size);
    if (!here)
        return other;
    memcpy(here, other, size);
    of->free(of->context, other);
    return here;
}

static void *any_realloc(void *context, void *at, size_t size)
{
    struct allocator *of = context;
    if (!in_plan((uintptr_t)at))
        return grown(of, at, size);
    size_t length = length_of(at);
    int is_ours = segment_piece(at) != 0;
    if (is_ours && size <= length && size >= length / 2)
        return at;
    if (is_ours && size > length && segment_grow(at, size)) {
        if (size - length >= HUGE_PAGE && segment_fills(size - length))
            make_huge((uintptr_t)at + length, (uintptr_t)at + size);
        return at;
    }
    void *other = new_memory(of, size);
    if (other) {
        memcpy(other, at, length < size ? length : size);
        segment_give(at);
    }
    return other;
}

static void any_free(void *context, void *at)
{
    const struct allocator *of = context;
    if (in_plan((uintptr_t)at))
        segment_give(at);
    else
        of->free(of->context, at);
}

int heap_adopt(void)
{
    if (usual[0].malloc)
        return -EALREADY;
    for (int domain = 0; domain < DOMAINS; domain++) {
        PyMem_GetAllocator(domain, &usual[domain]);
        struct allocator ours = {&usual[domain], any_malloc, any_calloc, any_realloc, any_free};
        if (domain == OBJECTS) {
            ours.malloc = object_malloc;
            ours.calloc = object_calloc;
        }
        if (domain == MEMORY)
            ours.malloc = memory_malloc;
        PyMem_SetAllocator(domain, &ours);
    }
    return 0;
}

static void *array_malloc(void *context, size_t size)
{
    void *at = size >= ARRAY_MIN ? large_taken(size, 0) : NULL;
    (void)context;
    return at ? at : usual_arrays->malloc(usual_arrays->context, size);
}

static void *array_calloc(void *context, size_t count, size_t size)
{
    void *at = NULL;
    (void)context;
    if (size && count <= SIZE_MAX / size && count * size >= ARRAY_MIN)
        at = large_taken(count * size, 1);
    return at ? at : usual_arrays->calloc(usual_arrays->context, count, size);
}

static void array_free(void *context, void *at, size_t size)
{
    (void)context;
    if (in_plan((uintptr_t)at))
        segment_give(at);
    else
        usual_arrays->free(usual_arrays->context, at, size);
}

static void *array_realloc(void *context, void *at, size_t size)
{
    if (!in_plan((uintptr_t)at))
        return usual_arrays->realloc(usual_arrays->context, at, size);
    size_t length = segment_piece(at);
    void *other = array_malloc(context, size);
    if (other) {
        memcpy(other, at, length < size ? length : size);
        segment_give(at);
    }
    return other;
}

struct arrays arrays;

static struct array_allocator array_allocator = {
    "sinew segments", 1, NULL, array_malloc, array_calloc, array_realloc, array_free,
};

int heap_adopt_arrays(Object *functions, Object *type, size_t element_size_at)
{
    enum { SET_HANDLER = 304, GET_HANDLER = 305 };
    void **table = PyCapsule_GetPointer(functions, NULL);
    if (!table) {
        PyErr_Clear();
        return -ENOSYS;
    }
    Object *(*set)(Object *) = (Object * (*)(Object *)) table[SET_HANDLER];
    Object *(*get)(void) = (Object * (*)(void)) table[GET_HANDLER];
    if (!usual_arrays) {
        Object *before = get();
        struct array_allocator *found = before ? PyCapsule_GetPointer(before, "mem_handler") : NULL;
        if (!found || found->version != 1) {
            PyErr_Clear();
            return -ENOSYS;
        }
        /* It is kept with the capsule, which is kept. */
        usual_arrays = found;
    }
    Object *handler = PyCapsule_New(&array_allocator, "mem_handler", NULL);
    Object *replaced = handler ? set(handler) : NULL;
    if (handler)
        Py_DecRef(handler);
    if (!replaced) {
        PyErr_Clear();
        return -ENOMEM;
    }
    Py_DecRef(replaced);
    arrays = (struct arrays){(Type *)type, element_size_at};
    return 0;
}
