/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of images: what Pillow asks the C library for. Long pieces come from the segment that is being filled, so
 * that what has been made need not be copied to be handed over; and where an image of somebody else's is made, its pixels are those
 * that were mapped.
 */
#define _GNU_SOURCE
#include "heap.h"
#include "library.h"

#include <stdlib.h>
#include <string.h>

/* Where the next pieces of this thread's are to be. */
static __thread const struct pixels *lent;
static __thread size_t lent_count, lent_next;

static void *lent_piece(size_t size)
{
    if (lent_next == lent_count || lent[lent_next].size != size)
        return NULL;
    return (void *)lent[lent_next++].at;
}

Object *pixels_image(Object *make, Object *arguments, const struct pixels *pieces, size_t count)
{
    for (size_t index = 0; index < count; index++)
        if (pieces[index].size > segment_mapped(pieces[index].at))
            return none();
    lent = pieces;
    lent_count = count;
    lent_next = 0;
    Object *image = PyObject_CallObject(make, arguments);
    int are_taken = lent_next == count;
    lent_count = lent_next = 0;
    if (!image || are_taken)
        return image;
    Py_DecRef(image);
    return none();
}

void *pixels_malloc(size_t size)
{
    void *at = lent_piece(size);
    if (!at && size >= PIXELS_MIN)
        at = large_taken(size, 0);
    return at ? at : malloc(size);
}

void *pixels_calloc(size_t count, size_t size)
{
    /* A piece of pixels is asked for as one; tables are as many as there are lines. */
    void *at = count == 1 ? lent_piece(size) : NULL;
    if (!at && size && count <= SIZE_MAX / size && count * size >= PIXELS_MIN)
        at = large_taken(count * size, 1);
    return at ? at : calloc(count, size);
}

void pixels_free(void *at)
{
    if (in_plan((uintptr_t)at))
        segment_give(at);
    else
        free(at);
}

/* What is lent is for new pieces: here the old ones would be copied over it. */
void *pixels_realloc(void *at, size_t size)
{
    if (!in_plan((uintptr_t)at))
        return realloc(at, size);
    size_t own = segment_piece(at), length = own ? own : segment_mapped((uintptr_t)at);
    if (size && size <= own && size >= own / 2)
        return at;
    void *other = size >= PIXELS_MIN ? large_taken(size, 0) : NULL;
    other = other || !size ? other : malloc(size);
    if (other)
        memcpy(other, at, size < length ? size : length);
    if (other || !size)
        segment_give(at);
    return other;
}
