/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/resource_detection/detection.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attribute/regex.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "core/task.h"
#include "otlp/fields.h"
#include "wire/protobuf.h"

#define ARENA_MAX (4u << 20)  /* largest memory of the results of a detector, in bytes */
#define ANSWER_MAX (1u << 20) /* largest answer of a metadata service, in bytes */
#define NS_PER_MS 1000000u
#define LATE "the metadata service did not answer in time"

/* --- Attributes ------------------------------------------------------------------------------- */

bool detect_wants(const struct detect_run *run, const char *key)
{
    const struct br_option *row = detect_attributes[run->kind];
    for (; row && row->name; row++)
        if (strcmp(row->name, key) == 0)
            return run->section->attributes[row->offset / sizeof(struct detect_toggle)].enabled;
    return false;
}

static void detect_put(struct detect_run *run, const char *key, struct br_value value)
{
    if (br_grow(&run->found, &run->cap_found, (size_t)run->n_found + 1, sizeof *run->found,
                DETECT_FOUND_MAX))
        return;
    run->found[run->n_found++] =
        (struct detect_found){.key = key, .key_len = strlen(key), .value = value};
}

void detect_text(struct detect_run *run, const char *key, const char *text)
{
    struct br_value value;
    if (text && *text && detect_wants(run, key) &&
        br_utf8_valid((const uint8_t *)text, strlen(text)) == strlen(text) &&
        br_value_string(text, strlen(text), &run->arena, &value))
        detect_put(run, key, value);
}

void detect_any(struct detect_run *run, const char *prefix, const char *key, const char *text)
{
    char *whole = br_arena_printf(&run->arena, "%s%s", prefix, key);
    struct br_value value;
    bool valid = whole && br_utf8_valid((const uint8_t *)whole, strlen(whole)) == strlen(whole) &&
                 br_utf8_valid((const uint8_t *)text, strlen(text)) == strlen(text);
    if (valid && br_value_string(text, strlen(text), &run->arena, &value))
        detect_put(run, whole, value);
}

void detect_int(struct detect_run *run, const char *key, int64_t number)
{
    uint8_t *bytes = br_arena_alloc(&run->arena, 1 + BR_VARINT_MAX);
    if (!bytes || !detect_wants(run, key))
        return;
    uint8_t *end = br_put_varint(bytes, BR_TAG(BR_VALUE_INT, BR_WIRE_VARINT));
    end = br_put_varint(end, (uint64_t)number);
    detect_put(run, key, (struct br_value){bytes, (size_t)(end - bytes)});
}

void detect_texts(struct detect_run *run, const char *key, const char *const *texts, size_t count)
{
    size_t len = 0;
    if (!count || !detect_wants(run, key))
        return;
    for (size_t i = 0; i < count; i++)
        len += br_len_size(BR_LIST_VALUES, br_len_size(BR_VALUE_STRING, strlen(texts[i])));
    uint8_t *bytes = br_arena_alloc(&run->arena, br_len_size(BR_VALUE_LIST, len));
    if (!bytes)
        return;
    uint8_t *p = br_put_varint(bytes, BR_TAG(BR_VALUE_LIST, BR_WIRE_LEN));
    p = br_put_varint(p, len);
    for (size_t i = 0; i < count; i++) {
        p = br_put_varint(p, BR_TAG(BR_LIST_VALUES, BR_WIRE_LEN));
        p = br_put_varint(p, br_len_size(BR_VALUE_STRING, strlen(texts[i])));
        p = br_put_len(p, BR_VALUE_STRING, texts[i], strlen(texts[i]));
    }
    detect_put(run, key, (struct br_value){bytes, (size_t)(p - bytes)});
}

const char *detect_variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

bool detect_matches(const struct br_strings *patterns, const char *text)
{
    bool matches = false;
    for (size_t i = 0; i < patterns->count && !matches; i++) {
        struct br_regex regex = {0};
        char why[BR_REGEX_WHY_SIZE];
        pcre2_code *pattern = NULL;
        if (br_regex_compile(&regex, patterns->items[i], &pattern, why) == 0 &&
            br_regex_ready(&regex) == 0)
            matches = br_regex_match(&regex, pattern, text, strlen(text)) > 0;
        pcre2_code_free(pattern);
        br_regex_release(&regex);
    }
    return matches;
}

