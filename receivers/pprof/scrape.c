/* SPDX-License-Identifier: Apache-2.0 */
/* A scrape job: its schedule, and the handling of responses. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "ingest/reading.h"
#include "receivers/pprof/scrape.h"

/* number of bytes queued for delivery above which scrapes are skipped */
#define QUEUED_MAX (64u << 20)
/* the memory for comparing two profiles is limited to this number of times the size of the largest
 * profile */
#define COMPARED_GROWTH 16
#define RESPONSE_SHOWN 120
/* delay in milliseconds before the next piece of a large profile is sent; with 0, the timer could
 * fire in the current loop iteration */
#define NEXT_PIECE_MS 1
#define NS_PER_MS 1000000

/* --- Request ---------------------------------------------------------------------------------- */

static bool scrape_has_duration(const struct pprof_config *config, enum pprof_kind kind)
{
    return pprof_kind_has_duration(kind) || pprof_profile_config(config, kind)->seconds > 0;
}

uint64_t pprof_job_shortest_ms(const struct pprof_config *config, enum pprof_kind kind)
{
    return scrape_has_duration(config, kind) ? 2000 : 100;
}

/* Returns the configured duration in seconds, limited to less than the interval. */
static uint64_t scrape_seconds_of(const struct pprof_job *job, uint64_t interval_ms)
{
    const struct pprof_config *config = job->target->scraper->config;
    uint64_t most = interval_ms / 1000 - (interval_ms >= 1000);
    uint64_t asked = (uint64_t)pprof_profile_config(config, job->kind)->seconds;
    if (!scrape_has_duration(config, job->kind))
        return 0;
    return asked && asked < most ? asked : most;
}

static void scrape_write_path(struct pprof_job *job)
{
    const struct pprof_target *target = job->target;
    const struct pprof_config *config = target->scraper->config;
    const char *path = pprof_profile_config(config, job->kind)->path;
    uint64_t seconds = scrape_seconds_of(job, job->interval_ms);
    struct br_str text = {.data = job->path, .cap = job->path_size, .fixed = true};
    br_str_printf(&text, "%s%s", target->prefix, path);
    if (seconds > 0)
        br_str_printf(&text, "%cseconds=%llu", strchr(path, '?') ? '&' : '?',
                      (unsigned long long)seconds);
    job->timeout_ms = config->scrape_timeout / NS_PER_MS + seconds * 1000;
}

/* --- Result ----------------------------------------------------------------------------------- */

static void scrape_count(struct pprof_job *job, enum pprof_result result)
{
    job->last = result;
    *job->target->scraper->results[result] += 1;
}

/* Counts a failed scrape. Only the first failure and the recovery are logged. */
static void scrape_fail(struct pprof_job *job, const char *why)
{
    struct br_node *node = job->target->scraper->node;
    scrape_count(job, PPROF_FAILED);
    if (!job->failing)
        br_warn(&node->log, "%s%s: %s", job->target->origin, job->path, why);
    job->failing = true;
}

/* Counts the samples that were left out of a profile. Logs a message if samples were left out
 * and the previous profile of the job was complete. */
static void scrape_count_flaws(struct pprof_job *job, const struct br_reading *reading)
{
    struct pprof_scraper *scraper = job->target->scraper;
    char flaws[BR_FLAWS_SIZE];
    bool has_flaws = br_meter_flaws(&scraper->meter, reading, flaws);
    if (has_flaws && !job->has_flaws)
        br_warn(&scraper->node->log, "%s%s: %s", job->target->origin, job->path, flaws);
    job->has_flaws = has_flaws;
}

static void scrape_succeed(struct pprof_job *job, enum pprof_result result)
{
    struct br_node *node = job->target->scraper->node;
    scrape_count(job, result);
    if (job->failing)
        br_info(&node->log, "%s%s: answers again", job->target->origin, job->path);
    job->failing = false;
}

static size_t scrape_scratch_max(const struct br_reading *reading)
{
    return reading->max_body > BR_BUF_MAX / COMPARED_GROWTH ? BR_BUF_MAX
                                                            : reading->max_body * COMPARED_GROWTH;
}

/* Compares a profile with the previous one. pprof_delta_next limits the memory of the kept
 * state, so the memory of that state is not subtracted from the limit of the conversion. */
static int scrape_compare(struct br_reading *reading, struct pprof_delta *delta,
                          struct br_arena *arena, const uint8_t **data, size_t *len)
{
    int64_t before = reading->scope.used;
    size_t max = reading->scope.max;
    reading->scope.max += max;
    int rc = pprof_delta_next(delta, *data, *len, arena, data, len, &reading->err);
    int64_t kept = reading->scope.used - before;
    reading->scope.max = max + (kept > 0 ? (size_t)kept : 0);
    return rc;
}

/* Converts the response to a scrape. Runs in any thread, so it uses only fields of the job that
 * do not change during the conversion. */
