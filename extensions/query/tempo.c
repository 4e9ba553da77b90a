/* SPDX-License-Identifier: Apache-2.0 */
/* Tempo's HTTP API, as Grafana's Tempo data source uses it: the routes and the tags. */
#include "extensions/query/tempo.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "otlp/json/number.h"

/* Version of Tempo whose API is implemented. Clients use the version to decide which requests to
 * send. */
#define TEMPO_VERSION "2.9.0"

#define NAMES_DEFAULT 5000
#define NAMES_MAX 50000

/* --- Status ---------------------------------------------------------------------------------- */

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

/* --- Ranges ---------------------------------------------------------------------------------- */

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

/* --- Names ----------------------------------------------------------------------------------- */

/* Returns the type of a value. The store keeps values as text. A text that reads as a number or
 * boolean most likely was one, and clients do not quote numbers and booleans. */
static const char *tempo_type_of(const struct query_tempo_names *names, const char *value)
{
    size_t len = strlen(value);
    const char *digits = value + (*value == '-');
    if (!names->guess_type)
        return names->type;
    if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0)
        return "bool";
    if (!len || br_number_scan(value, len) != len)
        return names->type;
    return digits[strspn(digits, "0123456789")] ? "float" : "int";
}

bool query_tempo_put(struct query_tempo_names *names, const char *key, size_t key_len,
                     const char *name, const char *type)
{
    struct br_str *out = &names->job->out;
    if (names->left == 0 || names->rc || out->failed)
        return false;
    if (names->seen && br_map_get(names->seen, key, key_len))
        return true;
    if (names->seen && (names->rc = br_map_put(names->seen, key, key_len, names, NULL)))
        return false;
    br_str_puts(out, names->any ? "," : "");
    size_t len = key_len - (size_t)(name - key);
    if (type)
        br_str_printf(out, len ? "{\"type\":\"%s\",\"value\":" : "{\"type\":\"%s\"", type);
    if (!type || len)
        br_str_json(out, name, len);
    br_str_puts(out, type ? "}" : "");
    names->any = true;
    names->left--;
    return true;
}

bool query_tempo_put_name(const char *name, uint64_t count, void *arg)
{
    struct query_tempo_names *names = arg;
    (void)count;
    return query_tempo_put(names, name, strlen(name), name,
                           names->type ? tempo_type_of(names, name) : NULL);
}

void query_tempo_put_names(struct query_tempo_names *names, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count && query_tempo_put_name(list[i], 0, names); i++)
        continue;
}

const char *const query_tempo_intrinsics[QUERY_TEMPO_INTRINSICS] = {"duration",
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
    const char *scope_param = query_job_param(job, "scope");
    return !scope_param || !*scope_param || strcmp(scope_param, "none") == 0 ||
           strcmp(scope_param, scope) == 0;
}

/* Checks the parameter `scope`. After an error, calls query_job_fail and returns false. */
static bool tempo_check_scope(struct query_job *job)
{
    static const char *const scopes[] = {"none",  "resource", "span",           "intrinsic",
                                         "event", "link",     "instrumentation"};
    const char *scope_param = query_job_param(job, "scope");
    for (size_t i = 0; scope_param && *scope_param; i++) {
        if (i == BR_COUNT(scopes)) {
            query_job_fail(job, 400, "invalid scope: %.40s", scope_param);
            return false;
        }
        if (strcmp(scope_param, scopes[i]) == 0)
            break;
    }
    return true;
}

