/* SPDX-License-Identifier: Apache-2.0 */
/* The options of include and exclude, and what is compiled out of them. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/match.h"
#include "pipeline/match_internal.h"

const char *const br_span_kinds[BR_SPAN_KINDS] = {"SPAN_KIND_UNSPECIFIED", "SPAN_KIND_INTERNAL",
                                                  "SPAN_KIND_SERVER",      "SPAN_KIND_CLIENT",
                                                  "SPAN_KIND_PRODUCER",    "SPAN_KIND_CONSUMER"};

static const char *const match_types[] = {"strict", "regexp", NULL};

static const struct br_option regexp_options[] = {
    BR_IGNORED("cacheenabled", "patterns are compiled and not cached"),
    BR_IGNORED("cachemaxnumentries", "patterns are compiled and not cached"),
    BR_OPT_END,
};

static const struct br_option attribute_options[] = {
    {.name = "key",
     .kind = BR_OPT_STRING,
     .offset = BR_OPT_FIELD(struct br_match_attribute, key, const char *),
     .required = true,
     .help = "has to be there"},
    BR_VALUE(struct br_match_attribute, value,
             "and has to have this value; regexp: a text that its own has to match"),
    BR_OPT_END,
};

static const struct br_option library_options[] = {
    {.name = "name",
     .kind = BR_OPT_STRING,
     .offset = BR_OPT_FIELD(struct br_match_library, name, const char *),
     .required = true,
     .help = "of the instrumentation scope"},
    BR_STRING(struct br_match_library, version, NULL, "of the scope; default: any"),
    BR_OPT_END,
};

/* Rows that more than one table has. */
#define MATCH_TYPE                                                                                 \
    {.name = "match_type",                                                                         \
     .kind = BR_OPT_ENUM,                                                                          \
     .offset = BR_OPT_FIELD(struct br_match_config, match_type, int),                              \
     .required = true,                                                                             \
     .choices = match_types,                                                                       \
     .help = "strict: texts are equal; regexp: expressions match somewhere"},                      \
    {                                                                                              \
        .name = "regexp", .kind = BR_OPT_STRUCT, .sub = regexp_options,                            \
        .help = "the Collector's cache of results"                                                 \
    }
#define SERVICES                                                                                   \
    BR_STRINGS(struct br_match_config, services, "any of these as the resource's service.name")
#define SPANS                                                                                      \
    BR_STRINGS(struct br_match_config, span_names, "any of these as the span's name"),             \
        BR_STRINGS(struct br_match_config, span_kinds,                                             \
                   "any of these as the span's kind: SPAN_KIND_SERVER ...")
#define SAMPLES                                                                                    \
    BR_STRINGS(struct br_match_config, sample_types,                                               \
               "any of these as the profile's type: cpu ..."),                                     \
        BR_STRINGS(struct br_match_config, functions, "any of these as a function of the stack")
#define ATTRIBUTES(text)                                                                           \
    BR_LIST(struct br_match_config, attributes, struct br_match_attribute, attribute_options, text)
#define COMMON                                                                                     \
    BR_LIST(struct br_match_config, resources, struct br_match_attribute, attribute_options,       \
            "all of these attributes of the resource"),                                            \
        BR_LIST(struct br_match_config, libraries, struct br_match_library, library_options,       \
                "all of these as the instrumentation scope")

const struct br_option br_match_options[] = {
    MATCH_TYPE,
    SERVICES,
    SPANS,
    SAMPLES,
    ATTRIBUTES("all of these attributes of the span, or of the sample or its profile"),
    COMMON,
    BR_OPT_END,
};

const struct br_option br_match_span_options[] = {
    MATCH_TYPE, SERVICES,   SPANS, ATTRIBUTES("all of these attributes of the span"),
    COMMON,     BR_OPT_END,
};

const struct br_option br_match_profile_options[] = {
    MATCH_TYPE, SERVICES,
    SAMPLES,    ATTRIBUTES("all of these attributes of the sample or its profile"),
    COMMON,     BR_OPT_END,
};

/* --- Compiling ------------------------------------------------------------------------------- */

struct compiler {
    struct br_matcher *m;
    struct br_arena *arena;
    bool regexp;
    char where[64], text[BR_REGEX_WHY_SIZE + 64]; /* of what is wrong */
};

