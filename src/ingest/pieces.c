/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/pieces.h"

#include "base/mem.h"
#include "otlp/dictionary/dictionary.h"
#include "pipeline/hold.h"

#define RETRY_FIRST_MS 50
#define RETRY_MAX_MS 1000
/* factor by which the size of pieces grows after an attempt whose pieces were too large in total */
#define PIECE_STEP 2u
/* maximum total size of all pieces of a profiles item, as a multiple of the item's size */
#define CUT_GROWTH 4u
#define SMALL_GROWTH 3u /* the same multiple for profiles pieces smaller than SMALL_BYTES */
#define SMALL_BYTES (1u << 20)
/* the same multiple for traces pieces; higher by 1 if the pieces have lists of spans */
#define SPANS_GROWTH 2u
/* factor by which record_bytes grows when pieces first become larger than SMALL_BYTES */
#define SPREAD 8u
/* number of pieces after which the total size of all pieces is extrapolated */
#define FORECAST_PIECES 8u
/* the total size of all pieces is also extrapolated once 1/16 of the item's records are in
 * pieces */
#define FORECAST_SHARE 16u

struct br_pieces {
    struct br_list link; /* entry in the list of transfers */
    struct br_node *node;
    struct br_consumer output;
    struct br_item *whole; /* the item that was cut, the parent of all pieces */
    struct br_hold hold;   /* hold that keeps and retries the pieces until their delivery ends */
    bool stopped;
};

/* --- Cutting ---------------------------------------------------------------------------------- */

static size_t pieces_record_bytes(enum br_signal signal)
{
    return signal == BR_TRACES ? BR_PIECE_SPAN_BYTES : BR_PIECE_SAMPLE_BYTES;
}

/* Returns the weight, in bytes, of data with `n_records` records. The weight is `size`, or the
 * minimum weight of the records if that is more. */
static size_t pieces_weight(enum br_signal signal, size_t size, uint32_t n_records)
{
    size_t least = n_records * pieces_record_bytes(signal);
    return size > least ? size : least;
}

struct cut {
    struct br_reading *reading;
    const struct br_walk_options *options;
    struct br_list pieces;
    size_t bytes;        /* maximum weight of a piece, in bytes */
    size_t record_bytes; /* minimum weight of a record, in bytes */
    /* the pieces have the largest possible size, so this is the last attempt */
    bool last;
    /* memory scope of the current attempt; NULL between attempts */
    const struct br_mem_scope *scope;
    size_t made_bytes; /* number of bytes of all pieces made so far */
    uint32_t n_pieces;
    uint64_t n_made; /* number of records in the pieces made so far */
};

void br_pieces_free(struct br_list *pieces)
{
    struct br_list *list;
    while ((list = br_list_shift(pieces)))
        br_item_free(br_container_of(list, struct br_item, link));
}

/* Appends a piece to the list. If `piece` is NULL because memory is short, returns BR_ENOMEM. */
static int pieces_cut_add(struct cut *cut, struct br_item *piece)
{
    if (!piece)
        return BR_ENOMEM;
    br_list_append(&cut->pieces, &piece->link);
    return 0;
}

static size_t pieces_cut_growth(const struct cut *cut)
{
    if (cut->reading->item->signal == BR_TRACES)
        return SPANS_GROWTH + (cut->options->spans ? 1 : 0);
    return cut->bytes < SMALL_BYTES ? SMALL_GROWTH : CUT_GROWTH;
}

/* Estimates the total size of all pieces from the pieces made so far, and returns true if the total
 * will exceed a limit. Includes the memory that is needed to make one piece. */
static bool pieces_cut_exceeds(const struct cut *cut)
{
    const struct br_item *item = cut->reading->item;
    double share = (double)cut->n_made / item->n_records, made = (double)cut->made_bytes,
           beside = (double)cut->scope->used - made;
    if (cut->last || (cut->n_pieces < FORECAST_PIECES && share * FORECAST_SHARE < 1))
        return false;
    return made > share * (double)(item->size * pieces_cut_growth(cut)) ||
           made > share * ((double)cut->scope->max - (beside > 0 ? beside : 0));
}

/* Adds a new piece to the totals. `bytes` is the size of the piece's data that is not part of the
 * request's buffers. */
