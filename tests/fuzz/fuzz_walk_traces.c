/* SPDX-License-Identifier: Apache-2.0 */
/* Walks any bytes as a traces request. The seeds are in tests/corpus/traces. */
#include "tests/support/walk_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    walk_fuzz(BR_TRACES, data, len);
    return 0;
}
