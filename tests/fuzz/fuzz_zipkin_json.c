/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the conversion of Zipkin's JSON. Bit 1 of the first byte selects version 1 of the format,
 * otherwise version 2. */
#include "support/spans_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    spans_fuzz_zipkin(size && data[0] & 2 ? zipkin_read_v1_json : zipkin_read_v2_json, data, size);
    return 0;
}
