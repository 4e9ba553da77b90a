/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of each context, and their parser. */
#include <stdio.h>
#include <string.h>

#include "attribute/expression_parse.h"
#include "base/bytes.h"
#include "base/str.h"

#define NUMBER(name_, number_, bits)                                                               \
    {                                                                                              \
        .name = (name_), .form = BR_FORM_NUMBER, .number = (number_), .wire = BR_WIRE_VARINT,      \
        .size = (bits)                                                                             \
    }
#define TIME(name_, number_)                                                                       \
    {                                                                                              \
        .name = (name_), .form = BR_FORM_NUMBER, .number = (number_), .wire = BR_WIRE_I64          \
    }
#define TEXT(name_, number_)                                                                       \
    {                                                                                              \
        .name = (name_), .form = BR_FORM_TEXT, .number = (number_)                                 \
    }
#define ID(name_, number_, bytes)                                                                  \
    {                                                                                              \
        .name = (name_), .form = BR_FORM_ID, .number = (number_), .size = (bytes)                  \
    }
#define FORM(name_, form_)                                                                         \
    {                                                                                              \
        .name = (name_), .form = BR_FORM_##form_                                                   \
    }
#define TYPE(name_, form_, number_)                                                                \
    {                                                                                              \
        .name = (name_), .form = BR_FORM_##form_, .number = (number_)                              \
    }
#define CONSTANT(name_, form_)                                                                     \
    {                                                                                              \
        .name = (name_), .form = BR_FORM_##form_, .constant = true                                 \
    }
#define COMMON FORM("attributes", ATTRIBUTES), FORM("cache", CACHE)
#define END                                                                                        \
    {                                                                                              \
        .name = NULL                                                                               \
    }

static const struct br_path resource_paths[] = {
    COMMON,
    NUMBER("dropped_attributes_count", BR_RESOURCE_DROPPED_ATTRIBUTES, 32),
    END,
};
static const struct br_path scope_paths[] = {
    COMMON,
    TEXT("name", BR_SCOPE_NAME),
    TEXT("version", BR_SCOPE_VERSION),
    NUMBER("dropped_attributes_count", BR_SCOPE_DROPPED_ATTRIBUTES, 32),
    END,
};
static const struct br_path span_paths[] = {
    COMMON,
    TEXT("name", BR_SPAN_NAME),
    NUMBER("kind", BR_SPAN_KIND, 32),
    FORM("kind.string", KIND),
    FORM("kind.deprecated_string", OLD_KIND),
    FORM("status.code", STATUS_CODE),
    FORM("status.message", STATUS_MESSAGE),
    TIME("start_time_unix_nano", BR_SPAN_START_TIME),
    TIME("end_time_unix_nano", BR_SPAN_END_TIME),
    FORM("trace_state", TRACE_STATE),
    ID("trace_id.string", BR_SPAN_TRACE_ID, 16),
    ID("span_id.string", BR_SPAN_SPAN_ID, 8),
    ID("parent_span_id.string", BR_SPAN_PARENT_SPAN_ID, 8),
    NUMBER("dropped_attributes_count", BR_SPAN_DROPPED_ATTRIBUTES, 32),
    NUMBER("dropped_events_count", BR_SPAN_DROPPED_EVENTS, 32),
    NUMBER("dropped_links_count", BR_SPAN_DROPPED_LINKS, 32),
    END,
};
static const struct br_path event_paths[] = {
    COMMON,
    TEXT("name", BR_EVENT_NAME),
    TIME("time_unix_nano", BR_EVENT_TIME),
    NUMBER("dropped_attributes_count", BR_EVENT_DROPPED_ATTRIBUTES, 32),
    CONSTANT("event_index", EVENT_INDEX),
    END,
};
static const struct br_path profile_paths[] = {
    COMMON,
    TYPE("sample_type.type", TYPE, BR_PROFILE_SAMPLE_TYPE),
    TYPE("sample_type.unit", UNIT, BR_PROFILE_SAMPLE_TYPE),
    TYPE("period_type.type", TYPE, BR_PROFILE_PERIOD_TYPE),
    TYPE("period_type.unit", UNIT, BR_PROFILE_PERIOD_TYPE),
    TIME("time_unix_nano", BR_PROFILE_TIME),
    NUMBER("duration_unix_nano", BR_PROFILE_DURATION, 64),
    NUMBER("period", BR_PROFILE_PERIOD, 64),
    ID("profile_id.string", BR_PROFILE_PROFILE_ID, 16),
    NUMBER("dropped_attributes_count", BR_PROFILE_DROPPED_ATTRIBUTES, 32),
    TEXT("original_payload_format", BR_PROFILE_PAYLOAD_FORMAT),
    END,
};
static const struct br_path sample_paths[] = {
    COMMON,
    CONSTANT("link.trace_id.string", LINK_TRACE),
    CONSTANT("link.span_id.string", LINK_SPAN),
    CONSTANT("function_names", FUNCTIONS),
    CONSTANT("values", VALUES),
    CONSTANT("timestamps_unix_nano", TIMES),
    END,
};

