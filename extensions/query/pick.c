/* SPDX-License-Identifier: Apache-2.0 */
#include "extensions/query/pick.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "extensions/query/average.h"
#include "query/id.h"

#define SHOWN 64
#define MATCHERS_MAX 128

bool query_pick_goes_on(struct query_job *job)
{
    if (!query_job_is_stopped(job))
        return true;
    if (!job->store->cut)
        job->store->cut = "the query took longer than query_timeout";
    return false;
}

/* Room for one more, in the arena. */
static int pick_grow(struct query_job *job, void *items, size_t *cap, size_t count, size_t size,
                     size_t max)
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

static int pick_too_many(struct br_err *err)
{
    return br_err_set(err, BR_EINVAL, "more than %d ids in one query", QUERY_IDS_MAX);
}

int query_pick_add_span(struct query_job *job, struct query_pick *pick, uint64_t span_id)
{
    int rc = pick_grow(job, &pick->span_ids, &pick->cap_span_ids, pick->n_span_ids,
                       sizeof *pick->span_ids, QUERY_IDS_MAX);
    if (!rc)
        pick->span_ids[pick->n_span_ids++] = span_id;
    return rc;
}

int query_pick_add_trace(struct query_job *job, struct query_pick *pick, const uint8_t id[16])
{
    int rc = pick_grow(job, &pick->trace_ids, &pick->cap_trace_ids, pick->n_trace_ids,
                       sizeof *pick->trace_ids, QUERY_IDS_MAX);
    if (!rc)
        memcpy(pick->trace_ids[pick->n_trace_ids++], id, 16);
    return rc;
}

int query_pick_add_span_text(struct query_job *job, struct query_pick *pick, const char *text,
                             size_t len, struct br_err *err)
{
    uint64_t id;
    if (!br_span_id_parse(text, len, &id))
        return br_err_set(err, BR_EINVAL,
                          "invalid span id \"%.*s\": must be 16 hex digits, or base64",
                          (int)(len < SHOWN ? len : SHOWN), text);
    int rc = query_pick_add_span(job, pick, id);
    return rc == BR_EINVAL ? pick_too_many(err) : rc;
}

int query_pick_add_trace_text(struct query_job *job, struct query_pick *pick, const char *text,
                              size_t len, struct br_err *err)
{
    uint8_t id[16];
    if (!br_id_parse(text, len, id, sizeof id))
        return br_err_set(err, BR_EINVAL,
                          "invalid trace id \"%.*s\": must be 32 hex digits, or base64",
                          (int)(len < SHOWN ? len : SHOWN), text);
    int rc = query_pick_add_trace(job, pick, id);
    return rc == BR_EINVAL ? pick_too_many(err) : rc;
}

static int pick_add_ids(struct query_job *job, struct query_pick *pick,
                        const struct br_matcher *matcher, bool traces, struct br_err *err)
{
    if (matcher->type != BR_MATCH_EQUAL && matcher->type != BR_MATCH_REGEX)
        return br_err_set(err, BR_EINVAL, "%s can be matched with = and =~ only", matcher->name);
    for (const char *p = matcher->value;; p++) {
        size_t len = strcspn(p, "|");
        int rc = traces ? query_pick_add_trace_text(job, pick, p, len, err)
                        : query_pick_add_span_text(job, pick, p, len, err);
        p += len;
        if (rc || !*p)
            return rc;
    }
}

void query_pick_print_profile(const struct query_profile *profile, char ret[QUERY_PROFILE_ID])
{
    uint64_t first = profile->source, second = profile->time_ns;
    (void)snprintf(ret, QUERY_PROFILE_ID,
                   "%08" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%012" PRIx64,
                   first >> 32, first >> 16 & 0xffff, first & 0xffff, second >> 48,
                   second & 0xffffffffffff);
}

