/* SPDX-License-Identifier: Apache-2.0 */
/* Tempo's HTTP API, as Grafana's Tempo source asks for it: the routes, and the tags. */
#include "extensions/query/tempo.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "extensions/query/tables.h"
#include "otlp/json/number.h"

/* The version of Tempo whose API this follows: clients look at it to know what they may ask. */
#define TEMPO_VERSION "2.9.0"

#define NAMES_DEFAULT 5000
#define NAMES_MAX 50000

/* --- Whether it is there ---------------------------------------------------------------------- */

static void tempo_echo(struct query_job *job)
{
    job->type = "text/plain; charset=utf-8";
    br_str_puts(&job->out, "echo");
}

static void tempo_ready(struct query_job *job)
{
    if (!br_store_is_open(job->query->store)) {
        query_job_fail(job, 503, "the store is not open");
        return;
    }
    job->type = "text/plain; charset=utf-8";
    br_str_puts(&job->out, "ready\n");
}

static void tempo_buildinfo(struct query_job *job)
{
    br_str_puts(&job->out, "{\"version\":\"" TEMPO_VERSION "\",\"revision\":\"braid-" BR_VERSION
                           "\",\"branch\":\"\",\"buildUser\":\"\",\"buildDate\":\"\","
                           "\"goVersion\":\"\"}");
}

/* --- Ranges ----------------------------------------------------------------------------------- */

bool query_tempo_range_read(struct query_job *job, uint64_t *ret_from_ns, uint64_t *ret_until_ns)
{
    const char *end = query_job_param(job, "end");
    if (!query_job_time(job, "start", 0, ret_from_ns) ||
        !query_job_time(job, "end", 0, ret_until_ns))
        return false;
    if (end && *end && strlen(end) <= 11 && end[strspn(end, "0123456789")] == '\0' && *ret_until_ns)
        *ret_until_ns += 1000000000;
    if (*ret_until_ns && *ret_until_ns <= *ret_from_ns) {
        query_job_fail(job, 400, "invalid start or end: the start must be before the end");
        return false;
    }
    return true;
}

/* --- Names ------------------------------------------------------------------------------------ */

/* Names of one list, each once. */
struct names {
    struct query_job *job;
    struct br_map *seen; /* NULL: none comes twice */
    const char *type;    /* of values: "string"; NULL: names alone */
    bool guesses;        /* another type where the value looks like it */
    uint64_t left;
    bool any;
    struct br_err err;
    int rc;
};

/* The store has values as text; what reads as a number or a boolean most likely is one, and clients
 * put no quotes around those. */
static const char *tempo_type_of(const struct names *names, const char *value)
{
    size_t len = strlen(value);
    const char *digits = value + (*value == '-');
    if (!names->guesses)
        return names->type;
    if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0)
        return "bool";
    if (!len || br_number_scan(value, len) != len)
        return names->type;
    return digits[strspn(digits, "0123456789")] ? "float" : "int";
}

static bool tempo_put_name(const char *name, uint64_t count, void *arg)
{
    struct names *names = arg;
    struct br_str *out = &names->job->out;
    (void)count;
    if (names->left == 0 || out->failed)
        return false;
    if (names->seen && br_map_get(names->seen, name, strlen(name)))
        return true;
    if (names->seen && (names->rc = br_map_put(names->seen, name, strlen(name), names, NULL)))
        return false;
    br_str_puts(out, names->any ? "," : "");
    if (names->type)
        br_str_printf(out, "{\"type\":\"%s\",\"value\":", tempo_type_of(names, name));
    br_str_json(out, name, strlen(name));
    br_str_puts(out, names->type ? "}" : "");
    names->any = true;
    names->left--;
    return true;
}

static void tempo_put_names(struct names *names, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count && tempo_put_name(list[i], 0, names); i++)
        continue;
}

static const char *const intrinsics[] = {"duration",
                                         "event:name",
                                         "event:timeSinceStart",
                                         "instrumentation:name",
                                         "instrumentation:version",
                                         "kind",
                                         "link:spanID",
                                         "link:traceID",
                                         "name",
                                         "rootName",
                                         "rootServiceName",
                                         "span:duration",
                                         "span:id",
                                         "span:kind",
                                         "span:name",
                                         "span:parentID",
                                         "span:status",
                                         "span:statusMessage",
                                         "status",
                                         "statusMessage",
                                         "trace:duration",
                                         "trace:id",
                                         "trace:rootName",
                                         "trace:rootService",
                                         "traceDuration"};

static bool tempo_is_scope(const struct query_job *job, const char *scope)
{
    const char *asked = query_job_param(job, "scope");
    return !asked || !*asked || strcmp(asked, "none") == 0 || strcmp(asked, scope) == 0;
}

