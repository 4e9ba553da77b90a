/* SPDX-License-Identifier: Apache-2.0 */
#include "support/multipart_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    multipart_check(data, size);
    return 0;
}
