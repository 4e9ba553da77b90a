/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/mem.h"
#include "otlp/dictionary/dictionary.h"
#include "pipeline/exporter.h"

#define LOG_EVERY_MS 60000
#define AGAIN_MS 1000
#define SILENCE_MS 5000 /* without an answer; then one wakes those who wait */
#define WAKE_OVER_MS 1000.0

struct br_retry {
    struct br_consumer input;
    struct br_node *node;
    const struct br_retry_config *config;
    const struct br_divider *divider;
    struct br_consumer *next;
    struct br_list held; /* of attempt */
    struct br_log_limit log_limit, back_limit;
    uint64_t failing_since_ms; /* the first failure after which nothing was answered; 0: none */
    struct silence {
        uint64_t since_ms; /* the first failure after the last answer; 0: none */
        bool reachable;    /* and its end is near */
    } silences[BR_SIGNALS]; /* they may go to different places */
    bool said;                 /* and the log has it */
    bool closing;
};

/* An item that has not ended yet. What was refused as a whole is divided: then its pieces are tried
 * one after the other, so that each tells something about the next. */
struct attempt {
    struct br_list link;
    struct br_retry *retry;
    struct br_item *item;  /* what is tried: the item that came, or a piece of it */
    struct br_list pieces; /* of br_item: what comes after it, the smallest first */
    struct br_timer timer;
    uint64_t started_ms;
    double interval_ms;
    unsigned n_refused;    /* pieces in a row */
    unsigned most_refused; /* after so many more of it needs a delay */
    bool out_of_turn;      /* `item` was the largest piece */
    bool wakeable;         /* it waits for a peer that is not there */
};

static void try_once(struct attempt *a);

static double initial_interval_ms(const struct br_retry *r)
{
    return (double)r->config->initial_interval / 1e6;
}

static void attempt_free(struct attempt *a)
{
    br_host_timer_stop(a->retry->node->host, &a->timer);
    br_list_remove(&a->link);
    br_free(a);
}

static struct br_item *attempt_shift(struct attempt *a)
{
    struct br_list *l = br_list_shift(&a->pieces);
    return l ? br_container_of(l, struct br_item, link) : NULL;
}