static bool tempo_names_begin(struct names *names, struct query_job *job, bool once, uint64_t *from,
                              uint64_t *until)
{
    *names = (struct names){.job = job};
    if (!query_tempo_range_read(job, from, until) ||
        !query_job_number(job, "limit", NAMES_DEFAULT, UINT32_MAX, &names->left))
        return false;
    if (names->left == 0 || names->left > NAMES_MAX)
        names->left = NAMES_MAX;
    names->seen = once ? br_map_new(NAMES_MAX) : NULL;
    if (once && !names->seen)
        query_job_fail_rc(job, BR_ENOMEM, NULL);
    return !once || names->seen;
}

/* False after query_job_fail. */
static bool tempo_names_end(struct names *names, int rc)
{
    br_map_free(names->seen, NULL);
    rc = rc ? rc : names->rc;
    if (rc)
        query_job_fail_rc(names->job, rc, &names->err);
    return rc == 0;
}

/* {"tagNames":[...]}: of spans and resources, each name once. */
static void tempo_tags_v1(struct query_job *job)
{
    struct names names;
    uint64_t from, until;
    int rc = 0;
    if (!tempo_names_begin(&names, job, true, &from, &until))
        return;
    br_str_puts(&job->out, "{\"tagNames\":[");
    if (query_job_param(job, "scope") && strcmp(query_job_param(job, "scope"), "intrinsic") == 0)
        tempo_put_names(&names, intrinsics, BR_COUNT(intrinsics));
    if (tempo_is_scope(job, "resource"))
        rc = br_store_span_keys(job->store, true, from, until, tempo_put_name, &names, &names.err);
    if (!rc && tempo_is_scope(job, "span"))
        rc = br_store_span_keys(job->store, false, from, until, tempo_put_name, &names, &names.err);
    if (tempo_names_end(&names, rc))
        br_str_puts(&job->out, "],\"metrics\":{}}");
}

static int tempo_put_scope(struct names *names, const char *scope, uint64_t from, uint64_t until)
{
    struct query_job *job = names->job;
    bool resource = strcmp(scope, "resource") == 0, first = job->out.len == strlen("{\"scopes\":[");
    int rc = 0;
    if (!tempo_is_scope(job, scope))
        return 0;
    br_str_printf(&job->out, "%s{\"name\":\"%s\",\"tags\":[", first ? "" : ",", scope);
    names->any = false;
    if (strcmp(scope, "intrinsic") == 0)
        tempo_put_names(names, intrinsics, BR_COUNT(intrinsics));
    else
        rc = br_store_span_keys(job->store, resource, from, until, tempo_put_name, names,
                                &names->err);
    br_str_puts(&job->out, "]}");
    return rc;
}

/* {"scopes":[{"name":"resource","tags":[...]},...],"metrics":{}} */
static void tempo_tags_v2(struct query_job *job)
{
    static const char *const scopes[] = {"resource", "span", "intrinsic"};
    struct names names;
    uint64_t from, until, left;
    int rc = 0;
    if (!tempo_names_begin(&names, job, false, &from, &until))
        return;
    left = names.left;
    br_str_puts(&job->out, "{\"scopes\":[");
    for (size_t i = 0; i < BR_COUNT(scopes) && !rc; i++) {
        names.left = left; /* of each */
        rc = tempo_put_scope(&names, scopes[i], from, until);
    }
    if (tempo_names_end(&names, rc))
        br_str_puts(&job->out, "],\"metrics\":{}}");
}

/* --- Values ----------------------------------------------------------------------------------- */

/* What a tag is: an intrinsic, or a name with or without a scope. */
enum tag {
    TAG_UNSCOPED,
    TAG_SPAN,
    TAG_RESOURCE,
    TAG_NAME,
    TAG_STATUS,
    TAG_KIND,
    TAG_SERVICE,
    TAG_OTHER
};

static enum tag tempo_tag_of(const char *text, const char **ret_name)
{
    static const struct {
        const char *name;
        enum tag tag;
    } known[] = {
        {"name", TAG_NAME},
        {"span:name", TAG_NAME},
        {"rootName", TAG_NAME},
        {"trace:rootName", TAG_NAME},
        {"root.name", TAG_NAME},
        {"status", TAG_STATUS},
        {"span:status", TAG_STATUS},
        {"kind", TAG_KIND},
        {"span:kind", TAG_KIND},
        {"rootServiceName", TAG_SERVICE},
        {"trace:rootService", TAG_SERVICE},
        {"root.service.name", TAG_SERVICE},
        {"resource.service.name", TAG_SERVICE},
    };
    static const struct {
        const char *prefix;
        enum tag tag;
    } scopes[] = {{"span.", TAG_SPAN},  {"resource.", TAG_RESOURCE},
                  {".", TAG_UNSCOPED},  {"event.", TAG_OTHER},
                  {"link.", TAG_OTHER}, {"instrumentation.", TAG_OTHER}};
    *ret_name = text;
    for (size_t i = 0; i < BR_COUNT(known); i++)
        if (strcmp(text, known[i].name) == 0)
            return known[i].tag;
    for (size_t i = 0; i < BR_COUNT(intrinsics); i++)
        if (strcmp(text, intrinsics[i]) == 0)
            return TAG_OTHER;
    for (size_t i = 0; i < BR_COUNT(scopes); i++) {
        size_t len = strlen(scopes[i].prefix);
        if (strncmp(text, scopes[i].prefix, len) == 0) {
            *ret_name = text + len;
            return scopes[i].tag;
        }
    }
    return TAG_UNSCOPED;
}

