/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes after the preface on an HTTP/2 server with gRPC services. The first byte is not
 * sent; it selects the division of the rest into reads. Seeds in tests/corpus/grpc. */
#include "tests/support/h2_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    h2_fuzz(data, len);
    return 0;
}
