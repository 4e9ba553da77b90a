/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for the fuzz targets of profile formats. If a reader accepts a profile, the result must
 * be a valid request, with valid strings and indices. */
#pragma once

#include <stdlib.h>

#include "core/host.h"
#include "otlp/walk/walk.h"
#include "profile/profile.h"

#define FUZZ_BUILD_MAX (4u << 20)

static inline void require(bool ok)
{
    if (!ok)
        abort();
}

static inline void check_built(struct br_host *host, struct br_build *b)
{
    const struct br_walk_options options = {.utf8 = BR_UTF8_REJECT};
    struct br_item *item = br_item_new(host, BR_PROFILES), *walked = br_item_new(host, BR_PROFILES);
    struct br_rope rope = {0};
    const uint8_t *data;
    uint32_t repaired;
    require(item && walked && br_build_take(b, item) == 0);
    require(br_item_write(item, &rope) == 0);
    struct br_buf *buf = br_rope_flat(&rope, host->pool, &data);
    if (rope.len > 0)
        require(buf && br_walk(walked, buf, data, rope.len, &options, &repaired, NULL) == 0 &&
                walked->n_records == item->n_records);
    br_buf_unref(buf);
    br_rope_release(&rope);
    br_item_free(walked);
    br_item_free(item);
}

static inline void fuzz_read(br_profile_read_fn *read, const struct br_profile_source *s)
{
    static const struct br_host_ops ops = {0};
    struct br_host host;
    struct br_arena scratch = {0};
    require(br_host_init(&host, &ops, br_pool_new(0)) == 0);
    struct br_build *b = br_build_new(&host, FUZZ_BUILD_MAX);
    require(b != NULL);
    int rc = read(b, s, &scratch, NULL);
    require(rc == 0 || rc == BR_EINVAL || rc == BR_EFULL);
    if (rc == 0)
        check_built(&host, b);
    br_build_free(b);
    br_arena_release(&scratch);
    br_host_release(&host);
    br_pool_free(host.pool);
}