/* --- The end of a run ------------------------------------------------------------------------- */

static void detection_finish(struct detection *detection);

static void detect_close(struct detect_run *run)
{
    struct detection *detection = run->detection;
    run->ended = true;
    detection->n_pending--;
    if (!detection->n_pending && !detection->starting)
        detection_finish(detection);
}

void detect_end(struct detect_run *run)
{
    detect_close(run);
}

void detect_fail(struct detect_run *run, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(run->why, sizeof run->why, fmt, ap);
    va_end(ap);
    run->failed = true;
    run->n_found = 0;
    br_log_write(&run->detection->node->log, BR_LOG_WARN, "the detector %s failed: %s",
                 detect_names[run->kind], run->why);
    detect_close(run);
}

bool detect_must_exist(const struct detect_run *run)
{
    return run->detection->config->fail_on_missing_metadata ||
           run->section->fail_on_missing_metadata;
}

void detect_missing(struct detect_run *run, const char *fmt, ...)
{
    char why[sizeof run->why];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    if (detect_must_exist(run)) {
        detect_fail(run, "%s", why);
        return;
    }
    br_log_write(&run->detection->node->log, BR_LOG_DEBUG, "the detector %s sets no attributes: %s",
                 detect_names[run->kind], why);
    run->n_found = 0;
    detect_close(run);
}

/* --- Requests --------------------------------------------------------------------------------- */

bool detect_connect(struct detect_run *run, unsigned index, const char *origin,
                    const struct br_tls_config *tls)
{
    struct br_host *host = run->detection->node->host;
    const struct br_client_config config = {.endpoint = run->origins[index],
                                            .tls = tls,
                                            .max_connections = 1,
                                            .connect_timeout_ms =
                                                run->detection->config->timeout / NS_PER_MS,
                                            .log = &run->detection->node->log};
    struct br_err err = {0};
    if (run->clients[index] && strcmp(run->origins[index], origin) == 0)
        return true;
    br_client_free(run->clients[index]);
    run->clients[index] = NULL;
    if (strlen(origin) >= sizeof run->origins[index]) {
        detect_fail(run, "the address of the metadata service is too long");
        return false;
    }
    (void)snprintf(run->origins[index], sizeof run->origins[index], "%s", origin);
    if (host->ops->connect(host, &config, &run->clients[index], &err)) {
        detect_fail(run, "%s", err.text);
        return false;
    }
    return true;
}

/* Passes the answer to the detector. Runs at the end of the loop iteration, not in on_done: while a
 * client calls on_done, the client must not be freed, and its exchange must not be used again. */
static void detect_on_deferred(struct br_deferred *deferred)
{
    struct detect_run *run = br_container_of(deferred, struct detect_run, deferred);
    const struct detect_answer answer = run->answer;
    if (!run->ended)
        run->detector->on_answer(run, &answer);
}

static void detect_set_answer(struct detect_run *run, unsigned status, const char *error,
                              const void *body, size_t len)
{
    struct br_host *host = run->detection->node->host;
    char *copy = len ? br_arena_strndup(&run->arena, body, len) : NULL;
    char *why = error ? br_arena_printf(&run->arena, "%s", error) : NULL;
    run->sending = false;
    run->answer = (struct detect_answer){.error = error && !why ? "out of memory" : why,
                                         .status = status,
                                         .body = copy ? copy : "",
                                         .len = copy ? len : 0};
    if (len && !copy)
        run->answer.error = "out of memory";
    br_host_defer(host, &run->deferred, detect_on_deferred);
}

static void detect_on_done(struct br_exchange *exchange)
{
    struct detect_run *run = exchange->user;
    char why[320] = "";
    if (exchange->error)
        (void)snprintf(why, sizeof why, "%s%s: %s", run->origins[run->client], exchange->path,
                       exchange->error_text);
    else if (exchange->http_status != 200)
        (void)snprintf(why, sizeof why, "%s has status %u", exchange->path, exchange->http_status);
    const struct br_buf *buf = exchange->error ? NULL : exchange->response;
    detect_set_answer(run, exchange->error ? 0 : exchange->http_status, *why ? why : NULL,
                      buf ? buf->data : NULL, buf ? buf->len : 0);
}

