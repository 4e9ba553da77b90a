/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Implements GET privacy, which returns stored data that may be personal or secret. The response
 * also contains how many values each rule of the redaction has removed. The kinds of findings
 * correspond to options of the `redaction` processor, so a finding shows how to remove the data.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "attribute/regex.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "extensions/query/braid.h"
#include "extensions/query/tempo.h"
#include "opentelemetry/proto/trace/v1/trace.pb-c.h"

#define PRIVACY_FINDS_MAX 500
/* maximum number of resources that are remembered, so that these resources are not scanned again */
#define PRIVACY_SEEN_MAX 10000
#define PRIVACY_MATCH_NS UINT64_C(8000000000)
#define PRIVACY_TEXT_MAX 160 /* maximum number of bytes of an example */
#define PRIVACY_BEFORE 40 /* maximum number of bytes of an example that precede the first match */
#define PRIVACY_KEY_MAX 320

typedef Opentelemetry__Proto__Common__V1__AnyValue AnyValue;
typedef Opentelemetry__Proto__Common__V1__KeyValue KeyValue;
typedef Opentelemetry__Proto__Trace__V1__Span OtlpSpan;

static const char privacy_mask[] = "[REDACTED]";

/* The kinds that match a key come first: if a key matches, its value is not scanned. */
static const struct privacy_kind {
    const char *name, *pattern;
    bool by_key;
} kinds[] = {
    {"secret, by its key",
     "(?i)passw|secret|credential|(?:^|[._-])token$|api[._-]?key|authoriz|cookie|session[._-]?id",
     true},
    {"person, by its key",
     "(?i)^(?:enduser|user)\\.|e-?mail|phone|(?:first|last|full|sur)[._-]?name|birth|iban|^"
     "client\\.address$|^net\\.(?:sock\\.)?peer\\.(?:ip|addr)$|^customer\\.(?:id|name)$",
     true},
    {"statement or query, by its key",
     "^(?:db\\.query\\.text|db\\.statement|url\\.query|url\\.full|http\\.url|http\\.target)$",
     true},
    {"mail address", "[\\w.+-]+@[\\w-]+(?:\\.[\\w-]+)+", false},
    {"card number",
     "\\b(?:4\\d{3}|5[1-5]\\d\\d|6011)[ -]?\\d{4}[ -]?\\d{4}[ -]?\\d{4}\\b|\\b3[47]\\d\\d[ "
     "-]?\\d{6}[ -]?\\d{5}\\b",
     false},
    {"token or key",
     "eyJ[\\w-]{8,}\\.[\\w-]{8,}\\.[\\w-]*|\\b(?:Bearer|Basic) [\\w+/=.~-]{8,}|\\bAKIA[0-9A-Z]{16}"
     "\\b|\\bgh[pousr]_\\w{20,}|\\bxox[abpr]-[\\w-]{10,}|-----BEGIN [A-Z ]*PRIVATE KEY",
     false},
    {"password in an address", "(?<=://)[^/\\s:@]+:[^/\\s@]+(?=@)", false},
    {"IP address", "(?<![\\d.])(?:\\d{1,3}\\.){3}\\d{1,3}(?![\\d.])", false},
    {"home folder", "(?:/home|/Users)/[^/\\s:]+|[A-Za-z]:\\\\Users\\\\[^\\\\\\s]+", false},
};

struct privacy_finding {
    const char *place, *key, *service;
    size_t kind;
    uint64_t count, span_id;
    uint8_t trace_id[16];
    const char *example;
};

struct privacy_report {
    struct query_job *job;
    /* arena of the results: the arena of the job cannot be used, because it is cleared after
     * each page of spans */
    struct br_arena arena;
    struct br_regex regex;
    struct br_regex_time time;
    pcre2_code *patterns[BR_COUNT(kinds)];
    struct br_map *findings; /* map from place, key and kind to struct privacy_finding */
    struct br_map *seen;     /* set of the resources that were scanned, identified by their bytes */
    /* Source of the text that is being scanned. */
    const char *place, *service;
    /* span that contains the text; NULL: the text is not in a span */
    const struct br_stored_span *span;
    uint64_t n_spans, n_series, n_functions;
    const char *note;
    int rc;
    struct br_err *err;
};