static int scrape_read_profile(struct br_reading *reading)
{
    const struct pprof_job *j = reading->arg;
    const struct pprof_config *config = j->target->scraper->config;
    bool is_total = pprof_kind_is_total(config, j->kind);
    struct br_arena arena;
    int rc = pprof_unpack(reading);
    const struct br_buf *plain = br_reading_bytes(reading);
    const uint8_t *data = plain ? plain->data : NULL;
    size_t len = plain ? plain->len : 0;
    br_arena_init(&arena, scrape_scratch_max(reading));
    if (rc == 0 && j->delta)
        rc = scrape_compare(reading, j->delta, &arena, &data, &len);
    const struct br_profile_source source = {
        .data = data,
        .len = len,
        .resource = &j->target->resource,
        .pyroscope_name = pprof_kind_metric(config, j->kind),
        .start_ns = reading->now_ns,
        .end_ns = reading->now_ns,
        .cumulative = is_total && !scrape_has_duration(config, j->kind) && !j->delta};
    if (rc == 0 && len > 0)
        rc = pprof_read(reading, BR_FORMAT_PPROF, &source);
    br_arena_release(&arena);
    return rc ? rc : br_profile_reading_cut(reading);
}

static void scrape_on_next_piece(struct br_timer *timer)
{
    struct pprof_scraper *scraper = br_container_of(timer, struct pprof_scraper, next_piece);
    struct br_list *list = br_list_shift(&scraper->waiting);
    if (br_list_empty(&scraper->waiting))
        (void)br_host_timer_park(scraper->node->host, timer, scrape_on_next_piece);
    else
        (void)br_host_timer(scraper->node->host, timer, NEXT_PIECE_MS, scrape_on_next_piece);
    if (list)
        br_hold_send(&scraper->sent, br_container_of(list, struct br_item, link));
    pprof_scraper_report(scraper);
}

/* Counts the records of an item as received and answered, because a scrape target does not
 * expect an answer. */
static void scrape_receive(struct br_item *item)
{
    br_item_received(item);
    br_item_answered(item);
}

/* Queues the pieces of a large profile. One piece is sent per loop iteration. Frees `whole`, the
 * item that was split into the pieces. */
static void scrape_send_pieces(struct pprof_scraper *scraper, struct br_item *whole,
                               struct br_list *pieces)
{
    struct br_list *list;
    br_item_free(whole);
    while ((list = br_list_shift(pieces))) {
        scrape_receive(br_container_of(list, struct br_item, link));
        br_list_append(&scraper->waiting, list);
    }
    (void)br_host_timer(scraper->node->host, &scraper->next_piece, 0, scrape_on_next_piece);
}

void pprof_scraper_drop(struct pprof_scraper *scraper)
{
    struct br_list *list;
    br_host_timer_stop(scraper->node->host, &scraper->next_piece);
    while ((list = br_list_shift(&scraper->waiting))) {
        struct br_item *piece = br_container_of(list, struct br_item, link);
        br_node_drop_unsent(scraper->node, piece);
        br_item_free(piece);
    }
}

static void scrape_send(struct pprof_job *job, struct br_item *item, struct br_list *pieces)
{
    struct pprof_scraper *scraper = job->target->scraper;
    br_meter_count(&scraper->meter, BR_METER_ACCEPTED, item, item->n_records);
    if (!br_list_empty(pieces)) {
        scrape_send_pieces(scraper, item, pieces);
        return;
    }
    scrape_receive(item);
    br_hold_send(&scraper->sent, item);
}

static void scrape_on_read(void *arg, struct br_reading *reading, int rc)
{
    struct pprof_job *j = arg;
    struct pprof_scraper *scraper = j->target->scraper;
    struct br_item *item = reading->item;
    reading->item = NULL;
    scraper->n_reading--;
    if (j->forget)
        pprof_delta_clear(j->delta);
    j->forget = false;
    if (rc != 0) {
        *scraper->meter.failed[BR_PROFILES] += 1;
        scrape_fail(j, br_reading_why(reading, rc));
    } else {
        scrape_count_flaws(j, reading);
        scrape_succeed(j, item ? PPROF_OK : PPROF_EMPTY);
    }
    if (item)
        scrape_send(j, item, &reading->pieces);
    pprof_scraper_report(scraper);
}

static void scrape_convert(struct pprof_job *job, struct br_buf *body)
{
    struct pprof_scraper *scraper = job->target->scraper;
    scraper->n_reading++;
    pprof_reader_start(scraper->reader, body, scrape_read_profile, job, scrape_on_read, job,
                       &job->reading);
}

/* Returns true for Go's error "Could not enable CPU profiling: cpu profiling already in use". */
static bool scrape_is_in_use(const struct br_exchange *exchange)
{
    static const char text[] = "already in use";
    return exchange->http_status == 500 && exchange->response &&
           memmem(exchange->response->data, exchange->response->len, text, sizeof text - 1) != NULL;
}

