/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SINEW_HEAP_WRITE_H
#define SINEW_HEAP_WRITE_H

#include "heap.h"
#include "heap_memo.h"

/* More of arrays (ndarraytypes.h). */
#define ARRAY_BASE(array) FIELD(array, 48, Object *)
#define CONTIGUOUS 0x3
#define OWNS_DATA 0x4
#define MAY_BE_WRITTEN 0x400
/* Not an array, but a promise to write to another one. */
#define WRITES_BACK 0x2000
/* Numbers of the types of elements: truths and small numbers are before all others. */
#define ELEMENT_TYPE(element) FIELD(element, 28, int)
enum { BYTE_LAST = 2, OBJECTS = 17, TEXT = 19, RECORD = 20, TIME = 21, HALF = 23 };

/* Why a value is not written. */
enum why {
    FINE,
    NO_ROOM,
    NO_MEMORY,
    /* An object is foreign, and shall not be. */
    NOT_CLOSED,
    /* A foreign object refers to a part of the value that may refer to foreign ones. */
    TANGLED,
    /* So much is foreign that pickling all of it is faster. */
    TOO_FOREIGN,
};

/* A list of which the items stay, that nobody else has, and which of `moved` are among them. */
#define OWN_MAX 64
struct own {
    Object *list;
    size_t moved_from, moved_to;
};

/* A value that is being written. */
struct writer {
    uintptr_t base, begin, end;
    /* Where atoms are written, and all else. */
    struct target {
        uintptr_t at, end;
        /* Up to where there are pages, if that is after where writing began by so much. */
        uintptr_t begin, ready;
    } atoms, rest;
    enum why why;
    /* Whether no foreign object may be met. */
    int is_closed;
    /* What was copied before foreign objects were written. */
    uintptr_t closed_from;
    uintptr_t root;
    /* The list that the value is the only item of. */
    Object *box;
    /* Bytes of large pieces that stay. */
    uint64_t claimed_bytes;
    /* Bytes that were copied, of small pieces and of large ones, which would be there had they been made there. */
    uint64_t elsewhere[2];
    /* Objects that were copied, bytes that were for nothing, and objects that stay and that others have as well. */
    uint64_t copied, wasted, shared;
    struct own own[OWN_MAX];
    size_t own_count;
    /* From an object that others may refer to as well to its copy, or to four times its
     * place among the foreign ones and one, or among the types and three. Also classes: whether
     * instances of them are copied. */
    struct memo memo, plain;
    /* Large pieces that stay: what else lies in one, is copied. */
    struct memo claimed;
    /* Keys that were added to it; objects that must not be freed before the end. */
    struct words added, held;
    /* Pairs of an object and its copy that are to be filled. */
    struct words pending;
    struct words statics, typed, homes, moved, arrays, patches, buffers;
    /* A bit for each 16 bytes of the image. */
    uint8_t *seen_statics;
    Object *foreign, *types;
};

extern struct writer writer;

/* The address that stands for an object where it is referred to at `slot`; 0 if it
 * cannot be written. What it refers to may be pending then. */
uintptr_t placed(struct writer *w, Object *object, uintptr_t slot);
/* Fills what is pending; false if something cannot be written. */
int fill_pending(struct writer *w);

/* Memory of the segment, for what is no atom; 0 if there is none left. */
uintptr_t room(struct writer *w, size_t size, size_t align);
/* The same, with its length in the 16 bytes before it. */
uintptr_t room_with_length(struct writer *w, size_t size);
uintptr_t fails(struct writer *w, enum why why);

/* Whether instances of a type are nothing but their dictionaries. */
int is_plain(struct writer *w, Type *type);
/* Whether the hash of a key is the same in each process. */
int is_stable(const Object *key, int depth);

/* Has a type be there; false if that cannot be noted. */
int note_type(struct writer *w, uintptr_t slot, Object *type);
/* What is in the segment already, and its end does nothing but free memory. */
int stays(struct writer *w, Object *object);
int is_in_segment(const struct writer *w, const void *at);
/* Whether data that can be written to may stay, which nothing else of the value shares. */
int claims(struct writer *w, const void *at);
/* The items of `from`, where the first of them is to be at `to`. If that is not the only place from which they are reached,
 * one with a single reference may be met again. */
int fill_items(struct writer *w, Object **from, uintptr_t to, size_t count, int is_only_place);
/* A container of which the copy is to be filled. */
uintptr_t shell(struct writer *w, Object *object, size_t size, size_t before);

/* What nobody else has (heap_leave.c): notes a list, and empties those that are found in a value. */
void note_own(struct writer *w, Object *list, size_t moved_from);
void leave_own(struct writer *w);

/* Arrays (heap_arrays.c). */
int is_array(const Object *object);
int fill_array(struct writer *w, Object *from, uintptr_t to);

/* Containers of Python that are tables (heap_tables.c). */
int fill_dict(struct writer *w, Object *from, uintptr_t to);
int fill_set(struct writer *w, Object *from, uintptr_t to);
int has_stable_keys(Object *dict_or_set);

/* Of dicts and sets. */
#define DICT_BYTES 48
#define SET_BYTES 200
#define SET_KEPT_INSIDE 64

#endif