int query_pick_add_profile_text(struct query_job *job, struct query_pick *pick, const char *text,
                                size_t len, struct br_err *err)
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
    int rc = pick_grow(job, &pick->profiles, &pick->cap_profiles, pick->n_profiles,
                       sizeof *pick->profiles, QUERY_IDS_MAX);
    if (rc)
        return rc == BR_EINVAL ? br_err_set(err, rc, "too many profile ids") : rc;
    struct query_profile *profile = &pick->profiles[pick->n_profiles++];
    *profile = (struct query_profile){0};
    for (int i = 0; i < 8; i++) {
        profile->source = profile->source << 8 | bytes[i];
        profile->time_ns = profile->time_ns << 8 | bytes[8 + i];
    }
    return 0;
}

int query_pick_add_matcher(struct query_job *job, struct query_pick *pick,
                           const struct br_matcher *matcher, struct br_err *err)
{
    struct br_matcher named = *matcher;
    bool traces = !strcmp(matcher->name, "trace_id");
    if (traces || !strcmp(matcher->name, "span_id") || !strcmp(matcher->name, "profile_id"))
        return pick_add_ids(job, pick, matcher, traces, err);
    int rc = pick_grow(job, &pick->matchers, &pick->cap_matchers, pick->n_matchers,
                       sizeof *pick->matchers, MATCHERS_MAX);
    if (rc)
        return rc == BR_EINVAL ? br_err_set(err, rc, "too many matchers") : rc;
    if (!strcmp(named.name, "__service_name__"))
        named.name = "service_name";
    pick->matchers[pick->n_matchers++] = named;
    return 0;
}

int query_pick_add_selector(struct query_job *job, struct query_pick *pick, const char *text,
                            size_t len, struct br_err *err)
{
    struct br_selector selector;
    int rc = br_selector_parse(text, len, &job->arena, &selector, err);
    for (size_t i = 0; !rc && i < selector.n_matchers; i++)
        rc = query_pick_add_matcher(job, pick, &selector.matchers[i], err);
    return rc;
}

int query_pick_set_type(struct query_job *job, struct query_pick *pick, const char *text,
                        size_t len, struct br_err *err)
{
    return br_profile_type_parse(text, len, &job->arena, &pick->type, err);
}

int query_pick_add_query(struct query_job *job, struct query_pick *pick, const char *text,
                         size_t len, struct br_err *err)
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
        rc = query_pick_set_type(job, pick, text, name_len, err);
    } else if (name_len) {
        rc = br_profile_type_app(text, name_len, &job->arena, &pick->type, &service.value, err);
        if (!rc)
            rc = query_pick_add_matcher(job, pick, &service, err);
    }
    if (!rc && brace)
        rc = query_pick_add_selector(job, pick, brace, (size_t)(text + len - brace), err);
    return rc;
}

/* Matches a type of three parts: whatever period there is. */
static int pick_match_type(struct query_job *job, const char *id, struct br_matcher *ret)
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

static bool pick_on_series(const struct br_stored_series *series, void *arg)
{
    (void)series;
    *(bool *)arg = true;
    return false;
}

/* SDKs label samples `span_name`, the join names them `span.name`: who asks for the first means the
 * second where there is no such label. */
static int pick_name_spans(struct query_job *job, const struct br_sample_filter *filter,
                           struct br_matcher *matchers)
{
    int rc = 0;
    for (size_t i = 0; i < filter->n_matchers && !rc; i++) {
        const struct br_matcher asked = matchers[i];
        bool found = false;
        if (strcmp(asked.name, "span_name") != 0)
            continue;
        matchers[i] = (struct br_matcher){asked.name, "", BR_MATCH_NOT_EQUAL};
        rc = br_store_series(job->store, filter, pick_on_series, &found, NULL);
        matchers[i] = asked;
        matchers[i].name = found ? asked.name : "span.name";
    }
    return rc;
}

