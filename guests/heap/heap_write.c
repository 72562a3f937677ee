/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes values. Only objects of exactly the types that are listed in copied()
 * are copied, and instances of classes that change nothing about how such are
 * made, pickled or ended. No code of Python's runs while one value is copied, so that
 * nothing changes meanwhile; between two, whatever is remembered is held.
 */
#define _GNU_SOURCE
#include "heap_write.h"
#include "huge.h"
#include "small.h"

#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Pages are made so many at a time, once a value is not small: as much more as a part of what there is. */
#define READY_FROM (256ul << 10)
#define READY_SHARE 4
#define READY_STEP_MAX (4ul << 20)
/* From so many bytes on in huge ones. */
#define READY_HUGE_FROM (4ul << 20)
/* Foreign objects, if they are also one of so many. */
#define FOREIGN_MAX 4096
#define FOREIGN_SHARE 8
#define GC_HEAD 16

struct writer writer;

uintptr_t fails(struct writer *w, enum why why)
{
    if (w->why == FINE)
        w->why = why;
    return 0;
}

/* More pages, in one call: each that is touched for itself takes longer. What is larger than a step is not followed by its like. */
static void make_ready(struct target *target, size_t size)
{
    size_t written = target->at - target->begin, step = written / READY_SHARE;
    if (written < READY_FROM)
        return;
    step = step < READY_STEP_MAX ? step : READY_STEP_MAX;
    step = size < step ? step : 0;
    int are_huge = written >= READY_HUGE_FROM;
    size_t pages = are_huge && step ? HUGE_PAGE : PAGE;
    uintptr_t from = target->ready, to = (target->at + step + pages - 1) & ~(pages - 1);
    to = to < target->end ? to : target->end;
    if (are_huge)
        make_huge(from, to);
    if (from < to)
        madvise((void *)from, to - from, MADV_POPULATE_WRITE);
    target->ready = to;
}

static uintptr_t room_in(struct writer *w, struct target *target, size_t size, size_t align)
{
    uintptr_t at = (target->at + align - 1) & ~(align - 1);
    if (at > target->end || size > target->end - at)
        return fails(w, NO_ROOM);
    target->at = at + size;
    if (target->at > target->ready)
        make_ready(target, size);
    return at;
}

uintptr_t room(struct writer *w, size_t size, size_t align)
{
    return room_in(w, &w->rest, size, align);
}

uintptr_t room_with_length(struct writer *w, size_t size)
{
    uintptr_t at = room(w, size + 16, 16);
    if (!at)
        return 0;
    *(uint64_t *)at = size;
    return at + 16;
}

/* Remembers what stands for an object. */
static uintptr_t remembered(struct writer *w, Object *object, uint64_t value)
{
    if (!memo_set(&w->memo, (uintptr_t)object, value) || !words_add(&w->added, (uintptr_t)object))
        return fails(w, NO_MEMORY);
    if (w->is_closed) {
        if (!words_add(&w->held, (uintptr_t)object))
            return fails(w, NO_MEMORY);
        Py_IncRef(object);
    }
    return value;
}

static uintptr_t static_placed(struct writer *w, Object *object)
{
    size_t place = ((uintptr_t)object - image_begin) / 16;
    uint8_t bit = (uint8_t)(1u << place % 8);
    if (!layout.are_statics_immortal && !(w->seen_statics[place / 8] & bit)) {
        w->seen_statics[place / 8] |= bit;
        if (!words_add(&w->statics, (uintptr_t)object))
            return fails(w, NO_MEMORY);
    }
    return (uintptr_t)object;
}

enum { COPY, FOREIGN = 1, TYPE = 3, TAGS = 4 };

/* The place of an object in one of the lists. */
static int place_in(struct writer *w, Object *list, Object *object, unsigned tag, uint64_t *place)
{
    uint64_t known = memo_find(&w->memo, (uintptr_t)object);
    if (known) {
        *place = known / TAGS;
        return 1;
    }
    *place = (uint64_t)PyList_Size(list);
    if (*place >= FOREIGN_MAX && *place * FOREIGN_SHARE > w->copied)
        return (int)fails(w, TOO_FOREIGN);
    if (PyList_Append(list, object) < 0) {
        PyErr_Clear();
        return (int)fails(w, NO_MEMORY);
    }
    return remembered(w, object, *place * TAGS + tag) != 0;
}

