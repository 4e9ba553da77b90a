/* SPDX-License-Identifier: Apache-2.0 */
#include "support/spans_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    spans_fuzz_zipkin(zipkin_read_v2_proto, data, size);
    return 0;
}
