/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the conversions of Zipkin's binary formats. Bit 1 of the first byte selects Thrift
 * (version 1), otherwise protobuf (version 2). */
#include "support/spans_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    spans_fuzz_zipkin(size && data[0] & 2 ? zipkin_read_v1_thrift : zipkin_read_v2_proto, data,
                      size);
    return 0;
}
