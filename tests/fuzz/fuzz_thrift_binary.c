/* SPDX-License-Identifier: Apache-2.0 */
#include "support/spans_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    spans_fuzz_jaeger(SPANS_FUZZ_BINARY, data, size);
    return 0;
}
