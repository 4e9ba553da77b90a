/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET privacy: what of the stored data may be about persons, or secret, and what the redaction has
 * taken out on the way here, by which rule. The kinds are written as options of the processor
 * `redaction`, so that what is found can be taken out by what is shown.
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
#define PRIVACY_SEEN_MAX 10000 /* resources */
#define PRIVACY_MATCH_NS UINT64_C(8000000000)
#define PRIVACY_TEXT_MAX 160 /* bytes of an example */
#define PRIVACY_BEFORE 40    /* of these before the first match */
#define PRIVACY_KEY_MAX 320

typedef Opentelemetry__Proto__Common__V1__AnyValue AnyValue;
typedef Opentelemetry__Proto__Common__V1__KeyValue KeyValue;
typedef Opentelemetry__Proto__Trace__V1__Span OtlpSpan;

static const char privacy_mask[] = "[REDACTED]";

/* Those by key first: of what they find no value is looked at. */
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

struct privacy_find {
    const char *place, *key, *service;
    size_t kind;
    uint64_t count, span_id;
    uint8_t trace_id[16];
    const char *example;
};

struct privacy_ask {
    struct query_job *job;
    struct br_arena arena; /* holds results: the job's is emptied for each page of spans */
    struct br_regex regex;
    struct br_regex_time time;
    pcre2_code *patterns[BR_COUNT(kinds)];
    struct br_map *finds; /* of struct privacy_find */
    struct br_map *seen;  /* resources, by their bytes */
    /* At hand. */
    const char *place, *service;
    const struct br_stored_span *span; /* NULL: none */
    uint64_t n_spans, n_series, n_functions;
    const char *note;
    int rc;
    struct br_err *err;
};

static int privacy_compile(struct privacy_ask *ask)
{
    char why[BR_REGEX_WHY_SIZE];
    int rc = 0;
    for (size_t i = 0; i < BR_COUNT(kinds) && !rc; i++)
        rc = br_regex_compile(&ask->regex, kinds[i].pattern, &ask->patterns[i], why);
    if (!rc)
        rc = br_regex_ready(&ask->regex);
    if (rc)
        return rc;
    br_regex_time_begin(&ask->time, PRIVACY_MATCH_NS, NULL);
    br_regex_bound(&ask->regex, &ask->time);
    return 0;
}

static void privacy_release(struct privacy_ask *ask)
{
    for (size_t i = 0; i < BR_COUNT(kinds); i++)
        pcre2_code_free(ask->patterns[i]);
    br_regex_release(&ask->regex);
    br_map_free(ask->finds, NULL);
    br_map_free(ask->seen, NULL);
    br_arena_release(&ask->arena);
}

/* --- What is found ---------------------------------------------------------------------------- */

/* What would be left of a text, around the first match; ends at whole characters of UTF-8. */
static const char *privacy_example(struct privacy_ask *ask, size_t kind, const char *text)
{
    struct br_str out = {.max = PRIVACY_TEXT_MAX * 4};
    size_t len = strlen(text), done = 0, from, to;
    while (out.len < PRIVACY_TEXT_MAX &&
           br_regex_find(&ask->regex, ask->patterns[kind], text, len, done, &from, &to) == 1) {
        size_t start = !out.len && from > PRIVACY_BEFORE ? from - PRIVACY_BEFORE : done;
        while (start > done && ((unsigned char)text[start] & 0xC0) == 0x80)
            start++;
        if (start > done)
            br_str_puts(&out, "\xE2\x80\xA6");
        br_str_add(&out, text + start, from - start < PRIVACY_TEXT_MAX ? from - start : 0);
        br_str_puts(&out, privacy_mask);
        done = to;
    }
    size_t rest = len - done < PRIVACY_BEFORE ? len - done : PRIVACY_BEFORE;
    while (rest && done + rest < len && ((unsigned char)text[done + rest] & 0xC0) == 0x80)
        rest--;
    br_str_add(&out, text + done, rest);
    if (done + rest < len)
        br_str_puts(&out, "\xE2\x80\xA6");
    const char *copy =
        out.failed ? NULL : br_arena_strndup(&ask->arena, out.data ? out.data : "", out.len);
    br_str_release(&out);
    return copy;
}

