/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/pieces.h"

#include "base/mem.h"
#include "otlp/dictionary/dictionary.h"

/* Timers that are due at once run several times a turn: as often as there are others. */
#define NEXT_TURN_MS 1
#define RETRY_FIRST_MS 50
#define RETRY_MAX_MS 1000
#define PIECE_STEP 2u   /* pieces that repeat too much are so many times as large the next time */
#define CUT_GROWTH 4u   /* times the item is what its pieces may take */
#define SMALL_GROWTH 3u /* the same of small pieces that have a dictionary each */
#define SMALL_BYTES (1u << 20)
#define FORECAST_PIECES 8u /* after so many it is foretold what all of them will take */

struct br_pieces {
    struct br_list link;   /* the sendings */
    struct br_node *node;  /* NULL once it was stopped */
    struct br_host *host;
    struct br_item *whole; /* parent of all pieces */
    struct br_list waiting, flying; /* pieces */
    struct br_outcome refusal;      /* the last one */
    struct br_timer next;
    uint64_t delay_ms, until_ms;
    bool any;   /* something was taken, or refused for good */
    bool taken; /* something was taken */
};

/* --- Cutting ---------------------------------------------------------------------------------- */

struct cut {
    struct br_reading *reading;
    const struct br_walk_options *options;
    struct br_list pieces;
    size_t bytes;      /* of a piece */
    size_t made_bytes; /* in pieces, so far */
    uint32_t n_pieces;
    uint64_t n_made; /* spans or samples in them */
};

void br_pieces_free(struct br_list *pieces)
{
    struct br_list *l;
    while ((l = br_list_shift(pieces)))
        br_item_free(br_container_of(l, struct br_item, link));
}

/* Takes the piece, or its lack. */
static int cut_add(struct cut *c, struct br_item *piece)
{
    if (!piece)
        return BR_ENOMEM;
    br_list_append(&c->pieces, &piece->link);
    return 0;
}

/* A piece out of a request's bytes, which it refers to; with its spans found. */
static int cut_walk(struct cut *c, struct br_buf *buf, const uint8_t *data, size_t len)
{
    uint32_t repaired;
    struct br_item *piece = br_item_new(c->reading->host, BR_TRACES);
    int rc = piece ? br_walk(piece, buf, data, len, c->options, &repaired, &c->reading->err)
                   : BR_ENOMEM;
    if (rc == 0)
        return cut_add(c, piece);
    br_item_free(piece);
    return rc;
}

/* What was split off a large message is bytes of its own. */
static int on_trace_piece(struct br_item *piece, void *arg)
{
    struct cut *c = arg;
    struct br_rope rope = {0};
    const uint8_t *data = NULL;
    struct br_pool *pool = c->reading->host->pool;
    struct br_buf *buf = br_item_write(piece, &rope) ? NULL : br_rope_flat(&rope, pool, &data);
    br_item_free(piece);
    int rc = buf ? cut_walk(c, buf, data, rope.len) : BR_ENOMEM;
    br_buf_unref(buf);
    br_rope_release(&rope);
    return rc;
}

static size_t cut_growth(const struct cut *c)
{
    bool small = c->reading->item->signal == BR_PROFILES && c->bytes < SMALL_BYTES;
    return small ? SMALL_GROWTH : CUT_GROWTH;
}

/* What cannot end well ends early: the next pieces are as the first ones. */
static bool cut_hopeless(const struct cut *c)
{
    const struct br_item *item = c->reading->item;
    if (c->bytes >= SMALL_BYTES || c->n_pieces != FORECAST_PIECES)
        return false;
    double share = (double)c->n_made / item->n_items;
    return (double)c->made_bytes > share * (double)(item->size * cut_growth(c));
}

static int on_profile_piece(struct br_item *piece, void *arg)
{
    struct cut *c = arg;
    c->made_bytes += piece->size;
    c->n_made += piece->n_items;
    c->n_pieces++;
    int rc = cut_add(c, piece);
    return rc == 0 && cut_hopeless(c) ? BR_EFULL : rc;
}

/* One message that is larger than a piece. */
static int cut_part(struct cut *c, const struct br_part *part)
{
    struct br_item *alone = br_item_new(c->reading->host, BR_TRACES);
    int rc = alone ? br_item_add_part(alone, part) : BR_ENOMEM;
    if (rc == 0)
        rc = br_traces_split(alone, 0, c->bytes, on_trace_piece, c);
    br_item_free(alone);
    return rc;
}