struct operations {
    struct names *names;
    uint64_t from, until;
    const char **services;
    uint32_t n_services, cap_services;
};

static bool tempo_on_service(const char *name, uint64_t count, void *arg)
{
    struct operations *operations = arg;
    (void)count;
    int rc = br_grow(&operations->services, &operations->cap_services,
                     (size_t)operations->n_services + 1, sizeof *operations->services, NAMES_MAX);
    const char *copy =
        rc ? NULL : br_arena_strndup(&operations->names->job->arena, name, strlen(name));
    if (!copy) {
        operations->names->rc = BR_ENOMEM;
        return false;
    }
    operations->services[operations->n_services++] = copy;
    return true;
}

/* The names of spans of all services. */
static int tempo_put_operations(struct names *names, uint64_t from, uint64_t until)
{
    struct query_job *job = names->job;
    struct operations operations = {.names = names, .from = from, .until = until};
    int rc = br_store_services(job->store, from, until, tempo_on_service, &operations, &names->err);
    for (uint32_t i = 0; i < operations.n_services && !rc && !names->rc; i++)
        rc = br_store_operations(job->store, operations.services[i], from, until, tempo_put_name,
                                 names, &names->err);
    br_free(operations.services);
    return rc;
}

/* span."a name" as the query has it is `a name` in the store. NULL without memory. */
static const char *tempo_unquote(struct query_job *job, const char *name)
{
    size_t len = strlen(name);
    if (len < 2 || name[0] != '"' || name[len - 1] != '"')
        return name;
    return br_arena_strndup(&job->head, name + 1, len - 2);
}

static int tempo_put_values(struct names *names, const char *tag, uint64_t from, uint64_t until,
                            bool typed)
{
    static const char *const statuses[] = {"error", "ok", "unset"};
    static const char *const kinds[] = {"client",   "consumer", "internal",
                                        "producer", "server",   "unspecified"};
    struct br_store_query *store = names->job->store;
    const char *name;
    enum tag what = tempo_tag_of(tag, &name);
    int rc = 0;
    name = tempo_unquote(names->job, name);
    if (!name)
        return BR_ENOMEM;
    names->type = !typed ? NULL : what == TAG_STATUS || what == TAG_KIND ? "keyword" : "string";
    if (what == TAG_STATUS)
        tempo_put_names(names, statuses, BR_COUNT(statuses));
    else if (what == TAG_KIND)
        tempo_put_names(names, kinds, BR_COUNT(kinds));
    else if (what == TAG_NAME)
        rc = tempo_put_operations(names, from, until);
    else if (what == TAG_SERVICE)
        rc = br_store_services(store, from, until, tempo_put_name, names, &names->err);
    names->guesses = what <= TAG_RESOURCE;
    if (what == TAG_RESOURCE || what == TAG_UNSCOPED)
        rc = br_store_span_values(store, name, true, from, until, tempo_put_name, names,
                                  &names->err);
    if (!rc && (what == TAG_SPAN || what == TAG_UNSCOPED))
        rc = br_store_span_values(store, name, false, from, until, tempo_put_name, names,
                                  &names->err);
    return rc;
}

static void tempo_values(struct query_job *job, bool typed)
{
    struct names names;
    uint64_t from, until;
    if (!tempo_names_begin(&names, job, true, &from, &until))
        return;
    br_str_puts(&job->out, "{\"tagValues\":[");
    if (tempo_names_end(&names, tempo_put_values(&names, job->parts[0], from, until, typed)))
        br_str_puts(&job->out, "],\"metrics\":{}}");
}

static void tempo_values_v1(struct query_job *job)
{
    tempo_values(job, false);
}

static void tempo_values_v2(struct query_job *job)
{
    tempo_values(job, true);
}

#define GET(at, what)                                                                              \
    {                                                                                              \
        .methods = QUERY_GET, .path = (at), .handle = (what)                                       \
    }

const struct query_route query_tempo_routes[] = {
    {.methods = QUERY_GET, .path = "/api/echo", .handle = tempo_echo, .at_once = true},
    {.methods = QUERY_GET, .path = "/ready", .handle = tempo_ready, .at_once = true},
    {.methods = QUERY_GET,
     .path = "/api/status/buildinfo",
     .handle = tempo_buildinfo,
     .at_once = true},
    GET("/api/traces/*", query_tempo_trace_v1),
    GET("/api/v2/traces/*", query_tempo_trace_v2),
    GET("/api/search", query_tempo_search),
    GET("/api/search/tags", tempo_tags_v1),
    GET("/api/v2/search/tags", tempo_tags_v2),
    GET("/api/search/tag/*/values", tempo_values_v1),
    GET("/api/v2/search/tag/*/values", tempo_values_v2),
    GET("/api/metrics/query_range", query_tempo_range),
    GET("/api/metrics/query", query_tempo_instant),
    {0},
};
