/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/profile_limits/pieces.h"

#include "base/mem.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/edit/rewrite.h"
#include "otlp/scan.h"

#define GROWTH_MAX 8
#define GROWTH_FREE (16u << 20)
#define PIECE_COST 4096 /* of a piece beside its bytes */
#define GROWS_TOO_MUCH 1

enum { PAYLOAD_FORMAT = 9, PAYLOAD = 10 }; /* Profile.original_payload */

/* --- Is it too large? ------------------------------------------------------------------------ */

struct most {
    uint32_t n, most; /* samples of this profile, and of any */
};

static int on_sample(void *arg, struct br_visit *v)
{
    struct most *m = arg;
    if (v->level == BR_LEVEL_ITEM) {
        m->n++;
        return BR_KEEP;
    }
    m->most = m->n > m->most ? m->n : m->most;
    m->n = 0;
    return BR_KEEP;
}

int limits_is_large(const struct limits_sizes *sizes, struct br_item *item)
{
    if (sizes->max_bytes && item->size > sizes->max_bytes)
        return 1;
    if (sizes->max_samples == 0 || item->n_items <= sizes->max_samples)
        return 0;
    struct most m = {0};
    int rc = br_item_rewrite(item, 1u << BR_LEVEL_ITEM | 1u << BR_LEVEL_PROFILE, on_sample, &m);
    return rc ? rc : m.most > sizes->max_samples;
}

/* --- One piece ------------------------------------------------------------------------------- */

struct stripper {
    struct br_arena *arena;
    bool found;
};

static int on_profile(void *arg, struct br_visit *v)
{
    struct stripper *s = arg;
    uint8_t *copy = br_arena_alloc(s->arena, v->len + 1), *out = copy;
    const uint8_t *end = v->body + v->len;
    struct br_field f;
    if (!copy)
        return BR_ENOMEM;
    for (const uint8_t *p = v->body; p < end && (p = br_scan(p, end, &f));)
        if (f.number != PAYLOAD_FORMAT && f.number != PAYLOAD)
            out = br_put_bytes(out, f.at, (size_t)(p - f.at));
    v->out = (struct br_addition){copy, (size_t)(out - copy)};
    s->found = s->found || v->out.len < v->len;
    return v->out.len < v->len ? BR_REPLACE : BR_KEEP;
}

/* Takes out what says the profile once more, in the format that it came in. */
static int strip(struct br_item *piece, double *payloads)
{
    struct stripper s = {.arena = &piece->arena};
    int rc = br_item_rewrite(piece, 1u << BR_LEVEL_PROFILE, on_profile, &s);
    *payloads += s.found;
    return rc;
}

static bool fits(const struct limits_sizes *sizes, const struct br_item *piece)
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

static int on_piece(struct br_item *piece, void *arg)
{
    struct pieces *p = arg;
    br_list_append(&p->list, &piece->link);
    int rc = fits(p->sizes, piece) ? 0 : strip(piece, &p->payloads);
    size_t cost = piece->size + PIECE_COST;
    if (rc || cost > p->room)
        return rc ? rc : GROWS_TOO_MUCH;
    p->room -= cost;
    return 0;
}

static struct br_item *shift(struct pieces *p)
{
    struct br_list *l = br_list_shift(&p->list);
    return l ? br_container_of(l, struct br_item, link) : NULL;
}

static uint32_t drop_all(struct pieces *p, struct br_item *item, int rc)
{
    struct br_item *piece;
    while ((piece = shift(p)))
        br_item_free(piece);
    uint32_t n = item->n_items;
    if (rc == GROWS_TOO_MUCH || rc == BR_EFULL) {
        br_item_settle(item, BR_FATE_DROPPED, LIMITS_TOO_LARGE, n);
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
    int rc = br_profiles_split(item, sizes->max_samples, sizes->max_bytes, on_piece, &p);
    if (rc)
        return drop_all(&p, item, rc);
    *counts->payloads += p.payloads;
    while ((piece = shift(&p))) {
        if (!fits(sizes, piece)) {
            n_dropped += piece->n_items;
            br_item_settle(item, BR_FATE_DROPPED, LIMITS_TOO_LARGE, piece->n_items);
            br_item_free(piece);
            continue;
        }
        n_forwarded++;
        br_item_adopt(item, piece);
        piece->metadata = item->metadata; /* in the parent's arena, which outlives it */
        br_node_forward(node, piece);
    }
    *counts->splits += n_forwarded > 1;
    if (n_forwarded)
        br_item_release_parent(item);
    else
        br_item_done(item);
    return n_dropped;
}
