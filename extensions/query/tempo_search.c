/* SPDX-License-Identifier: Apache-2.0 */
/* Implements GET /api/search, which finds traces by TraceQL, or by tags (logfmt) and durations,
 * which are converted to TraceQL. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "config/option.h"
#include "extensions/query/tempo.h"
#include "otlp/json/number.h"

#define TRACES_DEFAULT 20
#define TRACES_MAX 10000
#define SPANS_DEFAULT 3 /* default of the parameter `spss`, the number of spans per span set */
#define SPANS_MAX 1000
#define SERVICES_MAX 1000 /* maximum number of services in serviceStats */
/* maximum number of bytes of tags that are converted to TraceQL; no request needs so many */
#define TAGS_MAX (16u * BR_REQUEST_HEAD_MAX)
#define NO_ROOT "<root span not yet received>"

struct search {
    uint64_t limit, spans_limit;
    uint64_t n_traces;
};

/* --- JSON ------------------------------------------------------------------------------------ */

static void tempo_search_put_text(struct br_str *out, const char *text)
{
    br_str_json(out, text, strlen(text));
}

static const char *tempo_search_enum(const struct br_traceql_value *value)
{
    static const char *const statuses[] = {"unset", "ok", "error"};
    static const char *const kinds[] = {"unspecified", "internal", "server",
                                        "client",      "producer", "consumer"};
    size_t at = (size_t)value->integer;
    if (value->type == BR_TRACEQL_STATUS)
        return at < BR_COUNT(statuses) ? statuses[at] : "unset";
    return at < BR_COUNT(kinds) ? kinds[at] : "unspecified";
}

/* Writes a duration as Go does (pkg.go.dev/time#Duration.String): 1h2m3.5s, 70.5ms, 3\u00b5s. */
static void tempo_search_put_time(struct br_str *out, int64_t ns)
{
    static const struct {
        uint64_t ns;
        int digits; /* number of digits after the decimal point */
        const char *name;
    } small[] = {{1000000, 6, "ms"}, {1000, 3, "\u00b5s"}, {1, 0, "ns"}};
    uint64_t magnitude = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    char fraction[16] = "";
    br_str_puts(out, ns < 0 ? "-" : "");
    if (magnitude && magnitude < 1000000000) {
        size_t i = 0;
        while (magnitude < small[i].ns)
            i++;
        if (magnitude % small[i].ns)
            (void)snprintf(fraction, sizeof fraction, ".%0*" PRIu64, small[i].digits,
                           magnitude % small[i].ns);
        for (size_t n = strlen(fraction); n && fraction[n - 1] == '0'; n--)
            fraction[n - 1] = '\0';
        br_str_printf(out, "%" PRIu64 "%s%s", magnitude / small[i].ns, fraction, small[i].name);
        return;
    }
    uint64_t seconds = magnitude / 1000000000;
    if (magnitude % 1000000000)
        (void)snprintf(fraction, sizeof fraction, ".%09" PRIu64, magnitude % 1000000000);
    for (size_t n = strlen(fraction); n && fraction[n - 1] == '0'; n--)
        fraction[n - 1] = '\0';
    if (seconds >= 3600)
        br_str_printf(out, "%" PRIu64 "h", seconds / 3600);
    if (seconds >= 60)
        br_str_printf(out, "%" PRIu64 "m", seconds / 60 % 60);
    br_str_printf(out, "%" PRIu64 "%ss", seconds % 60, fraction);
}