/* Paths of the Collector that Braid does not have, by context. */
static const char *const lacking[BR_CONTEXTS] = {
    [BR_CONDITION_RESOURCE] = " schema_url ",
    [BR_CONDITION_SCOPE] = " schema_url ",
    [BR_CONDITION_SPAN] =
        " trace_id span_id parent_span_id status events links start_time end_time "
        "flags ",
    [BR_CONDITION_EVENT] = " time ",
    [BR_CONDITION_PROFILE] =
        " sample_type sample samples mapping_table location_table location_indices function_table "
        "attribute_table attribute_units link_table string_table time duration period_type "
        "comment_string_indices default_sample_type_string_index profile_id attribute_indices "
        "original_payload ",
    [BR_CONDITION_SAMPLE] = " locations_start_index locations_length stack_index link_index "
                            "timestamps attribute_indices ",
};

/* For each context: its paths, its name, and the contexts whose messages contain its message. */
static const struct {
    const struct br_path *paths;
    const char *name;
    /* set of bits 1 << enum br_condition_context: the context itself and the contexts around it */
    unsigned outer;
} contexts[BR_CONTEXTS] = {
#define BIT(context) (1u << BR_CONDITION_##context)
    [BR_CONDITION_RESOURCE] = {resource_paths, "resource", BIT(RESOURCE)},
    [BR_CONDITION_SCOPE] = {scope_paths, "scope", BIT(SCOPE) | BIT(RESOURCE)},
    [BR_CONDITION_SPAN] = {span_paths, "span", BIT(SPAN) | BIT(SCOPE) | BIT(RESOURCE)},
    [BR_CONDITION_EVENT] = {event_paths, "spanevent",
                            BIT(EVENT) | BIT(SPAN) | BIT(SCOPE) | BIT(RESOURCE)},
    [BR_CONDITION_PROFILE] = {profile_paths, "profile", BIT(PROFILE) | BIT(SCOPE) | BIT(RESOURCE)},
    [BR_CONDITION_SAMPLE] = {sample_paths, "sample",
                             BIT(SAMPLE) | BIT(PROFILE) | BIT(SCOPE) | BIT(RESOURCE)},
#undef BIT
};

static const struct {
    const char *name;
    enum br_condition_context context;
    int signal; /* enum br_signal: the signal that has the context; -1: both signals have it */
} names[] = {
    {"resource", BR_CONDITION_RESOURCE, -1},
    {"scope", BR_CONDITION_SCOPE, -1},
    {"instrumentation_scope", BR_CONDITION_SCOPE, -1},
    {"span", BR_CONDITION_SPAN, BR_TRACES},
    {"spanevent", BR_CONDITION_EVENT, BR_TRACES},
    {"profile", BR_CONDITION_PROFILE, BR_PROFILES},
    {"sample", BR_CONDITION_SAMPLE, BR_PROFILES},
    {"profilesample", BR_CONDITION_SAMPLE, BR_PROFILES}, /* the Collector's name */
};

const char *br_context_names(enum br_signal signal)
{
    return signal == BR_TRACES ? "span, spanevent, resource and scope"
                               : "profile, sample, resource and scope";
}

static enum br_condition_context paths_context(const char *name, size_t len, enum br_signal signal)
{
    for (size_t i = 0; i < BR_COUNT(names); i++)
        if (br_bytes_are(name, len, names[i].name) &&
            (names[i].signal < 0 || names[i].signal == (int)signal))
            return names[i].context;
    return BR_CONDITION_NAMED;
}

enum br_condition_context br_context_find(const char *name, enum br_signal signal)
{
    return paths_context(name, strlen(name), signal);
}

