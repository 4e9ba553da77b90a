/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values of a tag. Most values of resource and span attributes, and the names of services and
 * operations, are listed by the store. Other values are read from the spans. If a query limits the
 * values, all of them are read from the spans.
 */
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "extensions/query/tempo.h"
#include "otlp/json/number.h"

#define VALUE_MAX (1u << 20)

/* Kinds of tags. A tag is an intrinsic, or a name with or without a scope. */
enum tag {
    TAG_UNSCOPED,
    TAG_SPAN,
    TAG_RESOURCE,
    TAG_NAME,
    TAG_STATUS,
    TAG_KIND,
    TAG_READ, /* a tag whose values are read from spans */
    TAG_TEXT, /* like TAG_READ, but a span without the tag counts as having an empty text */
    TAG_NONE, /* a tag whose values are not listed: ids, durations */
};

static enum tag tempo_tag_of(const char *text, const char **ret_name)
{
    static const struct {
        const char *name;
        enum tag tag;
        /* name of the tag in a query; NULL: the tag is called `name` in a query, too */
        const char *query;
    } known[] = {
        {"name", TAG_NAME, NULL},
        {"span:name", TAG_NAME, NULL},
        {"status", TAG_STATUS, NULL},
        {"span:status", TAG_STATUS, NULL},
        {"kind", TAG_KIND, NULL},
        {"span:kind", TAG_KIND, NULL},
        {"rootName", TAG_TEXT, NULL},
        {"trace:rootName", TAG_TEXT, NULL},
        {"root.name", TAG_TEXT, "rootName"},
        {"rootServiceName", TAG_TEXT, NULL},
        {"trace:rootService", TAG_TEXT, NULL},
        {"root.service.name", TAG_TEXT, "rootServiceName"},
        {"statusMessage", TAG_TEXT, NULL},
        {"span:statusMessage", TAG_TEXT, NULL},
        {"event:name", TAG_READ, NULL},
        {"instrumentation:name", TAG_TEXT, NULL},
        {"instrumentation:version", TAG_TEXT, NULL},
    };
    static const struct {
        const char *prefix;
        enum tag tag;
    } scopes[] = {{"span.", TAG_SPAN}, {"resource.", TAG_RESOURCE},
                  {".", TAG_UNSCOPED}, {"event.", TAG_READ},
                  {"link.", TAG_READ}, {"instrumentation.", TAG_READ}};
    *ret_name = text;
    for (size_t i = 0; i < BR_COUNT(known); i++)
        if (strcmp(text, known[i].name) == 0) {
            *ret_name = known[i].query ? known[i].query : text;
            return known[i].tag;
        }
    for (size_t i = 0; i < QUERY_TEMPO_INTRINSICS; i++)
        if (strcmp(text, query_tempo_intrinsics[i]) == 0)
            return TAG_NONE;
    for (size_t i = 0; i < BR_COUNT(scopes); i++) {
        size_t len = strlen(scopes[i].prefix);
        if (br_text_starts(text, scopes[i].prefix)) {
            *ret_name = text + (scopes[i].tag == TAG_READ ? 0 : len);
            return scopes[i].tag;
        }
    }
    return TAG_UNSCOPED;
}

/* --- Values listed by the store -------------------------------------------------------------- */

struct operations {
    struct query_tempo_names *names;
    const char **services;
    uint32_t n_services, cap_services;
};

static bool tempo_on_service(const char *name, uint64_t count, void *arg)
{
    struct operations *operations = arg;
    (void)count;
    int rc =
        br_grow(&operations->services, &operations->cap_services,
                (size_t)operations->n_services + 1, sizeof *operations->services, UINT32_MAX / 2);
    const char *copy =
        rc ? NULL : br_arena_strndup(&operations->names->job->arena, name, strlen(name));
    if (!copy) {
        operations->names->rc = BR_ENOMEM;
        return false;
    }
    operations->services[operations->n_services++] = copy;
    return true;
}