static int pieces_cut_made(struct cut *cut, size_t bytes, uint32_t n_records)
{
    cut->made_bytes += bytes;
    cut->n_made += n_records;
    cut->n_pieces++;
    return pieces_cut_exceeds(cut) ? BR_EFULL : 0;
}

/* Makes a piece that refers to a range of the request's bytes. The piece's list of spans gets
 * exactly the required length, because all pieces exist at the same time and, if spans are small,
 * the lists take most of their memory. */
static int pieces_cut_walk(struct cut *cut, struct br_buf *buf, const uint8_t *data, size_t len,
                           uint32_t n_spans)
{
    uint32_t repaired;
    struct br_walk_options options = *cut->options;
    struct br_item *piece = br_item_new(cut->reading->host, BR_TRACES);
    options.n_spans = n_spans;
    int rc =
        piece ? br_walk(piece, buf, data, len, &options, &repaired, &cut->reading->err) : BR_ENOMEM;
    if (rc == 0)
        return pieces_cut_add(cut, piece);
    br_item_free(piece);
    return rc;
}

/* Makes a piece, in a new buffer, from spans that were split off a large message. */
static int pieces_on_traces(struct br_item *piece, void *arg)
{
    struct cut *cut = arg;
    struct br_rope rope = {0};
    const uint8_t *data = NULL;
    struct br_pool *pool = cut->reading->host->pool;
    uint32_t n_spans = piece->n_records;
    struct br_buf *buf = br_item_write(piece, &rope) ? NULL : br_rope_flat(&rope, pool, &data);
    br_item_free(piece);
    int rc = buf ? pieces_cut_walk(cut, buf, data, rope.len, n_spans) : BR_ENOMEM;
    br_buf_unref(buf);
    if (rc == 0)
        rc = pieces_cut_made(cut, rope.len, n_spans);
    br_rope_release(&rope);
    return rc;
}

static int pieces_on_profiles(struct br_item *piece, void *arg)
{
    struct cut *cut = arg;
    size_t bytes = piece->size;
    uint32_t n_records = piece->n_records;
    int rc = pieces_cut_add(cut, piece);
    return rc == 0 ? pieces_cut_made(cut, bytes, n_records) : rc;
}

/* Returns the maximum number of records in a piece. */
static uint32_t pieces_cut_records(const struct cut *cut)
{
    return (uint32_t)(cut->bytes / cut->record_bytes);
}

/* Makes the next pieces larger. Returns false if the pieces already have the largest possible size.
 * A large piece consists mostly of dictionary, but its processing time depends on the number of
 * samples. A larger piece therefore gets fewer samples per byte, unless all pieces together would
 * then be too large. */
static bool pieces_cut_larger(struct cut *cut, size_t weight)
{
    size_t least = pieces_record_bytes(cut->reading->item->signal), most = weight / PIECE_STEP;
    if (cut->bytes <= most / PIECE_STEP) {
        cut->bytes *= PIECE_STEP;
        cut->record_bytes = cut->bytes > SMALL_BYTES ? SPREAD * least : least;
    } else if (cut->record_bytes > least) {
        size_t fewer = cut->record_bytes * 3 / 4;
        cut->record_bytes = fewer > least ? fewer : least;
    } else {
        return false;
    }
    cut->last = cut->bytes > most / PIECE_STEP && cut->record_bytes == least;
    return true;
}

/* Returns the largest total weight, in bytes, that the spans of one piece of `part` may have. Each
 * piece repeats the resource, so a part with a large resource needs large pieces. The weight grows
 * with `cut->bytes`. */
static size_t pieces_cut_part_bytes(const struct cut *cut, const struct br_part *part)
{
    size_t rest = part->raw_len - part->res_len,
           weight = pieces_weight(BR_TRACES, rest, part->n_records), most = weight;
    if (part->res_len)
        most = ((size_t)part->raw_len * SPANS_GROWTH - rest) / part->res_len;
    size_t least = (weight / (most ? most : 1) + 1) * (cut->bytes / BR_PIECE_BYTES);
    return least > cut->bytes ? least : cut->bytes;
}

