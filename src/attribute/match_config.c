/* SPDX-License-Identifier: Apache-2.0 */
/* The options of include and exclude, and what is compiled out of them. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "attribute/match.h"
#include "attribute/match_internal.h"

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
    BR_STRING(struct br_match_library, name, "", "of the instrumentation scope"),
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
    /* What is wrong, and where: an element of an option's list, and perhaps an option of that. */
    const char *key, *sub;
    size_t index;
    char text[BR_REGEX_WHY_SIZE + 64];
};

static int wrong(struct compiler *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int wrong(struct compiler *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(c->text, sizeof c->text, fmt, ap);
    va_end(ap);
    return BR_EINVAL;
}

static void at(struct compiler *c, const char *key, size_t index, const char *sub)
{
    c->key = key;
    c->index = index;
    c->sub = sub;
}

static int compile_pattern(struct compiler *c, const char *text, pcre2_code **ret)
{
    char why[BR_REGEX_WHY_SIZE];
    int rc = br_regex_compile(&c->m->regex, text, ret, why);
    return rc == BR_EINVAL ? wrong(c, "is no regular expression: %s", why) : rc;
}

static int compile_texts(struct compiler *c, const char *const *v, size_t n,
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
    return 0;
}

static int compile_list(struct compiler *c, const struct br_strings *list, const char *key,
                        struct match_texts *ret)
{
    int rc = compile_texts(c, list->v, list->n, ret);
    for (size_t i = 0; i < list->n && !rc && c->regexp; i++) {
        at(c, key, i, NULL);
        rc = compile_pattern(c, list->v[i], &ret->patterns[i]);
    }
    return rc;
}

/* One text, which has to last. */
static int compile_text(struct compiler *c, const char *text, struct match_texts *ret)
{
    const char **v = br_arena_alloc(c->arena, sizeof *v);
    if (!v)
        return BR_ENOMEM;
    *v = text;
    int rc = compile_texts(c, v, 1, ret);
    return rc || !c->regexp ? rc : compile_pattern(c, text, &ret->patterns[0]);
}

static int compile_attribute(struct compiler *c, const struct br_match_attribute *a,
                             struct match_attribute *ret)
{
    const struct br_yaml *value = a->value && a->value->type != BR_YAML_NULL ? a->value : NULL;
    *ret = (struct match_attribute){
        .key = a->key, .key_len = strlen(a->key), .has_value = value != NULL};
    if (!value)
        return 0;
    if (!br_value_from_yaml(value, c->arena, &ret->value))
        return BR_ENOMEM;
    if (!c->regexp)
        return 0;
    if (br_any_read(ret->value).type != BR_VALUE_STRING)
        return wrong(c, "needs to be a text where match_type is regexp; put it in quotes");
    return compile_text(c, value->text, &ret->pattern);
}

static int compile_attributes(struct compiler *c, const struct br_structs *list, const char *key,
                              struct match_attributes *ret)
{
    const struct br_match_attribute *v = list->v;
    ret->v = br_arena_calloc(c->arena, list->n, sizeof *ret->v);
    int rc = ret->v ? 0 : BR_ENOMEM;
    for (size_t i = 0; i < list->n && !rc; i++) {
        ret->n = i + 1; /* also so that its pattern is released */
        at(c, key, i, "value");
        rc = compile_attribute(c, &v[i], &ret->v[i]);
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
        ret->n_libraries = i + 1;
        at(c, "libraries", i, "name");
        rc = compile_text(c, v[i].name, &ret->libraries[i].name);
        at(c, "libraries", i, rc ? "name" : "version");
        if (!rc && v[i].version)
            rc = compile_text(c, v[i].version, &ret->libraries[i].version);
    }
    return rc;
}

static int check_kinds(struct compiler *c, const struct br_strings *kinds)
{
    for (size_t i = 0; i < kinds->n && !c->regexp; i++) {
        size_t k = 1;
        at(c, "span_kinds", i, NULL);
        while (k < BR_SPAN_KINDS && strcmp(kinds->v[i], br_span_kinds[k]) != 0)
            k++;
        if (k == BR_SPAN_KINDS)
            return wrong(c, "must be SPAN_KIND_INTERNAL, SPAN_KIND_SERVER, SPAN_KIND_CLIENT, "
                            "SPAN_KIND_PRODUCER or SPAN_KIND_CONSUMER");
    }
    return 0;
}

static int compile(struct compiler *c, const struct br_match_config *config, struct br_match *ret)
{
    c->regexp = config->match_type == BR_MATCH_REGEXP;
    if (!config->services.n && !config->span_names.n && !config->span_kinds.n &&
        !config->sample_types.n && !config->functions.n && !config->attributes.n &&
        !config->resources.n && !config->libraries.n)
        return wrong(c, "has no criterion, such as services, attributes or resources");
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
        return br_err_set(err, rc, "%s %s", c.key ? c.key : "", c.text);
    return rc ? br_err_set(err, rc, "out of memory") : 0;
}

static int report(const struct compiler *c, const struct br_yaml *node, const char *path,
                  struct br_errs *errs)
{
    char where[256];
    if (!c->key)
        return br_errs_add(errs, node, path, "%s", c->text);
    const struct br_yaml *list = br_yaml_get(node, c->key), *element = list;
    if (list && list->type == BR_YAML_SEQ && c->index < list->n)
        element = list->items[c->index];
    const struct br_yaml *value = c->sub && element ? br_yaml_get(element, c->sub) : NULL;
    (void)snprintf(where, sizeof where, "%s::%s[%zu]%s%s", path, c->key, c->index,
                   c->sub ? "::" : "", c->sub ? c->sub : "");
    return br_errs_add(errs, value ? value : element ? element : node, where, "%s", c->text);
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
    return report(&compiler, node, path, errs);
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
    br_attributes_release(&m->common);
    br_arena_release(&m->arena);
    *m = (struct br_matcher){0};
}
