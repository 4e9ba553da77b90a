/* SPDX-License-Identifier: Apache-2.0 */
/* Defines the options of include and exclude, and compiles the selections that these options
 * describe. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "attribute/match.h"

const char *const br_span_kinds[BR_SPAN_KINDS] = {"SPAN_KIND_UNSPECIFIED", "SPAN_KIND_INTERNAL",
                                                  "SPAN_KIND_SERVER",      "SPAN_KIND_CLIENT",
                                                  "SPAN_KIND_PRODUCER",    "SPAN_KIND_CONSUMER"};

static const char *const match_types[] = {"strict", "regexp", NULL};

static const struct br_option regexp_options[] = {
    BR_IGNORED("cacheenabled", "patterns are compiled, and their results are not cached"),
    BR_IGNORED("cachemaxnumentries", "patterns are compiled, and their results are not cached"),
    BR_OPT_END,
};

static const struct br_option attribute_options[] = {
    {.name = "key",
     .kind = BR_OPT_STRING,
     .offset = BR_OPT_FIELD(struct br_match_attribute, key, const char *),
     .required = true,
     .help = "key of an attribute that must exist"},
    BR_VALUE(struct br_match_attribute, value,
             "value that the attribute must have; with match_type regexp: expression that the "
             "value must match as text"),
    BR_OPT_END,
};

static const struct br_option library_options[] = {
    BR_STRING(struct br_match_library, name, "", "name of the instrumentation scope"),
    BR_STRING(struct br_match_library, version, NULL,
              "version of the instrumentation scope; default: any"),
    BR_OPT_END,
};

/* Option rows that occur in more than one table. */
#define MATCH_TYPE                                                                                 \
    {.name = "match_type",                                                                         \
     .kind = BR_OPT_ENUM,                                                                          \
     .offset = BR_OPT_FIELD(struct br_match_config, match_type, int),                              \
     .required = true,                                                                             \
     .choices = match_types,                                                                       \
     .help = "strict: texts must be equal; regexp: an expression must match a part of the text"},  \
    {                                                                                              \
        .name = "regexp", .kind = BR_OPT_STRUCT, .sub = regexp_options,                            \
        .help = "no effect: results of patterns are not cached"                                     \
    }
#define SERVICES                                                                                   \
    BR_STRINGS(struct br_match_config, services,                                                   \
               "the service.name of the resource must be one of these")
#define SPANS                                                                                      \
    BR_STRINGS(struct br_match_config, span_names, "the name of the span must be one of these"),   \
        BR_STRINGS(struct br_match_config, span_kinds,                                             \
                   "matches spans of these kinds, such as SPAN_KIND_SERVER")
#define SAMPLES                                                                                    \
    BR_STRINGS(struct br_match_config, sample_types,                                               \
               "the type of the profile must be one of these, such as cpu"),                       \
        BR_STRINGS(struct br_match_config, functions,                                              \
                   "a function in the stack must have one of these names")
#define ATTRIBUTES(text)                                                                           \
    BR_LIST(struct br_match_config, attributes, struct br_match_attribute, attribute_options, text)
#define COMMON                                                                                     \
    BR_LIST(struct br_match_config, resources, struct br_match_attribute, attribute_options,       \
            "the resource must have all of these attributes"),                                     \
        BR_LIST(struct br_match_config, libraries, struct br_match_library, library_options,       \
                "the instrumentation scope must match all of these")

const struct br_option br_match_options[] = {
    MATCH_TYPE,
    SERVICES,
    SPANS,
    SAMPLES,
    ATTRIBUTES("the span, or the sample or its profile, must have all of these attributes"),
    COMMON,
    BR_OPT_END,
};

const struct br_option br_match_span_options[] = {
    MATCH_TYPE, SERVICES,   SPANS, ATTRIBUTES("the span must have all of these attributes"),
    COMMON,     BR_OPT_END,
};

const struct br_option br_match_profile_options[] = {
    MATCH_TYPE, SERVICES,
    SAMPLES,    ATTRIBUTES("the sample or its profile must have all of these attributes"),
    COMMON,     BR_OPT_END,
};

