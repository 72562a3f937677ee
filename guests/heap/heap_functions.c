/* SPDX-License-Identifier: Apache-2.0 */
/* What Python calls to have a value written. */
#define _GNU_SOURCE
#include "heap_write.h"
#include "library.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define BUFFER_SIMPLE 0
#define BUFFER_ALIGN 64
/* Bytes that may be copied for nothing, besides as many as are in the value. */
#define WASTE_MAX (4ul << 20)

static const char *const REASONS[] = {
    [NO_ROOM] = "there is no room left in the segment",
    [NO_MEMORY] = "there is no memory to write it",
    [NOT_CLOSED] = "it refers to what cannot be copied",
    [TANGLED] = "what cannot be copied refers to what can",
    [TOO_FOREIGN] = "most of it is of types that cannot be copied",
};

static Object *raised(struct writer *w)
{
    PyErr_SetString(w->why == NO_MEMORY ? PyExc_MemoryError : PyExc_ValueError, REASONS[w->why]);
    return NULL;
}

void heap_end(void)
{
    struct writer *w = &writer;
    heap_leave(0);
    for (size_t index = 0; index < w->held.count; index++)
        Py_DecRef((Object *)w->held.at[index]);
    struct words *all[] = {&w->added, &w->held, &w->pending, &w->statics, &w->typed, &w->homes, &w->moved, &w->arrays, &w->patches, &w->buffers};
    for (size_t index = 0; index < sizeof all / sizeof *all; index++)
        words_free(all[index]);
    memo_free(&w->memo);
    memo_free(&w->plain);
    memo_free(&w->claimed);
    free(w->seen_statics);
    if (w->foreign)
        Py_DecRef(w->foreign);
    if (w->types)
        Py_DecRef(w->types);
    *w = (struct writer){0};
}

/* What was written before and given up, is zeros again. */
static int clear(uintptr_t from, uintptr_t to)
{
    from &= ~(PAGE - 1);
    return to > from && madvise((void *)from, (to - from + PAGE - 1) & ~(PAGE - 1), MADV_REMOVE) < 0 ? -errno : 0;
}

static void begin_at(struct target *target, const struct area *area)
{
    *target = (struct target){area->begin, area->end, area->begin, area->begin};
}

int heap_write(void)
{
    struct writer *w = &writer;
    struct area halves[2];
    int done = w->base ? clear(w->atoms.begin, w->atoms.at) : 0;
    if (done == 0 && w->base)
        done = clear(w->rest.begin, w->rest.at);
    heap_end();
    if (done == 0)
        done = segment_rest(&w->base, halves);
    if (done < 0)
        return done;
    w->end = halves[1].end;
    begin_at(&w->atoms, &halves[0]);
    begin_at(&w->rest, &halves[1]);
    w->seen_statics = calloc((image_end - image_begin) / 128 + 1, 1);
    w->foreign = PyList_New(0);
    w->types = PyList_New(0);
    if (!w->seen_statics || !w->foreign || !w->types) {
        PyErr_Clear();
        heap_end();
        return -ENOMEM;
    }
    return 0;
}

int heap_reach(uintptr_t object)
{
    int64_t bytes = writer.base ? library_reached(object) : -1;
    if (bytes < 0)
        return 0;
    writer.claimed_bytes += (uint64_t)bytes;
    return 1;
}

uintptr_t heap_put(const void *memory, size_t length)
{
    uintptr_t at = writer.base ? room_with_length(&writer, length) : 0;
    if (at)
        memcpy((void *)at, memory, length);
    return at;
}

Object *heap_foreign(void)
{
    Py_IncRef(writer.foreign);
    return writer.foreign;
}

Object *heap_types(void)
{
    Py_IncRef(writer.types);
    return writer.types;
}

/* What was remembered before foreign objects are written, is held from now on: their
 * code may drop what the value refers to. */
static int hold_remembered(struct writer *w)
{
    for (size_t index = 0; index < w->added.count; index++) {
        if (!words_add(&w->held, w->added.at[index]))
            return (int)fails(w, NO_MEMORY);
        Py_IncRef((Object *)w->added.at[index]);
    }
    return 1;
}