static void tempo_search_put_value(struct br_str *out, const struct br_traceql_value *value)
{
    switch (value->type) {
    case BR_TRACEQL_STRING:
        br_str_puts(out, "{\"stringValue\":");
        br_str_json(out, value->text, value->len);
        break;
    case BR_TRACEQL_BOOL:
        br_str_printf(out, "{\"boolValue\":%s", value->boolean ? "true" : "false");
        break;
    case BR_TRACEQL_INT:
        br_str_printf(out, "{\"intValue\":\"%" PRId64 "\"", value->integer);
        break;
    case BR_TRACEQL_DURATION:
        br_str_puts(out, "{\"stringValue\":\"");
        tempo_search_put_time(out, value->integer);
        br_str_putc(out, '"');
        break;
    case BR_TRACEQL_FLOAT:
        br_str_puts(out, "{\"doubleValue\":");
        br_number_print(out, value->real);
        break;
    case BR_TRACEQL_STATUS:
    case BR_TRACEQL_KIND:
        br_str_printf(out, "{\"stringValue\":\"%s\"", tempo_search_enum(value));
        break;
    case BR_TRACEQL_LIST:
        br_str_puts(out, "{\"arrayValue\":{\"values\":[");
        for (size_t i = 0; i < value->n_items; i++) {
            if (i)
                br_str_putc(out, ',');
            /* only one level of recursion: the items of a list are not lists */
            tempo_search_put_value(out, &value->items[i]);
        }
        br_str_puts(out, "]}");
        break;
    default:
        br_str_puts(out, "{\"stringValue\":\"nil\"");
        break;
    }
    br_str_putc(out, '}');
}

void query_tempo_put_attribute(struct br_str *out, const char *key,
                               const struct br_traceql_value *value)
{
    br_str_puts(out, "{\"key\":");
    tempo_search_put_text(out, key);
    br_str_puts(out, ",\"value\":");
    tempo_search_put_value(out, value);
    br_str_putc(out, '}');
}

/* --- A trace --------------------------------------------------------------------------------- */

/* Appends a trace id without leading zeros, as Tempo does. */
static void tempo_search_put_trace_id(struct br_str *out, const uint8_t trace_id[16])
{
    char buffer[40];
    struct br_str hex = {.data = buffer, .cap = sizeof buffer, .fixed = true};
    br_str_hex(&hex, trace_id, 16);
    size_t zeros = strspn(buffer, "0");
    br_str_puts(out, zeros < 32 ? buffer + zeros : "0");
}

/* Returns true if the response lists this attribute among the attributes of a span. The response
 * lists other attributes in separate fields of the span or trace. */
static bool tempo_search_is_shown(const struct br_traceql_attribute *attribute)
{
    if (!attribute->shown || attribute->scope != BR_TRACEQL_INTRINSIC)
        return attribute->shown;
    switch (attribute->intrinsic) {
    case BR_TRACEQL_SPAN_NAME:
    case BR_TRACEQL_SPAN_DURATION:
    case BR_TRACEQL_SPAN_ID:
    case BR_TRACEQL_TRACE_ID:
    case BR_TRACEQL_TRACE_DURATION:
    case BR_TRACEQL_ROOT_NAME:
    case BR_TRACEQL_ROOT_SERVICE:
        return false;
    default:
        return true;
    }
}

static void tempo_search_put_span(struct br_str *out, const struct br_traceql *query,
                                  const struct br_traceql_span *span)
{
    const struct br_stored_span *row = span->row;
    bool first = true;
    br_str_puts(out, "{\"spanID\":\"");
    br_str_hex(out, (const uint8_t *)&row->span_id, sizeof row->span_id);
    br_str_puts(out, "\",\"name\":");
    tempo_search_put_text(out, row->name);
    br_str_printf(out, ",\"startTimeUnixNano\":\"%" PRIu64 "\",\"durationNanos\":\"%" PRIu64 "\"",
                  row->start_ns, row->duration_ns);
    for (size_t i = 0; i < query->n_attributes; i++) {
        if (!tempo_search_is_shown(&query->attributes[i]) || span->values[i].type == BR_TRACEQL_NIL)
            continue;
        br_str_puts(out, first ? ",\"attributes\":[" : ",");
        query_tempo_put_attribute(out, query->attributes[i].name, &span->values[i]);
        first = false;
    }
    br_str_puts(out, first ? "}" : "]}");
}

/* Appends the results of the query's stages for a span set, in the order of the stages. */
static void tempo_search_put_labels(struct br_str *out, const struct br_traceql_label *label)
{
    if (label->before) {
        tempo_search_put_labels(out, label->before);
        br_str_putc(out, ',');
    }
    query_tempo_put_attribute(out, label->name, &label->value);
}