int note_type(struct writer *w, uintptr_t slot, Object *type)
{
    uint64_t place;
    /* One that is also part of the value is where that says. */
    uint64_t known = memo_find(&w->memo, (uintptr_t)type);
    if (known && known % TAGS != TYPE)
        return (int)fails(w, TANGLED);
    if (!place_in(w, w->types, type, TYPE, &place))
        return 0;
    if (place == w->homes.count && !words_add(&w->homes, (uintptr_t)type))
        return (int)fails(w, NO_MEMORY);
    return words_add_pair(&w->typed, slot, place) || fails(w, NO_MEMORY);
}

/* Until it is put there, None is. */
static uintptr_t foreign_placed(struct writer *w, Object *object, uintptr_t slot)
{
    uint64_t place;
    if (w->is_closed || !slot)
        return fails(w, NOT_CLOSED);
    if (!place_in(w, w->foreign, object, FOREIGN, &place))
        return 0;
    if (!words_add_pair(&w->patches, slot, place))
        return fails(w, NO_MEMORY);
    return static_placed(w, &_Py_NoneStruct);
}

static uintptr_t atom(struct writer *w, const Object *object, size_t size)
{
    uintptr_t at = room_in(w, &w->atoms, size, 8);
    if (at) {
        memcpy((void *)at, object, size);
        ((Object *)at)->references = layout.immortal;
        w->copied++;
        w->elsewhere[size > SMALL_MAX] += size;
    }
    return at;
}

/* Whether something was made in the segment: then it is there already. */
int is_in_segment(const struct writer *w, const void *at)
{
    return (uintptr_t)at - w->base < w->end - w->base;
}

int claims(struct writer *w, const void *at)
{
    uintptr_t piece = is_in_segment(w, at) ? segment_piece_of(at) : 0;
    if (!piece || memo_find(&w->claimed, piece) || !memo_set(&w->claimed, piece, 1))
        return 0;
    w->claimed_bytes += segment_piece((void *)piece);
    return 1;
}

/* Whether the end of a string does nothing but free it: it has no other forms, and is in no table of names. */
static int is_bare(const Object *object)
{
    static const char no_forms[8];
    uint32_t state = STRING_STATE(object);
    return STATE_ASCII(state) && STATE_COMPACT(state) && !(state & layout.interned_bits) &&
           !memcmp((const char *)object + 40, no_forms, layout.ascii_head - 40);
}

/* A string or bytes, from now on: whoever has the only reference to one may change it. */
static uintptr_t stays_for_good(Object *object)
{
    object->references = layout.immortal;
    return (uintptr_t)object;
}

/* Where that is known to be for good, whoever maps a number reads it without a page of its own. Its maker never frees it
 * then: that is for the items of long lists, which are left as a whole. */
static uintptr_t number_stays(Object *object)
{
    return layout.are_statics_immortal ? stays_for_good(object) : (uintptr_t)object;
}

static uintptr_t string(struct writer *w, Object *object, uintptr_t slot)
{
    uint32_t state = STRING_STATE(object);
    size_t kind = STATE_KIND(state), length = (size_t)SIZE(object);
    if (!STATE_COMPACT(state))
        return foreign_placed(w, object, slot);
    size_t head = STATE_ASCII(state) ? layout.ascii_head : layout.text_head;
    if (is_in_segment(w, object) && is_bare(object))
        return stays_for_good(object);
    uintptr_t at = atom(w, object, head + (length + 1) * kind);
    if (!at)
        return 0;
    STRING_STATE(at) &= ~layout.interned_bits;
    memset((void *)(at + 40), 0, head - 40);
    return at;
}

/* A container that has nothing yet. The collector takes it for one that it knows, but it is in a list of its
 * own: else it would be put into one when it is changed, and torn out of that when it is mapped again. */
