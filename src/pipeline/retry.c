/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/mem.h"
#include "otlp/dictionary/dictionary.h"
#include "pipeline/exporter.h"

#define AGAIN_MS 1000
/* If the server has not answered for this number of milliseconds, its next answer wakes the waiting
 * items. */
#define SILENCE_MS 5000
#define WAKE_OVER_MS 1000.0
#define HINT_MIN_MS 100

struct br_retry {
    struct br_consumer input;
    struct br_node *node;
    const struct br_retry_config *config;
    struct br_consumer *next;
    struct br_list held; /* list of struct attempt: all items that have not ended */
    struct br_log_limit log_limit, back_limit;
    /* time of the first failure since the server's last answer, in milliseconds of the monotonic
     * clock; 0: no failure */
    uint64_t failing_since_ms;
    struct silence {
        /* time of the signal's first failure since the server's last answer, in milliseconds of the
         * monotonic clock; 0: no failure */
        uint64_t since_ms;
        bool reachable; /* a connection was opened since `since_ms` */
        /* One element per signal, because the two signals can have different servers. */
    } silences[BR_SIGNALS];
    bool logged;         /* a failure since the last answer was logged */
    bool stopped;        /* set by br_retry_stop: failed items are not retried */
    bool keeps;          /* set by br_retry_keep: items are retried until they are max_age_ms old */
    uint64_t max_age_ms; /* age in milliseconds above which an item is not retried; 0: no limit */
    bool closing;
};

/* An item that has no final outcome yet. If the server refuses the item as too large, it is divided
 * into pieces. The pieces are sent one after the other, because the result of one piece decides
 * which piece is sent next. */
struct attempt {
    struct br_list link;
    struct br_retry *retry;
    struct br_item *item;  /* the received item, or the piece that is being sent */
    struct br_list pieces; /* list of br_item: pieces that were not sent yet, the smallest first */
    struct br_timer timer;
    uint64_t started_ms;
    double interval_ms;
    unsigned n_refused; /* number of consecutive pieces that were refused as too large */
    /* if n_refused exceeds this limit, each further request waits for the retry delay */
    unsigned most_refused;
    bool tried_largest; /* `item` is the largest piece, sent out of order */
    bool unreachable;   /* the item waits because the server is unreachable */
    bool returns;       /* set by br_retry_return: the item is not retried */
};

static void retry_try_once(struct attempt *attempt);

static double retry_initial_interval_ms(const struct br_retry *retry)
{
    return (double)retry->config->initial_interval / 1e6;
}

static void retry_attempt_free(struct attempt *attempt)
{
    br_host_timer_stop(attempt->retry->node->host, &attempt->timer);
    br_list_remove(&attempt->link);
    br_free(attempt);
}

static struct br_item *retry_attempt_shift(struct attempt *attempt)
{
    struct br_list *list = br_list_shift(&attempt->pieces);
    return list ? br_container_of(list, struct br_item, link) : NULL;
}

/* Finishes the item or piece that is being sent, and all remaining pieces. */
static void retry_attempt_end(struct attempt *attempt, const struct br_outcome *outcome)
{
    struct br_item *piece;
    br_item_finish(attempt->item, outcome);
    while ((piece = retry_attempt_shift(attempt)))
        br_item_finish(piece, outcome);
    retry_attempt_free(attempt);
}

static void retry_on_due(struct br_timer *timer)
{
    retry_try_once(br_container_of(timer, struct attempt, timer));
}

/* Returns the delay before the next attempt in milliseconds, with exponential back-off and jitter
 * as in the Collector. If the server has requested a delay, returns that delay (OTLP, "Failures"),
 * but at least HINT_MIN_MS. */
static uint64_t retry_next_delay(struct attempt *attempt, uint32_t hint_ms)
{
    const struct br_retry_config *retry_config = attempt->retry->config;
    double spread = retry_config->randomization_factor * attempt->interval_ms;
    double random = br_host_random(attempt->retry->node->host);
    double delay = attempt->interval_ms - spread + 2 * spread * random;
    attempt->interval_ms = fmin(attempt->interval_ms * retry_config->multiplier,
                                (double)retry_config->max_interval / 1e6);
    if (hint_ms)
        return hint_ms < HINT_MIN_MS ? HINT_MIN_MS : hint_ms;
    return (uint64_t)delay;
}

/* --- Waking items when a server answers again
 * -------------------------------------------------------------------- */

/* Returns true if the outcome indicates that the server is unreachable. A server that has requested
 * a delay is reachable. */
static bool retry_is_unreachable(const struct br_outcome *outcome)
{
    return !outcome->delay_ms && (outcome->status == BR_STATUS_UNAVAILABLE ||
                                  outcome->status == BR_STATUS_DEADLINE_EXCEEDED);
}