bool query_tempo_names_begin(struct query_tempo_names *names, struct query_job *job, bool once,
                             uint64_t *from, uint64_t *until)
{
    *names = (struct query_tempo_names){.job = job};
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

bool query_tempo_names_end(struct query_tempo_names *names, int rc)
{
    br_map_free(names->seen, NULL);
    rc = rc ? rc : names->rc;
    if (rc)
        query_job_fail_rc(names->job, rc, &names->err);
    return rc == 0;
}

static const struct {
    const char *name;
    enum br_key_scope scope;
} tempo_scopes[] = {{"resource", BR_KEYS_OF_RESOURCES},
                    {"span", BR_KEYS_OF_SPANS},
                    {"event", BR_KEYS_OF_EVENTS},
                    {"link", BR_KEYS_OF_LINKS},
                    {"instrumentation", BR_KEYS_OF_SCOPES}};

/* Responds with {"tagNames":[...]}, in which each name occurs once. */
void query_tempo_tags_v1(struct query_job *job)
{
    struct query_tempo_names names;
    uint64_t from, until;
    int rc = 0;
    if (!tempo_check_scope(job) || !query_tempo_names_begin(&names, job, true, &from, &until))
        return;
    br_str_puts(&job->out, "{\"tagNames\":[");
    if (query_job_param(job, "scope") && strcmp(query_job_param(job, "scope"), "intrinsic") == 0)
        query_tempo_put_names(&names, query_tempo_intrinsics, QUERY_TEMPO_INTRINSICS);
    for (size_t i = 0; i < BR_COUNT(tempo_scopes) && !rc; i++)
        if (tempo_is_scope(job, tempo_scopes[i].name))
            rc = br_store_span_keys(job->store, tempo_scopes[i].scope, from, until,
                                    query_tempo_put_name, &names, &names.err);
    if (query_tempo_names_end(&names, rc))
        br_str_puts(&job->out, "],\"metrics\":{}}");
}

/* Begins the list of a scope's tags. Returns false if the request excludes the scope. */
static bool tempo_begin_scope(struct query_tempo_names *names, const char *scope)
{
    struct query_job *job = names->job;
    bool first = job->out.len == strlen("{\"scopes\":[");
    if (!tempo_is_scope(job, scope))
        return false;
    br_str_printf(&job->out, "%s{\"name\":\"%s\",\"tags\":[", first ? "" : ",", scope);
    names->any = false;
    return true;
}

/* Responds with {"scopes":[{"name":"resource","tags":[...]},...],"metrics":{}}. */
void query_tempo_tags_v2(struct query_job *job)
{
    struct query_tempo_names names;
    uint64_t from, until, left;
    int rc = 0;
    if (!tempo_check_scope(job) || !query_tempo_names_begin(&names, job, false, &from, &until))
        return;
    left = names.left;
    br_str_puts(&job->out, "{\"scopes\":[");
    for (size_t i = 0; i < BR_COUNT(tempo_scopes) && !rc; i++) {
        names.left = left; /* each scope may have as many names as the limit allows */
        if (!tempo_begin_scope(&names, tempo_scopes[i].name))
            continue;
        rc = br_store_span_keys(job->store, tempo_scopes[i].scope, from, until,
                                query_tempo_put_name, &names, &names.err);
        br_str_puts(&job->out, "]}");
    }
    names.left = left;
    if (!rc && tempo_begin_scope(&names, "intrinsic")) {
        query_tempo_put_names(&names, query_tempo_intrinsics, QUERY_TEMPO_INTRINSICS);
        br_str_puts(&job->out, "]}");
    }
    if (query_tempo_names_end(&names, rc))
        br_str_puts(&job->out, "],\"metrics\":{}}");
}

/* --- Routes ---------------------------------------------------------------------------------- */

#define GET(at, what)                                                                              \
    {                                                                                              \
        .methods = QUERY_GET, .path = (at), .handle = (what)                                       \
    }

const struct query_route query_tempo_routes[] = {
    {.methods = QUERY_GET, .path = "/api/echo", .handle = tempo_echo, .on_loop = true},
    {.methods = QUERY_GET, .path = "/ready", .handle = tempo_ready, .on_loop = true},
    {.methods = QUERY_GET,
     .path = "/api/status/buildinfo",
     .handle = tempo_buildinfo,
     .on_loop = true},
    GET("/api/traces/*", query_tempo_trace_v1),
    GET("/api/v2/traces/*", query_tempo_trace_v2),
    GET("/api/search", query_tempo_search),
    GET("/api/search/tags", query_tempo_tags_v1),
    GET("/api/v2/search/tags", query_tempo_tags_v2),
    GET("/api/search/tag/*/values", query_tempo_values_v1),
    GET("/api/v2/search/tag/*/values", query_tempo_values_v2),
    GET("/api/metrics/query_range", query_tempo_range),
    GET("/api/metrics/query", query_tempo_instant),
    {0},
};