static void scrape_fail_status(struct pprof_job *job, const struct br_exchange *exchange)
{
    const struct br_buf *body = exchange->response;
    char text[RESPONSE_SHOWN + 1], why[BR_LOCATION_MAX + RESPONSE_SHOWN];
    size_t shown = body && body->len < RESPONSE_SHOWN ? body->len : RESPONSE_SHOWN;
    (void)snprintf(text, sizeof text, "%.*s", body ? (int)shown : 0,
                   body ? (const char *)body->data : "");
    if (exchange->http_status >= 300 && exchange->http_status < 400)
        br_exchange_redirect_text(exchange, why, sizeof why);
    else
        br_exchange_refusal_text(exchange, text, why, sizeof why);
    why[strcspn(why, "\r\n")] = '\0';
    scrape_fail(job, why);
}

static void scrape_on_timeout(struct br_timer *timer);

static void scrape_end(struct pprof_job *job)
{
    job->busy = false;
    (void)br_host_timer_park(job->target->scraper->node->host, &job->timeout, scrape_on_timeout);
}

static void scrape_on_done(struct br_exchange *exchange)
{
    struct pprof_job *j = exchange->user;
    scrape_end(j);
    if (j->target->scraper->stopping)
        return;
    if (exchange->error)
        scrape_fail(j, exchange->error_text);
    else if (scrape_is_in_use(exchange))
        scrape_count(j, PPROF_IN_USE);
    else if (exchange->http_status != 200)
        scrape_fail_status(j, exchange);
    else
        scrape_convert(j, exchange->response);
}

static void scrape_on_timeout(struct br_timer *timer)
{
    struct pprof_job *j = br_container_of(timer, struct pprof_job, timeout);
    char why[64];
    scrape_end(j);
    br_client_cancel(j->target->client, &j->exchange);
    (void)snprintf(why, sizeof why, "no response within %llu ms",
                   (unsigned long long)j->timeout_ms);
    scrape_fail(j, why);
}

/* --- Schedule --------------------------------------------------------------------------------- */

/* Starts a scrape, unless the previous one is still running or the process is overloaded. */
static void scrape_begin(struct pprof_job *job)
{
    struct pprof_scraper *scraper = job->target->scraper;
    struct br_host *host = scraper->node->host;
    if (job->busy || job->reading) {
        scrape_count(job, PPROF_BUSY);
        return;
    }
    if (br_host_over_limit(host) || scraper->sent.bytes > QUEUED_MAX) {
        scrape_count(job, PPROF_LOW_MEMORY);
        return;
    }
    if (br_shed_refuses(host, BR_PROFILES) || br_shed_drops(host, BR_PROFILES)) {
        scrape_count(job, PPROF_SHED);
        return;
    }
    scrape_write_path(job);
    job->busy = true;
    job->exchange = (struct br_exchange){.method = "GET",
                                         .path = job->path,
                                         .user_agent = "Braid/" BR_VERSION,
                                         .headers = scraper->headers,
                                         .n_headers = scraper->n_headers,
                                         .max_response = (size_t)scraper->config->max_profile_size,
                                         .on_done = scrape_on_done,
                                         .user = job};
    (void)br_host_timer(host, &job->timeout, job->timeout_ms, scrape_on_timeout);
    br_client_send(job->target->client, &job->exchange);
}

static void scrape_on_schedule(struct br_timer *timer)
{
    struct pprof_job *j = br_container_of(timer, struct pprof_job, schedule);
    struct br_host *host = j->target->scraper->node->host;
    uint64_t now = br_host_mono_ms(host);
    j->due_ms += j->interval_ms;
    if (j->due_ms <= now)
        j->due_ms = now + j->interval_ms;
    (void)br_host_timer(host, &j->schedule, j->due_ms - now, scrape_on_schedule);
    scrape_begin(j);
}

void pprof_job_set(struct pprof_job *job, uint64_t interval_ms, uint64_t delay_ms)
{
    struct br_host *host = job->target->scraper->node->host;
    uint64_t now = br_host_mono_ms(host);
    bool was_inactive = job->interval_ms == 0;
    job->interval_ms = interval_ms;
    if (interval_ms == 0) {
        (void)br_host_timer_park(host, &job->schedule, scrape_on_schedule);
        job->forget = job->reading != NULL;
        if (!job->forget)
            pprof_delta_clear(job->delta);
        return;
    }
    if (was_inactive || now + delay_ms < job->due_ms)
        job->due_ms = now + delay_ms;
    (void)br_host_timer(host, &job->schedule, job->due_ms > now ? job->due_ms - now : 0,
                        scrape_on_schedule);
}

void pprof_job_stop(struct pprof_job *job)
{
    struct br_host *host = job->target->scraper->node->host;
    if (job->busy)
        br_client_cancel(job->target->client, &job->exchange);
    job->busy = false;
    job->interval_ms = 0;
    br_host_timer_stop(host, &job->schedule);
    br_host_timer_stop(host, &job->timeout);
}

void pprof_job_cancel_reading(struct pprof_job *job)
{
    if (!job->reading)
        return;
    job->target->scraper->n_reading--;
    br_reading_stop(&job->reading);
}
