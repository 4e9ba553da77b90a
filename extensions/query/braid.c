/* SPDX-License-Identifier: Apache-2.0 */
#include "extensions/query/braid.h"
#include "extensions/query/tempo.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define HOUR_NS UINT64_C(3600000000000)
#define SERVICES_MAX 1000
#define OPERATIONS_MAX 10000 /* maximum number of operations of one service */
#define DURATION_MAX 1e18    /* longest duration in nanoseconds (31 years) */

/* --- Parameters and JSON --------------------------------------------------------------------- */

bool query_braid_range(struct query_job *job, uint64_t *ret_from, uint64_t *ret_until)
{
    uint64_t hour_ago = job->now_ns > HOUR_NS ? job->now_ns - HOUR_NS : 0;
    if (!query_job_time(job, "start", hour_ago, ret_from) ||
        !query_job_time(job, "end", job->now_ns, ret_until))
        return false;
    if (*ret_until < *ret_from) {
        query_job_fail(job, 400, "invalid end: must not be before start");
        return false;
    }
    *ret_until += *ret_until < UINT64_MAX;
    return true;
}

static double braid_unit_ns(const char *unit)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"ns", 1},   {"us", 1e3}, {"\u00b5s", 1e3}, {"\u03bcs", 1e3},
                 {"ms", 1e6}, {"s", 1e9},  {"m", 6e10},      {"h", 3.6e12}};
    for (size_t i = 0; i < BR_COUNT(units); i++)
        if (!strcmp(units[i].name, unit))
            return units[i].ns;
    return -1;
}

bool query_braid_duration(struct query_job *job, const char *name, uint64_t *ret)
{
    const char *text = query_job_param(job, name);
    char *end;
    *ret = 0;
    if (!text || !*text)
        return true;
    double value = strtod(text, &end);
    bool number = *text >= '0' && *text <= '9' && end > text, bare = number && !*end;
    if (bare && value > 0) {
        query_job_fail(job, 400, "invalid %s: \"%.40s\" has no unit; write %.40sms or %.40ss", name,
                       text, text, text);
        return false;
    }
    double ns = -1;
    if (bare)
        ns = 0;
    else if (number)
        ns = value * braid_unit_ns(end);
    if (!(ns >= 0 && ns <= DURATION_MAX)) {
        query_job_fail(job, 400,
                       "invalid %s: must be a duration such as 100ms or 1.5s, got \"%.40s\"", name,
                       text);
        return false;
    }
    *ret = (uint64_t)ns;
    return true;
}

static void braid_put_hex(struct br_str *out, char before, const char *name, const uint8_t *id,
                          size_t size)
{
    br_str_putc(out, before);
    br_str_json(out, name, strlen(name));
    br_str_puts(out, ":\"");
    br_str_hex(out, id, size);
    br_str_putc(out, '"');
}

void query_braid_put_trace(struct br_str *out, char before, const char *name,
                           const uint8_t trace_id[16])
{
    braid_put_hex(out, before, name, trace_id, 16);
}

void query_braid_put_span(struct br_str *out, char before, const char *name, uint64_t span_id)
{
    uint8_t id[sizeof span_id];
    memcpy(id, &span_id, sizeof id);
    braid_put_hex(out, before, name, id, span_id ? sizeof id : 0);
}

void query_braid_end(struct query_job *job, int rc, const struct br_err *err)
{
    if (rc) {
        query_job_fail_rc(job, rc, err);
        return;
    }
    query_put_cut(job);
    br_str_putc(&job->out, '}');
}

/* --- Status ---------------------------------------------------------------------------------- */

