/* SPDX-License-Identifier: Apache-2.0 */
/* One job: when it scrapes, and what becomes of the answer. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "ingest/pieces.h"
#include "receivers/pprof/scrape.h"

#define HELD_MAX (64u << 20) /* bytes with the redelivery above which nothing is scraped */
#define COMPARED_GROWTH 16   /* a profile taken apart, beside its bytes */
#define ANSWER_SHOWN 120
#define NEXT_PIECE_MS 1 /* the next turn: what is due at once may be this one's */
#define NS_PER_MS 1000000

/* --- The request ------------------------------------------------------------------------------ */

static bool takes_seconds(const struct pprof_config *c, enum pprof_kind kind)
{
    return pprof_kind_lasts(kind) || pprof_profile_config(c, kind)->seconds > 0;
}

uint64_t pprof_job_shortest_ms(const struct pprof_config *c, enum pprof_kind kind)
{
    return takes_seconds(c, kind) ? 2000 : 100;
}

/* As the config says, but less than the interval. */
static uint64_t seconds_of(const struct pprof_job *j, uint64_t interval_ms)
{
    const struct pprof_config *c = j->target->scraper->config;
    uint64_t most = interval_ms / 1000 - (interval_ms >= 1000);
    uint64_t asked = (uint64_t)pprof_profile_config(c, j->kind)->seconds;
    if (!takes_seconds(c, j->kind))
        return 0;
    return asked && asked < most ? asked : most;
}

static void write_path(struct pprof_job *j)
{
    const struct pprof_target *t = j->target;
    const struct pprof_config *c = t->scraper->config;
    const char *path = pprof_profile_config(c, j->kind)->path;
    uint64_t seconds = seconds_of(j, j->interval_ms);
    struct br_str text = {.data = j->path, .cap = j->path_size, .fixed = true};
    br_str_printf(&text, "%s%s", t->prefix, path);
    if (seconds > 0)
        br_str_printf(&text, "%cseconds=%llu", strchr(path, '?') ? '&' : '?',
                      (unsigned long long)seconds);
    j->timeout_ms = c->scrape_timeout / NS_PER_MS + seconds * 1000;
}

/* --- What came of it -------------------------------------------------------------------------- */

static void note(struct pprof_job *j, enum pprof_result result)
{
    j->last = result;
    *j->target->scraper->results[result] += 1;
}

/* A program that is down is news once, and once more when it is back. */
static void fail(struct pprof_job *j, const char *why)
{
    struct br_node *node = j->target->scraper->node;
    note(j, PPROF_FAILED);
    if (!j->failing)
        br_warn(&node->log, "%s%s: %s", j->target->origin, j->path, why);
    j->failing = true;
}

/* Samples without which the profile was read. */
static void lose(struct pprof_job *j, const struct br_reading *r)
{
    struct pprof_scraper *s = j->target->scraper;
    *s->meter.failed[BR_PROFILES] += r->n_lost;
    if (r->n_lost && !j->losing)
        br_warn(&s->node->log, "%s%s: %u samples are left out: %s", j->target->origin, j->path,
                r->n_lost, r->lost);
    j->losing = r->n_lost != 0;
}

static void succeed(struct pprof_job *j, enum pprof_result result)
{
    struct br_node *node = j->target->scraper->node;
    note(j, result);
    if (j->failing)
        br_info(&node->log, "%s%s: answers again", j->target->origin, j->path);
    j->failing = false;
}

static size_t scratch_max(const struct br_reading *r)
{
    return r->max_body > BR_BUF_MAX / COMPARED_GROWTH ? BR_BUF_MAX : r->max_body * COMPARED_GROWTH;
}

/* What a comparison keeps has a bound of its own (delta.h); what is sent may take as much as without. */
static int compare(struct br_reading *r, struct pprof_delta *delta, struct br_arena *arena,
                   const uint8_t **data, size_t *len)
{
    int64_t before = r->scope.used;
    size_t max = r->scope.max;
    r->scope.max += max;
    int rc = pprof_delta_take(delta, *data, *len, arena, data, len, &r->err);
    int64_t kept = r->scope.used - before;
    r->scope.max = max + (kept > 0 ? (size_t)kept : 0);
    return rc;
}