static int privacy_compile(struct privacy_report *report)
{
    char why[BR_REGEX_WHY_SIZE];
    int rc = 0;
    for (size_t i = 0; i < BR_COUNT(kinds) && !rc; i++)
        rc = br_regex_compile(&report->regex, kinds[i].pattern, &report->patterns[i], why);
    if (!rc)
        rc = br_regex_ready(&report->regex);
    if (rc)
        return rc;
    br_regex_time_begin(&report->time, PRIVACY_MATCH_NS, NULL);
    br_regex_bound(&report->regex, &report->time);
    return 0;
}

static void privacy_release(struct privacy_report *report)
{
    for (size_t i = 0; i < BR_COUNT(kinds); i++)
        pcre2_code_free(report->patterns[i]);
    br_regex_release(&report->regex);
    br_map_free(report->findings, NULL);
    br_map_free(report->seen, NULL);
    br_arena_release(&report->arena);
}

/* --- Findings -------------------------------------------------------------------------------- */

/* Returns an excerpt of the text around its first match, redacted. The excerpt does not split
 * UTF-8 characters. */
static const char *privacy_example(struct privacy_report *report, size_t kind, const char *text)
{
    struct br_str out = {.max = PRIVACY_TEXT_MAX * 4};
    size_t len = strlen(text), done = 0, from, to;
    while (out.len < PRIVACY_TEXT_MAX && br_regex_find(&report->regex, report->patterns[kind], text,
                                                       len, done, &from, &to) == 1) {
        size_t start = !out.len && from > PRIVACY_BEFORE ? from - PRIVACY_BEFORE : done;
        while (start > done && ((unsigned char)text[start] & 0xC0) == 0x80)
            start++;
        if (start > done)
            br_str_puts(&out, "\xE2\x80\xA6");
        br_str_add(&out, text + start, from - start < PRIVACY_TEXT_MAX ? from - start : 0);
        br_str_puts(&out, privacy_mask);
        done = to;
    }
    size_t tail_len = len - done < PRIVACY_BEFORE ? len - done : PRIVACY_BEFORE;
    while (tail_len && done + tail_len < len &&
           ((unsigned char)text[done + tail_len] & 0xC0) == 0x80)
        tail_len--;
    br_str_add(&out, text + done, tail_len);
    if (done + tail_len < len)
        br_str_puts(&out, "\xE2\x80\xA6");
    br_str_puts(&out, "");
    const char *copy = out.failed ? NULL : br_arena_strndup(&report->arena, out.data, out.len);
    br_str_release(&out);
    return copy;
}

static struct privacy_finding *privacy_new_finding(struct privacy_report *report, const char *key,
                                                   size_t kind, const char *text)
{
    struct br_arena *arena = &report->arena;
    struct privacy_finding *finding = br_arena_calloc(arena, 1, sizeof *finding);
    if (!finding)
        return NULL;
    finding->place = report->place;
    finding->kind = kind;
    finding->key = br_arena_strndup(arena, key, strlen(key));
    finding->service = br_arena_strndup(arena, report->service, strlen(report->service));
    finding->example = kinds[kind].by_key ? privacy_mask : privacy_example(report, kind, text);
    if (report->span) {
        finding->span_id = report->span->span_id;
        memcpy(finding->trace_id, report->span->trace_id, sizeof finding->trace_id);
    }
    return finding->key && finding->service && finding->example ? finding : NULL;
}

static void privacy_add_finding(struct privacy_report *report, const char *key, size_t kind,
                                const char *text)
{
    char name[PRIVACY_KEY_MAX];
    int len = snprintf(name, sizeof name, "%s %zu %.250s", report->place, kind, key);
    struct privacy_finding *finding = br_map_get(report->findings, name, (size_t)len);
    if (finding) {
        finding->count++;
        return;
    }
    if (br_map_count(report->findings) == PRIVACY_FINDS_MAX) {
        report->note = "there are more findings than one response can list";
        return;
    }
    finding = privacy_new_finding(report, key, kind, text);
    if (finding) {
        finding->count = 1;
        report->rc = br_map_put(report->findings, name, (size_t)len, finding, NULL);
    } else {
        report->rc = br_arena_why(&report->arena);
    }
}