uintptr_t shell(struct writer *w, Object *object, size_t size, size_t before)
{
    uintptr_t at = room(w, before + size, 16);
    if (!at)
        return 0;
    at += before;
    if (before)
        FIELD(at - GC_HEAD, 0, uintptr_t) = FIELD(at - GC_HEAD, 8, uintptr_t) = at - GC_HEAD;
    ((Object *)at)->references = layout.immortal;
    ((Object *)at)->type = object->type;
    w->copied++;
    return words_add_pair(&w->pending, (uintptr_t)object, at) ? at : fails(w, NO_MEMORY);
}

static uintptr_t byte_array(struct writer *w, Object *object)
{
    size_t length = (size_t)SIZE(object);
    uintptr_t at = room(w, 56, 8), bytes = at ? room_with_length(w, length + 1) : 0;
    if (!bytes)
        return 0;
    *(Object *)at = (Object){layout.immortal, object->type};
    SIZE(at) = (int64_t)length;
    w->copied++;
    const char *from = FIELD(object, 40, const char *);
    if (length)
        memcpy((void *)bytes, from, length);
    FIELD(at, 24, int64_t) = (int64_t)length + 1;
    FIELD(at, 32, uintptr_t) = FIELD(at, 40, uintptr_t) = bytes;
    FIELD(at, 48, int64_t) = 0;
    return at;
}

/* Whether an instance has a dictionary that nobody else has. */
static int has_own_dictionary(Object *object)
{
    Object *dictionary = PyObject_GenericGetDict(object, NULL);
    if (!dictionary) {
        PyErr_Clear();
        return 0;
    }
    /* The instance has it still. */
    Py_DecRef(dictionary);
    return dictionary->type == &PyDict_Type && dictionary->references == 1;
}

/* An instance that is nothing but its dictionary. */
static uintptr_t instance(struct writer *w, Object *object, uintptr_t slot)
{
    if (!is_plain(w, object->type) || !has_own_dictionary(object))
        return foreign_placed(w, object, slot);
    uintptr_t at = shell(w, object, layout.instance_size + layout.inline_bytes, 32);
    return at && note_type(w, at + 8, (Object *)object->type) ? at : 0;
}

/* A new copy. */
static uintptr_t copied(struct writer *w, Object *object, uintptr_t slot)
{
    Type *type = object->type;
    if (type == &PyLong_Type) {
        size_t digits = layout.has_tag ? (size_t)SIZE(object) >> 3 : (size_t)labs(SIZE(object));
        return atom(w, object, 24 + 4 * (digits ? digits : 1));
    }
    if (type == &PyUnicode_Type)
        return string(w, object, slot);
    if (type == &PyFloat_Type)
        return atom(w, object, 24);
    if (type == &PyComplex_Type)
        return atom(w, object, 32);
    if (type == &PyBytes_Type)
        return is_in_segment(w, object) ? stays_for_good(object) : atom(w, object, BYTES_HEAD + (size_t)SIZE(object) + 1);
    if (type == &PyList_Type)
        return shell(w, object, 40, GC_HEAD);
    if (type == &PyTuple_Type)
        return shell(w, object, layout.tuple_items + 8 * (size_t)SIZE(object), GC_HEAD);
    if (type == &PyDict_Type)
        return has_stable_keys(object) ? shell(w, object, DICT_BYTES, GC_HEAD) : foreign_placed(w, object, slot);
    if (type == &PySet_Type || type == &PyFrozenSet_Type)
        return has_stable_keys(object) ? shell(w, object, SET_BYTES, GC_HEAD) : foreign_placed(w, object, slot);
    if (type == &PyByteArray_Type)
        return layout.has_own_bytes ? byte_array(w, object) : foreign_placed(w, object, slot);
    if (is_array(object)) {
        uintptr_t at = shell(w, object, ARRAY_BYTES, 0);
        return at && note_type(w, at + 8, (Object *)type) ? at : 0;
    }
    return instance(w, object, slot);
}

/* Whether nobody can tell one copy of it from two, and it is not often referred to. */
static int is_single(const Object *object)
{
    if (object->references == 1)
        return 1;
    int is_number = object->type == &PyLong_Type || object->type == &PyFloat_Type;
    return is_number && in_plan((uintptr_t)object);
}

