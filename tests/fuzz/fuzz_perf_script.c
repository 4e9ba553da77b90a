/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of the output of perf script. */
#include "fuzz/profile_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct br_profile_source s = {.data = data, .len = size};
    fuzz_read(br_perf_script_read, &s);
    return 0;
}