static bool privacy_matches(struct privacy_report *report, size_t kind, const char *text)
{
    int rc = br_regex_match(&report->regex, report->patterns[kind], text, strlen(text));
    if (rc == BR_EFULL)
        report->note = "looking for patterns took too long; use a shorter time range";
    else if (rc < 0)
        report->rc = rc;
    return rc == 1;
}

/* Scans a text that belongs to the key `key`; `key` is "" for texts without a key. */
static void privacy_scan_text(struct privacy_report *report, const char *key, const char *text)
{
    if (!*text || !strcmp(text, privacy_mask))
        return;
    for (size_t i = 0; i < BR_COUNT(kinds) && !report->rc; i++) {
        if (!kinds[i].by_key) {
            if (privacy_matches(report, i, text))
                privacy_add_finding(report, key, i, text);
        } else if (*key && privacy_matches(report, i, key)) {
            privacy_add_finding(report, key, i, text);
            return;
        }
    }
}

/* --- Spans ----------------------------------------------------------------------------------- */

static void privacy_scan_pairs(struct privacy_report *report, KeyValue *const *pairs, size_t count,
                               unsigned depth);

static void privacy_scan_value(struct privacy_report *report, const char *key,
                               const AnyValue *value, unsigned depth)
{
    if (!value || depth == BRAID_VALUE_DEPTH_MAX)
        return;
    switch ((int)value->value_case) {
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_STRING_VALUE:
        privacy_scan_text(report, key, value->string_value);
        break;
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_ARRAY_VALUE:
        for (size_t i = 0; i < value->array_value->n_values; i++)
            privacy_scan_value(report, key, value->array_value->values[i], depth + 1);
        break;
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_KVLIST_VALUE:
        privacy_scan_pairs(report, value->kvlist_value->values, value->kvlist_value->n_values,
                           depth + 1);
        break;
    default:
        break;
    }
}

static void privacy_scan_pairs(struct privacy_report *report, KeyValue *const *pairs, size_t count,
                               unsigned depth)
{
    for (size_t i = 0; i < count && !report->rc; i++)
        privacy_scan_value(report, pairs[i]->key, pairs[i]->value, depth);
}

/* Scans attributes, and reports findings under `place`. */
static void privacy_scan_attributes(struct privacy_report *report, const char *place,
                                    KeyValue *const *pairs, size_t count)
{
    report->place = place;
    privacy_scan_pairs(report, pairs, count, 0);
}

static void privacy_scan_name(struct privacy_report *report, const char *name)
{
    report->place = "name";
    privacy_scan_text(report, "", name);
}

static void privacy_scan_message(struct privacy_report *report, const OtlpSpan *span)
{
    privacy_scan_name(report, span->name);
    if (span->status)
        privacy_scan_name(report, span->status->message);
    privacy_scan_attributes(report, "span", span->attributes, span->n_attributes);
    for (size_t i = 0; i < span->n_events; i++) {
        privacy_scan_name(report, span->events[i]->name);
        privacy_scan_attributes(report, "event", span->events[i]->attributes,
                                span->events[i]->n_attributes);
    }
    for (size_t i = 0; i < span->n_links; i++)
        privacy_scan_attributes(report, "link", span->links[i]->attributes,
                                span->links[i]->n_attributes);
}

/* Unpacks a protobuf message. Messages are unpacked one at a time, so that memory is bounded. */
static void *privacy_unpack(const ProtobufCMessageDescriptor *desc, struct br_arena *arena,
                            const uint8_t *data, size_t len)
{
    br_arena_init(arena, 16u << 20);
    return data ? protobuf_c_message_unpack(desc, br_arena_pb(arena), len, data) : NULL;
}

static void privacy_scan_resource(struct privacy_report *report, const struct br_span_bytes *bytes)
{
    struct br_arena arena;
    if (!bytes->resource || br_map_get(report->seen, bytes->resource, bytes->resource_len) ||
        br_map_put(report->seen, bytes->resource, bytes->resource_len, report, NULL))
        return;
    const Opentelemetry__Proto__Resource__V1__Resource *resource =
        privacy_unpack(&opentelemetry__proto__resource__v1__resource__descriptor, &arena,
                       bytes->resource, bytes->resource_len);
    if (resource)
        privacy_scan_attributes(report, "resource", resource->attributes, resource->n_attributes);
    br_arena_release(&arena);
}

