/* SPDX-License-Identifier: Apache-2.0 */
#include "support/compression_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    compression_check(data, len);
    return 0;
}
