/* SPDX-License-Identifier: Apache-2.0 */
/*
 * get-file(path, info, directory): the file at a path below a directory, found
 * step by step without fetching what lies beside the path.
 *
 * A directory is a tree [info, child...]; its info has a line `f name` or
 * `d name` per child, each ended by a line feed.
 */
#include <sinew.h>

#define PATH_LEN_MAX 4096
#define NAME_START 2

static char path[PATH_LEN_MAX];
static char piece[SINEW_PIECE_LEN];

static int32_t skip_slashes(int32_t at, int32_t len) {
  while (at < len && path[at] == '/') {
    at++;
  }
  return at;
}

/* The line of path[start..end]; its kind in *kind. */
static int64_t find(sinew_handle info, int32_t start, int32_t end, char *kind) {
  struct sinew_reader reader = sinew_reader(info);
  int64_t line = 0;
  int64_t column = 0;
  bool is_match = true;
  for (int32_t len; (len = sinew_reader_next(&reader, piece, sizeof piece)) > 0;) {
    for (int32_t i = 0; i < len; i++) {
      char byte = piece[i];
      if (byte == '\n') {
        if (is_match && column == NAME_START + end - start) {
          return line;
        }
        line++;
        column = 0;
        is_match = true;
        continue;
      }
      if (column == 0) {
        *kind = byte;
      } else if (column == 1) {
        is_match &= byte == ' ';
      } else {
        int64_t at = start + column - NAME_START;
        is_match &= at < end && path[at] == byte;
      }
      column++;
    }
  }
  sinew_fail("no such file or directory");
}

sinew_handle apply(sinew_call call) {
  sinew_expect(call, 3);
  if (sinew_size(sinew_argument(0)) > PATH_LEN_MAX) {
    sinew_fail("a path of over 4096 bytes");
  }
  int32_t len = sinew_read(sinew_argument(0), 0, path, sizeof path);
  int32_t start = skip_slashes(0, len);
  int32_t end = start;
  while (end < len && path[end] != '/') {
    end++;
  }
  if (start == end) {
    sinew_fail("the path is empty");
  }
  char kind = 0;
  int64_t line = find(sinew_argument(1), start, end, &kind);
  /* Entry 0 is the info. */
  sinew_handle child = sinew_selection(sinew_argument(2), 1 + line);
  int32_t rest = skip_slashes(end, len);
  if (rest == len) {
    return child;
  }
  if (kind != 'd') {
    sinew_fail("a file in the middle of the path");
  }
  sinew_handle info = sinew_strict(sinew_selection(child, 0));
  return sinew_apply3(sinew_procedure(), sinew_blob(path + rest, len - rest), info, sinew_shallow(child));
}
