/* SPDX-License-Identifier: Apache-2.0 */
#include "receivers/pprof/pprof.h"

/* What is read once is larger as OTLP: every sample type repeats its samples. */
#define GROWTH 4
#define GROWN_MIN (1u << 20) /* of what is small, tables and names may be most */
#define KEPT_ITEMS 16384 /* a builder that held more is not kept */

static size_t grown(size_t max)
{
    if (max > BR_BUF_MAX / GROWTH)
        return BR_BUF_MAX;
    return max * GROWTH > GROWN_MIN ? max * GROWTH : GROWN_MIN;
}

void pprof_reader_init(struct pprof_reader *r, struct br_host *host, struct br_codec *codec,
                       size_t max)
{
    *r = (struct pprof_reader){.host = host, .codec = codec, .max = max};
}

void pprof_reader_release(struct pprof_reader *r)
{
    br_build_free(r->build);
    r->build = NULL;
}

bool pprof_is_gzip(const uint8_t *data, size_t len)
{
    return len >= 2 && data[0] == 0x1f && data[1] == 0x8b;
}

int pprof_unpack(struct pprof_reader *r, const uint8_t *data, size_t len, struct br_buf **ret_buf,
                 const uint8_t **ret, size_t *ret_len, struct br_err *err)
{
    *ret_buf = NULL;
    *ret = data;
    *ret_len = len;
    if (!pprof_is_gzip(data, len))
        return 0;
    int rc =
        br_decompress(r->codec, BR_ENCODING_GZIP, data, len, r->max, r->host->pool, ret_buf, err);
    if (rc)
        return rc;
    *ret = (*ret_buf)->data;
    *ret_len = (*ret_buf)->len;
    return 0;
}

/* Into the builder; what it took to read goes before the item is made. */
static int build(struct pprof_reader *r, enum br_profile_format format,
                 const struct br_profile_source *s, struct br_err *err)
{
    struct br_arena scratch;
    if (!r->build)
        r->build = br_build_new(r->host, grown(r->max));
    if (!r->build)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    br_arena_init(&scratch, grown(r->max));
    int rc = br_profile_read(r->build, format, s, &scratch, err);
    br_arena_release(&scratch);
    return rc;
}

static int take(struct pprof_reader *r, struct br_item **ret, struct br_err *err)
{
    struct br_item *item = br_item_new(r->host, BR_PROFILES);
    int rc = item ? br_build_take(r->build, item) : BR_ENOMEM;
    if (rc) {
        br_item_free(item);
        return br_err_set(err, rc, "the profile cannot be converted: %s", br_strerror(rc));
    }
    *ret = item;
    return 0;
}

int pprof_guess(const uint8_t *data, size_t len, enum br_profile_format *ret, struct br_err *err)
{
    *ret = BR_FORMAT_FOLDED;
    if (len == 0 || br_profile_guess(data, len, ret))
        return 0;
    return br_err_set(err, BR_EINVAL,
                      "neither pprof, JFR, speedscope nor folded text by its content");
}

int pprof_read(struct pprof_reader *r, enum br_profile_format format,
               const struct br_profile_source *s, struct br_item **ret, struct br_err *err)
{
    struct br_item *item = NULL;
    int rc = s->len ? build(r, format, s, err) : 0;
    if (!rc && s->len && br_build_items(r->build))
        rc = take(r, &item, err);
    bool large = item && item->n_items > KEPT_ITEMS;
    if (large || rc == BR_ENOMEM)
        pprof_reader_release(r);
    else if (r->build)
        br_build_clear(r->build);
    if (rc == 0)
        *ret = item;
    return rc;
}