/* In whichever thread. Of the job only what does not change while it is read. */
static int read_profile(struct br_reading *r)
{
    const struct pprof_job *j = r->arg;
    const struct pprof_config *c = j->target->scraper->config;
    bool since_start = pprof_kind_since_start(c, j->kind);
    struct br_arena arena;
    int rc = pprof_unpack(r);
    const struct br_buf *plain = br_reading_bytes(r);
    const uint8_t *data = plain ? plain->data : NULL;
    size_t len = plain ? plain->len : 0;
    br_arena_init(&arena, scratch_max(r));
    if (rc == 0 && j->delta)
        rc = compare(r, j->delta, &arena, &data, &len);
    const struct br_profile_source source = {
        .data = data,
        .len = len,
        .resource = &j->target->resource,
        .pyroscope_name = pprof_kind_metric(c, j->kind),
        .start_ns = r->now_ns,
        .end_ns = r->now_ns,
        .cumulative = since_start && !takes_seconds(c, j->kind) && !j->delta};
    if (rc == 0 && len > 0)
        rc = pprof_read(r, BR_FORMAT_PPROF, &source);
    br_arena_release(&arena);
    return rc || !r->item ? rc : br_pieces_cut(r, NULL);
}

static void on_next_piece(struct br_timer *t)
{
    struct pprof_scraper *s = br_container_of(t, struct pprof_scraper, next_piece);
    struct br_list *l = br_list_shift(&s->waiting);
    if (br_list_empty(&s->waiting))
        (void)br_host_timer_park(s->node->host, t, on_next_piece);
    else
        (void)br_host_timer(s->node->host, t, NEXT_PIECE_MS, on_next_piece);
    if (l)
        br_redelivery_send(s->redelivery, br_container_of(l, struct br_item, link));
    pprof_scraper_report(s);
}

/* One each turn, as others' pieces. The whole has done its part. */
static void send_pieces(struct pprof_scraper *s, struct br_item *whole, struct br_list *pieces)
{
    struct br_list *l;
    br_item_free(whole);
    while ((l = br_list_shift(pieces))) {
        br_item_received(br_container_of(l, struct br_item, link));
        br_list_append(&s->waiting, l);
    }
    (void)br_host_timer(s->node->host, &s->next_piece, 0, on_next_piece);
}

void pprof_scraper_drop(struct pprof_scraper *s)
{
    struct br_list *l;
    br_host_timer_stop(s->node->host, &s->next_piece);
    while ((l = br_list_shift(&s->waiting))) {
        struct br_item *piece = br_container_of(l, struct br_item, link);
        br_redelivery_end(s->node, piece);
        br_item_free(piece);
    }
}

static void send(struct pprof_job *j, struct br_item *item, struct br_list *pieces)
{
    struct pprof_scraper *s = j->target->scraper;
    *s->meter.accepted[BR_PROFILES] += item->n_items;
    if (!br_list_empty(pieces)) {
        send_pieces(s, item, pieces);
        return;
    }
    br_item_received(item);
    br_redelivery_send(s->redelivery, item);
}

static void on_read(void *arg, struct br_reading *r, int rc)
{
    struct pprof_job *j = arg;
    struct pprof_scraper *s = j->target->scraper;
    struct br_item *item = r->item;
    r->item = NULL;
    s->n_reading--;
    if (j->forget)
        pprof_delta_clear(j->delta);
    j->forget = false;
    if (rc != 0) {
        *s->meter.failed[BR_PROFILES] += 1;
        fail(j, br_reading_why(r, rc));
    } else {
        lose(j, r);
        succeed(j, item ? PPROF_OK : PPROF_EMPTY);
    }
    if (item)
        send(j, item, &r->pieces);
    pprof_scraper_report(s);
}

static void take(struct pprof_job *j, struct br_buf *body)
{
    struct pprof_scraper *s = j->target->scraper;
    s->n_reading++;
    pprof_reader_start(s->reader, body, read_profile, j, on_read, j, &j->reading);
}

/* Go's "Could not enable CPU profiling: cpu profiling already in use": somebody else looks. */
static bool is_in_use(const struct br_exchange *x)
{
    static const char text[] = "already in use";
    return x->http_status == 500 && x->response &&
           memmem(x->response->data, x->response->len, text, sizeof text - 1) != NULL;
}