static int wrong(struct compiler *c, const char *text, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int wrong(struct compiler *c, const char *text, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(c->where, sizeof c->where, fmt, ap);
    va_end(ap);
    (void)snprintf(c->text, sizeof c->text, "%s", text);
    return BR_EINVAL;
}

static int compile_patterns(struct compiler *c, struct match_texts *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++) {
        char why[BR_REGEX_WHY_SIZE], text[sizeof c->text];
        int rc = br_regex_compile(&c->m->regex, t->v[i], &t->patterns[i], why);
        if (rc != BR_EINVAL && rc)
            return rc;
        (void)snprintf(text, sizeof text, "is no regular expression: %s", why);
        if (rc)
            return wrong(c, text, "%s[%zu]", name, i);
    }
    return 0;
}

static int compile_texts(struct compiler *c, const char *const *v, size_t n, const char *name,
                         struct match_texts *ret)
{
    *ret = (struct match_texts){.v = v};
    ret->lens = br_arena_calloc(c->arena, n, sizeof *ret->lens);
    ret->patterns = c->regexp ? br_arena_calloc(c->arena, n, sizeof(pcre2_code *)) : NULL;
    if (!ret->lens || (c->regexp && !ret->patterns))
        return BR_ENOMEM;
    ret->n = n;
    for (size_t i = 0; i < n; i++)
        ret->lens[i] = strlen(v[i]);
    return c->regexp ? compile_patterns(c, ret, name) : 0;
}

static int compile_list(struct compiler *c, const struct br_strings *list, const char *name,
                        struct match_texts *ret)
{
    return compile_texts(c, list->v, list->n, name, ret);
}

/* One text, which has to last. */
static int compile_text(struct compiler *c, const char *text, const char *name,
                        struct match_texts *ret)
{
    const char **v = br_arena_alloc(c->arena, sizeof *v);
    if (!v)
        return BR_ENOMEM;
    *v = text;
    return compile_texts(c, v, 1, name, ret);
}

static int compile_attribute(struct compiler *c, const struct br_match_attribute *a,
                             const char *name, size_t i, struct match_attribute *ret)
{
    const struct br_yaml *value = a->value && a->value->type != BR_YAML_NULL ? a->value : NULL;
    char where[sizeof c->where];
    (void)snprintf(where, sizeof where, "%s[%zu]", name, i);
    if (!*a->key)
        return wrong(c, "needs a key", "%s", where);
    *ret = (struct match_attribute){
        .key = a->key, .key_len = strlen(a->key), .has_value = value != NULL};
    if (!value)
        return 0;
    if (!br_value_from_yaml(value, c->arena, &ret->value))
        return BR_ENOMEM;
    if (!c->regexp)
        return 0;
    if (br_any_read(ret->value).type != BR_VALUE_STRING)
        return wrong(c, "needs a text as value where match_type is regexp; put it in quotes", "%s",
                     where);
    return compile_text(c, value->text, where, &ret->pattern);
}

static int compile_attributes(struct compiler *c, const struct br_structs *list, const char *name,
                              struct match_attributes *ret)
{
    const struct br_match_attribute *v = list->v;
    ret->v = br_arena_calloc(c->arena, list->n, sizeof *ret->v);
    int rc = ret->v ? 0 : BR_ENOMEM;
    for (size_t i = 0; i < list->n && !rc; i++) {
        ret->n = i + 1; /* also so that its pattern is released */
        rc = compile_attribute(c, &v[i], name, i, &ret->v[i]);
    }
    return rc;
}

static int compile_libraries(struct compiler *c, const struct br_structs *list,
                             struct br_match *ret)
{
    const struct br_match_library *v = list->v;
    ret->libraries = br_arena_calloc(c->arena, list->n, sizeof *ret->libraries);
    int rc = ret->libraries ? 0 : BR_ENOMEM;
    for (size_t i = 0; i < list->n && !rc; i++) {
        char where[sizeof c->where];
        (void)snprintf(where, sizeof where, "libraries[%zu]", i);
        ret->n_libraries = i + 1;
        rc = compile_text(c, v[i].name, where, &ret->libraries[i].name);
        if (!rc && v[i].version)
            rc = compile_text(c, v[i].version, where, &ret->libraries[i].version);
    }
    return rc;
}

