/* SPDX-License-Identifier: Apache-2.0 */
#include "extensions/query/selection.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "query/id.h"

#define SHOWN 64
#define MATCHERS_MAX 128

bool query_job_may_continue(struct query_job *job)
{
    if (!query_job_is_stopped(job))
        return true;
    if (!job->store->cut)
        job->store->cut = "the query took longer than query_timeout";
    return false;
}

/* Makes room for one more entry in an array in the job's arena. */
static int selection_grow(struct query_job *job, void *items, size_t *cap, size_t count,
                          size_t size, size_t max)
{
    void **array = items;
    if (count < *cap)
        return 0;
    if (count >= max)
        return BR_EINVAL;
    size_t more = *cap ? *cap * 2 : 16;
    void *grown = br_arena_calloc(&job->arena, more, size);
    if (!grown)
        return br_arena_why(&job->arena);
    if (count)
        memcpy(grown, *array, count * size);
    *array = grown;
    *cap = more;
    return 0;
}

static int selection_too_many(struct br_err *err)
{
    return br_err_set(err, BR_EINVAL, "more than %d ids in one query", QUERY_IDS_MAX);
}

int query_selection_add_span(struct query_job *job, struct query_selection *selection,
                             uint64_t span_id)
{
    int rc = selection_grow(job, &selection->span_ids, &selection->cap_span_ids,
                            selection->n_span_ids, sizeof *selection->span_ids, QUERY_IDS_MAX);
    if (!rc)
        selection->span_ids[selection->n_span_ids++] = span_id;
    return rc;
}

int query_selection_add_trace(struct query_job *job, struct query_selection *selection,
                              const uint8_t id[16])
{
    int rc = selection_grow(job, &selection->trace_ids, &selection->cap_trace_ids,
                            selection->n_trace_ids, sizeof *selection->trace_ids, QUERY_IDS_MAX);
    if (!rc)
        memcpy(selection->trace_ids[selection->n_trace_ids++], id, 16);
    return rc;
}

int query_selection_add_span_text(struct query_job *job, struct query_selection *selection,
                                  const char *text, size_t len, struct br_err *err)
{
    uint64_t id;
    if (!br_span_id_parse(text, len, &id))
        return br_err_set(err, BR_EINVAL,
                          "invalid span id \"%.*s\": must be 16 hex digits or base64",
                          (int)(len < SHOWN ? len : SHOWN), text);
    int rc = query_selection_add_span(job, selection, id);
    return rc == BR_EINVAL ? selection_too_many(err) : rc;
}

int query_selection_add_trace_text(struct query_job *job, struct query_selection *selection,
                                   const char *text, size_t len, struct br_err *err)
{
    uint8_t id[16];
    if (!br_id_parse(text, len, id, sizeof id))
        return br_err_set(err, BR_EINVAL,
                          "invalid trace id \"%.*s\": must be 32 hex digits or base64",
                          (int)(len < SHOWN ? len : SHOWN), text);
    int rc = query_selection_add_trace(job, selection, id);
    return rc == BR_EINVAL ? selection_too_many(err) : rc;
}

static int selection_add_ids(struct query_job *job, struct query_selection *selection,
                             const struct br_matcher *matcher, bool traces, struct br_err *err)
{
    if (matcher->type != BR_MATCH_EQUAL && matcher->type != BR_MATCH_REGEX)
        return br_err_set(err, BR_EINVAL, "%s can only be matched with = and =~", matcher->name);
    for (const char *p = matcher->value;; p++) {
        size_t len = strcspn(p, "|");
        int rc = traces ? query_selection_add_trace_text(job, selection, p, len, err)
                        : query_selection_add_span_text(job, selection, p, len, err);
        p += len;
        if (rc || !*p)
            return rc;
    }
}

void query_profile_print(const struct query_profile *profile, char ret[QUERY_PROFILE_ID])
{
    uint64_t first = profile->source, second = profile->time_ns;
    (void)snprintf(ret, QUERY_PROFILE_ID,
                   "%08" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%012" PRIx64,
                   first >> 32, first >> 16 & 0xffff, first & 0xffff, second >> 48,
                   second & 0xffffffffffff);
}