/* Moves the timer of an item to an earlier time, never to a later one. The timer is already armed,
 * so br_host_timer cannot fail. */
static void retry_wake(struct attempt *attempt, uint64_t delay_ms)
{
    struct br_host *host = attempt->retry->node->host;
    attempt->unreachable = false;
    if (br_host_mono_ms(host) + delay_ms < attempt->timer.due_ms)
        (void)br_host_timer(host, &attempt->timer, delay_ms, retry_on_due);
}

static struct attempt *retry_next_unreachable(struct br_retry *retry, struct br_list *from,
                                              enum br_signal signal)
{
    for (struct br_list *list = from->next; list != &retry->held; list = list->next) {
        struct attempt *attempt = br_container_of(list, struct attempt, link);
        if (attempt->unreachable && attempt->item->signal == signal)
            return attempt;
    }
    return NULL;
}

/* Wakes the waiting items of a signal at random times, to avoid overloading a server that has
 * just restarted. */
static void retry_wake_all(struct br_retry *retry, enum br_signal signal)
{
    struct attempt *attempt;
    struct br_list *from = &retry->held;
    while ((attempt = retry_next_unreachable(retry, from, signal))) {
        from = &attempt->link;
        retry_wake(attempt, (uint64_t)(br_host_random(retry->node->host) * WAKE_OVER_MS));
    }
}

/* Wakes one waiting item of the signal. The other waiting items are woken if the first one
 * succeeds. */
static void retry_wake_one(struct br_retry *retry, enum br_signal signal)
{
    struct attempt *attempt = retry_next_unreachable(retry, &retry->held, signal);
    if (attempt)
        retry_wake(attempt, 0);
}

void br_retry_reachable(void *arg)
{
    const struct br_node *node = arg;
    struct br_retry *retry = node->retry;
    for (int s = 0; retry && s < BR_SIGNALS; s++) {
        retry->silences[s].reachable = retry->silences[s].since_ms > 0;
        retry_wake_one(retry, (enum br_signal)s);
    }
}

static void retry_note_silence(struct br_retry *retry, enum br_signal signal)
{
    struct silence *silence = &retry->silences[signal];
    if (!silence->since_ms)
        silence->since_ms = br_host_mono_ms(retry->node->host);
}

/* Wakes the waiting items if the server answers after a period without answers. If the server
 * accepts some items while others fail, there is no such period, and each item keeps its delay. */
static void retry_end_silence(struct br_retry *retry, enum br_signal signal)
{
    struct silence was = retry->silences[signal];
    retry->silences[signal] = (struct silence){0};
    uint64_t now = br_host_mono_ms(retry->node->host);
    if (!was.since_ms || (!was.reachable && now - was.since_ms < SILENCE_MS))
        return;
    retry_wake_all(retry, signal);
    retry_wake_one(retry, signal == BR_TRACES ? BR_PROFILES : BR_TRACES);
}

/* --- Logging ---------------------------------------------------------------------------------- */

/* Logs why an item was not delivered, and the delay before the next attempt. */
static void retry_log_failure(struct br_retry *retry, const struct br_outcome *outcome,
                              uint64_t now, uint64_t delay_ms)
{
    if (!retry->failing_since_ms)
        retry->failing_since_ms = now;
    if (br_node_warn(retry->node, &retry->log_limit,
                     "not delivered, next attempt in %.1f s: %s: %s", (double)delay_ms / 1e3,
                     br_status_name(outcome->status), outcome->text))
        retry->logged = true;
}

/* Registers an answer of the server. Ignores an answer shortly after a failure, because the request
 * can have been sent before the failure. */
static void retry_note_answer(struct br_retry *retry)
{
    uint64_t now = br_host_mono_ms(retry->node->host);
    if (!retry->failing_since_ms || now - retry->failing_since_ms < AGAIN_MS)
        return;
    if (retry->logged)
        br_log_limited(&retry->node->log, BR_LOG_INFO, &retry->back_limit, now, BR_LOG_EVERY_MS,
                       "the destination responds again after %.1f s",
                       (double)(now - retry->failing_since_ms) / 1e3);
    retry->logged = false;
    retry->failing_since_ms = 0;
}

/* Returns true if the item must not be retried after `delay_ms` milliseconds. */
static bool retry_is_over(const struct attempt *attempt, uint64_t now_ms, uint64_t delay_ms)
{
    const struct br_retry *retry = attempt->retry;
    uint64_t limit_ms = retry->config->max_elapsed_time / 1000000, since_ms = attempt->started_ms;
    if (retry->closing || retry->stopped || attempt->returns)
        return true;
    if (retry->keeps) {
        limit_ms = retry->max_age_ms;
        if (attempt->item->received_ms)
            since_ms = attempt->item->received_ms;
    } else if (!retry->config->enabled) {
        return true;
    }
    return limit_ms && now_ms - since_ms + delay_ms > limit_ms;
}