/* Returns true if the messages of `context` contain those of `other`. */
static bool paths_is_outer(enum br_condition_context context, enum br_condition_context other)
{
    return contexts[other].outer >> context & 1;
}

/* Returns true if the word is the name of a number that only spans and their events have. */
static bool paths_is_enum(const char *word)
{
    return br_text_starts(word, "SPAN_KIND_") || br_text_starts(word, "STATUS_CODE_");
}

/* Returns the context in which statements run whose paths have the innermost context `context`. A
 * function or a number that only an inner context has selects this context, as in the Collector. */
static enum br_condition_context paths_inner(enum br_condition_context context, bool root_span,
                                             bool number)
{
    if (context != BR_CONDITION_RESOURCE && context != BR_CONDITION_SCOPE)
        return context;
    if (root_span)
        return BR_CONDITION_SPAN;
    return number ? BR_CONDITION_EVENT : context;
}

enum br_condition_context br_statements_infer(const char *const *texts, size_t count,
                                              enum br_signal signal)
{
    enum br_condition_context innermost = BR_CONDITION_NAMED;
    bool root_span = false, number = false;
    for (size_t i = 0; i < count; i++) {
        const char *p = texts[i], *end = p + strlen(p), *before = "";
        while (p < end) {
            size_t len = br_word_len(p, end);
            if (*p == '"')
                for (p++; p < end && *p != '"'; p++)
                    p += *p == '\\' && p + 1 < end;
            enum br_condition_context found = BR_CONDITION_NAMED;
            root_span = root_span || br_bytes_are(p, len, "IsRootSpan");
            number = number || (len && paths_is_enum(p));
            const char *after = p + len;
            while (len && *after && strchr(BR_CONDITION_BLANKS, *after))
                after++;
            if (len && *after == '.' && *before != '.')
                found = paths_context(p, len, signal);
            if (found != BR_CONDITION_NAMED &&
                (innermost == BR_CONDITION_NAMED || paths_is_outer(innermost, found)))
                innermost = found;
            if (!*p || len || !strchr(BR_CONDITION_BLANKS, *p))
                before = len ? p + len - 1 : p;
            p += len ? len : 1;
        }
    }
    if (signal == BR_TRACES)
        return paths_inner(innermost, root_span, number);
    return innermost;
}

/* Writes the names of the paths of a context for a message. */
static void paths_list(enum br_condition_context context, struct br_str *out)
{
    const char *separator = "";
    for (const struct br_path *p = contexts[context].paths; p->name; p++) {
        br_str_printf(out, "%s%s", separator, p->name);
        separator = ", ";
    }
}

static bool paths_is_lacking(const char *name, enum br_condition_context context)
{
    char word[96];
    (void)snprintf(word, sizeof word, " %s ", name);
    return context < BR_CONTEXTS && strstr(lacking[context], word) != NULL;
}

/* Reports that a path does not exist. */
static void *paths_unknown(struct br_parser *parser, const char *at, const char *name, size_t skip,
                           enum br_condition_context context)
{
    char text[320];
    struct br_str list = {.data = text, .cap = sizeof text, .max = sizeof text - 1, .fixed = true};
    text[0] = '\0';
    paths_list(context, &list);
    if (paths_is_lacking(name + skip, context))
        return br_parser_lack(parser, at, "the path %s is not supported; paths of %s: %s", name,
                              contexts[context].name, text);
    return br_parser_fail(parser, at, "the path %s is unknown; paths of %s: %s", name,
                          contexts[context].name, text);
}

/* Finds the context of a path. `*ret_skip` is the length of the context's name and the dot. */
static enum br_condition_context paths_find_context(const struct br_parser *parser,
                                                    const char *name, size_t *ret_skip)
{
    const char *dot = strchr(name, '.');
    enum br_condition_context found =
        dot ? paths_context(name, (size_t)(dot - name), parser->signal) : BR_CONDITION_NAMED;
    *ret_skip = found == BR_CONDITION_NAMED ? 0 : (size_t)(dot - name) + 1;
    return found == BR_CONDITION_NAMED ? parser->context : found;
}

/* Returns true if the path begins with a context of the Collector that Braid does not have. */
static bool paths_is_foreign(const char *name)
{
    return br_text_starts(name, "otelcol.") || br_text_starts(name, "spanlink.");
}