static int privacy_scan_span(struct privacy_report *report, const struct br_stored_span *span)
{
    struct br_span_bytes bytes = {0};
    struct br_arena arena;
    report->n_spans++;
    report->span = span;
    report->service = span->service;
    int rc = br_store_span_bytes(report->job->store, span, &bytes, report->err);
    if (rc)
        return rc;
    const OtlpSpan *message = privacy_unpack(&opentelemetry__proto__trace__v1__span__descriptor,
                                             &arena, bytes.span, bytes.span_len);
    if (message)
        privacy_scan_message(report, message);
    br_arena_release(&arena);
    privacy_scan_resource(report, &bytes);
    return report->rc;
}

static bool privacy_on_spans(struct query_tempo_scan *scan, struct br_traceql_trace *trace)
{
    for (uint32_t i = 0; i < trace->n_spans && !scan->rc; i++)
        scan->rc = privacy_scan_span(scan->arg, trace->spans[i].row);
    return !scan->rc && query_job_may_continue(scan->job);
}

static int privacy_scan_spans(struct privacy_report *report, uint64_t from_ns, uint64_t until_ns)
{
    struct br_traceql all = {0};
    struct query_tempo_scan scan = {.job = report->job,
                                    .query = &all,
                                    .from_ns = from_ns,
                                    .until_ns = until_ns,
                                    .on_trace = privacy_on_spans,
                                    .arg = report};
    int rc = br_traceql_parse(&all, "{}", 2, &report->arena, report->err);
    all.needs_bytes = true;
    if (!rc) {
        query_tempo_scan_execute(&scan);
        rc = scan.rc;
    }
    if (scan.cut && !report->note)
        report->note = scan.cut;
    br_traceql_release(&all);
    report->span = NULL;
    return rc;
}

/* --- Profiles -------------------------------------------------------------------------------- */

static bool privacy_on_series(const struct br_stored_series *series, void *arg)
{
    struct privacy_report *report = arg;
    report->n_series++;
    report->place = "label";
    report->service = "";
    for (size_t i = 0; i < series->n_labels; i++)
        if (!strcmp(series->labels[i].name, "service_name"))
            report->service = series->labels[i].value;
    for (size_t i = 0; i < series->n_labels; i++)
        if (!br_text_starts(series->labels[i].name, "__"))
            privacy_scan_text(report, series->labels[i].name, series->labels[i].value);
    return !report->rc && query_job_may_continue(report->job);
}

static int privacy_scan_profiles(struct privacy_report *report, uint64_t from_ns, uint64_t until_ns)
{
    struct query_selection selection = {.from_ns = from_ns, .until_ns = until_ns};
    struct br_sample_filter filter = {.from_ns = from_ns, .until_ns = until_ns};
    struct br_flame flame;
    int rc = br_store_series(report->job->store, &filter, privacy_on_series, report, report->err);
    if (!rc)
        rc = report->rc;
    if (!rc)
        rc = br_flame_init(&flame, QUERY_FLAME_NODES_MAX);
    if (rc)
        return rc;
    rc = query_selection_flame(report->job, &selection, &flame, report->err);
    report->service = "";
    for (uint32_t i = 1; i < flame.n_names && !rc && query_job_may_continue(report->job); i++) {
        report->n_functions++;
        report->place = "function";
        privacy_scan_text(report, "", flame.names[i]);
        report->place = "path";
        privacy_scan_text(report, "", flame.files[i]);
        rc = report->rc;
    }
    br_flame_release(&flame);
    return rc;
}

/* --- The response ---------------------------------------------------------------------------- */

static void privacy_put_kinds(struct br_str *out)
{
    br_str_puts(out, "{\"kinds\":[");
    for (size_t i = 0; i < BR_COUNT(kinds); i++) {
        query_put_text(out, '{', "name", kinds[i].name);
        query_put_text(out, ',', "option",
                       kinds[i].by_key ? "blocked_key_patterns" : "blocked_values");
        query_put_text(out, ',', "pattern", kinds[i].pattern);
        br_str_puts(out, i + 1 < BR_COUNT(kinds) ? "}," : "}]");
    }
}

