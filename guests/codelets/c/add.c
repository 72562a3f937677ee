/* SPDX-License-Identifier: Apache-2.0 */
/* add(a, b): the sum of two 8-bit numbers, modulo 256, as one byte. */
#include <sinew.h>

sinew_handle apply(sinew_call call) {
  sinew_expect(call, 2);
  return sinew_number(sinew_read_u64(sinew_argument(0), 0) + sinew_read_u64(sinew_argument(1), 0), 1);
}