/* True when part `b` begins where `a` ends. */
static bool adjoins(const struct br_part *a, const struct br_part *b)
{
    return a->buf == b->buf && a->raw + a->raw_len == b->raw;
}

/* Messages that follow one another are a request: pieces refer to the bytes that came. */
static int cut_traces(struct cut *c, const struct br_item *item)
{
    int rc = 0;
    for (uint32_t i = 0, next; i < item->n_parts && rc == 0; i = next) {
        const struct br_part *first = &item->parts[i];
        size_t len = first->raw_len;
        for (next = i + 1; next < item->n_parts; next++) {
            const struct br_part *part = &item->parts[next];
            if (len + part->raw_len > c->bytes || !adjoins(part - 1, part))
                break;
            len += part->raw_len;
        }
        rc = len > c->bytes ? cut_part(c, first) : cut_walk(c, first->buf, first->raw, len);
    }
    return rc;
}

static int cut_split(struct cut *c, const struct br_item *item)
{
    return item->signal == BR_TRACES ? cut_traces(c, item)
                                     : br_profiles_split(item, 0, c->bytes, on_profile_piece, c);
}

/* Cuts into pieces of c->bytes; BR_EFULL when they would take too much together. */
static int cut_try(struct cut *c, const struct br_item *item)
{
    struct br_reading *r = c->reading;
    struct br_mem_scope scope;
    c->made_bytes = c->n_made = c->n_pieces = 0;
    size_t most = item->size * cut_growth(c) + BR_READING_ROOM;
    br_mem_scope_begin(&scope, most, r->host->memory);
    int rc = cut_split(c, item);
    br_mem_scope_end(&scope);
    if (!rc)
        return 0;
    br_pieces_free(&c->pieces);
    r->err = (struct br_err){0};
    r->scope.full = r->scope.refused = false; /* of this scope: what came before has ended well */
    return scope.full || scope.refused || rc == BR_EFULL ? BR_EFULL : rc;
}

int br_pieces_cut(struct br_reading *r, const struct br_walk_options *options)
{
    struct br_item *item = r->item;
    struct cut c = {.reading = r, .options = options, .bytes = BR_PIECE_BYTES};
    if (item->size <= BR_PIECES_FROM_BYTES || item->n_items < 2)
        return 0;
    br_list_init(&c.pieces);
    int rc = cut_try(&c, item);
    for (; rc == BR_EFULL && c.bytes <= item->size / (2 * PIECE_STEP); rc = cut_try(&c, item))
        c.bytes *= PIECE_STEP;
    if (rc)
        return rc == BR_EFULL ? 0 : rc;
    uint32_t n_items = item->n_items;
    br_item_clear_parts(item);
    item->n_items = n_items;
    while (!br_list_empty(&c.pieces))
        br_list_append(&r->pieces, br_list_shift(&c.pieces));
    return 0;
}

/* --- Sending ---------------------------------------------------------------------------------- */

static void on_next(struct br_timer *t);

static void pieces_later(struct br_pieces *s, uint64_t delay_ms)
{
    (void)br_host_timer(s->host, &s->next, delay_ms, on_next);
}

/* Of a success `piece` is the part that was refused. */
static struct br_outcome pieces_partly(const struct br_item *piece, const struct br_outcome *o)
{
    struct br_outcome partly = *o;
    partly.verdict = BR_DONE;
    partly.status = BR_STATUS_OK;
    partly.delay_ms = 0;
    partly.n_rejected = piece->n_items;
    return partly;
}

/* Refuses what waits: for good where others were taken and there is time to come. */
static void pieces_refuse(struct br_pieces *s, const struct br_outcome *o)
{
    struct br_list *l;
    while ((l = br_list_shift(&s->waiting))) {
        struct br_item *piece = br_container_of(l, struct br_item, link);
        struct br_outcome partly = pieces_partly(piece, o);
        br_item_finish(piece, s->taken && s->node ? &partly : o);
    }
}