/* Ends what is tried and all that would come after it. */
static void attempt_end(struct attempt *a, const struct br_outcome *outcome)
{
    struct br_item *piece;
    br_item_finish(a->item, outcome);
    while ((piece = attempt_shift(a)))
        br_item_finish(piece, outcome);
    attempt_free(a);
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

/* --- The end of a silence -------------------------------------------------------------------- */

/* The peer is not there, as far as one can tell. Its own hint would say more. */
static bool says_nothing(const struct br_outcome *o)
{
    return !o->delay_ms &&
           (o->status == BR_STATUS_UNAVAILABLE || o->status == BR_STATUS_DEADLINE_EXCEEDED);
}

/* Only ever earlier. A timer that is armed can be armed again without memory. */
static void wake(struct attempt *a, uint64_t delay_ms)
{
    struct br_host *host = a->retry->node->host;
    a->wakeable = false;
    if (br_host_mono_ms(host) + delay_ms < a->timer.due_ms)
        (void)br_host_timer(host, &a->timer, delay_ms, on_due);
}

static struct attempt *next_wakeable(struct br_retry *r, struct br_list *from, enum br_signal signal)
{
    for (struct br_list *l = from->next; l != &r->held; l = l->next) {
        struct attempt *a = br_container_of(l, struct attempt, link);
        if (a->wakeable && a->item->signal == signal)
            return a;
    }
    return NULL;
}

/* All at once they might be too much for a peer that has just come back. */
static void wake_all(struct br_retry *r, enum br_signal signal)
{
    struct attempt *a;
    struct br_list *from = &r->held;
    while ((a = next_wakeable(r, from, signal))) {
        from = &a->link;
        wake(a, (uint64_t)(br_host_random(r->node->host) * WAKE_OVER_MS));
    }
}

/* One finds out for all. */
static void wake_one(struct br_retry *r, enum br_signal signal)
{
    struct attempt *a = next_wakeable(r, &r->held, signal);
    if (a)
        wake(a, 0);
}

void br_retry_reachable(void *arg)
{
    const struct br_node *node = arg;
    struct br_retry *r = node->retry;
    for (int s = 0; r && s < BR_SIGNALS; s++) {
        r->silences[s].reachable = r->silences[s].since_ms > 0;
        wake_one(r, (enum br_signal)s);
    }
}

static void note_silence(struct br_retry *r, enum br_signal signal)
{
    struct silence *silence = &r->silences[signal];
    if (!silence->since_ms)
        silence->since_ms = br_host_mono_ms(r->node->host);
}

/* A peer that takes some and refuses others is left to everybody's own delays. */
static void end_silence(struct br_retry *r, enum br_signal signal)
{
    struct silence was = r->silences[signal];
    r->silences[signal] = (struct silence){0};
    uint64_t now = br_host_mono_ms(r->node->host);
    if (!was.since_ms || (!was.reachable && now - was.since_ms < SILENCE_MS))
        return;
    wake_all(r, signal);
    wake_one(r, signal == BR_TRACES ? BR_PROFILES : BR_TRACES);
}

/* --- What is said ---------------------------------------------------------------------------- */

/* Nobody who waits for data to arrive should have to guess why it does not. */
static void say(struct br_retry *r, const struct br_outcome *o, uint64_t now, uint64_t delay_ms)
{
    uint64_t held;
    if (!r->failing_since_ms)
        r->failing_since_ms = now;
    if (!br_log_allow(&r->log_limit, now, LOG_EVERY_MS, &held))
        return;
    r->said = true;
    br_warn(&r->node->log, "not delivered, next try in %.1f s: %s: %s", (double)delay_ms / 1e3,
            br_status_name(o->status), o->text);
}

/* The peer answers. Right after a failure that may be what was on its way before. */
static void note_answer(struct br_retry *r)
{
    uint64_t now = br_host_mono_ms(r->node->host), held;
    if (!r->failing_since_ms || now - r->failing_since_ms < AGAIN_MS)
        return;
    if (r->said && br_log_allow(&r->back_limit, now, LOG_EVERY_MS, &held))
        br_info(&r->node->log, "sending again after %.1f s",
                (double)(now - r->failing_since_ms) / 1e3);
    r->said = false;
    r->failing_since_ms = 0;
}

/* Tries later what is to be tried now, unless that would be too late. */
static void again(struct attempt *a, const struct br_outcome *o)
{
    const struct br_retry_config *c = a->retry->config;
    struct br_host *host = a->retry->node->host;
    uint64_t now = br_host_mono_ms(host), delay = next_delay(a, o->delay_ms);
    uint64_t limit_ms = c->max_elapsed_time / 1000000;
    a->wakeable = says_nothing(o);
    if (a->wakeable)
        note_silence(a->retry, a->item->signal);
    bool over = limit_ms && now - a->started_ms + delay > limit_ms;
    if (!c->enabled || over || a->retry->closing || !br_host_timer(host, &a->timer, delay, on_due))
        attempt_end(a, o);
    else
        say(a->retry, o, now, delay);
}

/* --- Dividing what was refused --------------------------------------------------------------- */

static int take_piece(struct br_item *piece, void *arg)
{
    struct br_list *pieces = arg;
    br_list_append(pieces, &piece->link);
    return 0;
}

static bool size_divides(const struct br_outcome *o)
{
    return o->status == BR_STATUS_RESOURCE_EXHAUSTED;
}

static uint32_t size_count(const struct br_item *item)
{
    return item->n_items;
}

static int size_cut(const struct br_item *item, struct br_list *pieces)
{
    uint32_t half = (item->n_items + 1) / 2;
    return item->signal == BR_TRACES ? br_traces_split(item, half, 0, take_piece, pieces)
                                     : br_profiles_split(item, half, 0, take_piece, pieces);
}

/* The peer takes no request of this size: two halves may do. */
static const struct br_divider by_size = {size_divides, size_count, size_cut, NULL};

/* One thing that is at fault costs a refusal for each time that what it stands in is halved, and
 * one more for itself. Twice as many without anything that was taken is not the fault of one. */
static unsigned most_refused(uint32_t count)
{
    unsigned halvings = 0;
    for (uint32_t rest = count; rest > 1; rest -= rest / 2)
        halvings++;
    return 2 * (halvings + 1);
}

/* Puts the pieces of what is tried where it stood itself. False: out of memory. */
static bool divide(struct attempt *a)
{
    struct br_list pieces, *l;
    br_list_init(&pieces);
    if (a->retry->divider->cut(a->item, &pieces)) {
        while ((l = br_list_shift(&pieces)))
            br_item_free(br_container_of(l, struct br_item, link));
        return false;
    }
    if (!a->most_refused)
        a->most_refused = most_refused(a->retry->divider->count(a->item));
    for (l = pieces.next; l != &pieces; l = l->next)
        br_item_adopt(a->item, br_container_of(l, struct br_item, link));
    while (!a->out_of_turn && (l = br_list_shift(&a->pieces)))
        br_list_append(&pieces, l);
    while ((l = br_list_shift(&pieces)))
        br_list_append(&a->pieces, l);
    br_item_release_parent(a->item);
    return true;
}

static void end_refused(struct attempt *a, struct br_item *item, const struct br_outcome *o)
{
    const struct br_divider *divider = a->retry->divider;
    if (divider->refuse)
        divider->refuse(divider, item, o);
    else
        br_item_finish(item, o);
}

/* Goes on with the next piece. The largest comes once out of turn when too many were refused in a
 * row: those that are at fault may stand together. If that is refused too, all are refused alike.
 */
static void go_on(struct attempt *a, const struct br_outcome *o)
{
    if (br_list_empty(&a->pieces)) {
        attempt_free(a);
        return;
    }
    bool alike = a->most_refused && a->n_refused > a->most_refused;
    a->out_of_turn = a->n_refused == a->most_refused;
    struct br_list *l = a->out_of_turn ? a->pieces.prev : a->pieces.next;
    br_list_remove(l);
    a->item = br_container_of(l, struct br_item, link);
    if (!alike) {
        try_once(a);
        return;
    }
    struct br_outcome later = br_outcome_retry(o->status, 0, "%s", o->text);
    again(a, a->retry->config->enabled ? &later : o);
}

static void on_refused(struct attempt *a, const struct br_outcome *o)
{
    struct br_item *item = a->item;
    if (a->retry->divider->count(item) > 1) {
        if (!divide(a)) {
            struct br_outcome later = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "out of memory");
            again(a, &later);
            return;
        }
    } else {
        end_refused(a, item, o);
    }
    a->n_refused++;
    go_on(a, o);
}

