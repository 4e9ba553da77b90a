/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/mem.h"
#include "otlp/dictionary.h"
#include "pipeline/exporter.h"

#define LOG_EVERY_MS 60000

struct br_retry {
    struct br_consumer input;
    struct br_node *node;
    const struct br_retry_config *config;
    struct br_consumer *next;
    struct br_list held; /* of attempt */
    struct br_log_limit log_limit;
    bool closing;
};

/* An item that has not ended yet. */
struct attempt {
    struct br_list link;
    struct br_retry *retry;
    struct br_item *item;
    struct br_timer timer;
    uint64_t started_ms;
    double interval_ms;
};

static void try_once(struct attempt *a);

static void end(struct attempt *a, const struct br_outcome *outcome)
{
    struct br_item *item = a->item;
    br_host_timer_stop(a->retry->node->host, &a->timer);
    br_list_remove(&a->link);
    br_free(a);
    br_item_finish(item, outcome);
}

static void on_due(struct br_timer *t)
{
    try_once(br_container_of(t, struct attempt, timer));
}

/* Exponential back-off with jitter, as the Collector's; a server's hint wins. */
static uint64_t next_delay(struct attempt *a, uint32_t hint_ms)
{
    const struct br_retry_config *c = a->retry->config;
    double spread = c->randomization_factor * a->interval_ms;
    double random = br_host_random(a->retry->node->host);
    double delay = a->interval_ms - spread + 2 * spread * random;
    a->interval_ms = fmin(a->interval_ms * c->multiplier, (double)c->max_interval / 1e6);
    return hint_ms ? hint_ms : (uint64_t)delay;
}

/* Nobody who waits for data to arrive should have to guess why it does not. */
static void say(struct br_retry *r, const struct br_outcome *o, uint64_t now, uint64_t delay_ms)
{
    uint64_t held;
    if (br_log_allow(&r->log_limit, now, LOG_EVERY_MS, &held))
        br_warn(&r->node->log, "not delivered, next try in %.1f s: %s: %s", (double)delay_ms / 1e3,
                br_status_name(o->status), o->text);
}

static void again(struct attempt *a, const struct br_outcome *o)
{
    const struct br_retry_config *c = a->retry->config;
    struct br_host *host = a->retry->node->host;
    uint64_t now = br_host_mono_ms(host), delay = next_delay(a, o->delay_ms);
    uint64_t limit_ms = c->max_elapsed_time / 1000000;
    bool over = limit_ms && now - a->started_ms + delay > limit_ms;
    if (!c->enabled || over || a->retry->closing || !br_host_timer(host, &a->timer, delay, on_due))
        end(a, o);
    else
        say(a->retry, o, now, delay);
}

static int take_piece(struct br_item *piece, void *arg)
{
    struct br_list *pieces = arg;
    br_list_append(pieces, &piece->link);
    return 0;
}

/* The peer takes no request of this size: two halves may do. */
static void halve(struct attempt *a)
{
    struct br_item *item = a->item;
    struct br_retry *r = a->retry;
    uint32_t half = (item->n_items + 1) / 2;
    struct br_list pieces, *l;
    br_list_init(&pieces);
    int rc = item->signal == BR_TRACES ? br_traces_split(item, half, 0, take_piece, &pieces)
                                       : br_profiles_split(item, half, 0, take_piece, &pieces);
    if (rc) {
        struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "out of memory");
        while ((l = br_list_shift(&pieces)))
            br_item_free(br_container_of(l, struct br_item, link));
        again(a, &o);
        return;
    }
    br_list_remove(&a->link);
    br_free(a);
    while ((l = br_list_shift(&pieces))) {
        struct br_item *piece = br_container_of(l, struct br_item, link);
        br_item_adopt(item, piece);
        br_consume(&r->input, piece);
    }
    br_item_release_parent(item);
}

static void on_attempt(struct br_item *child, void *arg)
{
    struct attempt *a = arg;
    const struct br_outcome *o = &child->outcome;
    if (o->verdict == BR_RETRY)
        again(a, o);
    else if (o->verdict == BR_REJECT && o->status == BR_STATUS_RESOURCE_EXHAUSTED &&
             a->item->n_items > 1 && !a->retry->closing)
        halve(a);
    else
        end(a, o);
}

static void try_once(struct attempt *a)
{
    struct br_item *child = br_item_attempt(a->item, on_attempt, a);
    if (child) {
        br_consume(a->retry->next, child);
        return;
    }
    struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "out of memory");
    again(a, &o);
}

static void retry_consume(struct br_consumer *self, struct br_item *item)
{
    struct br_retry *r = br_container_of(self, struct br_retry, input);
    struct attempt *a = br_calloc(1, sizeof *a);
    if (!a || r->closing) {
        br_free(a);
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "the exporter takes nothing now");
        return;
    }
    a->retry = r;
    a->item = item;
    a->started_ms = br_host_mono_ms(r->node->host);
    a->interval_ms = (double)r->config->initial_interval / 1e6;
    br_list_append(&r->held, &a->link);
    try_once(a);
}

struct br_retry *br_retry_new(struct br_node *node, const struct br_retry_config *config,
                              struct br_consumer *next)
{
    struct br_retry *r = br_calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->input.consume = retry_consume;
    r->node = node;
    r->config = config;
    r->next = next;
    br_list_init(&r->held);
    return r;
}

struct br_consumer *br_retry_input(struct br_retry *r)
{
    return &r->input;
}

bool br_retry_idle(const struct br_retry *r)
{
    return br_list_empty(&r->held);
}

void br_retry_free(struct br_retry *r)
{
    if (!r)
        return;
    r->closing = true;
    /* The exporter was destroyed before: every attempt under way has been finished, and the host's
     * turn since then brought it here; what is left waits for a timer. */
    while (!br_list_empty(&r->held)) {
        struct attempt *a = br_container_of(r->held.next, struct attempt, link);
        struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "shutting down");
        end(a, &o);
    }
    br_free(r);
}

#define RETRY_ROWS(on)                                                                             \
    BR_BOOL(struct br_retry_config, enabled, (on), "try again"),                                   \
        BR_DURATION(struct br_retry_config, initial_interval, "5s",                                \
                    "delay after the first failure"),                                              \
        BR_DOUBLE(struct br_retry_config, randomization_factor, 0.5, 0, 1,                         \
                  "share of a delay that is random"),                                              \
        BR_DOUBLE(struct br_retry_config, multiplier, 1.5, 1, 1000, "growth of the delay"),        \
        BR_DURATION(struct br_retry_config, max_interval, "30s", "longest delay"),                 \
        BR_DURATION(struct br_retry_config, max_elapsed_time, "5m", "give up after it; 0: never"), \
        BR_OPT_END

const struct br_option br_retry_options[] = {RETRY_ROWS(true)};
const struct br_option br_retry_options_off[] = {RETRY_ROWS(false)};
