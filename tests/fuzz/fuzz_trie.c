/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the readers of Pyroscope's binary tries and trees. */
#include "fuzz/profile_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct br_profile_source s = {.data = data, .len = size, .from_pyroscope = true};
    fuzz_read(br_trie_read, &s);
    fuzz_read(br_tree_read, &s);
    return 0;
}
