/* SPDX-License-Identifier: Apache-2.0 */
/* inc(n): one more than a number of up to 64 bits, as eight bytes. */
#include <sinew.h>

sinew_handle apply(sinew_call call) {
  sinew_expect(call, 1);
  return sinew_number(sinew_read_u64(sinew_argument(0), 0) + 1, 8);
}