int query_selection_add_profile_text(struct query_job *job, struct query_selection *selection,
                                     const char *text, size_t len, struct br_err *err)
{
    char digits[2 * 16 + 1];
    uint8_t bytes[16];
    size_t n_digits = 0;
    for (size_t i = 0; i < len && n_digits < sizeof digits; i++)
        if (text[i] != '-')
            digits[n_digits++] = text[i];
    if (n_digits != 32 || br_hex_decode(digits, n_digits, bytes, sizeof bytes) != 16)
        return br_err_set(err, BR_EINVAL, "invalid profile id \"%.*s\": must be a UUID",
                          (int)(len < 64 ? len : 64), text);
    int rc = selection_grow(job, &selection->profiles, &selection->cap_profiles,
                            selection->n_profiles, sizeof *selection->profiles, QUERY_IDS_MAX);
    if (rc)
        return rc == BR_EINVAL ? br_err_set(err, rc, "too many profile ids") : rc;
    struct query_profile *profile = &selection->profiles[selection->n_profiles++];
    *profile = (struct query_profile){0};
    for (int i = 0; i < 8; i++) {
        profile->source = profile->source << 8 | bytes[i];
        profile->time_ns = profile->time_ns << 8 | bytes[8 + i];
    }
    return 0;
}

int query_selection_add_matcher(struct query_job *job, struct query_selection *selection,
                                const struct br_matcher *matcher, struct br_err *err)
{
    struct br_matcher named = *matcher;
    bool traces = !strcmp(matcher->name, "trace_id");
    if (traces || !strcmp(matcher->name, "span_id") || !strcmp(matcher->name, "profile_id"))
        return selection_add_ids(job, selection, matcher, traces, err);
    int rc = selection_grow(job, &selection->matchers, &selection->cap_matchers,
                            selection->n_matchers, sizeof *selection->matchers, MATCHERS_MAX);
    if (rc)
        return rc == BR_EINVAL ? br_err_set(err, rc, "too many matchers") : rc;
    if (!strcmp(named.name, "__service_name__"))
        named.name = "service_name";
    selection->matchers[selection->n_matchers++] = named;
    return 0;
}

int query_selection_add_selector(struct query_job *job, struct query_selection *selection,
                                 const char *text, size_t len, struct br_err *err)
{
    struct br_selector selector;
    int rc = br_selector_parse(text, len, &job->arena, &selector, err);
    for (size_t i = 0; !rc && i < selector.n_matchers; i++)
        rc = query_selection_add_matcher(job, selection, &selector.matchers[i], err);
    return rc;
}

int query_selection_set_type(struct query_job *job, struct query_selection *selection,
                             const char *text, size_t len, struct br_err *err)
{
    return br_profile_type_parse(text, len, &job->arena, &selection->type, err);
}

int query_selection_add_query(struct query_job *job, struct query_selection *selection,
                              const char *text, size_t len, struct br_err *err)
{
    const char *brace = memchr(text, '{', len);
    size_t name_len = brace ? (size_t)(brace - text) : len;
    struct br_matcher service = {.name = "service_name", .type = BR_MATCH_EQUAL};
    int rc = 0;
    for (; name_len && text[name_len - 1] == ' '; name_len--)
        continue;
    for (; name_len && *text == ' '; name_len--, len--)
        text++;
    if (name_len && memchr(text, ':', name_len)) {
        rc = query_selection_set_type(job, selection, text, name_len, err);
    } else if (name_len) {
        rc =
            br_profile_type_app(text, name_len, &job->arena, &selection->type, &service.value, err);
        if (!rc)
            rc = query_selection_add_matcher(job, selection, &service, err);
    }
    if (!rc && brace)
        rc = query_selection_add_selector(job, selection, brace, (size_t)(text + len - brace), err);
    return rc;
}

/* Makes a matcher for a profile type whose id has three parts. The matcher accepts any period. */
static int selection_match_type(struct query_job *job, const char *id, struct br_matcher *ret)
{
    char *pattern = br_arena_alloc(&job->arena, 2 * strlen(id) + sizeof ":.*");
    if (!pattern)
        return br_arena_why(&job->arena);
    char *end = pattern;
    for (; *id; id++) {
        if (strchr("\\^$.|?*+()[]{}", *id))
            *end++ = '\\';
        *end++ = *id;
    }
    memcpy(end, ":.*", sizeof ":.*");
    *ret = (struct br_matcher){"__profile_type__", pattern, BR_MATCH_REGEX};
    return 0;
}

static bool selection_on_series(const struct br_stored_series *series, void *arg)
{
    (void)series;
    *(bool *)arg = true;
    return false;
}

/* Changes matchers of the label `span_name` to matchers of `span.name` if no series has the
 * label `span_name`. SDKs write the label `span_name`, and the processor join writes
 * `span.name`. */
static int selection_name_spans(struct query_job *job, const struct br_sample_filter *filter,
                                struct br_matcher *matchers)
{
    int rc = 0;
    for (size_t i = 0; i < filter->n_matchers && !rc; i++) {
        const struct br_matcher original = matchers[i];
        bool found = false;
        if (strcmp(original.name, "span_name") != 0)
            continue;
        matchers[i] = (struct br_matcher){original.name, "", BR_MATCH_NOT_EQUAL};
        rc = br_store_series(job->store, filter, selection_on_series, &found, NULL);
        matchers[i] = original;
        matchers[i].name = found ? original.name : "span.name";
    }
    return rc;
}