static struct privacy_find *privacy_new_find(struct privacy_ask *ask, const char *key, size_t kind,
                                             const char *text)
{
    struct br_arena *arena = &ask->arena;
    struct privacy_find *find = br_arena_calloc(arena, 1, sizeof *find);
    if (!find)
        return NULL;
    find->place = ask->place;
    find->kind = kind;
    find->key = br_arena_strndup(arena, key, strlen(key));
    find->service = br_arena_strndup(arena, ask->service, strlen(ask->service));
    find->example = kinds[kind].by_key ? privacy_mask : privacy_example(ask, kind, text);
    if (ask->span) {
        find->span_id = ask->span->span_id;
        memcpy(find->trace_id, ask->span->trace_id, sizeof find->trace_id);
    }
    return find->key && find->service && find->example ? find : NULL;
}

static void privacy_found(struct privacy_ask *ask, const char *key, size_t kind, const char *text)
{
    char name[PRIVACY_KEY_MAX];
    int len = snprintf(name, sizeof name, "%s %zu %.250s", ask->place, kind, key);
    struct privacy_find *find = br_map_get(ask->finds, name, (size_t)len);
    if (find) {
        find->count++;
        return;
    }
    if (br_map_count(ask->finds) == PRIVACY_FINDS_MAX) {
        ask->note = "more was found than one answer lists";
        return;
    }
    find = privacy_new_find(ask, key, kind, text);
    if (find) {
        find->count = 1;
        ask->rc = br_map_put(ask->finds, name, (size_t)len, find, NULL);
    } else {
        ask->rc = br_arena_why(&ask->arena);
    }
}

static bool privacy_matches(struct privacy_ask *ask, size_t kind, const char *text)
{
    int rc = br_regex_match(&ask->regex, ask->patterns[kind], text, strlen(text));
    if (rc == BR_EFULL)
        ask->note = "looking for patterns took too long; ask for a shorter time";
    else if (rc < 0)
        ask->rc = rc;
    return rc == 1;
}

/* A text under a key; "" where it has none. */
static void privacy_look(struct privacy_ask *ask, const char *key, const char *text)
{
    if (!*text || !strcmp(text, privacy_mask))
        return;
    for (size_t i = 0; i < BR_COUNT(kinds) && !ask->rc; i++) {
        if (!kinds[i].by_key) {
            if (privacy_matches(ask, i, text))
                privacy_found(ask, key, i, text);
        } else if (*key && privacy_matches(ask, i, key)) {
            privacy_found(ask, key, i, text);
            return;
        }
    }
}

/* --- Spans ------------------------------------------------------------------------------------ */

static void privacy_look_at_pairs(struct privacy_ask *ask, KeyValue *const *pairs, size_t count,
                                  unsigned depth);

static void privacy_look_at_value(struct privacy_ask *ask, const char *key, const AnyValue *value,
                                  unsigned depth)
{
    if (!value || depth == BRAID_VALUE_DEPTH_MAX)
        return;
    switch ((int)value->value_case) {
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_STRING_VALUE:
        privacy_look(ask, key, value->string_value);
        break;
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_ARRAY_VALUE:
        for (size_t i = 0; i < value->array_value->n_values; i++)
            privacy_look_at_value(ask, key, value->array_value->values[i], depth + 1);
        break;
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_KVLIST_VALUE:
        privacy_look_at_pairs(ask, value->kvlist_value->values, value->kvlist_value->n_values,
                              depth + 1);
        break;
    default:
        break;
    }
}

static void privacy_look_at_pairs(struct privacy_ask *ask, KeyValue *const *pairs, size_t count,
                                  unsigned depth)
{
    for (size_t i = 0; i < count && !ask->rc; i++)
        privacy_look_at_value(ask, pairs[i]->key, pairs[i]->value, depth);
}

