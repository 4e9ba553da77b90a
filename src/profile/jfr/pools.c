/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/jfr/jfr.h"

#include "base/steps.h"

/* Returns true if the reader uses the constant pool of the type. */
static bool jfr_pools_wanted(uint8_t type)
{
    return type == BR_JFR_STRING || (type >= BR_JFR_THREAD && type <= BR_JFR_SYMBOL);
}

static int jfr_pools_malformed(struct br_jfr_in *in)
{
    in->bad = true;
    return BR_EINVAL;
}

static void jfr_pools_skip_string(struct br_jfr_in *in)
{
    const uint8_t *from = in->p;
    br_jfr_skip_string(in);
    br_steps_add((size_t)(in->p - from) + 1);
}

static int jfr_pools_read_one(struct br_jfr_chunk *chunk, struct br_jfr_in *in)
{
    const struct br_jfr_class *k = br_jfr_class(chunk, (int64_t)br_jfr_long(in));
    if (!k || in->bad)
        return jfr_pools_malformed(in);
    if (k->type == BR_JFR_CHUNK_HEADER) {
        /* The entry of the pool of chunk headers is a copy of the header, without a count of
         * entries. */
        br_jfr_skip(in, BR_JFR_HEADER);
        return in->bad ? BR_EINVAL : 0;
    }
    uint64_t ignored[BR_JFR_N_SLOTS];
    bool keep = jfr_pools_wanted(k->type), string = k->type == BR_JFR_STRING;
    if (!string && !k->n_fields)
        return jfr_pools_malformed(in);
    for (uint32_t n = br_jfr_int(in); n && !in->bad; n--) {
        uint64_t id = br_jfr_long(in);
        uint32_t at = (uint32_t)(in->p - chunk->data);
        if (string)
            jfr_pools_skip_string(in);
        else
            br_jfr_value(in, chunk, k, k->n_fields, ignored);
        int rc = keep && !in->bad ? br_jfr_ids_put(&chunk->pools[k->type], id, at) : 0;
        if (rc)
            return rc;
    }
    return in->bad ? BR_EINVAL : 0;
}

/* Reads the checkpoint at offset `at`. The checkpoint must end before offset `before`, so that
 * the chain of checkpoints is finite and no byte is read twice. Returns in `*ret_at` the offset
 * of the previous checkpoint; 0 if the checkpoint has no predecessor. */
static int jfr_pools_read_checkpoint(struct br_jfr_chunk *chunk, uint32_t at, uint32_t before,
                                     uint32_t *ret_at)
{
    struct br_jfr_in in = br_jfr_at(chunk, at);
    uint32_t size = br_jfr_int(&in);
    if (in.bad || size > before - at || in.p > chunk->data + at + size)
        return BR_EINVAL;
    in.end = chunk->data + at + size;
    for (int i = 0; i < 3; i++)
        (void)br_jfr_long(&in); /* Skips the event's type, start and duration. */
    int64_t delta = (int64_t)br_jfr_long(&in);
    (void)br_jfr_fixed(&in, 1); /* Skips the type of the checkpoint. */
    for (uint32_t n = br_jfr_int(&in); n && !in.bad; n--) {
        int rc = jfr_pools_read_one(chunk, &in);
        if (rc)
            return rc;
    }
    if (in.bad || delta > 0 || delta < -(int64_t)at)
        return BR_EINVAL;
    *ret_at = delta ? (uint32_t)((int64_t)at + delta) : 0;
    return 0;
}

int br_jfr_pools(struct br_jfr_chunk *chunk, struct br_err *err)
{
    uint32_t before = chunk->size, at = chunk->pools_at;
    chunk->middle = 0;
    while (at >= BR_JFR_HEADER) {
        uint32_t next = 0;
        int rc = jfr_pools_read_checkpoint(chunk, at, before, &next);
        if (rc == BR_EINVAL)
            return br_err_set(
                err, rc, "the constant pools at byte %u of the chunk are truncated or malformed",
                at);
        if (rc)
            return rc;
        if (at >= chunk->size / 2)
            chunk->middle = at;
        before = at;
        at = next;
    }
    return 0;
}