/* Ends the sending when no piece is left. */
static void pieces_check(struct br_pieces *s)
{
    if (!br_list_empty(&s->waiting) || !br_list_empty(&s->flying))
        return;
    br_host_timer_stop(s->host, &s->next);
    br_list_remove(&s->link);
    br_item_release_parent(s->whole);
    br_free(s);
}

/* Tries a piece again later, unless it is of no use. */
static void pieces_again(struct br_pieces *s, struct br_item *piece, const struct br_outcome *o)
{
    s->refusal = *o;
    br_list_append(&s->waiting, &piece->link);
    bool nothing = !s->any && br_list_empty(&s->flying);
    if (!s->node || nothing || br_host_mono_ms(s->host) >= s->until_ms) {
        pieces_refuse(s, &s->refusal);
        return;
    }
    pieces_later(s, s->delay_ms);
    s->delay_ms = s->delay_ms * 2 < RETRY_MAX_MS ? s->delay_ms * 2 : RETRY_MAX_MS;
}

/* One piece that is refused for good does not take the others along: it is the rejected part of a
 * success, and what is to be sent again stays so. */
static void pieces_finish(struct br_item *piece, const struct br_outcome *o)
{
    struct br_outcome partly = pieces_partly(piece, o);
    br_item_finish(piece, o->verdict == BR_REJECT ? &partly : o);
}

static void on_attempt(struct br_item *attempt, void *arg)
{
    struct br_pieces *s = arg;
    struct br_item *piece = attempt->parent;
    const struct br_outcome *o = &attempt->outcome;
    br_list_remove(&piece->link);
    if (o->verdict == BR_RETRY) {
        pieces_again(s, piece, o);
    } else {
        s->any = true;
        s->taken = s->taken || o->verdict == BR_DONE;
        s->delay_ms = RETRY_FIRST_MS;
        pieces_finish(piece, o);
    }
    pieces_check(s);
}

static void pieces_try(struct br_pieces *s, struct br_item *piece)
{
    struct br_item *attempt = br_item_attempt(piece, on_attempt, s);
    if (!attempt) {
        struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "out of memory");
        pieces_again(s, piece, &o);
        return;
    }
    br_list_append(&s->flying, &piece->link);
    br_node_forward(s->node, attempt);
}

static void on_next(struct br_timer *t)
{
    struct br_pieces *s = br_container_of(t, struct br_pieces, next);
    struct br_list *l = br_list_shift(&s->waiting);
    pieces_later(s, NEXT_TURN_MS); /* before, so that a refusal can put it off */
    if (l)
        pieces_try(s, br_container_of(l, struct br_item, link));
    if (br_list_empty(&s->waiting))
        br_host_timer_stop(s->host, &s->next);
    pieces_check(s);
}

void br_pieces_send(struct br_node *node, struct br_item *whole, struct br_list *pieces,
                    struct br_list *sendings)
{
    struct br_pieces *s = br_calloc(1, sizeof *s);
    struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "out of memory");
    struct br_list *l;
    if (!s) {
        br_pieces_free(pieces);
        br_item_finish(whole, &o);
        return;
    }
    *s = (struct br_pieces){.node = node,
                            .host = node->host,
                            .whole = whole,
                            .delay_ms = RETRY_FIRST_MS,
                            .until_ms = br_host_mono_ms(node->host) + BR_PIECES_PATIENCE_MS};
    br_list_init(&s->waiting);
    br_list_init(&s->flying);
    br_list_init(&s->link);
    br_list_append(sendings, &s->link);
    while ((l = br_list_shift(pieces))) {
        struct br_item *piece = br_container_of(l, struct br_item, link);
        piece->metadata = whole->metadata;
        br_item_adopt(whole, piece);
        br_list_append(&s->waiting, l);
    }
    if (!br_host_timer_park(s->host, &s->next, on_next)) {
        pieces_refuse(s, &o);
        pieces_check(s);
        return;
    }
    pieces_later(s, 0); /* in a turn, of which the outcome of each piece is the end */
}

void br_pieces_stop(struct br_list *sendings)
{
    struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "shutting down");
    while (!br_list_empty(sendings)) {
        struct br_pieces *s = br_container_of(sendings->next, struct br_pieces, link);
        br_list_remove(&s->link);
        s->node = NULL;
        br_host_timer_stop(s->host, &s->next);
        pieces_refuse(s, &o);
        pieces_check(s);
    }
}