/* As an attribute is looked at, in a place of its own. */
static void privacy_look_in(struct privacy_ask *ask, const char *place, KeyValue *const *pairs,
                            size_t count)
{
    ask->place = place;
    privacy_look_at_pairs(ask, pairs, count, 0);
}

static void privacy_look_at_name(struct privacy_ask *ask, const char *name)
{
    ask->place = "name";
    privacy_look(ask, "", name);
}

static void privacy_look_at_message(struct privacy_ask *ask, const OtlpSpan *span)
{
    privacy_look_at_name(ask, span->name);
    if (span->status)
        privacy_look_at_name(ask, span->status->message);
    privacy_look_in(ask, "span", span->attributes, span->n_attributes);
    for (size_t i = 0; i < span->n_events; i++) {
        privacy_look_at_name(ask, span->events[i]->name);
        privacy_look_in(ask, "event", span->events[i]->attributes, span->events[i]->n_attributes);
    }
    for (size_t i = 0; i < span->n_links; i++)
        privacy_look_in(ask, "link", span->links[i]->attributes, span->links[i]->n_attributes);
}

/* Messages are unpacked one at a time: only what is found stays in the arena. */
static void *privacy_unpack(const ProtobufCMessageDescriptor *desc, struct br_arena *arena,
                            const uint8_t *data, size_t len)
{
    br_arena_init(arena, 16u << 20);
    return data ? protobuf_c_message_unpack(desc, br_arena_pb(arena), len, data) : NULL;
}

static void privacy_look_at_resource(struct privacy_ask *ask, const struct br_span_bytes *bytes)
{
    struct br_arena arena;
    if (!bytes->resource || br_map_get(ask->seen, bytes->resource, bytes->resource_len) ||
        br_map_put(ask->seen, bytes->resource, bytes->resource_len, ask, NULL))
        return;
    const Opentelemetry__Proto__Resource__V1__Resource *resource =
        privacy_unpack(&opentelemetry__proto__resource__v1__resource__descriptor, &arena,
                       bytes->resource, bytes->resource_len);
    if (resource)
        privacy_look_in(ask, "resource", resource->attributes, resource->n_attributes);
    br_arena_release(&arena);
}

static int privacy_look_at_span(struct privacy_ask *ask, const struct br_stored_span *span)
{
    struct br_span_bytes bytes = {0};
    struct br_arena arena;
    ask->n_spans++;
    ask->span = span;
    ask->service = span->service;
    int rc = br_store_span_bytes(ask->job->store, span, &bytes, ask->err);
    if (rc)
        return rc;
    const OtlpSpan *message = privacy_unpack(&opentelemetry__proto__trace__v1__span__descriptor,
                                             &arena, bytes.span, bytes.span_len);
    if (message)
        privacy_look_at_message(ask, message);
    br_arena_release(&arena);
    privacy_look_at_resource(ask, &bytes);
    return ask->rc;
}

static bool privacy_on_spans(struct query_tempo_scan *scan, struct br_traceql_trace *trace)
{
    for (uint32_t i = 0; i < trace->n_spans && !scan->rc; i++)
        scan->rc = privacy_look_at_span(scan->arg, trace->spans[i].row);
    return !scan->rc && query_pick_goes_on(scan->job);
}

static int privacy_look_at_spans(struct privacy_ask *ask, uint64_t from_ns, uint64_t until_ns)
{
    struct br_traceql all = {0};
    struct query_tempo_scan scan = {.job = ask->job,
                                    .query = &all,
                                    .from_ns = from_ns,
                                    .until_ns = until_ns,
                                    .take = privacy_on_spans,
                                    .arg = ask};
    int rc = br_traceql_parse(&all, "{}", 2, &ask->arena, ask->err);
    all.needs_bytes = true;
    if (!rc) {
        query_tempo_scan_ask(&scan);
        rc = scan.rc;
    }
    if (scan.cut && !ask->note)
        ask->note = scan.cut;
    br_traceql_release(&all);
    ask->span = NULL;
    return rc;
}

/* --- Profiles --------------------------------------------------------------------------------- */