static Object *copy(Object *self, Object *box)
{
    struct writer *w = &writer;
    uintptr_t root;
    (void)self;
    Object *value = PyList_GetItem(box, 0);
    w->box = NULL;
    if (!value)
        return NULL;
    /* The place of the root is no memory: it is looked at when it is foreign. */
    uintptr_t at = placed(w, value, (uintptr_t)&root);
    if (!at || !fill_pending(w) || !hold_remembered(w))
        return raised(w);
    w->is_closed = 1;
    w->closed_from = w->rest.at;
    if (w->patches.count && w->patches.at[0] == (uintptr_t)&root) {
        w->patches.count = 0;
        return none();
    }
    w->root = at;
    w->box = box;
    return PyLong_FromUnsignedLongLong(at);
}

/* Whether it is for the pickle to say that it is here: all that may be copied, in which one can be told from two. */
static int is_for_persist(struct writer *w, const Object *object)
{
    const Type *type = object->type;
    if (is_static((uintptr_t)object))
        return 0;
    if (type == &PyUnicode_Type || type == &PyBytes_Type)
        return SIZE(object) >= 1024;
    return type == &PyList_Type || type == &PyTuple_Type || type == &PyDict_Type || type == &PySet_Type ||
           type == &PyFrozenSet_Type || (type == &PyByteArray_Type && layout.has_own_bytes) || is_array(object) || is_plain(w, object->type);
}

/* How far a writer has come. */
struct state {
    uintptr_t atoms, rest;
    size_t added, typed, arrays, moved;
};

static void undo(struct target *target, uintptr_t at, uint64_t *wasted)
{
    memset((void *)at, 0, target->at - at);
    *wasted += target->at - at;
    target->at = at;
}

/* As if the last copy had never been tried; 0 if that has happened too often. */
static int roll_back(struct writer *w, const struct state *state)
{
    undo(&w->atoms, state->atoms, &w->wasted);
    undo(&w->rest, state->rest, &w->wasted);
    w->why = FINE;
    w->pending.count = 0;
    /* Types stay: others will be of them, and they are in no segment. */
    for (size_t index = state->added; index < w->added.count; index++)
        if (memo_find(&w->memo, w->added.at[index]) % 4 != 3)
            memo_set(&w->memo, w->added.at[index], 0);
    w->added.count = state->added;
    w->typed.count = state->typed;
    w->arrays.count = state->arrays;
    w->moved.count = state->moved;
    return w->wasted <= WASTE_MAX + (w->atoms.at - w->atoms.begin) + (w->rest.at - w->rest.begin);
}

/* Bytes that something foreign has, as an array of NumPy that writes to them: not where what lasts is. */
static uintptr_t bytes_for_others(struct writer *w, Object *object)
{
    size_t size = BYTES_HEAD + (size_t)SIZE(object) + 1;
    uintptr_t at = room(w, size, 16);
    if (at) {
        memcpy((void *)at, object, size);
        ((Object *)at)->references = layout.immortal;
    }
    return at;
}

static Object *persist(Object *self, Object *object)
{
    struct writer *w = &writer;
    (void)self;
    if (!is_for_persist(w, object))
        return none();
    if (!w->is_closed)
        w->is_closed = 1, w->closed_from = w->rest.at;
    struct state state = {w->atoms.at, w->rest.at, w->added.count, w->typed.count, w->arrays.count, w->moved.count};
    uintptr_t at = object->type == &PyBytes_Type ? bytes_for_others(w, object) : placed(w, object, 0);
    if (at && fill_pending(w))
        return PyLong_FromUnsignedLongLong(at);
    if (w->why != NOT_CLOSED)
        return raised(w);
    if (!roll_back(w, &state)) {
        fails(w, TOO_FOREIGN);
        return raised(w);
    }
    return none();
}

static Object *buffer(Object *self, Object *pickled)
{
    struct writer *w = &writer;
    struct buffer view;
    (void)self;
    if (PyObject_GetBuffer(pickled, &view, BUFFER_SIMPLE) < 0)
        return NULL;
    uintptr_t at = (uintptr_t)view.at;
    if (!claims(w, view.at)) {
        at = room(w, (size_t)view.length, BUFFER_ALIGN);
        w->elsewhere[1] += (size_t)view.length >= ARRAY_MIN ? (size_t)view.length : 0;
        if (at && view.length)
            memcpy((void *)at, view.at, (size_t)view.length);
    }
    int is_noted = at && (words_add_pair(&w->buffers, at, (uint64_t)view.length) || fails(w, NO_MEMORY));
    PyBuffer_Release(&view);
    return is_noted ? none() : raised(w);
}

static Object *load(Object *self, Object *address)
{
    (void)self;
    uintptr_t at = PyLong_AsUnsignedLongLong(address);
    if (PyErr_Occurred())
        return NULL;
    if (!in_plan(at) || at % 8) {
        PyErr_SetString(PyExc_ValueError, "a pickle refers to an object that is in no segment");
        return NULL;
    }
    Py_IncRef((Object *)at);
    return (Object *)at;
}

