/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the readers of profile formats other than OTLP. The first byte of the input selects the
 * options. If a profile is accepted, the result must pass the walk, with the number of samples that
 * were built.
 */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "core/host.h"
#include "otlp/walk/walk.h"
#include "profile/profile.h"

#define PROFILE_FUZZ_MAX (1u << 20)

static inline void profile_fuzz_require(bool ok)
{
    if (!ok)
        abort();
}

static inline void profile_fuzz_check(struct br_host *host, const struct br_item *item)
{
    struct br_rope rope = {0};
    const struct br_walk_options options = {.utf8 = BR_UTF8_REJECT};
    const uint8_t *data;
    uint32_t repaired;
    profile_fuzz_require(br_item_write(item, &rope) == 0);
    struct br_buf *flat = br_rope_flat(&rope, host->pool, &data);
    struct br_item *walked = br_item_new(host, BR_PROFILES);
    profile_fuzz_require(flat && walked);
    profile_fuzz_require(br_walk(walked, flat, data, rope.len, &options, &repaired, NULL) == 0);
    profile_fuzz_require(walked->n_records == item->n_records && walked->n_parts == item->n_parts);
    br_item_free(walked);
    br_buf_unref(flat);
    br_rope_release(&rope);
}

struct profile_fuzz_parts {
    struct br_host *host;
    struct br_build *build;
};

static inline int profile_fuzz_on_part(void *arg)
{
    struct profile_fuzz_parts *parts = arg;
    struct br_item *item = br_item_new(parts->host, BR_PROFILES);
    profile_fuzz_require(item && br_build_records(parts->build));
    int rc = br_build_take(parts->build, item);
    if (!rc)
        profile_fuzz_check(parts->host, item);
    br_item_free(item);
    return rc;
}

static inline void profile_fuzz(br_profile_read_fn *read, const uint8_t *data, size_t size)
{
    static const struct br_host_ops ops = {0};
    static const char *const spies[] = {NULL, "pyspy", "dotnetspy", "unknown"};
    if (size == 0)
        return;
    struct br_host host = {.ops = &ops, .pool = br_pool_new(0)};
    struct br_arena arena = {.max = PROFILE_FUZZ_MAX};
    struct br_build *b = host.pool ? br_build_new(&host, PROFILE_FUZZ_MAX) : NULL;
    struct br_item *item = b ? br_item_new(&host, BR_PROFILES) : NULL;
    struct profile_fuzz_parts each = {&host, b};
    const struct br_profile_parts parts = {1 + (data[0] >> 2 & 3), 64, profile_fuzz_on_part, &each};
    const struct br_profile_source source = {.data = data + 1,
                                             .len = size - 1,
                                             .from_pyroscope = data[0] & 1,
                                             .cumulative = data[0] & 2,
                                             .datadog = data[0] & 32,
                                             .spy_name = spies[data[0] >> 2 & 3],
                                             .parts = data[0] & 64 ? &parts : NULL};
    enum br_profile_format format;
    profile_fuzz_require(item != NULL);
    (void)br_profile_guess(source.data, source.len, &format);
    /* Reads the profile twice into the same request, as in an upload with several profiles. */
    bool twice = data[0] & 16;
    int rc = read(b, &source, &arena, NULL);
    if (!rc && twice)
        rc = read(b, &source, &arena, NULL);
    if (!rc && br_build_take(b, item) == 0)
        profile_fuzz_check(&host, item);
    br_item_free(item);
    br_build_free(b);
    br_arena_release(&arena);
    br_pool_free(host.pool);
}
