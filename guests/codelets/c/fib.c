/* SPDX-License-Identifier: Apache-2.0 */
/* fib(add, n): Fibonacci's number n, by way of the procedure add; n below 256. */
#include <sinew.h>

sinew_handle apply(sinew_call call) {
  sinew_expect(call, 2);
  sinew_handle add = sinew_argument(0);
  uint64_t n = sinew_read_u64(sinew_argument(1), 0);
  if (n < 2) {
    return sinew_number(n, 1);
  }
  if (n > 255) {
    sinew_fail("n is over 255");
  }
  sinew_handle one_before = sinew_apply2(sinew_procedure(), add, sinew_number(n - 1, 1));
  sinew_handle two_before = sinew_apply2(sinew_procedure(), add, sinew_number(n - 2, 1));
  return sinew_apply2(add, sinew_strict(one_before), sinew_strict(two_before));
}
