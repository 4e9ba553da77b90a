/* SPDX-License-Identifier: Apache-2.0 */
/* Sends any bytes, after the preface, to an HTTP/2 server with gRPC services. The first byte is
 * not sent. It selects how the other bytes are divided into reads. The seeds are in
 * tests/corpus/grpc. */
#include "tests/support/h2_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    h2_fuzz(data, len);
    return 0;
}