static bool paths_check_context(struct br_parser *parser, const char *at, const char *name,
                                enum br_condition_context context)
{
    if (paths_is_foreign(name))
        (void)br_parser_lack(parser, at, "the path %s is not supported; contexts: %s", name,
                             br_context_names(parser->signal));
    else if (context == BR_CONDITION_NAMED && parser->filter)
        (void)br_parser_fail(parser, at, "the path %s must start with %s, resource or scope", name,
                             parser->signal == BR_TRACES ? "span" : "profile, sample");
    else if (context == BR_CONDITION_NAMED)
        (void)br_parser_fail(parser, at, "the path %s must start with one of %s", name,
                             br_context_names(parser->signal));
    else if (context == BR_CONDITION_EVENT && parser->filter)
        (void)br_parser_lack(parser, at, BR_CONDITION_NO_EVENTS);
    else if (!paths_is_outer(context, parser->level))
        (void)br_parser_fail(parser, at, "the context %s has no paths of %s",
                             contexts[parser->level].name, contexts[context].name);
    return !parser->rc;
}

/* Checks that the keys fit the path. */
static bool paths_check_keys(struct br_parser *parser, const struct br_expression *path,
                             const char *at, const char *name)
{
    const struct br_path *form = path->path;
    bool map = form->form == BR_FORM_ATTRIBUTES || form->form == BR_FORM_CACHE;
    bool list = form->form == BR_FORM_VALUES || form->form == BR_FORM_TIMES ||
                form->form == BR_FORM_FUNCTIONS;
    bool state = form->form == BR_FORM_TRACE_STATE;
    if (path->n_keys && !map && !list && !state)
        (void)br_parser_fail(parser, at, "the path %s has no keys", name);
    else if (path->n_keys > 1 && state)
        (void)br_parser_fail(parser, at, "the path %s has one key", name);
    else if (form->form == BR_FORM_CACHE && (parser->filter || path->message != parser->level))
        (void)br_parser_fail(parser, at,
                             parser->filter ? "conditions have no cache"
                                            : "only the cache of the context %s exists here",
                             contexts[parser->level].name);
    return !parser->rc;
}

/* Reads the words of a path and the dots between them. There may be blanks around a dot. */
static bool paths_name(struct br_parser *parser, char *out, size_t size)
{
    const char *start = parser->lexer.at;
    struct br_str name = {.data = out, .cap = size, .max = size - 1, .fixed = true};
    do {
        br_lexer_skip(&parser->lexer);
        size_t len = br_word_len(parser->lexer.at, parser->lexer.end);
        if (!len)
            return br_parser_fail(parser, parser->lexer.at, "a name is missing after the dot");
        br_str_printf(&name, "%s%.*s", name.len ? "." : "", (int)len, parser->lexer.at);
        parser->lexer.at += len;
    } while (br_parser_take(parser, "."));
    return !name.failed || br_parser_fail(parser, start, "unknown path");
}

struct br_expression *br_parser_path(struct br_parser *parser)
{
    const char *start = parser->lexer.at;
    char name[80];
    size_t skip = 0;
    if (!paths_name(parser, name, sizeof name))
        return NULL;
    enum br_condition_context context = paths_find_context(parser, name, &skip);
    if (!paths_check_context(parser, start, name, context))
        return NULL;
    const struct br_path *path = contexts[context].paths;
    while (path->name && strcmp(path->name, name + skip) != 0)
        path++;
    if (!path->name)
        return paths_unknown(parser, start, name, skip, context);
    struct br_expression *made = br_parser_expression(parser, BR_EXPRESSION_PATH);
    if (!made)
        return NULL;
    made->message = context;
    made->path = path;
    if (!br_parser_keys(parser, made) || !paths_check_keys(parser, made, start, name))
        return NULL;
    return made;
}

bool br_parser_can_change(struct br_parser *parser, const struct br_expression *path,
                          const char *at)
{
    enum br_condition_context context = path->message;
    bool inside = context == parser->level || context == BR_CONDITION_RESOURCE ||
                  (context == BR_CONDITION_SPAN && parser->level == BR_CONDITION_EVENT);
    if (path->path->constant)
        (void)br_parser_fail(parser, at, "the path %s cannot be changed", path->path->name);
    else if (!inside)
        (void)br_parser_lack(parser, at,
                             "a statement in the context %s cannot change paths of %s; use a "
                             "group with context: %s",
                             contexts[parser->level].name, contexts[context].name,
                             contexts[context].name);
    return !parser->rc;
}
