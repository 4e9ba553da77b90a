/* SPDX-License-Identifier: Apache-2.0 */
#include "support/profile_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    profile_fuzz(br_pprof_read, data, size);
    return 0;
}