static void tempo_search_put_set(struct query_tempo_scan *scan, struct br_traceql_trace *trace,
                                 const struct br_traceql_set *set)
{
    const struct search *search = scan->arg;
    struct br_str *out = &scan->job->out;
    br_str_puts(out, "{\"spans\":[");
    for (uint32_t i = 0; i < set->n_spans && i < search->spans_limit && !scan->rc; i++) {
        struct br_traceql_span *span = &trace->spans[set->spans[i]];
        scan->rc = br_traceql_read_span(scan->query, scan->job->store, span, trace, &scan->err);
        if (scan->rc)
            return;
        if (i)
            br_str_putc(out, ',');
        tempo_search_put_span(out, scan->query, span);
    }
    br_str_printf(out, "],\"matched\":%" PRIu32, set->n_spans);
    if (set->labels) {
        br_str_puts(out, ",\"attributes\":[");
        tempo_search_put_labels(out, set->labels);
        br_str_putc(out, ']');
    }
    br_str_putc(out, '}');
}

struct service {
    const char *name;
    uint64_t spans, errors;
};

/* Appends the statistics of each service. If `entries` is false, the services are fields of an
 * object. If `entries` is true, the services are a list of keys and values, which is how
 * protobuf encodes a map. */
static void tempo_search_put_services(struct br_str *out, const struct br_traceql_trace *trace,
                                      struct service *services, bool entries)
{
    size_t n_services = 0;
    for (uint32_t i = 0; i < trace->n_spans; i++) {
        const struct br_stored_span *row = trace->spans[i].row;
        size_t at = 0;
        while (at < n_services && strcmp(services[at].name, row->service) != 0)
            at++;
        if (at == SERVICES_MAX)
            continue;
        if (at == n_services)
            services[n_services++] = (struct service){.name = row->service};
        services[at].spans++;
        services[at].errors += row->status == 2;
    }
    if (n_services)
        br_str_puts(out, entries ? ",\"serviceStats\":[" : ",\"serviceStats\":{");
    for (size_t i = 0; i < n_services; i++) {
        br_str_puts(out, i ? "," : "");
        br_str_puts(out, entries ? "{\"key\":" : "");
        tempo_search_put_text(out, services[i].name);
        br_str_printf(out, "%s{\"spanCount\":%" PRIu64, entries ? ",\"value\":" : ":",
                      services[i].spans);
        if (services[i].errors)
            br_str_printf(out, ",\"errorCount\":%" PRIu64, services[i].errors);
        br_str_puts(out, entries ? "}}" : "}");
    }
    if (n_services)
        br_str_puts(out, entries ? "]" : "}");
}

static bool tempo_search_on_trace(struct query_tempo_scan *scan, struct br_traceql_trace *trace)
{
    struct search *search = scan->arg;
    struct br_str *out = &scan->job->out;
    struct service *services = br_arena_calloc(&scan->job->arena, SERVICES_MAX, sizeof *services);
    if (!services) {
        scan->rc = BR_ENOMEM;
        return false;
    }
    br_str_puts(out, search->n_traces++ ? ",{\"traceID\":\"" : "{\"traceID\":\"");
    tempo_search_put_trace_id(out, trace->spans[0].row->trace_id);
    br_str_puts(out, "\",\"rootServiceName\":");
    tempo_search_put_text(out, trace->root ? trace->root->service : NO_ROOT);
    if (trace->root && *trace->root->name) {
        br_str_puts(out, ",\"rootTraceName\":");
        tempo_search_put_text(out, trace->root->name);
    }
    br_str_printf(out, ",\"startTimeUnixNano\":\"%" PRIu64 "\"", trace->start_ns);
    br_str_printf(out, ",\"durationMs\":%" PRIu32,
                  (uint32_t)((trace->end_ns - trace->start_ns) / 1000000));
    /* The older field `spanSet` contains the first set: some clients read `spanSet`, others
     * `spanSets`. */
    br_str_puts(out, ",\"spanSet\":");
    tempo_search_put_set(scan, trace, &trace->sets[0]);
    br_str_puts(out, ",\"spanSets\":[");
    for (uint32_t i = 0; i < trace->n_sets && !scan->rc && !out->failed; i++) {
        br_str_puts(out, i ? "," : "");
        tempo_search_put_set(scan, trace, &trace->sets[i]);
    }
    if (out->failed || scan->rc)
        return false;
    br_str_putc(out, ']');
    tempo_search_put_services(out, trace, services, scan->job->route->errors == QUERY_GRPC);
    br_str_putc(out, '}');
    return !out->failed && search->n_traces < search->limit;
}