static void fail_status(struct pprof_job *j, const struct br_exchange *x)
{
    const struct br_buf *body = x->response;
    char why[ANSWER_SHOWN + 32];
    size_t shown = body && body->len < ANSWER_SHOWN ? body->len : ANSWER_SHOWN;
    (void)snprintf(why, sizeof why, "HTTP %u%s%.*s", x->http_status, body && shown ? ": " : "",
                   body ? (int)shown : 0, body ? (const char *)body->data : "");
    why[strcspn(why, "\r\n")] = '\0';
    fail(j, why);
}

static void on_timeout(struct br_timer *t);

static void end(struct pprof_job *j)
{
    j->busy = false;
    (void)br_host_timer_park(j->target->scraper->node->host, &j->timeout, on_timeout);
}

static void on_done(struct br_exchange *x)
{
    struct pprof_job *j = x->user;
    end(j);
    if (j->target->scraper->stopping)
        return;
    if (x->error)
        fail(j, x->error_text);
    else if (is_in_use(x))
        note(j, PPROF_IN_USE);
    else if (x->http_status != 200)
        fail_status(j, x);
    else
        take(j, x->response);
}

static void on_timeout(struct br_timer *t)
{
    struct pprof_job *j = br_container_of(t, struct pprof_job, timeout);
    char why[64];
    end(j);
    br_client_cancel(j->target->client, &j->exchange);
    (void)snprintf(why, sizeof why, "no answer in %llu ms", (unsigned long long)j->timeout_ms);
    fail(j, why);
}

/* --- Beats ------------------------------------------------------------------------------------ */

/* Begins a scrape now, unless there is a reason not to. */
static void scrape(struct pprof_job *j)
{
    struct pprof_scraper *s = j->target->scraper;
    struct br_host *host = s->node->host;
    if (j->busy || j->reading) {
        note(j, PPROF_BUSY);
        return;
    }
    if (br_host_over_limit(host) || br_redelivery_bytes(s->redelivery) > HELD_MAX) {
        note(j, PPROF_HELD);
        return;
    }
    if (br_shed_refuses(host, BR_PROFILES) || br_shed_drops(host, BR_PROFILES)) {
        note(j, PPROF_SHED);
        return;
    }
    write_path(j);
    j->busy = true;
    j->exchange = (struct br_exchange){.method = "GET",
                                       .path = j->path,
                                       .user_agent = "Braid/" BR_VERSION,
                                       .headers = s->headers,
                                       .n_headers = s->n_headers,
                                       .max_response = (size_t)s->config->max_profile_size,
                                       .on_done = on_done,
                                       .user = j};
    (void)br_host_timer(host, &j->timeout, j->timeout_ms, on_timeout);
    br_client_send(j->target->client, &j->exchange);
}

static void on_beat(struct br_timer *t)
{
    struct pprof_job *j = br_container_of(t, struct pprof_job, beat);
    struct br_host *host = j->target->scraper->node->host;
    uint64_t now = br_host_mono_ms(host);
    j->due_ms += j->interval_ms;
    if (j->due_ms <= now)
        j->due_ms = now + j->interval_ms;
    (void)br_host_timer(host, &j->beat, j->due_ms - now, on_beat);
    scrape(j);
}

void pprof_job_set(struct pprof_job *j, uint64_t interval_ms, uint64_t delay_ms)
{
    struct br_host *host = j->target->scraper->node->host;
    uint64_t now = br_host_mono_ms(host);
    bool rested = j->interval_ms == 0;
    j->interval_ms = interval_ms;
    if (interval_ms == 0) {
        (void)br_host_timer_park(host, &j->beat, on_beat);
        j->forget = j->reading != NULL;
        if (!j->forget)
            pprof_delta_clear(j->delta);
        return;
    }
    if (rested || now + delay_ms < j->due_ms)
        j->due_ms = now + delay_ms;
    (void)br_host_timer(host, &j->beat, j->due_ms > now ? j->due_ms - now : 0, on_beat);
}

void pprof_job_stop(struct pprof_job *j)
{
    struct br_host *host = j->target->scraper->node->host;
    if (j->busy)
        br_client_cancel(j->target->client, &j->exchange);
    j->busy = false;
    j->interval_ms = 0;
    br_host_timer_stop(host, &j->beat);
    br_host_timer_stop(host, &j->timeout);
}

void pprof_job_leave(struct pprof_job *j)
{
    if (!j->reading)
        return;
    j->target->scraper->n_reading--;
    pprof_reading_leave(j->reading);
}