static void privacy_put_finding(struct br_str *out, const struct privacy_finding *finding)
{
    query_put_text(out, '{', "place", finding->place);
    query_put_text(out, ',', "key", finding->key);
    query_put_text(out, ',', "kind", kinds[finding->kind].name);
    query_put_text(out, ',', "service", finding->service);
    query_put_text(out, ',', "example", finding->example);
    br_str_printf(out, ",\"count\":%" PRIu64, finding->count);
    if (finding->span_id) {
        query_braid_put_trace(out, ',', "trace_id", finding->trace_id);
        query_braid_put_span(out, ',', "span_id", finding->span_id);
    }
    br_str_putc(out, '}');
}

static bool privacy_on_masked(const struct br_masked_row *row, void *arg)
{
    struct br_str *out = arg;
    if (out->data[out->len - 1] != '[')
        br_str_putc(out, ',');
    query_put_text(out, '{', "processor", row->node);
    query_put_text(out, ',', "rule", row->rule);
    query_put_text(out, ',', "place", row->place);
    query_put_text(out, ',', "key", row->key);
    query_put_text(out, ',', "became", row->became);
    br_str_printf(out, ",\"count\":%" PRIu64 ",\"last_unix_ns\":\"%" PRIu64 "\"}", row->count,
                  row->last_ns);
    return !out->failed;
}

static void privacy_on_node(const char *node, void *arg)
{
    struct br_str *out = arg;
    if (out->data[out->len - 1] != '[')
        br_str_putc(out, ',');
    br_str_json(out, node, strlen(node));
}

static bool privacy_no_row(const struct br_masked_row *row, void *arg)
{
    (void)row;
    (void)arg;
    return false;
}

static void privacy_no_node(const char *node, void *arg)
{
    (void)node;
    (void)arg;
}

static void privacy_put(const struct privacy_report *report)
{
    struct br_masked *masked = report->job->query->masked;
    struct br_str *out = &report->job->out;
    const void *key;
    size_t len;
    privacy_put_kinds(out);
    br_str_puts(out, ",\"found\":[");
    for (size_t i = 0; i < br_map_count(report->findings); i++) {
        if (i)
            br_str_putc(out, ',');
        privacy_put_finding(out, br_map_at(report->findings, i, &key, &len));
    }
    br_str_printf(out,
                  "],\"looked_at\":{\"spans\":%" PRIu64 ",\"series\":%" PRIu64
                  ",\"functions\":%" PRIu64 "},\"processors\":[",
                  report->n_spans, report->n_series, report->n_functions);
    if (out->failed)
        return;
    (void)br_masked_each(masked, privacy_no_row, privacy_on_node, out);
    br_str_puts(out, "],\"masked\":[");
    if (out->failed)
        return;
    uint64_t left_out = br_masked_each(masked, privacy_on_masked, privacy_no_node, out);
    br_str_printf(out, "],\"masked_left_out\":%" PRIu64, left_out);
}

void query_braid_privacy(struct query_job *job)
{
    struct br_err err = {0};
    struct privacy_report report = {.job = job, .service = "", .err = &err};
    uint64_t from_ns, until_ns;
    if (!query_braid_range(job, &from_ns, &until_ns))
        return;
    br_arena_init(&report.arena, (size_t)job->config->max_query_memory);
    report.findings = br_map_new(PRIVACY_FINDS_MAX);
    report.seen = br_map_new(PRIVACY_SEEN_MAX);
    int rc = report.findings && report.seen ? privacy_compile(&report) : BR_ENOMEM;
    if (!rc)
        rc = privacy_scan_profiles(&report, from_ns, until_ns);
    if (!rc)
        rc = privacy_scan_spans(&report, from_ns, until_ns);
    if (!rc)
        privacy_put(&report);
    if (!rc && report.note && job->store)
        job->store->note = report.note;
    privacy_release(&report);
    query_braid_end(job, rc, &err);
}