void detect_request(struct detect_run *run, unsigned index, const char *method, const char *path,
                    const struct br_header *headers, size_t n_headers)
{
    char *copy = br_arena_printf(&run->arena, "%s", path);
    if (!copy || run->detection->late) {
        detect_set_answer(run, 0, copy ? LATE : "out of memory", NULL, 0);
        return;
    }
    run->exchange = (struct br_exchange){.method = method ? method : "GET",
                                         .path = copy,
                                         .user_agent = "Braid/" BR_VERSION,
                                         .headers = run->headers,
                                         .n_headers = n_headers,
                                         .max_response = ANSWER_MAX,
                                         .on_done = detect_on_done,
                                         .user = run};
    for (size_t i = 0; i < n_headers; i++)
        run->headers[i] = headers[i];
    run->client = index;
    run->sending = true;
    br_client_send(run->clients[index], &run->exchange);
}

/* Ends the request in progress. The detector is not called. */
static void detect_cancel(struct detect_run *run)
{
    if (run->sending)
        br_client_cancel(run->clients[run->client], &run->exchange);
    run->sending = false;
    br_host_defer_cancel(&run->deferred);
}

/* --- Work in a thread ------------------------------------------------------------------------- */

/* The work of a detector in a thread. The thread uses only `own`, because `run` can end before the
 * thread does. */
struct detect_job {
    struct br_task task;
    struct detect_run *run; /* NULL after the detection was released */
    struct detect_run own;
};

static void detect_on_run(struct br_task *task)
{
    struct detect_job *job = br_container_of(task, struct detect_job, task);
    job->own.detector->in_thread(&job->own);
}

/* Moves the results of the thread to the run. */
static void detect_take_results(struct detect_run *run, struct detect_run *from)
{
    const struct br_arena arena = run->arena;
    struct detect_found *found = run->found;
    uint32_t cap_found = run->cap_found;
    run->arena = from->arena;
    run->found = from->found;
    run->n_found = from->n_found;
    run->cap_found = from->cap_found;
    from->arena = arena;
    from->found = found;
    from->cap_found = cap_found;
}

static void detect_on_ran(struct br_task *task)
{
    struct detect_job *job = br_container_of(task, struct detect_job, task);
    struct detect_run *run = job->run;
    if (run)
        run->job = NULL;
    if (run && !run->ended) {
        detect_take_results(run, &job->own);
        if (job->own.why[0])
            detect_fail(run, "%s", job->own.why);
        else
            detect_end(run);
    }
    br_free(job->own.found);
    br_arena_release(&job->own.arena);
    br_free(job);
}

static void detect_start_job(struct detect_run *run)
{
    struct detect_job *job = br_calloc(1, sizeof *job);
    if (!job) {
        detect_fail(run, "out of memory");
        return;
    }
    job->run = run;
    job->own =
        (struct detect_run){.kind = run->kind, .detector = run->detector, .section = run->section};
    br_arena_init(&job->own.arena, ARENA_MAX);
    br_task_init(&job->task, run->detection->node->host, detect_on_run, detect_on_ran);
    job->task.work.kind = BR_WORK_SLOW;
    run->job = job;
    br_task_start(&job->task);
}

/* --- Detections ------------------------------------------------------------------------------- */

static void detect_begin(struct detect_run *run)
{
    run->ended = run->failed = false;
    run->why[0] = '\0';
    run->step = 0;
    run->data = NULL;
    run->n_found = 0;
    br_arena_release(&run->arena);
    if (run->detector->in_thread)
        detect_start_job(run);
    else
        run->detector->begin(run);
}

/* Ends the detectors that are still running when the timeout has expired. */
static void detection_on_limit(struct br_timer *timer)
{
    struct detection *detection = br_container_of(timer, struct detection, limit);
    detection->late = true;
    for (size_t i = 0; i < detection->n_runs; i++) {
        struct detect_run *run = &detection->runs[i];
        if (run->ended)
            continue;
        if (run->job) {
            detect_fail(run, "it has taken longer than the timeout");
        } else if (run->sending) {
            detect_cancel(run);
            detect_set_answer(run, 0, LATE, NULL, 0);
        }
    }
}