static int written_table(struct writer *w, struct table *table, const struct words *words, size_t words_each)
{
    size_t size = words->count * sizeof *words->at;
    uintptr_t at = room(w, size, 8);
    if (!at)
        return 0;
    if (size)
        memcpy((void *)at, words->at, size);
    *table = (struct table){at, words->count / words_each};
    return 1;
}

static int written_bytes(struct writer *w, struct table *table, const void *bytes, size_t length)
{
    uintptr_t at = room(w, length, 8);
    if (at && length)
        memcpy((void *)at, bytes, length);
    *table = (struct table){at, length};
    return at != 0;
}

int64_t heap_written(const void *types, size_t types_length, const void *pickles, size_t length, size_t count)
{
    struct writer *w = &writer;
    static const uint8_t frame[FRAME_BYTES] = {2, 0, 0, 0, '{', '}'};
    struct head *head = (struct head *)w->base;
    int is_written = w->base && written_bytes(w, &head->type_pickles, types, types_length) &&
                     written_bytes(w, &head->pickles, pickles, length) &&
                     written_table(w, &head->statics, &w->statics, 1) && written_table(w, &head->typed, &w->typed, 2) &&
                     written_table(w, &head->homes, &w->homes, 1) && written_table(w, &head->moved, &w->moved, 2) && written_table(w, &head->arrays, &w->arrays, 1) &&
                     written_table(w, &head->patches, &w->patches, 2) && written_table(w, &head->buffers, &w->buffers, 2);
    if (!is_written)
        return -ENOSPC;
    memcpy(head->frame, frame, sizeof frame);
    head->kind = HEAD_KIND;
    head->version = HEAD_VERSION;
    head->base = w->base;
    head->length = w->rest.at - w->base;
    head->lasting = w->atoms.end - w->base;
    memcpy(head->identity, identity, sizeof head->identity);
    head->root = w->root;
    head->types_count = w->homes.count;
    head->pickles_count = count;
    head->parts[0] = (struct table){w->base + PAGE, w->atoms.at - w->base - PAGE};
    head->parts[1] = (struct table){w->rest.begin, w->rest.at - w->rest.begin};
    /* The node cuts off what is behind the value, but not what was made ready between its parts. */
    uintptr_t unused = (w->atoms.at + PAGE - 1) & ~(PAGE - 1);
    if (w->atoms.ready > unused)
        madvise((void *)unused, w->atoms.ready - unused, MADV_REMOVE);
    /* From here on nothing but the end of the filling is left to be done. */
    if (w->box)
        leave_own(w);
    return (int64_t)head->length;
}

uint64_t heap_bytes(void)
{
    const struct writer *w = &writer;
    return w->atoms.at - w->atoms.begin + w->rest.at - w->rest.begin + w->claimed_bytes;
}

void heap_elsewhere(uint64_t halves[2])
{
    memcpy(halves, writer.elsewhere, sizeof writer.elsewhere);
}

static Object *brief(Object *self, Object *value)
{
    (void)self;
    return heap_brief(value);
}

/* The most bytes of memory that this process has had. */
static Object *peak(Object *self, Object *nothing)
{
    struct rusage used;
    (void)self, (void)nothing;
    return PyLong_FromUnsignedLongLong(getrusage(RUSAGE_SELF, &used) < 0 ? UINT64_MAX : (uint64_t)used.ru_maxrss * 1024);
}

/* Calls that are made each time are functions of Python's: ctypes takes some microseconds for one after a while of something else. */
static struct method methods[] = {
    {"copy", copy, CALL_ONE, NULL},
    {"persist", persist, CALL_ONE, NULL},
    {"buffer", buffer, CALL_ONE, NULL},
    {"load", load, CALL_ONE, NULL},
    {"brief", brief, CALL_ONE, NULL},
    {"peak", peak, CALL_NONE, NULL},
};
#define METHODS (sizeof methods / sizeof *methods)

Object *heap_functions(void)
{
    Object *all = PyTuple_New(METHODS);
    for (size_t index = 0; all && index < METHODS; index++) {
        Object *function = PyCMethod_New(&methods[index], NULL, NULL, NULL);
        /* The tuple takes the function over. */
        if (!function || PyTuple_SetItem(all, (ssize_t)index, function) < 0) {
            Py_DecRef(all);
            return NULL;
        }
    }
    return all;
}