/* --- Compiling ------------------------------------------------------------------------------- */

struct compiler {
    struct br_matcher *matcher;
    struct br_arena *arena;
    bool regexp;
    /* `key`: the option that has the invalid element; `sub`: the invalid option of that element
     * (may be NULL) */
    const char *key, *sub;
    size_t index;
    char text[BR_REGEX_WHY_SIZE + 64];
};

static int match_config_wrong(struct compiler *compiler, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static int match_config_wrong(struct compiler *compiler, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(compiler->text, sizeof compiler->text, fmt, ap);
    va_end(ap);
    return BR_EINVAL;
}

static void match_config_at(struct compiler *compiler, const char *key, size_t index,
                            const char *sub)
{
    compiler->key = key;
    compiler->index = index;
    compiler->sub = sub;
}

static int match_config_compile_pattern(struct compiler *compiler, const char *text,
                                        pcre2_code **ret)
{
    char why[BR_REGEX_WHY_SIZE];
    int rc = br_regex_compile(&compiler->matcher->regex, text, ret, why);
    return rc == BR_EINVAL
               ? match_config_wrong(compiler, "is not a valid regular expression: %s", why)
               : rc;
}

static int match_config_compile_texts(struct compiler *compiler, const char *const *values,
                                      size_t count, struct br_matcher_texts *ret)
{
    *ret = (struct br_matcher_texts){.texts = values};
    ret->lens = br_arena_calloc(compiler->arena, count, sizeof *ret->lens);
    ret->patterns =
        compiler->regexp ? br_arena_calloc(compiler->arena, count, sizeof(pcre2_code *)) : NULL;
    if (!ret->lens || (compiler->regexp && !ret->patterns))
        return BR_ENOMEM;
    ret->count = count;
    for (size_t i = 0; i < count; i++)
        ret->lens[i] = strlen(values[i]);
    return 0;
}

static int match_config_compile_list(struct compiler *compiler, const struct br_strings *list,
                                     const char *key, struct br_matcher_texts *ret)
{
    int rc = match_config_compile_texts(compiler, list->items, list->count, ret);
    for (size_t i = 0; i < list->count && !rc && compiler->regexp; i++) {
        match_config_at(compiler, key, i, NULL);
        rc = match_config_compile_pattern(compiler, list->items[i], &ret->patterns[i]);
    }
    return rc;
}

/* Compiles one text. The text must exist as long as the matcher. */
static int match_config_compile_text(struct compiler *compiler, const char *text,
                                     struct br_matcher_texts *ret)
{
    const char **v = br_arena_alloc(compiler->arena, sizeof *v);
    if (!v)
        return BR_ENOMEM;
    *v = text;
    int rc = match_config_compile_texts(compiler, v, 1, ret);
    return rc || !compiler->regexp
               ? rc
               : match_config_compile_pattern(compiler, text, &ret->patterns[0]);
}

static int match_config_compile_attribute(struct compiler *compiler,
                                          const struct br_match_attribute *left,
                                          struct br_matcher_attribute *ret)
{
    const struct br_yaml *value =
        left->value && left->value->type != BR_YAML_NULL ? left->value : NULL;
    *ret = (struct br_matcher_attribute){
        .key = left->key, .key_len = strlen(left->key), .has_value = value != NULL};
    if (!value)
        return 0;
    if (!br_value_from_yaml(value, compiler->arena, &ret->value))
        return BR_ENOMEM;
    if (!compiler->regexp)
        return 0;
    if (br_any_read(ret->value).type != BR_VALUE_STRING)
        return match_config_wrong(compiler,
                                  "must be a text if match_type is regexp; put it in quotes");
    return match_config_compile_text(compiler, value->text, &ret->pattern);
}

static int match_config_compile_attributes(struct compiler *compiler, const struct br_structs *list,
                                           const char *key, struct br_matcher_attributes *ret)
{
    const struct br_match_attribute *attribute = list->items;
    ret->attributes = br_arena_calloc(compiler->arena, list->count, sizeof *ret->attributes);
    int rc = ret->attributes ? 0 : BR_ENOMEM;
    for (size_t i = 0; i < list->count && !rc; i++) {
        /* the count is set before the pattern is compiled, so that the pattern is released after
         * a failure */
        ret->count = i + 1;
        match_config_at(compiler, key, i, "value");
        rc = match_config_compile_attribute(compiler, &attribute[i], &ret->attributes[i]);
    }
    return rc;
}

static int match_config_compile_libraries(struct compiler *compiler, const struct br_structs *list,
                                          struct br_match *ret)
{
    const struct br_match_library *v = list->items;
    ret->libraries = br_arena_calloc(compiler->arena, list->count, sizeof *ret->libraries);
    int rc = ret->libraries ? 0 : BR_ENOMEM;
    for (size_t i = 0; i < list->count && !rc; i++) {
        ret->n_libraries = i + 1;
        match_config_at(compiler, "libraries", i, "name");
        rc = match_config_compile_text(compiler, v[i].name, &ret->libraries[i].name);
        match_config_at(compiler, "libraries", i, rc ? "name" : "version");
        if (!rc && v[i].version)
            rc = match_config_compile_text(compiler, v[i].version, &ret->libraries[i].version);
    }
    return rc;
}

static int match_config_check_kinds(struct compiler *compiler, const struct br_strings *kinds)
{
    for (size_t i = 0; i < kinds->count && !compiler->regexp; i++) {
        size_t k = 1;
        match_config_at(compiler, "span_kinds", i, NULL);
        while (k < BR_SPAN_KINDS && strcmp(kinds->items[i], br_span_kinds[k]) != 0)
            k++;
        if (k == BR_SPAN_KINDS)
            return match_config_wrong(
                compiler, "must be SPAN_KIND_INTERNAL, SPAN_KIND_SERVER, SPAN_KIND_CLIENT, "
                          "SPAN_KIND_PRODUCER or SPAN_KIND_CONSUMER");
    }
    return 0;
}

static int match_config_compile(struct compiler *compiler, const struct br_match_config *config,
                                struct br_match *ret)
{
    compiler->regexp = config->match_type == BR_MATCH_REGEXP;
    bool has_names = config->services.count || config->span_names.count ||
                     config->span_kinds.count || config->sample_types.count ||
                     config->functions.count;
    bool has_maps = config->attributes.count || config->resources.count || config->libraries.count;
    if (!has_names && !has_maps)
        return match_config_wrong(compiler,
                                  "has no criterion, such as services, attributes or resources");
    int rc = match_config_check_kinds(compiler, &config->span_kinds);
    if (!rc)
        rc = match_config_compile_list(compiler, &config->services, "services", &ret->services);
    if (!rc)
        rc = match_config_compile_list(compiler, &config->span_names, "span_names",
                                       &ret->span_names);
    if (!rc)
        rc = match_config_compile_list(compiler, &config->span_kinds, "span_kinds",
                                       &ret->span_kinds);
    if (!rc)
        rc = match_config_compile_list(compiler, &config->sample_types, "sample_types",
                                       &ret->sample_types);
    if (!rc)
        rc = match_config_compile_list(compiler, &config->functions, "functions", &ret->functions);
    if (!rc)
        rc = match_config_compile_attributes(compiler, &config->attributes, "attributes",
                                             &ret->attributes);
    if (!rc)
        rc = match_config_compile_attributes(compiler, &config->resources, "resources",
                                             &ret->resources);
    return rc ? rc : match_config_compile_libraries(compiler, &config->libraries, ret);
}

static int match_config_make(struct compiler *compiler, const struct br_match_config *config,
                             struct br_match **ret)
{
    if (!config)
        return 0;
    *ret = br_arena_calloc(compiler->arena, 1, sizeof **ret);
    return *ret ? match_config_compile(compiler, config, *ret) : BR_ENOMEM;
}

int br_matcher_init(struct br_matcher *matcher, const struct br_match_config *include,
                    const struct br_match_config *exclude, struct br_arena *arena,
                    struct br_err *err)
{
    struct compiler compiler = {.matcher = matcher, .arena = arena};
    int rc = match_config_make(&compiler, include, &matcher->matches[0]);
    if (!rc)
        rc = match_config_make(&compiler, exclude, &matcher->matches[1]);
    if (!rc)
        rc = br_regex_ready(&matcher->regex);
    if (rc == BR_EINVAL)
        return br_err_set(err, rc, "%s %s", compiler.key ? compiler.key : "", compiler.text);
    return rc ? br_err_set(err, rc, "out of memory") : 0;
}

static int match_config_report(const struct compiler *compiler, const struct br_yaml *node,
                               const char *path, struct br_errs *errs)
{
    char where[256];
    if (!compiler->key)
        return br_errs_add(errs, node, path, "%s", compiler->text);
    const struct br_yaml *list = br_yaml_get(node, compiler->key), *element = list;
    if (list && list->type == BR_YAML_SEQ && compiler->index < list->count)
        element = list->items[compiler->index];
    const struct br_yaml *value =
        compiler->sub && element ? br_yaml_get(element, compiler->sub) : NULL;
    (void)snprintf(where, sizeof where, "%s::%s[%zu]%s%s", path, compiler->key, compiler->index,
                   compiler->sub ? "::" : "", compiler->sub ? compiler->sub : "");
    const struct br_yaml *at = element ? element : node;
    return br_errs_add(errs, value ? value : at, where, "%s", compiler->text);
}

static int match_config_check(const struct br_match_config *match_config,
                              const struct br_yaml *node, const char *path, const char *name,
                              struct br_arena *arena, struct br_errs *errs)
{
    struct br_matcher matcher = {0};
    struct compiler compiler = {.matcher = &matcher, .arena = arena};
    const struct br_yaml *at = br_yaml_get(node, name);
    const char *where = br_arena_printf(arena, "%s::%s", path, name);
    int rc = where ? match_config_make(&compiler, match_config, &matcher.matches[0]) : BR_ENOMEM;
    br_matcher_release(&matcher);
    if (rc != BR_EINVAL)
        return rc;
    return match_config_report(&compiler, at ? at : node, where, errs);
}

int br_match_check(const struct br_match_config *include, const struct br_match_config *exclude,
                   const struct br_yaml *node, const char *path, struct br_arena *arena,
                   struct br_errs *errs)
{
    int rc = match_config_check(include, node, path, "include", arena, errs);
    if (rc == BR_ENOMEM)
        return rc;
    int more = match_config_check(exclude, node, path, "exclude", arena, errs);
    return more ? more : rc;
}

/* --- Releasing ------------------------------------------------------------------------------- */

static void match_config_release_texts(const struct br_matcher_texts *match_texts)
{
    for (size_t i = 0; i < match_texts->count && match_texts->patterns; i++)
        pcre2_code_free(match_texts->patterns[i]);
}

static void match_config_release_attributes(const struct br_matcher_attributes *left)
{
    for (size_t i = 0; i < left->count; i++)
        match_config_release_texts(&left->attributes[i].pattern);
}

static void match_config_release(const struct br_match *match)
{
    match_config_release_texts(&match->services);
    match_config_release_texts(&match->span_names);
    match_config_release_texts(&match->span_kinds);
    match_config_release_texts(&match->sample_types);
    match_config_release_texts(&match->functions);
    match_config_release_attributes(&match->attributes);
    match_config_release_attributes(&match->resources);
    for (size_t i = 0; i < match->n_libraries; i++) {
        match_config_release_texts(&match->libraries[i].name);
        match_config_release_texts(&match->libraries[i].version);
    }
}

void br_matcher_release(struct br_matcher *matcher)
{
    for (int i = 0; i < BR_MATCHES; i++)
        if (matcher->matches[i])
            match_config_release(matcher->matches[i]);
    br_regex_release(&matcher->regex);
    br_attributes_release(&matcher->list);
    br_attributes_release(&matcher->common);
    br_arena_release(&matcher->arena);
    *matcher = (struct br_matcher){0};
}