/* Arms the timer for the next attempt, or finishes the item if it must not be retried. */
static void retry_again(struct attempt *attempt, const struct br_outcome *outcome)
{
    struct br_host *host = attempt->retry->node->host;
    uint64_t now = br_host_mono_ms(host), delay = retry_next_delay(attempt, outcome->delay_ms);
    attempt->unreachable = retry_is_unreachable(outcome);
    if (attempt->unreachable)
        retry_note_silence(attempt->retry, attempt->item->signal);
    if (retry_is_over(attempt, now, delay) ||
        !br_host_timer(host, &attempt->timer, delay, retry_on_due))
        retry_attempt_end(attempt, outcome);
    else
        retry_log_failure(attempt->retry, outcome, now, delay);
}

/* --- Dividing refused items ------------------------------------------------------------------ */

static int retry_take_piece(struct br_item *piece, void *arg)
{
    struct br_list *pieces = arg;
    br_list_append(pieces, &piece->link);
    return 0;
}

static bool retry_is_too_large(const struct br_outcome *outcome)
{
    return outcome->status == BR_STATUS_RESOURCE_EXHAUSTED;
}

static int retry_cut(const struct br_item *item, struct br_list *pieces)
{
    uint32_t half = (item->n_records + 1) / 2;
    return item->signal == BR_TRACES ? br_traces_split(item, half, 0, retry_take_piece, pieces)
                                     : br_profiles_split(item, half, 0, retry_take_piece, pieces);
}

/* Returns the limit for `most_refused`. One oversized record among `count` can cause one refusal
 * for each halving, and one for the record itself. The limit is twice this number. */
static unsigned retry_most_refused(uint32_t count)
{
    unsigned halvings = 0;
    for (uint32_t remaining = count; remaining > 1; remaining -= remaining / 2)
        halvings++;
    return 2 * (halvings + 1);
}

/* Replaces the item that is being sent with two or more pieces. Returns false if memory is
 * short. */
static bool retry_divide(struct attempt *attempt)
{
    struct br_list pieces, *l;
    br_list_init(&pieces);
    if (retry_cut(attempt->item, &pieces)) {
        while ((l = br_list_shift(&pieces)))
            br_item_free(br_container_of(l, struct br_item, link));
        return false;
    }
    if (!attempt->most_refused)
        attempt->most_refused = retry_most_refused(attempt->item->n_records);
    for (l = pieces.next; l != &pieces; l = l->next) {
        struct br_item *piece = br_container_of(l, struct br_item, link);
        piece->metadata = attempt->item->metadata;
        br_item_adopt(attempt->item, piece);
    }
    while (!attempt->tried_largest && (l = br_list_shift(&attempt->pieces)))
        br_list_append(&pieces, l);
    while ((l = br_list_shift(&pieces)))
        br_list_append(&attempt->pieces, l);
    br_item_release_pieces(attempt->item);
    return true;
}

/* Sends the next piece. After `most_refused` refusals in a row, the largest piece is sent out of
 * order, because the oversized records can be adjacent. If the largest piece is refused too, the
 * server probably refuses all pieces, so the others wait for the retry delay. */
static void retry_go_on(struct attempt *attempt, const struct br_outcome *outcome)
{
    if (br_list_empty(&attempt->pieces)) {
        retry_attempt_free(attempt);
        return;
    }
    bool all_refused = attempt->most_refused && attempt->n_refused > attempt->most_refused;
    attempt->tried_largest = attempt->n_refused == attempt->most_refused;
    struct br_list *list = attempt->tried_largest ? attempt->pieces.prev : attempt->pieces.next;
    br_list_remove(list);
    attempt->item = br_container_of(list, struct br_item, link);
    if (!all_refused) {
        retry_try_once(attempt);
        return;
    }
    struct br_outcome later = br_outcome_retry(outcome->status, 0, "%s", outcome->text);
    retry_again(attempt, attempt->retry->config->enabled ? &later : outcome);
}

static void retry_on_refused(struct attempt *attempt, const struct br_outcome *outcome)
{
    struct br_item *item = attempt->item;
    if (item->n_records > 1) {
        if (!retry_divide(attempt)) {
            struct br_outcome later = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "out of memory");
            retry_again(attempt, &later);
            return;
        }
    } else {
        br_item_finish(item, outcome);
    }
    attempt->n_refused++;
    retry_go_on(attempt, outcome);
}

