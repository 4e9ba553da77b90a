/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a traces request; seeds in tests/corpus/traces. */
#include "tests/support/walk_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    walk_fuzz(BR_TRACES, data, len);
    return 0;
}