static void braid_status(struct query_job *job)
{
    struct br_store *store = job->query->store;
    struct br_store_usage usage = {0};
    br_store_usage(store, &usage);
    uint64_t oldest_ns = usage.spans.oldest_ns, newest_ns = usage.spans.newest_ns;
    if (usage.samples.oldest_ns && (!oldest_ns || usage.samples.oldest_ns < oldest_ns))
        oldest_ns = usage.samples.oldest_ns;
    if (usage.samples.newest_ns > newest_ns)
        newest_ns = usage.samples.newest_ns;
    query_put_text(&job->out, '{', "version", BR_VERSION);
    br_str_printf(&job->out,
                  ",\"started_unix_ns\":\"%" PRIu64 "\",\"now_unix_ns\":\"%" PRIu64
                  "\",\"store\":{\"bytes\":%" PRIu64 ",\"max_bytes\":%" PRIu64
                  ",\"partitions\":%" PRIu64 ",\"damaged\":%" PRIu64 ",\"unread\":%" PRIu64
                  ",\"spans\":%" PRIu64 ",\"samples\":%" PRIu64 ",\"oldest_unix_ns\":\"%" PRIu64
                  "\",\"newest_unix_ns\":\"%" PRIu64 "\"},\"generation\":%" PRIu64 "}",
                  job->query->started_ns, job->now_ns, usage.bytes, usage.max_bytes,
                  usage.n_partitions, usage.n_damaged, usage.n_unread, usage.n_spans,
                  usage.n_samples, oldest_ns, newest_ns, br_store_generation(store));
}

/* --- Services -------------------------------------------------------------------------------- */

struct braid_service {
    const char *name;
    uint64_t n_spans;
    struct query_braid_types types;
};

struct braid_services {
    struct query_job *job;
    struct br_map *map;
    size_t n_operations; /* number of operations written so far for the current service */
    int rc;
};

static struct braid_service *braid_service_of(struct braid_services *services, const char *name)
{
    size_t len = strlen(name);
    struct braid_service *service = br_map_get(services->map, name, len);
    if (service)
        return service;
    service = br_arena_calloc(&services->job->arena, 1, sizeof *service);
    if (service)
        service->name = br_arena_strndup(&services->job->arena, name, len);
    services->rc = service && service->name ? br_map_put(services->map, name, len, service, NULL)
                                            : br_arena_why(&services->job->arena);
    if (services->rc == BR_EFULL && br_map_count(services->map) == SERVICES_MAX) {
        query_job_note(services->job, "there are more services than one response can list");
        services->rc = 0;
        return NULL;
    }
    return services->rc ? NULL : service;
}

static bool braid_services_on_name(const char *name, uint64_t count, void *arg)
{
    struct braid_services *services = arg;
    struct braid_service *service = braid_service_of(services, name);
    if (service)
        service->n_spans += count;
    return service != NULL;
}

static bool braid_services_on_series(const struct br_stored_series *series, void *arg)
{
    struct braid_services *services = arg;
    for (size_t i = 0; i < series->n_labels; i++)
        if (!strcmp(series->labels[i].name, "service_name")) {
            struct braid_service *service = braid_service_of(services, series->labels[i].value);
            if (service)
                (void)query_braid_type(services->job, &service->types, series->type);
        }
    return !services->rc && query_job_may_continue(services->job);
}

static bool braid_services_on_operation(const char *name, uint64_t count, void *arg)
{
    struct braid_services *services = arg;
    if (services->n_operations == OPERATIONS_MAX) {
        query_job_note(services->job, "there are more operations than one response can list");
        return false;
    }
    if (services->n_operations++)
        br_str_putc(&services->job->out, ',');
    query_put_text(&services->job->out, '{', "name", name);
    br_str_printf(&services->job->out, ",\"spans\":%" PRIu64 "}", count);
    return true;
}

static int braid_compare_services(const void *left, const void *right)
{
    const struct braid_service *a = *(const struct braid_service *const *)left;
    const struct braid_service *b = *(const struct braid_service *const *)right;
    return strcmp(a->name, b->name);
}