/* What was placed before is there already. */
static uintptr_t placed_once(struct writer *w, Object *object, uintptr_t slot)
{
    uint64_t known = memo_find(&w->memo, (uintptr_t)object);
    /* A type that is part of the value, too, cannot be told from one that only instances have. */
    if (known % TAGS == TYPE)
        return fails(w, w->is_closed ? NOT_CLOSED : TANGLED);
    if (known % TAGS == FOREIGN)
        return foreign_placed(w, object, slot);
    if (known && known >= w->closed_from)
        return known;
    if (known)
        /* Of what was copied before foreign objects were written, only atoms refer to none. */
        return object->type->flags & TYPE_GC || is_array(object) ? fails(w, TANGLED) : known;
    uintptr_t at = copied(w, object, slot);
    int is_kept = at == (uintptr_t)object || memo_find(&w->memo, (uintptr_t)object);
    return at && !is_kept ? remembered(w, object, at) : at;
}

static uintptr_t placed_from(struct writer *w, Object *object, uintptr_t slot, int is_only_place)
{
    if (is_static((uintptr_t)object))
        return static_placed(w, object);
    /* As most are. Where the memory of numbers is kept for others, whoever maps it must never end it, and its maker must. */
    if (object->type == &PyLong_Type && is_in_segment(w, object))
        return layout.keeps_numbers ? copied(w, object, slot) : (uintptr_t)object;
    return is_only_place && is_single(object) ? copied(w, object, slot) : placed_once(w, object, slot);
}

uintptr_t placed(struct writer *w, Object *object, uintptr_t slot)
{
    return placed_from(w, object, slot, 1);
}

int fill_items(struct writer *w, Object **from, uintptr_t to, size_t count, int is_only_place)
{
    for (size_t index = 0; index < count; index++, to += 8) {
        uintptr_t at = from[index] ? placed_from(w, from[index], to, is_only_place) : 0;
        if (!at && from[index])
            return 0;
        *(uintptr_t *)to = at;
    }
    return 1;
}

int stays(struct writer *w, Object *object)
{
    if (is_static((uintptr_t)object))
        return static_placed(w, object) != 0;
    if (!is_in_segment(w, object))
        return 0;
    w->shared += object->references != 1;
    if (object->type == &PyUnicode_Type && is_bare(object))
        return stays_for_good(object) != 0;
    return object->type == &PyLong_Type && number_stays(object);
}

/* Items that are made before anything is made in the segment, and others that are copied: if they are few,
 * whoever maps the rest puts them there. */
#define MOVED_SHARE 16

static int stay_or_move(struct writer *w, Object **items, size_t count)
{
    size_t few = count / MOVED_SHARE, moved = 0;
    for (size_t index = 0; index < count; index++) {
        if (!items[index])
            return 0;
        if (stays(w, items[index]))
            continue;
        uintptr_t slot = (uintptr_t)(items + index), at = ++moved > few ? 0 : placed(w, items[index], slot);
        if (!at || !words_add_pair(&w->moved, slot, at))
            return 0;
    }
    return 1;
}

/* Whether a list may have the items that it has. If not, nothing is left of the try but copies that it has as well. */
static int all_stay(struct writer *w, Object *list)
{
    Object **items = FIELD(list, 24, Object **);
    size_t patches = w->patches.count, moved = w->moved.count, shared = w->shared;
    if ((uintptr_t)items % PAGE != ITEMS_OFFSET || !is_in_segment(w, items))
        return 0;
    if (stay_or_move(w, items, (size_t)SIZE(list)) && claims(w, items)) {
        if (w->shared == shared)
            note_own(w, list, moved);
        return 1;
    }
    w->patches.count = patches;
    w->moved.count = moved;
    return 0;
}

