/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of JFR recordings. Each input is read as an upload, and as sent by a Pyroscope
 * client. The bytes after its first chunk are also used as the labels that are sent with the
 * recording. */
#include "fuzz/profile_fuzz.h"
#include "profile/jfr/jfr.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t first_chunk(const uint8_t *data, size_t size)
{
    uint64_t n = 0;
    for (size_t i = 8; i < 16 && size >= BR_JFR_HEADER; i++)
        n = n << 8 | data[i];
    return n < size ? (size_t)n : size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct br_profile_source s = {.data = data, .len = size};
    fuzz_read(br_jfr_read, &s);
    s.from_pyroscope = true;
    s.len = first_chunk(data, size);
    s.labels = data + s.len;
    s.labels_len = size - s.len;
    fuzz_read(br_jfr_read, &s);
    return 0;
}
