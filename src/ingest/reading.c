/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/reading.h"

#include "ingest/pieces.h"

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
    /* The result itself, until it is known how large it is (a buffer is up to a fourth larger than what
     * it was made for); and what is gone before there is more. */
    r->scope.max += max + max / 4 + BR_DECODER_MAX;
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

/* --- Running ---------------------------------------------------------------------------------- */

static size_t scope_max(const struct br_buf *body)
{
    return (body ? (size_t)body->len * BR_READING_GROWTH : 0) + BR_READING_ROOM;
}

void br_reading_drop(struct br_reading *r)
{
    br_pieces_free(&r->pieces);
    br_item_free(r->item);
    r->item = NULL;
}

/* What was refused for the budget is more than an idle process has: the body, which stays, and the
 * rest. */
static bool never_fits(const struct br_reading *r)
{
    const struct br_memory *memory = r->host->memory;
    size_t body = r->body ? r->body->cap : 0;
    return memory && r->scope.refused && body + r->scope.wanted > br_memory_largest(memory);
}

int br_reading_run(struct br_reading *r, br_read_fn *read)
{
    br_mem_scope_begin(&r->scope, scope_max(r->body), r->host->memory);
    int rc = read(r);
    if (rc)
        br_reading_drop(r);
    br_reading_replace(r, NULL);
    br_mem_scope_end(&r->scope);
    if (rc == BR_ENOMEM && !r->scope.full && never_fits(r))
        return br_err_set(&r->err, BR_ETOOBIG,
                          "reading it takes more memory than the limit ever leaves");
    if (rc == 0 || rc == BR_EAGAIN || !r->scope.full)
        return rc;
    r->invalid = BR_STATUS_INVALID_ARGUMENT;
    r->err = (struct br_err){0};
    return br_err_set(&r->err, BR_EINVAL,
                      "reading it takes more than %zu bytes of memory: %u times its size",
                      r->scope.max, BR_READING_GROWTH);
}

const char *br_reading_why(const struct br_reading *r, int rc)
{
    if (rc == BR_ENOMEM && r->scope.refused)
        return "memory limit reached";
    return r->err.text[0] ? r->err.text : br_strerror(rc);
}