static bool privacy_on_series(const struct br_stored_series *series, void *arg)
{
    struct privacy_ask *ask = arg;
    ask->n_series++;
    ask->place = "label";
    ask->service = "";
    for (size_t i = 0; i < series->n_labels; i++)
        if (!strcmp(series->labels[i].name, "service_name"))
            ask->service = series->labels[i].value;
    for (size_t i = 0; i < series->n_labels; i++)
        if (!br_text_starts(series->labels[i].name, "__"))
            privacy_look(ask, series->labels[i].name, series->labels[i].value);
    return !ask->rc && query_pick_goes_on(ask->job);
}

static int privacy_look_at_profiles(struct privacy_ask *ask, uint64_t from_ns, uint64_t until_ns)
{
    struct query_pick pick = {.from_ns = from_ns, .until_ns = until_ns};
    struct br_sample_filter filter = {.from_ns = from_ns, .until_ns = until_ns};
    struct br_flame flame;
    int rc = br_store_series(ask->job->store, &filter, privacy_on_series, ask, ask->err);
    if (!rc)
        rc = ask->rc;
    if (!rc)
        rc = br_flame_init(&flame, QUERY_FLAME_NODES_MAX);
    if (rc)
        return rc;
    rc = query_pick_flame(ask->job, &pick, &flame, ask->err);
    ask->service = "";
    for (uint32_t i = 1; i < flame.n_names && !rc && query_pick_goes_on(ask->job); i++) {
        ask->n_functions++;
        ask->place = "function";
        privacy_look(ask, "", flame.names[i]);
        ask->place = "path";
        privacy_look(ask, "", flame.files[i]);
        rc = ask->rc;
    }
    br_flame_release(&flame);
    return rc;
}

/* --- The answer ------------------------------------------------------------------------------- */

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

static void privacy_put_find(struct br_str *out, const struct privacy_find *find)
{
    query_put_text(out, '{', "place", find->place);
    query_put_text(out, ',', "key", find->key);
    query_put_text(out, ',', "kind", kinds[find->kind].name);
    query_put_text(out, ',', "service", find->service);
    query_put_text(out, ',', "example", find->example);
    br_str_printf(out, ",\"count\":%" PRIu64, find->count);
    if (find->span_id) {
        query_braid_put_trace(out, ',', "trace_id", find->trace_id);
        query_braid_put_span(out, ',', "span_id", find->span_id);
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

static void privacy_put(const struct privacy_ask *ask)
{
    struct br_masked *masked = ask->job->query->masked;
    struct br_str *out = &ask->job->out;
    const void *key;
    size_t len;
    privacy_put_kinds(out);
    br_str_puts(out, ",\"found\":[");
    for (size_t i = 0; i < br_map_count(ask->finds); i++) {
        if (i)
            br_str_putc(out, ',');
        privacy_put_find(out, br_map_at(ask->finds, i, &key, &len));
    }
    br_str_printf(out,
                  "],\"looked_at\":{\"spans\":%" PRIu64 ",\"series\":%" PRIu64
                  ",\"functions\":%" PRIu64 "},\"processors\":[",
                  ask->n_spans, ask->n_series, ask->n_functions);
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
    struct privacy_ask ask = {.job = job, .service = "", .err = &err};
    uint64_t from_ns, until_ns;
    if (!query_braid_range(job, &from_ns, &until_ns))
        return;
    br_arena_init(&ask.arena, (size_t)job->config->max_query_memory);
    ask.finds = br_map_new(PRIVACY_FINDS_MAX);
    ask.seen = br_map_new(PRIVACY_SEEN_MAX);
    int rc = ask.finds && ask.seen ? privacy_compile(&ask) : BR_ENOMEM;
    if (!rc)
        rc = privacy_look_at_profiles(&ask, from_ns, until_ns);
    if (!rc)
        rc = privacy_look_at_spans(&ask, from_ns, until_ns);
    if (!rc)
        privacy_put(&ask);
    if (!rc && ask.note && job->store)
        job->store->note = ask.note;
    privacy_release(&ask);
    query_braid_end(job, rc, &err);
}