/* --- Attempts -------------------------------------------------------------------------------- */

static void on_attempt(struct br_item *child, void *arg)
{
    struct attempt *a = arg;
    struct br_retry *r = a->retry;
    const struct br_outcome *o = &child->outcome;
    if (o->verdict == BR_RETRY) {
        again(a, o);
        return;
    }
    if (o->verdict == BR_REJECT && r->divider->divides(o) && !r->closing) {
        on_refused(a, o);
        return;
    }
    note_answer(r);
    end_silence(r, child->signal);
    a->n_refused = 0;
    a->interval_ms = initial_interval_ms(r);
    br_item_finish(a->item, o);
    go_on(a, o);
}

static void try_once(struct attempt *a)
{
    a->wakeable = false;
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
    a->interval_ms = initial_interval_ms(r);
    br_list_init(&a->pieces);
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
    r->divider = &by_size;
    r->next = next;
    br_list_init(&r->held);
    node->retry = r;
    return r;
}

void br_retry_divide(struct br_retry *r, const struct br_divider *divider)
{
    r->divider = divider;
}

struct br_consumer *br_retry_input(struct br_retry *r)
{
    return &r->input;
}

void br_retry_free(struct br_retry *r)
{
    if (!r)
        return;
    r->closing = true;
    r->node->retry = NULL;
    /* The exporter was destroyed before: every attempt under way has been finished, and the host's
     * turn since then brought it here; what is left waits for a timer. */
    while (!br_list_empty(&r->held)) {
        struct attempt *a = br_container_of(r->held.next, struct attempt, link);
        struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "shutting down");
        attempt_end(a, &o);
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