/* Appends the span names of all services. */
static int tempo_put_operations(struct query_tempo_names *names, uint64_t from, uint64_t until)
{
    struct query_job *job = names->job;
    struct operations operations = {.names = names};
    int rc = br_store_services(job->store, from, until, tempo_on_service, &operations, &names->err);
    for (uint32_t i = 0; i < operations.n_services && !rc && !names->rc; i++)
        rc = br_store_operations(job->store, operations.services[i], from, until,
                                 query_tempo_put_name, names, &names->err);
    br_free(operations.services);
    return rc;
}

/* Removes the quotes of a name such as span."a name". Returns NULL if memory runs out. */
static const char *tempo_unquote(struct query_job *job, const char *name)
{
    size_t len = strlen(name);
    if (len < 2 || name[0] != '"' || name[len - 1] != '"')
        return name;
    return br_arena_strndup(&job->head, name + 1, len - 2);
}

static int tempo_put_attributes(struct query_tempo_names *names, enum tag kind, const char *name,
                                uint64_t from, uint64_t until)
{
    struct br_store_query *store = names->job->store;
    int rc = 0;
    name = tempo_unquote(names->job, name);
    if (!name)
        return BR_ENOMEM;
    if (kind == TAG_RESOURCE && strcmp(name, "service.name") == 0)
        return br_store_services(store, from, until, query_tempo_put_name, names, &names->err);
    names->guess_type = true;
    if (kind != TAG_SPAN)
        rc = br_store_span_values(store, name, true, from, until, query_tempo_put_name, names,
                                  &names->err);
    if (!rc && kind != TAG_RESOURCE)
        rc = br_store_span_values(store, name, false, from, until, query_tempo_put_name, names,
                                  &names->err);
    return rc;
}

/* --- Values read from spans ------------------------------------------------------------------ */

struct values {
    struct query_tempo_names *names;
    uint32_t attribute;
    bool text; /* true: a span without the tag counts as having an empty text */
};

static const char *tempo_value_type(enum br_traceql_type type)
{
    switch (type) {
    case BR_TRACEQL_STRING:
        return "string";
    case BR_TRACEQL_INT:
        return "int";
    case BR_TRACEQL_FLOAT:
        return "float";
    case BR_TRACEQL_BOOL:
        return "bool";
    default:
        return NULL;
    }
}

static void tempo_print_value(struct br_str *out, const struct br_traceql_value *value)
{
    if (value->type == BR_TRACEQL_STRING)
        br_str_add(out, value->text, value->len);
    else if (value->type == BR_TRACEQL_INT)
        br_str_printf(out, "%" PRId64, value->integer);
    else if (value->type == BR_TRACEQL_FLOAT)
        br_number_print(out, value->real);
    else
        br_str_puts(out, value->boolean ? "true" : "false");
}

/* Appends a value. Two values are distinct if their texts or their types are different. */
static bool tempo_put_value(struct query_tempo_names *names, const struct br_traceql_value *value)
{
    const char *type = tempo_value_type(value->type);
    struct br_str key = {.max = VALUE_MAX};
    bool may_continue = true;
    if (value->type == BR_TRACEQL_LIST)
        for (size_t i = 0; i < value->n_items && may_continue; i++)
            /* only one level of recursion: the items of a list are not lists */
            may_continue = tempo_put_value(names, &value->items[i]);
    if (!type)
        return may_continue;
    br_str_puts(&key, type);
    br_str_putc(&key, ':');
    tempo_print_value(&key, value);
    if (key.failed)
        names->rc = BR_ENOMEM;
    else
        may_continue = query_tempo_put(names, key.data, key.len, key.data + strlen(type) + 1,
                                       names->type ? type : NULL);
    br_str_release(&key);
    return may_continue && !names->rc;
}

