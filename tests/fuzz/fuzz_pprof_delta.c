/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the subtraction of pprofs. The first two bytes of the input are the length of the first
 * pprof. The rest is the second pprof. A difference must be a valid pprof. */
#include "fuzz/profile_fuzz.h"
#include "pprof/profile.pb-c.h"
#include "receivers/pprof/delta.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_difference(const uint8_t *data, size_t len)
{
    Perftools__Profiles__Profile *p = perftools__profiles__profile__unpack(NULL, len, data);
    require(p != NULL);
    for (size_t i = 0; i < p->n_sample; i++)
        require(p->sample[i]->n_value == p->n_sample_type);
    perftools__profiles__profile__free_unpacked(p, NULL);
}

/* Returns the length of the difference, or 0 if there is none. */
static size_t take(struct pprof_delta *d, const uint8_t *data, size_t len)
{
    struct br_arena arena = {0};
    const uint8_t *out = NULL;
    size_t out_len = 0;
    int rc = pprof_delta_next(d, data, len, &arena, &out, &out_len, NULL);
    require(rc == 0 || rc == BR_EINVAL || rc == BR_EFULL || rc == BR_ENOMEM);
    if (rc == 0 && out_len > 0)
        check_difference(out, out_len);
    br_arena_release(&arena);
    return rc == 0 ? out_len : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    size_t cut = (size_t)data[0] << 8 | data[1];
    data += 2;
    size -= 2;
    cut = cut < size ? cut : size;
    struct pprof_delta *d = pprof_delta_new();
    require(d != NULL);
    /* the first pprof has no predecessor, so there cannot be a difference */
    require(take(d, data, cut) == 0);
    (void)take(d, data + cut, size - cut);
    pprof_delta_free(d);
    return 0;
}