static int braid_put_service(struct braid_services *services, const struct braid_service *service,
                             uint64_t from_ns, uint64_t until_ns, struct br_err *err)
{
    struct query_job *job = services->job;
    query_put_text(&job->out, '{', "name", service->name);
    br_str_printf(&job->out, ",\"spans\":%" PRIu64 ",\"operations\":[", service->n_spans);
    services->n_operations = 0;
    int rc = br_store_operations(job->store, service->name, from_ns, until_ns,
                                 braid_services_on_operation, services, err);
    br_str_puts(&job->out, "],\"profile_types\":[");
    for (size_t i = 0; i < service->types.count; i++) {
        if (i)
            br_str_putc(&job->out, ',');
        br_str_json(&job->out, service->types.ids[i], strlen(service->types.ids[i]));
    }
    br_str_puts(&job->out, "]}");
    return rc;
}

static int braid_put_services(struct braid_services *services, uint64_t from_ns, uint64_t until_ns,
                              struct br_err *err)
{
    struct query_job *job = services->job;
    size_t count = br_map_count(services->map), len;
    const void *key;
    int rc = 0;
    struct braid_service **list = br_arena_calloc(&job->arena, count + 1, sizeof *list);
    if (!list)
        return br_arena_why(&job->arena);
    for (size_t i = 0; i < count; i++)
        list[i] = br_map_at(services->map, i, &key, &len);
    qsort(list, count, sizeof *list, braid_compare_services);
    br_str_puts(&job->out, "{\"services\":[");
    for (size_t i = 0; i < count && !rc; i++) {
        if (i)
            br_str_putc(&job->out, ',');
        rc = braid_put_service(services, list[i], from_ns, until_ns, err);
    }
    br_str_putc(&job->out, ']');
    return rc;
}

static void braid_list_services(struct query_job *job)
{
    struct braid_services services = {.job = job, .map = br_map_new(SERVICES_MAX)};
    struct br_sample_filter filter = {0};
    struct br_err err = {0};
    uint64_t from_ns, until_ns;
    if (!query_braid_range(job, &from_ns, &until_ns)) {
        br_map_free(services.map, NULL);
        return;
    }
    filter.from_ns = from_ns;
    filter.until_ns = until_ns;
    int rc = services.map ? br_store_services(job->store, from_ns, until_ns, braid_services_on_name,
                                              &services, &err)
                          : BR_ENOMEM;
    if (!rc && !services.rc)
        rc = br_store_series(job->store, &filter, braid_services_on_series, &services, &err);
    if (!rc)
        rc = services.rc;
    if (!rc)
        rc = braid_put_services(&services, from_ns, until_ns, &err);
    br_map_free(services.map, NULL);
    query_braid_end(job, rc, &err);
}

/* --- Routes ---------------------------------------------------------------------------------- */

static void braid_openapi(struct query_job *job)
{
    br_str_add(&job->out, query_openapi, query_openapi_len);
}

#define GET(where, function)                                                                       \
    {                                                                                              \
        .methods = QUERY_GET, .path = "/api/braid/" where, .handle = (function),                   \
        .errors = QUERY_JSON                                                                       \
    }

const struct query_route query_braid_routes[] = {
    GET("status", braid_status),
    GET("services", braid_list_services),
    GET("operations", query_braid_operations),
    GET("heat", query_braid_heat),
    GET("differences", query_braid_differences),
    GET("spans", query_braid_spans),
    GET("traces/*", query_braid_trace),
    GET("traces/*/otlp", query_trace_otlp),
    GET("spans/*/*/profile", query_braid_span_profile),
    GET("profile", query_braid_profile),
    GET("top", query_braid_top),
    GET("diff", query_braid_diff),
    GET("slow", query_braid_slow),
    GET("timeline", query_braid_timeline),
    GET("join", query_braid_join),
    GET("privacy", query_braid_privacy),
    {.methods = QUERY_GET,
     .path = "/api/braid/tail",
     .handle = query_braid_tail,
     .errors = QUERY_JSON,
     .stream = true},
    {.methods = QUERY_GET,
     .path = "/api/braid/slice",
     .handle = query_braid_slice,
     .errors = QUERY_JSON,
     .stream = true,
     .download = true},
    {.methods = QUERY_GET,
     .path = "/api/braid/openapi.json",
     .handle = braid_openapi,
     .errors = QUERY_JSON,
     .no_store = true},
    {0},
};