static bool tempo_values_on_trace(struct query_tempo_scan *scan, struct br_traceql_trace *trace)
{
    static const struct br_traceql_value no_text = {.type = BR_TRACEQL_STRING, .text = ""};
    const struct values *values = scan->arg;
    for (uint32_t i = 0; i < trace->n_spans && !scan->rc; i++) {
        struct br_traceql_span *span = &trace->spans[i];
        if (!span->in)
            continue;
        scan->rc = br_traceql_read_span(scan->query, scan->job->store, span, trace, &scan->err);
        const struct br_traceql_value *value = &span->values[values->attribute];
        if (!scan->rc &&
            !tempo_put_value(values->names,
                             values->text && value->type == BR_TRACEQL_NIL ? &no_text : value))
            return false;
    }
    return !scan->rc;
}

/* Appends the values that a tag has in the spans found by the query `text`. Returns false if the
 * query is invalid, or if queries cannot contain the tag. */
static bool tempo_put_span_values(struct query_tempo_names *names, const char *text, enum tag kind,
                                  const char *tag, uint64_t from, uint64_t until)
{
    struct br_traceql query = {0};
    struct br_arena arena;
    struct values values = {.names = names, .text = kind == TAG_TEXT};
    struct query_tempo_scan scan = {.job = names->job,
                                    .query = &query,
                                    .from_ns = from,
                                    .until_ns = until,
                                    .on_trace = tempo_values_on_trace,
                                    .arg = &values};
    br_arena_init(&arena, (size_t)names->job->config->max_query_memory);
    int rc = br_traceql_parse(&query, text, strlen(text), &arena, &names->err);
    if (!rc)
        rc = br_traceql_select(&query, tag, strlen(tag), &values.attribute, &names->err);
    if (!rc && !query_tempo_scan_run(&scan)) {
        rc = scan.rc;
        names->err = scan.err;
    }
    if (!rc)
        names->job->store_query.cut = scan.cut;
    br_traceql_release(&query);
    br_arena_release(&arena);
    if (rc == BR_EINVAL || rc == BR_EUNSUPPORTED)
        return false;
    names->rc = names->rc ? names->rc : rc;
    return true;
}

/* Returns the name of a tag as it is written in a query: a dot precedes a name without a scope.
 * Returns NULL if memory runs out. */
static const char *tempo_tag_text(struct query_job *job, enum tag kind, const char *tag)
{
    return kind == TAG_UNSCOPED && *tag != '.' ? br_arena_printf(&job->head, ".%s", tag) : tag;
}

/* --- Incomplete queries ---------------------------------------------------------------------- */

#define NESTING_MAX 64

static bool tempo_is_name_char(char letter)
{
    return letter && !strchr(" \t\n\r{}()&|=!<>~\"`", letter);
}

/* Returns the length of the comparison operator at `text`; 0 if no operator begins there. */
static size_t tempo_operator(const char *text)
{
    static const char *const operators[] = {"=~", "!~", "!=", ">=", "<=", "=", ">", "<"};
    for (size_t i = 0; i < BR_COUNT(operators); i++)
        if (br_text_starts(text, operators[i]))
            return strlen(operators[i]);
    return 0;
}

/* Returns true if no value begins at `text`. */
static bool tempo_ends_value(const char *text)
{
    text += strspn(text, " \t\n\r");
    return !*text || *text == '}' || *text == ')' || br_text_starts(text, "&&") ||
           br_text_starts(text, "||");
}

static const char *tempo_skip_text(const char *text)
{
    char quote = *text++;
    while (*text && *text != quote)
        text += *text == '\\' && quote == '"' && text[1] ? 2 : 1;
    return *text ? text + 1 : text;
}

/* Replaces comparisons that lack a value by `true`, and closes open brackets, for example in
 * `{name = "a" && kind = `, which becomes `{name = "a" && true}`. Returns NULL if memory runs
 * out, or the nesting is too deep. */
