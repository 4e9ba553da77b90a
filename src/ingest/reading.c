/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/reading.h"

int br_workbench_init(struct br_workbench *w)
{
    *w = (struct br_workbench){.codec = br_codec_new()};
    return w->codec ? 0 : BR_ENOMEM;
}

void br_workbench_release(struct br_workbench *w)
{
    br_codec_free(w->codec);
    br_build_free(w->build);
    br_walk_memo_release(&w->memo);
    *w = (struct br_workbench){0};
}

struct br_buf *br_reading_bytes(const struct br_reading *r)
{
    return r->made ? r->made : r->body;
}

void br_reading_replace(struct br_reading *r, struct br_buf *buf)
{
    br_buf_unref(r->made);
    r->made = buf;
}

/* What a reading may take grows with what is decompressed in it. */
static void reading_widen(struct br_reading *r, size_t plain)
{
    r->plain += plain;
    r->scope.max += plain * BR_READING_GROWTH;
}

int br_reading_decompress(struct br_reading *r, enum br_encoding encoding, const uint8_t *data,
                          size_t len, struct br_buf **ret)
{
    size_t left = r->max_body - r->plain, max = left;
    bool partly = r->max_now < r->max_body;
    if (partly)
        max = r->max_now > r->plain ? r->max_now - r->plain : 0;
    size_t before = r->scope.max;
    /* The result itself, until it is known how large it is; and what is gone before there is more. */
    r->scope.max += max + BR_DECODER_MAX;
    int rc = br_decompress(r->bench->codec, encoding, data, len, max, r->host->pool, ret, &r->err);
    r->scope.max = before;
    if (rc == BR_ETOOBIG && partly)
        return BR_EAGAIN;
    if (rc == 0)
        reading_widen(r, (*ret)->len);
    return rc;
}

int br_reading_unpack(struct br_reading *r)
{
    struct br_buf *packed = br_reading_bytes(r), *plain = NULL;
    if (r->encoding == BR_ENCODING_NONE || (r->asked->grpc && !r->asked->grpc_compressed))
        return 0;
    int rc = br_reading_decompress(r, r->encoding, packed->data, packed->len, &plain);
    if (rc == 0)
        br_reading_replace(r, plain);
    return rc;
}
