/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/join_table_rig.h"

#include "tests/support/join_enter.h"
#include "tests/support/test.h"

static void put64(uint8_t *out, uint64_t v)
{
    memcpy(out, &v, 8);
}

/* Makes an id that looks random, like the ids of SDKs. Consecutive numbers as ids would be
 * distributed less evenly in the table. Different numbers give different ids, and 0 gives 0. */
static uint64_t look_random(uint64_t n)
{
    n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9u;
    n = (n ^ n >> 27) * 0x94d049bb133111ebu;
    return n ^ n >> 31;
}

struct ids table_rig_ids(uint64_t trace, uint64_t span)
{
    struct ids i = {.trace = {0xaa}};
    put64(i.trace + 8, trace);
    put64(i.span, look_random(span));
    return i;
}

void table_rig_on_found(void *arg, const struct join_span *span)
{
    struct seen *s = arg;
    s->n++;
    (void)snprintf(s->name, sizeof s->name, "%.*s", (int)span->name_len, (const char *)span->name);
    (void)snprintf(s->service, sizeof s->service, "%.*s", (int)span->service_len,
                   (const char *)span->service);
    (void)snprintf(s->attributes, sizeof s->attributes, "%.*s", (int)span->attributes_len,
                   (const char *)span->attributes);
    s->has_trace = span->trace_id != NULL;
    if (span->trace_id)
        memcpy(s->trace, span->trace_id, 16);
    memcpy(s->id, span->span_id, 8);
    s->has_parent = span->parent_id != NULL;
    if (span->parent_id)
        memcpy(s->parent, span->parent_id, 8);
    s->start = span->start_ns;
    s->end = span->end_ns;
    s->kind = span->kind;
    s->status = span->status;
}

struct join_span table_rig_span(const struct ids *i, const char *name)
{
    return (struct join_span){.trace_id = i->trace,
                              .span_id = i->span,
                              .name = (const uint8_t *)name,
                              .name_len = strlen(name),
                              .service = (const uint8_t *)"shop",
                              .service_len = 4};
}

void table_rig_enter(struct join_table *t, uint64_t trace, uint64_t span, const char *name,
                     uint64_t now, struct join_tally *tally)
{
    struct ids i = table_rig_ids(trace, span);
    struct join_span s = table_rig_span(&i, name);
    enter_spans(t, &s, 1, 0, NULL, now, tally);
}

enum join_result table_rig_sample_of_type(struct join_table *t, const uint8_t *trace,
                                          const uint8_t *span, uint16_t type, uint64_t now,
                                          struct seen *seen, struct join_tally *tally)
{
    struct join_sample s = {.trace_id = trace,
                            .span_id = span,
                            .measure = JOIN_CPU_TIME,
                            .time_ns = 10,
                            .count = 1,
                            .type = type};
    struct seen unused = {0};
    return join_table_sample(t, &s, true, now, table_rig_on_found, seen ? seen : &unused, tally);
}

enum join_result table_rig_sample(struct join_table *t, uint64_t trace, uint64_t span, uint64_t now,
                                  struct seen *seen, struct join_tally *tally)
{
    struct ids i = table_rig_ids(trace, span);
    return table_rig_sample_of_type(t, trace ? i.trace : NULL, i.span, 1, now, seen, tally);
}

enum join_result table_rig_look(struct join_table *t, uint64_t trace, uint64_t span, uint64_t now,
                                struct seen *seen)
{
    struct ids i = table_rig_ids(trace, span);
    struct join_sample s = {.trace_id = trace ? i.trace : NULL, .span_id = i.span};
    struct join_tally tally = {0};
    enum join_result r = join_table_sample(t, &s, false, now, table_rig_on_found, seen, &tally);
    assert_false(tally.any);
    return r;
}

uint64_t table_rig_sum(const uint64_t *by_type)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < JOIN_TYPES; i++)
        n += by_type[i];
    return n;
}

struct join_stats table_rig_stats(struct join_table *t, uint64_t now)
{
    struct join_stats s;
    join_table_stats(t, now, &s);
    return s;
}

bool table_rig_shared;

struct join_table *table_rig_new(size_t bytes)
{
    struct join_table *t = join_table_new(bytes, WINDOW_MS, 0, false, table_rig_shared);
    assert_non_null(t);
    return t;
}

const char *table_rig_way(unsigned way)
{
    static const char *const ways[] = {"one thread", "shared"};
    table_rig_shared = way == 1;
    return way < 2 ? ways[way] : NULL;
}