/* Cuts one message (`part`) that is larger than a piece. */
static int pieces_cut_part(struct cut *cut, const struct br_part *part)
{
    struct br_item *alone = br_item_new(cut->reading->host, BR_TRACES);
    size_t bytes = pieces_cut_part_bytes(cut, part);
    int rc = alone ? br_item_add_part(alone, part) : BR_ENOMEM;
    if (rc == 0)
        rc = br_traces_split(alone, (uint32_t)(bytes / cut->record_bytes), bytes + part->res_len,
                             pieces_on_traces, cut);
    br_item_free(alone);
    return rc;
}

/* Returns true if part `next` begins where `part` ends. */
static bool pieces_adjoins(const struct br_part *part, const struct br_part *next)
{
    return part->buf == next->buf && part->raw + part->raw_len == next->raw;
}

/* Cuts a request of several messages. Adjacent messages form a valid request, so a piece can
 * refer to the received bytes of several messages. */
static int pieces_cut_traces(struct cut *cut, const struct br_item *item)
{
    int rc = 0;
    for (uint32_t i = 0, next; i < item->n_parts && rc == 0; i = next) {
        const struct br_part *first = &item->parts[i];
        size_t len = first->raw_len;
        uint32_t n_records = first->n_records;
        for (next = i + 1; next < item->n_parts; next++) {
            const struct br_part *part = &item->parts[next];
            if (pieces_weight(BR_TRACES, len + part->raw_len, n_records + part->n_records) >
                    cut->bytes ||
                !pieces_adjoins(part - 1, part))
                break;
            len += part->raw_len;
            n_records += part->n_records;
        }
        if (pieces_weight(BR_TRACES, len, n_records) > cut->bytes)
            rc = pieces_cut_part(cut, first);
        else if (!(rc = pieces_cut_walk(cut, first->buf, first->raw, len, n_records)))
            rc = pieces_cut_made(cut, 0, n_records);
    }
    return rc;
}

static int pieces_cut_split(struct cut *cut, const struct br_item *item)
{
    return item->signal == BR_TRACES ? pieces_cut_traces(cut, item)
                                     : br_profiles_split(item, pieces_cut_records(cut), cut->bytes,
                                                         pieces_on_profiles, cut);
}

/* Cuts the item into pieces of `cut->bytes`. Returns BR_EFULL if all pieces together would take
 * too much memory. */
static int pieces_cut_try(struct cut *cut, const struct br_item *item)
{
    struct br_reading *reading = cut->reading;
    struct br_mem_scope scope;
    cut->made_bytes = cut->n_made = cut->n_pieces = 0;
    size_t most = item->size * pieces_cut_growth(cut) + BR_READING_ROOM;
    br_mem_scope_begin(&scope, most, reading->host->memory);
    cut->scope = &scope;
    int rc = pieces_cut_split(cut, item);
    br_mem_scope_end(&scope);
    cut->scope = NULL;
    if (!rc)
        return 0;
    br_pieces_free(&cut->pieces);
    /* return the unused buffers to the system, because the next pieces have another size and cannot
     * use them */
    br_pool_trim(reading->host->pool);
    reading->err = (struct br_err){0};
    /* Failed allocations in this scope are not counted as failures, because the next attempt can
     * succeed. */
    reading->scope.full = reading->scope.refused = false;
    return scope.full || scope.refused || rc == BR_EFULL ? BR_EFULL : rc;
}

size_t br_pieces_from(enum br_signal signal)
{
    return signal == BR_TRACES ? BR_PIECES_FROM_TRACES : BR_PIECES_FROM_PROFILES;
}

bool br_pieces_wanted(const struct br_item *item)
{
    return item->n_records > 1 &&
           pieces_weight(item->signal, item->size, item->n_records) > br_pieces_from(item->signal);
}

