/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays of NumPy: their elements stay where they are if that is in the segment,
 * and the rest is a small object. Arrays that are not contiguous, or have elements
 * of which not all is known, are foreign.
 */
#include "heap_write.h"

#define ALIGN 64

static size_t data_bytes(const Object *array)
{
    size_t bytes = arrays.element_size_at == 32 ? (size_t)FIELD(ARRAY_ELEMENT(array), 32, int)
                                                : FIELD(ARRAY_ELEMENT(array), arrays.element_size_at, size_t);
    for (int dimension = 0; dimension < ARRAY_DIMENSIONS(array); dimension++)
        bytes *= (size_t)ARRAY_SHAPE(array)[dimension];
    return bytes;
}

int is_array(const Object *object)
{
    if (!arrays.type || object->type != arrays.type)
        return 0;
    int kind = ELEMENT_TYPE(ARRAY_ELEMENT(object));
    int is_known = (kind >= 0 && kind <= TEXT) || (kind >= TIME && kind <= HALF);
    int flags = ARRAY_FLAGS(object);
    return is_known && flags & CONTIGUOUS && !(flags & WRITES_BACK) && ARRAY_DIMENSIONS(object) <= ARRAY_DIMENSIONS_MAX;
}

/* The elements of an array of objects: an empty one is a NULL, which stands for None. If another array may have the
 * same memory, an object is met in both, and has one reference all the same. */
static uintptr_t objects(struct writer *w, Object **from, size_t count, int is_only_place)
{
    size_t index = 0;
    while (index < count && from[index] && stays(w, from[index]))
        index++;
    if (count && index == count && claims(w, from))
        return (uintptr_t)from;
    uintptr_t to = w->why ? 0 : room(w, count * 8, ALIGN);
    return to && fill_items(w, from, to, count, is_only_place) ? to : 0;
}

static uintptr_t elements(struct writer *w, Object *array)
{
    uintptr_t from = ARRAY_DATA(array);
    size_t bytes = data_bytes(array);
    /* A view has a reference to the array that owns the memory. */
    int is_only_place = ARRAY_FLAGS(array) & OWNS_DATA && array->references == 1;
    if (ELEMENT_TYPE(ARRAY_ELEMENT(array)) == OBJECTS)
        return objects(w, (Object **)from, bytes / 8, is_only_place);
    if (bytes && claims(w, (void *)from))
        return from;
    uintptr_t to = room(w, bytes ? bytes : 8, ALIGN);
    w->elsewhere[1] += bytes >= ARRAY_MIN ? bytes : 0;
    if (to && bytes)
        memcpy((void *)to, (void *)from, bytes);
    return to;
}

int fill_array(struct writer *w, Object *from, uintptr_t to)
{
    size_t dimensions = (size_t)ARRAY_DIMENSIONS(from);
    uintptr_t shape = room(w, 16 * dimensions + 8, 8), data = shape ? elements(w, from) : 0;
    if (!data || !note_type(w, to + 56, ARRAY_ELEMENT(from)))
        return 0;
    /* One with no dimensions has neither. */
    if (dimensions) {
        memcpy((void *)shape, ARRAY_SHAPE(from), 8 * dimensions);
        memcpy((void *)(shape + 8 * dimensions), ARRAY_STRIDES(from), 8 * dimensions);
    }
    ARRAY_DATA(to) = data;
    ARRAY_DIMENSIONS(to) = (int)dimensions;
    ARRAY_SHAPE(to) = (int64_t *)shape;
    ARRAY_STRIDES(to) = (int64_t *)shape + dimensions;
    ARRAY_ELEMENT(to) = ARRAY_ELEMENT(from);
    ARRAY_FLAGS(to) = ARRAY_FLAGS(from) & ~OWNS_DATA;
    return words_add(&w->arrays, to) || fails(w, NO_MEMORY);
}
