/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/profile_limits/profile_limits.h"

#include "base/mem.h"
#include "base/steps.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/edit/rewrite.h"
#include "otlp/scan.h"

/* all pieces of a request together may have at most GROWTH_MAX times the bytes of the request */
#define GROWTH_MAX 3
/* number of bytes that all pieces together may have in addition to GROWTH_MAX times the request */
#define GROWTH_FREE (1u << 20)
#define PIECE_COST 1536 /* memory that a piece takes in addition to its data, in bytes */
#define GROWS_TOO_MUCH 1

/* field numbers of original_payload_format and original_payload in the message Profile */
enum { PAYLOAD_FORMAT = 9, PAYLOAD = 10 };

/* --- Checks for requests that are too large -------------------------------------------------- */

struct most {
    /* number of samples in the current profile, and in the largest profile so far */
    uint32_t count, most;
};

static int limits_pieces_on_sample(void *arg, struct br_visit *visit)
{
    struct most *most = arg;
    if (visit->level == BR_LEVEL_RECORD) {
        most->count++;
        return BR_KEEP;
    }
    most->most = most->count > most->most ? most->count : most->most;
    most->count = 0;
    return BR_KEEP;
}

int limits_is_large(const struct limits_sizes *sizes, struct br_item *item)
{
    if (sizes->max_bytes && item->size > sizes->max_bytes)
        return 1;
    if (sizes->max_samples == 0 || item->n_records <= sizes->max_samples)
        return 0;
    struct most most = {0};
    int rc = br_item_rewrite(item, 1u << BR_LEVEL_RECORD | 1u << BR_LEVEL_PROFILE,
                             limits_pieces_on_sample, &most);
    return rc ? rc : most.most > sizes->max_samples;
}

/* --- One piece ------------------------------------------------------------------------------- */

struct stripper {
    struct br_arena *arena;
    bool found;
};

static int limits_pieces_on_profile(void *arg, struct br_visit *visit)
{
    struct stripper *stripper = arg;
    uint8_t *copy = br_arena_alloc(stripper->arena, visit->len + 1), *out = copy;
    const uint8_t *end = br_mem_end(visit->body, visit->len);
    struct br_field field;
    if (!copy)
        return BR_ENOMEM;
    br_steps_add(visit->len);
    for (const uint8_t *p = visit->body; p < end && (p = br_scan(p, end, &field));)
        if (field.number != PAYLOAD_FORMAT && field.number != PAYLOAD)
            out = br_put_bytes(out, field.at, (size_t)(p - field.at));
    visit->out = (struct br_addition){copy, (size_t)(out - copy)};
    stripper->found = stripper->found || visit->out.len < visit->len;
    return visit->out.len < visit->len ? BR_REPLACE : BR_KEEP;
}

/* Removes the original payload, which contains the profile again in its original format. */
static int limits_pieces_strip(struct br_item *piece, double *payloads)
{
    struct stripper stripper = {.arena = &piece->arena};
    int rc = br_item_rewrite(piece, 1u << BR_LEVEL_PROFILE, limits_pieces_on_profile, &stripper);
    *payloads += stripper.found;
    return rc;
}

static bool limits_pieces_fits(const struct limits_sizes *sizes, const struct br_item *piece)
{
    return sizes->max_bytes == 0 || piece->size <= sizes->max_bytes;
}

/* --- All pieces ------------------------------------------------------------------------------ */

struct pieces {
    struct br_list list;
    size_t room;
    const struct limits_sizes *sizes;
    double payloads;
};

static int limits_pieces_on_piece(struct br_item *piece, void *arg)
{
    struct pieces *p = arg;
    br_list_append(&p->list, &piece->link);
    int rc = limits_pieces_fits(p->sizes, piece) ? 0 : limits_pieces_strip(piece, &p->payloads);
    size_t cost = piece->size + PIECE_COST;
    if (rc || cost > p->room)
        return rc ? rc : GROWS_TOO_MUCH;
    p->room -= cost;
    return 0;
}

static struct br_item *limits_pieces_shift(struct pieces *pieces)
{
    struct br_list *list = br_list_shift(&pieces->list);
    return list ? br_container_of(list, struct br_item, link) : NULL;
}

static uint32_t limits_pieces_drop_all(struct pieces *pieces, struct br_item *item, int rc)
{
    struct br_item *piece;
    while ((piece = limits_pieces_shift(pieces)))
        br_item_free(piece);
    uint32_t n = item->n_records;
    if (rc == GROWS_TOO_MUCH || rc == BR_EFULL) {
        br_item_report(item, BR_RESULT_DROPPED, LIMITS_TOO_LARGE, n);
        br_item_done(item);
        return n;
    }
    if (rc == BR_EINVAL) {
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT, "profile_limits: malformed data");
    } else {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "profile_limits: out of memory");
    }
    return 0;
}

uint32_t limits_forward_pieces(struct br_node *node, const struct limits_sizes *sizes,
                               const struct limits_counts *counts, struct br_item *item)
{
    struct pieces p = {.room = GROWTH_MAX * item->size + GROWTH_FREE, .sizes = sizes};
    struct br_item *piece;
    uint32_t n_forwarded = 0, n_dropped = 0;
    br_list_init(&p.list);
    int rc =
        br_profiles_split(item, sizes->max_samples, sizes->max_bytes, limits_pieces_on_piece, &p);
    if (rc)
        return limits_pieces_drop_all(&p, item, rc);
    *counts->payloads += p.payloads;
    while ((piece = limits_pieces_shift(&p))) {
        if (!limits_pieces_fits(sizes, piece)) {
            n_dropped += piece->n_records;
            br_item_report(item, BR_RESULT_DROPPED, LIMITS_TOO_LARGE, piece->n_records);
            br_item_free(piece);
            continue;
        }
        n_forwarded++;
        br_item_adopt(item, piece);
        /* the metadata is in the arena of the parent item, which outlives the piece */
        piece->metadata = item->metadata;
        br_node_forward(node, piece);
    }
    *counts->splits += n_forwarded > 1;
    if (n_forwarded)
        br_item_release_parent(item);
    else
        br_item_done(item);
    return n_dropped;
}