int br_pieces_cut(struct br_reading *reading, const struct br_walk_options *options)
{
    struct br_item *item = reading->item;
    struct cut cut = {.reading = reading,
                      .options = options,
                      .bytes = BR_PIECE_BYTES,
                      .record_bytes = pieces_record_bytes(item->signal)};
    size_t weight = pieces_weight(item->signal, item->size, item->n_records);
    if (!br_pieces_wanted(item) || !br_list_empty(&reading->pieces))
        return 0;
    br_list_init(&cut.pieces);
    int rc = pieces_cut_try(&cut, item);
    struct br_walk_options unlisted = options ? *options : (struct br_walk_options){0};
    /* The list of the smallest possible spans takes twice as much memory as the spans
     * themselves. */
    if (rc == BR_EFULL && unlisted.spans) {
        unlisted.spans = false;
        cut.options = &unlisted;
        rc = pieces_cut_try(&cut, item);
    }
    while (rc == BR_EFULL && pieces_cut_larger(&cut, weight))
        rc = pieces_cut_try(&cut, item);
    if (rc)
        return rc == BR_EFULL ? 0 : rc;
    uint32_t n_records = item->n_records;
    br_item_clear_parts(item);
    item->n_records = n_records;
    while (!br_list_empty(&cut.pieces))
        br_list_append(&reading->pieces, br_list_shift(&cut.pieces));
    return 0;
}

/* --- Sending ---------------------------------------------------------------------------------- */

static void pieces_end(struct br_pieces *pieces)
{
    br_hold_release(&pieces->hold);
    br_list_remove(&pieces->link);
    if (pieces->stopped)
        br_item_release_parent(pieces->whole); /* at shutdown, no piece is retried */
    else
        br_item_release_pieces(pieces->whole);
    br_free(pieces);
}

static void pieces_on_end(struct br_hold *hold, struct br_item *piece, void *arg,
                          const struct br_outcome *outcome, const char *reason)
{
    (void)arg;
    (void)reason;
    if (outcome->verdict == BR_REJECT)
        /* a piece was permanently rejected, so the sender must not send the whole item again */
        br_hold_note_progress(hold);
    br_item_finish(piece, outcome);
}

/* Ends the transfer if all its pieces have ended. */
static void pieces_check(void *arg)
{
    struct br_pieces *pieces = arg;
    if (pieces->hold.n_held == 0)
        pieces_end(pieces);
}

static void pieces_output(struct br_consumer *self, struct br_item *attempt)
{
    br_node_forward(br_container_of(self, struct br_pieces, output)->node, attempt);
}

static bool pieces_init_hold(struct br_pieces *pieces)
{
    const struct br_hold_config config = {.host = pieces->node->host,
                                          .next = &pieces->output,
                                          .policy = {.order = BR_HOLD_PACED,
                                                     .first_delay_ms = RETRY_FIRST_MS,
                                                     .max_delay_ms = RETRY_MAX_MS,
                                                     .group = true,
                                                     .max_bytes = BR_HOLD_UNLIMITED,
                                                     .max_age_ms = BR_PIECES_RETRY_MS},
                                          .end = pieces_on_end,
                                          .on_end = pieces_check,
                                          .arg = pieces};
    return br_hold_init(&pieces->hold, &config);
}

void br_pieces_send(struct br_node *node, struct br_item *whole, struct br_list *pieces,
                    struct br_list *sendings)
{
    struct br_pieces *sending = br_calloc(1, sizeof *sending);
    struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "out of memory");
    struct br_list *list;
    if (!sending) {
        br_pieces_free(pieces);
        br_item_finish(whole, &outcome);
        return;
    }
    sending->output.consume = pieces_output;
    sending->node = node;
    sending->whole = whole;
    br_list_init(&sending->link);
    br_list_append(sendings, &sending->link);
    bool ok = pieces_init_hold(sending);
    while ((list = br_list_shift(pieces))) {
        struct br_item *piece = br_container_of(list, struct br_item, link);
        piece->metadata = whole->metadata;
        br_item_adopt(whole, piece);
        ok = ok && br_hold_add(&sending->hold, piece, NULL) == 0;
        if (!ok)
            br_item_finish(piece, &outcome);
    }
    if (ok) {
        br_hold_start(&sending->hold);
        return;
    }
    br_hold_close(&sending->hold, &outcome);
    pieces_end(sending);
}

void br_pieces_stop(struct br_list *sendings)
{
    struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "shutting down");
    while (!br_list_empty(sendings)) {
        struct br_pieces *pieces = br_container_of(sendings->next, struct br_pieces, link);
        br_list_remove(&pieces->link);
        pieces->stopped = true;
        br_hold_close(&pieces->hold, &outcome);
        pieces_check(pieces);
    }
}