static const char *tempo_complete_query(struct query_job *job, const char *text)
{
    char open[NESTING_MAX];
    size_t n_open = 0, name_at = 0;
    struct br_str out = {.max = VALUE_MAX};
    while (*text) {
        size_t len = tempo_operator(text);
        const char *end = *text == '"' || *text == '`' ? tempo_skip_text(text) : text + 1;
        if (len && tempo_ends_value(text + len)) {
            out.len = name_at < out.len ? name_at : out.len;
            br_str_puts(&out, "true");
            text += len;
            continue;
        }
        if (!tempo_is_name_char(*text) && !strchr(" \t\"`", *text))
            name_at = 0;
        else if (!name_at && tempo_is_name_char(*text))
            name_at = out.len;
        if (*text == '{' || *text == '(') {
            if (n_open == NESTING_MAX)
                break;
            open[n_open++] = *text == '{' ? '}' : ')';
        } else if (n_open && *text == open[n_open - 1]) {
            n_open--;
        }
        br_str_add(&out, text, (size_t)(end - text));
        text = end;
    }
    while (n_open > 0)
        br_str_putc(&out, open[--n_open]);
    const char *ret = out.failed || *text ? NULL : br_arena_strndup(&job->head, out.data, out.len);
    br_str_release(&out);
    return ret;
}

/* Lists only the values in spans that the parameter `q` of the request matches. A client may
 * send the query while a user is typing it, so comparisons that lack a value are left out. If
 * the query is still invalid, it is ignored, as in Tempo. */
static bool tempo_put_filtered(struct query_tempo_names *names, enum tag kind, const char *tag,
                               uint64_t from, uint64_t until)
{
    const char *text = query_job_param(names->job, "q");
    if (!text || !text[strspn(text, "{} \t\n")])
        return false;
    tag = tempo_tag_text(names->job, kind, tag);
    if (!tag)
        names->rc = BR_ENOMEM;
    if (!tag || tempo_put_span_values(names, text, kind, tag, from, until))
        return true;
    text = tempo_complete_query(names->job, text);
    return text && text[strspn(text, "{} \t\n")] &&
           tempo_put_span_values(names, text, kind, tag, from, until);
}

/* --- Responses ------------------------------------------------------------------------------- */

static int tempo_put_values(struct query_tempo_names *names, uint64_t from, uint64_t until,
                            bool typed)
{
    static const char *const statuses[] = {"error", "ok", "unset"};
    static const char *const kinds[] = {"client",   "consumer", "internal",
                                        "producer", "server",   "unspecified"};
    const char *tag = names->job->parts[0], *name;
    enum tag kind = tempo_tag_of(tag, &name);
    bool keyword = kind == TAG_STATUS || kind == TAG_KIND;
    if (typed)
        names->type = keyword ? "keyword" : "string";
    if (kind == TAG_STATUS)
        query_tempo_put_names(names, statuses, BR_COUNT(statuses));
    else if (kind == TAG_KIND)
        query_tempo_put_names(names, kinds, BR_COUNT(kinds));
    else if (kind == TAG_NONE || (typed && tempo_put_filtered(names, kind, tag, from, until)))
        return 0;
    else if (kind == TAG_NAME)
        return tempo_put_operations(names, from, until);
    else if (kind == TAG_TEXT || kind == TAG_READ)
        (void)tempo_put_span_values(names, "{}", kind, name, from, until);
    else
        return tempo_put_attributes(names, kind, name, from, until);
    return 0;
}

static void tempo_values(struct query_job *job, bool typed)
{
    struct query_tempo_names names;
    uint64_t from, until;
    if (!query_tempo_names_begin(&names, job, true, &from, &until))
        return;
    br_str_puts(&job->out, "{\"tagValues\":[");
    if (query_tempo_names_end(&names, tempo_put_values(&names, from, until, typed)))
        br_str_puts(&job->out, "],\"metrics\":{}}");
}

void query_tempo_values_v1(struct query_job *job)
{
    tempo_values(job, false);
}

void query_tempo_values_v2(struct query_job *job)
{
    tempo_values(job, true);
}
