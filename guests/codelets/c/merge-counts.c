/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge-counts(a, b, ...): blobs of little-endian 64-bit numbers of the same
 * length, added number by number.
 */
#include <sinew.h>

#define NUMBERS_MAX 128

sinew_handle apply(sinew_call call) {
  int64_t count = sinew_argument_count(call);
  if (count == 0) {
    sinew_fail("an argument is missing");
  }
  int64_t len = sinew_size(sinew_argument(0));
  if (len > 8 * NUMBERS_MAX || len % 8 != 0) {
    sinew_fail("the counts are not up to 128 numbers of eight bytes");
  }
  uint64_t sums[NUMBERS_MAX];
  for (int32_t i = 0; i < len / 8; i++) {
    sums[i] = 0;
  }
  for (int32_t argument = 0; argument < count; argument++) {
    if (sinew_size(sinew_argument(argument)) != len) {
      sinew_fail("the counts differ in length");
    }
    for (int32_t i = 0; i < len / 8; i++) {
      sums[i] += sinew_read_u64(sinew_argument(argument), 8 * i);
    }
  }
  return sinew_blob(sums, (int32_t)len);
}