/* --- Attempts -------------------------------------------------------------------------------- */

static void retry_on_attempt(struct br_item *child, void *arg)
{
    struct attempt *attempt = arg;
    struct br_retry *retry = attempt->retry;
    const struct br_outcome *outcome = &child->outcome;
    if (outcome->verdict == BR_RETRY) {
        retry_again(attempt, outcome);
        return;
    }
    if (outcome->verdict == BR_REJECT && retry_is_too_large(outcome) && !retry->closing) {
        retry_on_refused(attempt, outcome);
        return;
    }
    retry_note_answer(retry);
    retry_end_silence(retry, child->signal);
    attempt->n_refused = 0;
    attempt->interval_ms = retry_initial_interval_ms(retry);
    br_item_finish(attempt->item, outcome);
    retry_go_on(attempt, outcome);
}

static void retry_try_once(struct attempt *attempt)
{
    attempt->unreachable = false;
    struct br_item *child = br_item_attempt(attempt->item, retry_on_attempt, attempt);
    if (child) {
        br_consume(attempt->retry->next, child);
        return;
    }
    struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "out of memory");
    retry_again(attempt, &outcome);
}

static void retry_consume(struct br_consumer *self, struct br_item *item)
{
    struct br_retry *retry = br_container_of(self, struct br_retry, input);
    struct attempt *attempt = br_calloc(1, sizeof *attempt);
    if (!attempt || retry->closing) {
        br_free(attempt);
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000,
                      "the exporter is shutting down or out of memory");
        return;
    }
    attempt->retry = retry;
    attempt->item = item;
    attempt->started_ms = br_host_mono_ms(retry->node->host);
    attempt->interval_ms = retry_initial_interval_ms(retry);
    br_list_init(&attempt->pieces);
    br_list_append(&retry->held, &attempt->link);
    retry_try_once(attempt);
}

struct br_retry *br_retry_new(struct br_node *node, const struct br_retry_config *config,
                              struct br_consumer *next)
{
    struct br_retry *retry = br_calloc(1, sizeof *retry);
    if (!retry)
        return NULL;
    retry->input.consume = retry_consume;
    retry->node = node;
    retry->config = config;
    retry->next = next;
    br_list_init(&retry->held);
    node->retry = retry;
    return retry;
}

struct br_consumer *br_retry_input(struct br_retry *retry)
{
    return &retry->input;
}

void br_retry_keep(struct br_retry *retry, uint64_t max_age_ms)
{
    if (!retry)
        return;
    retry->keeps = true;
    retry->max_age_ms = max_age_ms;
}

void br_retry_return(struct br_retry *retry, const char *why)
{
    struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "%s", why);
    for (struct br_list *l = retry->held.next, *next; l != &retry->held; l = next) {
        struct attempt *attempt = br_container_of(l, struct attempt, link);
        next = l->next;
        attempt->returns = true;
        if (attempt->timer.slot)
            retry_attempt_end(attempt, &outcome);
    }
}

void br_retry_stop(struct br_retry *retry)
{
    if (!retry)
        return;
    retry->stopped = true;
    br_retry_return(retry, "shutting down");
}

void br_retry_free(struct br_retry *retry)
{
    if (!retry)
        return;
    retry->closing = true;
    retry->node->retry = NULL;
    /* The exporter was destroyed before, so all running attempts have completed. The remaining
     * items therefore only wait for a timer. */
    while (!br_list_empty(&retry->held)) {
        struct attempt *attempt = br_container_of(retry->held.next, struct attempt, link);
        struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "shutting down");
        retry_attempt_end(attempt, &outcome);
    }
    br_free(retry);
}

#define RETRY_ROWS(on)                                                                             \
    BR_BOOL(struct br_retry_config, enabled, (on), "retry requests that failed temporarily"),      \
        BR_DURATION(struct br_retry_config, initial_interval, "5s",                                \
                    "delay before the first retry"),                                               \
        BR_DOUBLE(struct br_retry_config, randomization_factor, 0.5, 0, 1,                         \
                  "largest random deviation of a delay, as a fraction of the delay"),              \
        BR_DOUBLE(struct br_retry_config, multiplier, 1.5, 1, 1000,                                \
                  "factor by which the delay increases after each retry"),                         \
        BR_DURATION(struct br_retry_config, max_interval, "30s",                                   \
                    "maximum delay, before the random deviation is added"),                        \
        BR_DURATION(struct br_retry_config, max_elapsed_time, "5m",                                \
                    "time after which a request is not retried any more; 0: unlimited"),           \
        BR_OPT_END

const struct br_option br_retry_options[] = {RETRY_ROWS(true)};
const struct br_option br_retry_options_off[] = {RETRY_ROWS(false)};
