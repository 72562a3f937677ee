/* SPDX-License-Identifier: Apache-2.0 */
/* if(predicate, a, b): a if the predicate holds a number other than 0, else b. */
#include <sinew.h>

sinew_handle apply(sinew_call call) {
  sinew_expect(call, 3);
  return sinew_read_u64(sinew_argument(0), 0) != 0 ? sinew_argument(1) : sinew_argument(2);
}