/* Starts all detectors. Returns 0, BR_ENOMEM if there is no memory for the timer, or BR_EAGAIN if a
 * thread of the previous detection is still running. */
static int detection_begin(struct detection *detection)
{
    struct br_host *host = detection->node->host;
    for (size_t i = 0; i < detection->n_runs; i++)
        if (detection->runs[i].job)
            return BR_EAGAIN; /* a lookup of the previous detection has not returned yet */
    if (!br_host_timer(host, &detection->limit, detection->config->timeout / NS_PER_MS,
                       detection_on_limit))
        return BR_ENOMEM;
    detection->running = detection->starting = true;
    detection->late = false;
    detection->n_pending = (unsigned)detection->n_runs;
    for (size_t i = 0; i < detection->n_runs; i++)
        detect_begin(&detection->runs[i]);
    detection->starting = false;
    if (!detection->n_pending)
        detection_finish(detection);
    return 0;
}

static bool detection_has(const struct detection *detection, const struct detect_found *found)
{
    for (size_t i = 0; i < detection->n_found; i++)
        if (br_bytes_equal(detection->found[i].key, detection->found[i].key_len, found->key,
                           found->key_len))
            return true;
    return false;
}

/* Copies the attributes of all runs. Returns false if memory runs out; the previous attributes
 * are then kept. */
static bool detection_merge(struct detection *detection)
{
    struct detection merged = {0};
    size_t count = 0;
    for (size_t i = 0; i < detection->n_runs; i++)
        count += detection->runs[i].n_found;
    br_arena_init(&merged.arena, 0);
    merged.found = br_arena_calloc(&merged.arena, count, sizeof *merged.found);
    bool made = merged.found != NULL;
    for (size_t i = 0; i < detection->n_runs; i++)
        for (uint32_t k = 0; k < detection->runs[i].n_found && made; k++) {
            const struct detect_found *from = &detection->runs[i].found[k];
            if (detection_has(&merged, from))
                continue;
            struct detect_found *to = &merged.found[merged.n_found++];
            *to = *from;
            to->key = br_arena_strndup(&merged.arena, from->key, from->key_len);
            to->value.data = (const uint8_t *)br_arena_strndup(
                &merged.arena, (const char *)from->value.data, from->value.len);
            made = to->key && to->value.data;
        }
    if (!made) {
        br_arena_release(&merged.arena);
        return false;
    }
    br_arena_release(&detection->arena);
    detection->arena = merged.arena;
    detection->found = merged.found;
    detection->n_found = merged.n_found;
    return true;
}

static void detection_on_again(struct br_timer *timer);

/* Returns the delay before the next detection in milliseconds; 0: there will be no further
 * detection. */
static uint64_t detection_delay_ms(struct detection *detection)
{
    const struct detect_retry *retry = &detection->config->retry;
    if (detection->detected)
        return detection->config->refresh_interval / NS_PER_MS;
    double delay_ns = (double)retry->initial_interval;
    for (unsigned i = 1; i < detection->n_failed && delay_ns < (double)retry->max_interval; i++)
        delay_ns *= retry->multiplier;
    if (delay_ns > (double)retry->max_interval)
        delay_ns = (double)retry->max_interval;
    double random = 2 * br_host_random(detection->node->host) - 1;
    delay_ns *= 1 + random * retry->randomization_factor;
    return (uint64_t)(delay_ns / NS_PER_MS) + 1;
}

static void detection_schedule(struct detection *detection)
{
    uint64_t delay_ms = detection_delay_ms(detection);
    if (delay_ms && !detection->node->draining)
        (void)br_host_timer(detection->node->host, &detection->again, delay_ms, detection_on_again);
}

