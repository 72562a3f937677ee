/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codelets in C: the imports of module `sinew_v1` and a little comfort, in one
 * header, without a C library.
 *
 *   #include <sinew.h>
 *
 *   sinew_handle apply(sinew_call call) {
 *     sinew_expect(call, 2);
 *     sinew_handle a = sinew_argument(0), b = sinew_argument(1);
 *     return sinew_number(sinew_read_u64(a, 0) + sinew_read_u64(b, 0), 1);
 *   }
 *
 *   clang --target=wasm32 -nostdlib -O2 -I… -Wl,--no-entry,--export=apply …
 *
 * A handle is an index into a table that the node keeps for this one call.
 * Misuse ends the call with the failure `bad-handle`; nothing returns an error.
 */
#ifndef SINEW_H
#define SINEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int32_t sinew_handle;
typedef int32_t sinew_call;

enum sinew_kind {
  SINEW_BLOB = 0,
  SINEW_TREE = 1,
  SINEW_BLOB_REF = 2,
  SINEW_TREE_REF = 3,
  SINEW_THUNK = 4,
  SINEW_ENCODE = 5,
  SINEW_FAILURE = 6, /* a tree [code, application, detail] */
};

/* Bytes that fit into the first-level cache: read large blobs in such pieces. */
#define SINEW_PIECE_LEN 32768

#define SINEW_IMPORT(name) __attribute__((import_module("sinew_v1"), import_name(#name)))

/* What a handle names; later versions may know more kinds. */
SINEW_IMPORT(kind) int32_t sinew_kind(sinew_handle handle);
/* Bytes of a blob or entries of a tree, object or ref. */
SINEW_IMPORT(size) int64_t sinew_size(sinew_handle handle);
/* 1 if both name the same thing in the same way. */
SINEW_IMPORT(equal) int32_t sinew_equal(sinew_handle a, sinew_handle b);
/* Copies min(len, size - offset) bytes and returns that count. */
SINEW_IMPORT(read) int32_t sinew_read(sinew_handle blob, int64_t offset, void *target, int32_t len);
/* Up to eight bytes as a little-endian number. */
SINEW_IMPORT(read_u64) uint64_t sinew_read_u64(sinew_handle blob, int64_t offset);
/* An entry of a tree. */
SINEW_IMPORT(entry) sinew_handle sinew_entry(sinew_handle tree, int64_t index);

/* A new blob; of the `len` <= 8 low bytes of a number; a new tree. */
SINEW_IMPORT(blob) sinew_handle sinew_blob(const void *bytes, int32_t len);
SINEW_IMPORT(blob_u64) sinew_handle sinew_number(uint64_t value, int32_t len);
SINEW_IMPORT(tree) sinew_handle sinew_tree(const sinew_handle *entries, int32_t count);

/* Thunks: a call, the identity, an element, the elements begin..end. */
SINEW_IMPORT(application) sinew_handle sinew_application(sinew_handle tree);
SINEW_IMPORT(identification) sinew_handle sinew_identification(sinew_handle value);
SINEW_IMPORT(selection) sinew_handle sinew_selection(sinew_handle target, int64_t index);
SINEW_IMPORT(selection_range)
sinew_handle sinew_selection_range(sinew_handle target, int64_t begin, int64_t end);

/* Encodes: the complete result as an object; the first value as a ref. */
SINEW_IMPORT(strict) sinew_handle sinew_strict(sinew_handle thunk);
SINEW_IMPORT(shallow) sinew_handle sinew_shallow(sinew_handle thunk);
/* The ref to an object. */
SINEW_IMPORT(lower) sinew_handle sinew_lower(sinew_handle value);

/* Ends the call with the failure `guest` and this blob as its detail. */
SINEW_IMPORT(fail) void sinew_fail_with(sinew_handle detail);

/* The same with a string. */
__attribute__((noreturn, cold)) static inline void sinew_fail(const char *text) {
  int32_t len = 0;
  while (text[len] != 0) {
    len++;
  }
  sinew_fail_with(sinew_blob(text, len));
  __builtin_unreachable();
}

/* The call's own entries stand in the table behind the application, index 0. */
static inline sinew_handle sinew_limits(void) { return 1; }
static inline sinew_handle sinew_procedure(void) { return 2; }

static inline int64_t sinew_argument_count(sinew_call call) { return sinew_size(call) - 2; }

/* Fails the call unless it has exactly `count` arguments. */
static inline void sinew_expect(sinew_call call, int64_t count) {
  if (sinew_argument_count(call) != count) {
    sinew_fail("wrong number of arguments");
  }
}

/* An argument that sinew_expect or sinew_argument_count has shown to exist. */
static inline sinew_handle sinew_argument(int32_t index) { return 3 + index; }

/* The deferred call of `procedure` with two arguments, under this call's limits. */
static inline sinew_handle sinew_apply2(sinew_handle procedure, sinew_handle a, sinew_handle b) {
  const sinew_handle entries[] = {sinew_limits(), procedure, a, b};
  return sinew_application(sinew_tree(entries, 4));
}

/* The same with three. */
static inline sinew_handle sinew_apply3(sinew_handle procedure, sinew_handle a, sinew_handle b,
                                        sinew_handle c) {
  const sinew_handle entries[] = {sinew_limits(), procedure, a, b, c};
  return sinew_application(sinew_tree(entries, 5));
}

/* A position in a blob that is read piece by piece. */
struct sinew_reader {
  sinew_handle blob;
  int64_t offset;
  int64_t size;
};

static inline struct sinew_reader sinew_reader(sinew_handle blob) {
  return (struct sinew_reader){.blob = blob, .offset = 0, .size = sinew_size(blob)};
}

/* Fills `target` as far as the blob reaches; 0 at its end. */
static inline int32_t sinew_reader_next(struct sinew_reader *reader, void *target, int32_t len) {
  if (reader->offset == reader->size) {
    return 0;
  }
  int32_t count = sinew_read(reader->blob, reader->offset, target, len);
  reader->offset += count;
  return count;
}

/* What an application may use and is expected to make; 0 in the last three: unknown. */
struct sinew_limits {
  uint64_t memory_bytes; /* below 2^48 */
  uint64_t fuel;         /* Wasm instructions; 0: uncounted */
  uint64_t output_size_hint;
  uint32_t fan_out_hint;
};

/* The literal of 25 bytes that states them. */
static inline sinew_handle sinew_limits_blob(struct sinew_limits limits) {
  uint8_t bytes[25] = {1};
  for (int i = 0; i < 8; i++) {
    if (i < 6) {
      bytes[1 + i] = (uint8_t)(limits.memory_bytes >> (8 * i));
      bytes[15 + i] = (uint8_t)(limits.output_size_hint >> (8 * i));
    }
    if (i < 4) {
      bytes[21 + i] = (uint8_t)(limits.fan_out_hint >> (8 * i));
    }
    bytes[7 + i] = (uint8_t)(limits.fuel >> (8 * i));
  }
  return sinew_blob(bytes, sizeof bytes);
}

#endif