/* --- The request ----------------------------------------------------------------------------- */

static void tempo_search_put_quoted(struct br_str *out, const char *text, size_t len)
{
    br_str_putc(out, '"');
    for (size_t i = 0; i < len; i++) {
        unsigned char letter = (unsigned char)text[i];
        if (letter == '"' || letter == '\\')
            br_str_putc(out, '\\');
        if (letter < ' ')
            br_str_printf(out, "\\x%02x", letter);
        else
            br_str_putc(out, text[i]);
    }
    br_str_putc(out, '"');
}

/* Returns true if the text of a value is a number or boolean. If it is, the value of a tag is
 * compared as a number or boolean, too, and not only as text. */
static bool tempo_search_is_literal(const char *text, size_t len)
{
    if (br_bytes_are(text, len, "true") || br_bytes_are(text, len, "false"))
        return true;
    return len > 0 && len < 16 && isdigit((unsigned char)text[0]) &&
           br_number_scan(text, len) == len;
}

/* Returns the TraceQL intrinsic that corresponds to a tag name of Tempo before TraceQL. Returns
 * NULL if no intrinsic corresponds to the name. */
static const char *tempo_search_intrinsic(const char *key, size_t len)
{
    static const char *const names[][2] = {
        {"name", "name"}, {"root.name", "rootName"}, {"root.service.name", "rootServiceName"}};
    for (size_t i = 0; i < BR_COUNT(names); i++)
        if (br_bytes_are(key, len, names[i][0]))
            return names[i][1];
    return NULL;
}

static void tempo_search_put_tag(struct br_str *out, const char *key, size_t key_len,
                                 const char *value, size_t len)
{
    const char *intrinsic = tempo_search_intrinsic(key, key_len);
    br_str_puts(out, out->len > 1 ? " && (" : "(");
    for (int pass = 0; pass < (!intrinsic && tempo_search_is_literal(value, len) ? 2 : 1); pass++) {
        br_str_puts(out, pass ? " || " : "");
        br_str_puts(out, intrinsic ? intrinsic : ".");
        if (!intrinsic)
            tempo_search_put_quoted(out, key, key_len);
        br_str_puts(out, " = ");
        if (pass)
            br_str_add(out, value, len);
        else
            tempo_search_put_quoted(out, value, len);
    }
    br_str_putc(out, ')');
}

/* Converts logfmt tags such as key=value key="a value" to TraceQL. Returns false if the tags are
 * malformed. */
static bool tempo_search_put_tags(struct br_str *out, const char *tags)
{
    for (const char *p = tags; *(p += strspn(p, " \t"));) {
        size_t key_len = strcspn(p, "= \t");
        const char *value = p + key_len + 1;
        if (!key_len || p[key_len] != '=')
            return false;
        bool quoted = *value == '"';
        value += quoted;
        size_t len = 0;
        struct br_str plain = {.max = TAGS_MAX};
        for (; value[len] && (quoted ? value[len] != '"' : !strchr(" \t", value[len])); len++) {
            if (quoted && value[len] == '\\' && value[len + 1])
                len++;
            br_str_putc(&plain, value[len]);
        }
        bool ended = !quoted || value[len] == '"';
        out->failed |= plain.failed;
        tempo_search_put_tag(out, p, key_len, plain.data ? plain.data : "", plain.len);
        br_str_release(&plain);
        if (!ended)
            return false;
        p = value + len + quoted;
    }
    return true;
}

