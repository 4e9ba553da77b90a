/* SPDX-License-Identifier: Apache-2.0 */
/* speedscope's JSON. */
#include "fuzz/profile_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct br_profile_source s = {.data = data, .len = size, .from_pyroscope = true};
    fuzz_read(br_speedscope_read, &s);
    return 0;
}