static void detection_log(const struct detection *detection)
{
    char text[1024];
    struct br_str keys = {.data = text, .cap = sizeof text, .fixed = true};
    for (size_t i = 0; i < detection->n_found; i++) {
        struct br_any any = br_any_read(detection->found[i].value);
        br_str_printf(&keys, "%s%s", i ? ", " : "", detection->found[i].key);
        if (any.type == BR_VALUE_STRING)
            br_str_printf(&keys, "=%.*s", (int)any.len, (const char *)any.data);
    }
    br_log_write(&detection->node->log, BR_LOG_INFO, "detected attributes: %s",
                 detection->n_found ? text : "none");
}

static void detection_finish(struct detection *detection)
{
    bool failed = false;
    br_host_timer_stop(detection->node->host, &detection->limit);
    detection->running = false;
    for (size_t i = 0; i < detection->n_runs; i++)
        failed = failed || detection->runs[i].failed;
    failed = failed || !detection_merge(detection);
    detection->n_failed = failed ? detection->n_failed + 1 : 0;
    if (!failed) {
        bool first = !detection->detected;
        detection->detected = true;
        if (first)
            detection_log(detection);
    } else if (detection->detected) {
        br_log_write(&detection->node->log, BR_LOG_WARN,
                     "the detection failed; the attributes of the previous one are kept");
    } else {
        br_log_write(&detection->node->log, BR_LOG_ERROR,
                     "the detection failed and is repeated; until it succeeds, data is refused");
    }
    detection_schedule(detection);
    detection->on_end(detection);
}

static void detection_on_again(struct br_timer *timer)
{
    struct detection *detection = br_container_of(timer, struct detection, again);
    if (detection_begin(detection))
        detection_schedule(detection);
}

/* --- Life ------------------------------------------------------------------------------------- */

int detect_init(struct detection *detection, struct br_node *node,
                void (*on_end)(struct detection *detection))
{
    const struct detect_config *config = node->config;
    detection->node = node;
    detection->config = config;
    detection->on_end = on_end;
    detection->runs = br_calloc(config->detectors.count, sizeof *detection->runs);
    if (!detection->runs)
        return BR_ENOMEM;
    for (size_t i = 0; i < config->detectors.count; i++) {
        struct detect_run *run = &detection->runs[detection->n_runs++];
        run->detection = detection;
        run->kind = detect_kind(config->detectors.items[i]);
        run->detector = detectors[run->kind];
        run->section = &config->sections[run->kind];
        br_arena_init(&run->arena, ARENA_MAX);
    }
    return 0;
}

int detect_start(struct detection *detection, struct br_err *err)
{
    for (size_t i = 0; i < detection->n_runs; i++) {
        int kind = detection->runs[i].kind;
        if (kind == DETECT_K8S_API || kind == DETECT_K8SNODE || kind == DETECT_EKS)
            detect_kubernetes_prepare(&detection->runs[i]);
    }
    if (detection_begin(detection))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    for (size_t i = 0; i < detection->n_runs; i++)
        if (detection->runs[i].failed)
            return br_err_set(err, BR_EINVAL, "the detector %s failed: %s",
                              detect_names[detection->runs[i].kind], detection->runs[i].why);
    return detection->running || detection->detected ? 0
                                                     : br_err_set(err, BR_ENOMEM, "out of memory");
}

void detect_stop(struct detection *detection)
{
    if (!detection->node)
        return;
    br_host_timer_stop(detection->node->host, &detection->limit);
    br_host_timer_stop(detection->node->host, &detection->again);
    for (size_t i = 0; i < detection->n_runs; i++) {
        detection->runs[i].ended = true;
        detect_cancel(&detection->runs[i]);
    }
    detection->running = false;
}

void detect_release(struct detection *detection)
{
    detect_stop(detection);
    for (size_t i = 0; i < detection->n_runs; i++) {
        struct detect_run *run = &detection->runs[i];
        if (run->job) {
            br_task_stop(&run->job->task);
            run->job->run = NULL; /* the job is freed when the worker learns that it has ended */
        }
        for (unsigned k = 0; k < DETECT_CLIENTS; k++)
            br_client_free(run->clients[k]);
        br_kubernetes_release(&run->kubernetes);
        br_free(run->found);
        br_arena_release(&run->arena);
    }
    br_free(detection->runs);
    detection->runs = NULL;
    detection->n_runs = 0;
    br_arena_release(&detection->arena);
}