int query_pick_filter(struct query_job *job, const struct query_pick *pick,
                      struct br_sample_filter *ret)
{
    struct br_matcher *matchers =
        br_arena_calloc(&job->arena, pick->n_matchers + 1, sizeof *matchers);
    size_t n_matchers = pick->n_matchers;
    int rc = matchers ? 0 : br_arena_why(&job->arena);
    if (!rc && n_matchers)
        memcpy(matchers, pick->matchers, n_matchers * sizeof *matchers);
    if (!rc && pick->type.id && !pick->type.whole)
        rc = pick_match_type(job, pick->type.id, &matchers[n_matchers++]);
    if (!rc)
        *ret = (struct br_sample_filter){.from_ns = pick->from_ns,
                                         .until_ns = pick->until_ns,
                                         .spans_together = pick->spans_together,
                                         .type = pick->type.whole ? pick->type.id : NULL,
                                         .matchers = matchers,
                                         .n_matchers = n_matchers,
                                         .span_ids = pick->span_ids,
                                         .n_span_ids = pick->n_span_ids,
                                         .trace_ids = (const uint8_t(*)[16])pick->trace_ids,
                                         .n_trace_ids = pick->n_trace_ids,
                                         .call_site = pick->call_site,
                                         .n_call_site = pick->n_call_site};
    return rc ? rc : pick_name_spans(job, ret, matchers);
}

static int pick_place_frameless(const struct query_pick *pick, struct br_flame *flame)
{
    int64_t *self = &flame->nodes[0].self[flame->side], value = *self;
    uint32_t name, child;
    int rc = 0;
    *self = 0;
    if (value && !pick->as_pyroscope) {
        rc = br_flame_name(flame, QUERY_NO_STACK, NULL, &name);
        if (!rc)
            rc = br_flame_child(flame, 0, name, &child);
        br_flame_add(flame, rc ? 0 : child, value);
    }
    return rc == BR_EFULL ? 0 : rc;
}

static bool pick_has_source(const struct br_stored_series *series, void *arg)
{
    return series->source == *(const uint64_t *)arg;
}

/* Adds the stacks of each profile that is asked for and lies in the range. */
static int pick_flame_profiles(struct query_job *job, const struct query_pick *pick,
                               const struct br_sample_filter *filter, struct br_flame *flame,
                               struct br_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < pick->n_profiles && !rc && query_pick_goes_on(job); i++) {
        struct query_profile *profile = &pick->profiles[i];
        struct br_sample_filter one = *filter;
        if (profile->time_ns < filter->from_ns ||
            (filter->until_ns && profile->time_ns >= filter->until_ns))
            continue;
        one.from_ns = profile->time_ns;
        one.until_ns = profile->time_ns + 1;
        one.select_series = pick_has_source;
        one.select_arg = &profile->source;
        rc = br_store_flame(job->store, &one, flame, err);
    }
    return rc;
}

bool query_pick_is_average(const struct query_pick *pick)
{
    return !pick->as_pyroscope && !pick->n_profiles && pick->type.id &&
           br_profile_type_is_gauge(&pick->type);
}

int query_pick_flame(struct query_job *job, const struct query_pick *pick, struct br_flame *flame,
                     struct br_err *err)
{
    struct br_sample_filter filter;
    int rc = query_pick_filter(job, pick, &filter);
    if (!rc && pick->n_profiles)
        rc = pick_flame_profiles(job, pick, &filter, flame, err);
    else if (!rc && query_pick_is_average(pick))
        rc = query_average_flame(job, &filter, flame, err);
    else if (!rc)
        rc = br_store_flame(job->store, &filter, flame, err);
    return rc ? rc : pick_place_frameless(pick, flame);
}

int query_pick_flame_by_name(struct query_job *job, const struct query_pick *pick,
                             struct br_flame *flame, struct br_err *err)
{
    struct query_pick stacks = *pick;
    struct br_flame whole;
    int rc = br_flame_init(&whole, QUERY_FLAME_NODES_MAX);
    if (rc)
        return rc;
    stacks.as_pyroscope = true;
    whole.side = flame->side;
    rc = query_pick_flame(job, &stacks, &whole, err);
    if (!rc)
        rc = br_flame_merge(flame, &whole, false, 1);
    br_flame_release(&whole);
    return rc;
}

int query_pick_samples(struct query_job *job, const struct query_pick *pick, uint64_t step_ns,
                       br_samples_fn *fn, void *arg, struct br_err *err)
{
    struct br_sample_filter filter;
    int rc = query_pick_filter(job, pick, &filter);
    return rc ? rc : br_store_samples(job->store, &filter, step_ns, fn, arg, err);
}