int query_selection_filter(struct query_job *job, const struct query_selection *selection,
                           struct br_sample_filter *ret)
{
    struct br_matcher *matchers =
        br_arena_calloc(&job->arena, selection->n_matchers + 1, sizeof *matchers);
    size_t n_matchers = selection->n_matchers;
    int rc = matchers ? 0 : br_arena_why(&job->arena);
    if (!rc && n_matchers)
        memcpy(matchers, selection->matchers, n_matchers * sizeof *matchers);
    if (!rc && selection->type.id && !selection->type.whole)
        rc = selection_match_type(job, selection->type.id, &matchers[n_matchers++]);
    if (!rc)
        *ret = (struct br_sample_filter){.from_ns = selection->from_ns,
                                         .until_ns = selection->until_ns,
                                         .spans_together = selection->spans_together,
                                         .type = selection->type.whole ? selection->type.id : NULL,
                                         .matchers = matchers,
                                         .n_matchers = n_matchers,
                                         .span_ids = selection->span_ids,
                                         .n_span_ids = selection->n_span_ids,
                                         .trace_ids = (const uint8_t(*)[16])selection->trace_ids,
                                         .n_trace_ids = selection->n_trace_ids,
                                         .call_site = selection->call_site,
                                         .n_call_site = selection->n_call_site};
    return rc ? rc : selection_name_spans(job, ret, matchers);
}

static int selection_place_frameless(const struct query_selection *selection,
                                     struct br_flame *flame)
{
    int64_t *self = &flame->nodes[0].self[flame->side], value = *self;
    uint32_t name, child;
    int rc = 0;
    *self = 0;
    if (value && !selection->as_pyroscope) {
        rc = br_flame_name(flame, QUERY_NO_STACK, NULL, &name);
        if (!rc)
            rc = br_flame_child(flame, 0, name, &child);
        br_flame_add(flame, rc ? 0 : child, value);
    }
    return rc == BR_EFULL ? 0 : rc;
}

static bool selection_has_source(const struct br_stored_series *series, void *arg)
{
    return series->source == *(const uint64_t *)arg;
}

/* Adds the stacks of the selected profiles that are in the time range. */
static int selection_flame_profiles(struct query_job *job, const struct query_selection *selection,
                                    const struct br_sample_filter *filter, struct br_flame *flame,
                                    struct br_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < selection->n_profiles && !rc && query_job_may_continue(job); i++) {
        struct query_profile *profile = &selection->profiles[i];
        struct br_sample_filter one = *filter;
        if (profile->time_ns < filter->from_ns ||
            (filter->until_ns && profile->time_ns >= filter->until_ns))
            continue;
        one.from_ns = profile->time_ns;
        one.until_ns = profile->time_ns + 1;
        one.select_series = selection_has_source;
        one.select_arg = &profile->source;
        rc = br_store_flame(job->store, &one, flame, err);
    }
    return rc;
}

bool query_selection_is_average(const struct query_selection *selection)
{
    return !selection->as_pyroscope && !selection->n_profiles && selection->type.id &&
           br_profile_type_is_gauge(&selection->type);
}

int query_selection_flame(struct query_job *job, const struct query_selection *selection,
                          struct br_flame *flame, struct br_err *err)
{
    struct br_sample_filter filter;
    int rc = query_selection_filter(job, selection, &filter);
    if (!rc && selection->n_profiles)
        rc = selection_flame_profiles(job, selection, &filter, flame, err);
    else if (!rc && query_selection_is_average(selection))
        rc = query_average_flame(job, &filter, flame, err);
    else if (!rc)
        rc = br_store_flame(job->store, &filter, flame, err);
    return rc ? rc : selection_place_frameless(selection, flame);
}

int query_selection_flame_by_name(struct query_job *job, const struct query_selection *selection,
                                  struct br_flame *flame, struct br_err *err)
{
    struct query_selection stacks = *selection;
    struct br_flame whole;
    int rc = br_flame_init(&whole, QUERY_FLAME_NODES_MAX);
    if (rc)
        return rc;
    stacks.as_pyroscope = true;
    whole.side = flame->side;
    rc = query_selection_flame(job, &stacks, &whole, err);
    if (!rc)
        rc = br_flame_merge(flame, &whole, false, 1);
    br_flame_release(&whole);
    return rc;
}

int query_selection_samples(struct query_job *job, const struct query_selection *selection,
                            uint64_t step_ns, br_samples_fn *fn, void *arg, struct br_err *err)
{
    struct br_sample_filter filter;
    int rc = query_selection_filter(job, selection, &filter);
    return rc ? rc : br_store_samples(job->store, &filter, step_ns, fn, arg, err);
}