static bool tempo_search_put_duration(struct query_job *job, const char *name, const char *op,
                                      struct br_str *out)
{
    const char *text = query_job_param(job, name);
    uint64_t ns;
    if (!text || !*text)
        return true;
    if (!br_duration_parse(text, &ns)) {
        query_job_fail(job, 400, "invalid %s: must be a duration such as 100ms, got \"%.40s\"",
                       name, text);
        return false;
    }
    br_str_printf(out, "%straceDuration %s %" PRIu64 "ns", out->len > 1 ? " && " : "", op, ns);
    return true;
}

/* Returns the TraceQL query of the request. If the request has no query, its tags and durations
 * are converted to a query, which is allocated in job->head. After an error, calls
 * query_job_fail and returns NULL. */
static const char *tempo_search_text(struct query_job *job, size_t *ret_len)
{
    const char *text = query_job_param(job, "q"), *tags = query_job_param(job, "tags");
    struct br_str made = {.max = TAGS_MAX};
    if (text && *text) {
        *ret_len = strlen(text);
        return text;
    }
    br_str_putc(&made, '{');
    bool ok = !tags || tempo_search_put_tags(&made, tags);
    if (!ok)
        query_job_fail(job, 400,
                       "invalid tags: must be logfmt, such as service.name=shop error=true");
    ok = ok && tempo_search_put_duration(job, "minDuration", ">=", &made) &&
         tempo_search_put_duration(job, "maxDuration", "<=", &made);
    br_str_putc(&made, '}');
    text = NULL;
    if (ok) {
        text = made.failed ? NULL : br_arena_strndup(&job->head, made.data, made.len);
        *ret_len = made.len;
        if (!text)
            query_job_fail_rc(job, BR_ENOMEM, NULL);
    }
    br_str_release(&made);
    return text;
}

static void tempo_search_run(struct query_job *job, struct query_tempo_scan *scan)
{
    br_str_puts(&job->out, "{\"traces\":[");
    if (!query_tempo_scan_run(scan))
        return;
    br_str_printf(&job->out,
                  "],\"metrics\":{\"inspectedTraces\":%" PRIu64 ",\"completedJobs\":%d,"
                  "\"totalJobs\":1}}",
                  ((struct search *)scan->arg)->n_traces, scan->cut ? 0 : 1);
    job->store_query.cut = scan->cut;
}

void query_tempo_search(struct query_job *job)
{
    struct search search;
    struct br_traceql query = {0};
    struct br_arena arena;
    struct query_tempo_scan scan = {.job = job,
                                    .query = &query,
                                    .whole_traces = true,
                                    .on_trace = tempo_search_on_trace,
                                    .arg = &search};
    struct br_err err = {0};
    size_t len;
    search.n_traces = 0;
    if (!query_job_number(job, "limit", TRACES_DEFAULT, TRACES_MAX, &search.limit) ||
        !query_job_number(job, "spss", SPANS_DEFAULT, SPANS_MAX, &search.spans_limit) ||
        !query_tempo_range_read(job, &scan.from_ns, &scan.until_ns))
        return;
    search.limit += search.limit == 0 ? TRACES_DEFAULT : 0;
    const char *text = tempo_search_text(job, &len);
    if (!text)
        return;
    br_arena_init(&arena, (size_t)job->config->max_query_memory);
    int rc = br_traceql_parse(&query, text, len, &arena, &err);
    if (rc)
        br_err_prefix(&err, "invalid TraceQL query: ");
    else if (query.metric)
        rc = br_err_set(&err, BR_EINVAL,
                        "invalid TraceQL query: metrics are available at /api/metrics/query_range");
    if (rc)
        query_job_fail_rc(job, rc, &err);
    else
        tempo_search_run(job, &scan);
    br_traceql_release(&query);
    br_arena_release(&arena);
}