static int check_kinds(struct compiler *c, const struct br_strings *kinds)
{
    for (size_t i = 0; i < kinds->n && !c->regexp; i++) {
        size_t k = 1;
        while (k < BR_SPAN_KINDS && strcmp(kinds->v[i], br_span_kinds[k]) != 0)
            k++;
        if (k == BR_SPAN_KINDS)
            return wrong(c,
                         "must be SPAN_KIND_INTERNAL, SPAN_KIND_SERVER, SPAN_KIND_CLIENT, "
                         "SPAN_KIND_PRODUCER or SPAN_KIND_CONSUMER",
                         "span_kinds[%zu]", i);
    }
    return 0;
}

static int compile(struct compiler *c, const struct br_match_config *config, struct br_match *ret)
{
    c->regexp = config->match_type == BR_MATCH_REGEXP;
    if (!config->services.n && !config->span_names.n && !config->span_kinds.n &&
        !config->sample_types.n && !config->functions.n && !config->attributes.n &&
        !config->resources.n && !config->libraries.n)
        return wrong(c, "has no criterion, such as services, attributes or resources", "%s", "");
    int rc = check_kinds(c, &config->span_kinds);
    if (!rc)
        rc = compile_list(c, &config->services, "services", &ret->services);
    if (!rc)
        rc = compile_list(c, &config->span_names, "span_names", &ret->span_names);
    if (!rc)
        rc = compile_list(c, &config->span_kinds, "span_kinds", &ret->span_kinds);
    if (!rc)
        rc = compile_list(c, &config->sample_types, "sample_types", &ret->sample_types);
    if (!rc)
        rc = compile_list(c, &config->functions, "functions", &ret->functions);
    if (!rc)
        rc = compile_attributes(c, &config->attributes, "attributes", &ret->attributes);
    if (!rc)
        rc = compile_attributes(c, &config->resources, "resources", &ret->resources);
    return rc ? rc : compile_libraries(c, &config->libraries, ret);
}

static int make(struct compiler *c, const struct br_match_config *config, struct br_match **ret)
{
    if (!config)
        return 0;
    *ret = br_arena_calloc(c->arena, 1, sizeof **ret);
    return *ret ? compile(c, config, *ret) : BR_ENOMEM;
}

int br_matcher_init(struct br_matcher *m, const struct br_match_config *include,
                    const struct br_match_config *exclude, struct br_arena *arena,
                    struct br_err *err)
{
    struct compiler c = {.m = m, .arena = arena};
    int rc = make(&c, include, &m->matches[0]);
    if (!rc)
        rc = make(&c, exclude, &m->matches[1]);
    if (!rc)
        rc = br_regex_ready(&m->regex);
    if (rc == BR_EINVAL)
        return br_err_set(err, rc, "%s %s", c.where, c.text);
    return rc ? br_err_set(err, rc, "out of memory") : 0;
}

int br_match_check(const struct br_match_config *c, const struct br_yaml *node, const char *path,
                   struct br_arena *arena, struct br_errs *errs)
{
    struct br_matcher m = {0};
    struct compiler compiler = {.m = &m, .arena = arena};
    int rc = make(&compiler, c, &m.matches[0]);
    br_matcher_release(&m);
    if (rc != BR_EINVAL)
        return rc;
    char where[256];
    (void)snprintf(where, sizeof where, "%s%s%s", path, *compiler.where ? "::" : "",
                   compiler.where);
    return br_errs_add(errs, node, where, "%s", compiler.text);
}

/* --- Releasing ------------------------------------------------------------------------------- */

static void release_texts(const struct match_texts *t)
{
    for (size_t i = 0; i < t->n && t->patterns; i++)
        pcre2_code_free(t->patterns[i]);
}

static void release_attributes(const struct match_attributes *a)
{
    for (size_t i = 0; i < a->n; i++)
        release_texts(&a->v[i].pattern);
}

static void release(const struct br_match *match)
{
    release_texts(&match->services);
    release_texts(&match->span_names);
    release_texts(&match->span_kinds);
    release_texts(&match->sample_types);
    release_texts(&match->functions);
    release_attributes(&match->attributes);
    release_attributes(&match->resources);
    for (size_t i = 0; i < match->n_libraries; i++) {
        release_texts(&match->libraries[i].name);
        release_texts(&match->libraries[i].version);
    }
}

void br_matcher_release(struct br_matcher *m)
{
    for (int i = 0; i < BR_MATCHES; i++)
        if (m->matches[i])
            release(m->matches[i]);
    br_regex_release(&m->regex);
    br_attributes_release(&m->list);
    br_arena_release(&m->arena);
    *m = (struct br_matcher){0};
}