static int fill_list(struct writer *w, Object *from, uintptr_t to)
{
    size_t count = (size_t)SIZE(from);
    if (count * 8 >= ITEMS_MIN / 2 && all_stay(w, from)) {
        memcpy((void *)(to + 16), (char *)from + 16, 24);
        return 1;
    }
    if (w->why)
        return 0;
    uintptr_t items = count ? room_with_length(w, count * 8) : 0;
    if (count && !items)
        return 0;
    w->elsewhere[1] += count * 8 >= ITEMS_MIN ? count * 8 : 0;
    SIZE(to) = (int64_t)count;
    FIELD(to, 24, uintptr_t) = items;
    FIELD(to, 32, int64_t) = (int64_t)count;
    return fill_items(w, FIELD(from, 24, Object **), items, count, 1);
}

static int fill_tuple(struct writer *w, Object *from, uintptr_t to)
{
    SIZE(to) = SIZE(from);
    if (layout.tuple_items > 24)
        FIELD(to, 24, int64_t) = -1;
    return fill_items(w, TUPLE_ITEMS(from), to + layout.tuple_items, (size_t)SIZE(from), 1);
}

static int fill_instance(struct writer *w, Object *from, uintptr_t to)
{
    Object *dictionary = PyObject_GenericGetDict(from, NULL);
    if (!dictionary) {
        PyErr_Clear();
        return (int)fails(w, NO_MEMORY);
    }
    /* The instance has it still. */
    Py_DecRef(dictionary);
    uintptr_t slot = to - layout.dictionary_before;
    return (FIELD(slot, 0, uintptr_t) = placed(w, dictionary, slot)) != 0;
}

static int fill(struct writer *w, Object *from, uintptr_t to)
{
    if (from->type == &PyList_Type)
        return fill_list(w, from, to);
    if (from->type == &PyTuple_Type)
        return fill_tuple(w, from, to);
    if (from->type == &PyDict_Type)
        return fill_dict(w, from, to);
    if (from->type == &PySet_Type || from->type == &PyFrozenSet_Type)
        return fill_set(w, from, to);
    if (is_array(from))
        return fill_array(w, from, to);
    return fill_instance(w, from, to);
}

int fill_pending(struct writer *w)
{
    while (w->pending.count) {
        w->pending.count -= 2;
        uint64_t *pair = w->pending.at + w->pending.count;
        if (!fill(w, (Object *)pair[0], pair[1]))
            return 0;
    }
    return 1;
}

/* What the dictionary of a class must say about how its instances are made, pickled and ended: nothing. */
static const char *const TELLING[] = {"__reduce__",   "__reduce_ex__",    "__getstate__", "__setstate__", "__getnewargs__",
                                      "__getnewargs_ex__", "__new__", "__del__",      "__dict__",     "__slots__",
                                      "__getattribute__", "__getattr__"};
enum { DICTIONARY = 8 };
#define TELLINGS (sizeof TELLING / sizeof *TELLING)

static int tells_nothing(Type *type)
{
    static Object *names[TELLINGS], *class_getter;
    Object *class_name = class_getter ? NULL : PyUnicode_InternFromString("__class__");
    if (class_name)
        class_getter = _PyType_Lookup(&PyBaseObject_Type, class_name);
    if (!class_getter)
        return 0;
    for (size_t index = 0; index < TELLINGS; index++) {
        if (!names[index] && !(names[index] = PyUnicode_InternFromString(TELLING[index]))) {
            PyErr_Clear();
            return 0;
        }
        Object *found = _PyType_Lookup(type, names[index]);
        Object *usual = _PyType_Lookup(&PyBaseObject_Type, names[index]);
        /* Each class has a getter of its own for dictionaries, in C as that of any object's class. */
        if (index == DICTIONARY ? !found || found->type != class_getter->type : found != usual)
            return 0;
    }
    return 1;
}

int is_plain(struct writer *w, Type *type)
{
    uint64_t known = memo_find(&w->plain, (uintptr_t)type);
    if (known)
        return known == 2;
    unsigned long wanted = TYPE_HEAP | TYPE_MANAGED_DICT | TYPE_GC;
    int is_so = type->object.type == &PyType_Type && (type->flags & wanted) == wanted && type->item_size == 0 &&
                type->basic_size == (ssize_t)layout.instance_size && tells_nothing(type) &&
                !(registered && PyDict_Contains(registered, (Object *)type));
    if (!memo_set(&w->plain, (uintptr_t)type, is_so ? 2 : 1))
        return 0;
    return is_so;
}
