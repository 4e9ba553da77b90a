/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/build/build.h"

#include "base/err.h"
#include "base/mem.h"
#include "core/host.h"
#include "opentelemetry/proto/common/v1/common.pb-c.h"
#include "opentelemetry/proto/resource/v1/resource.pb-c.h"
#include "otlp/build/internal.h"
#include "otlp/fields.h"
#include "otlp/scan.h"
#include "otlp/walk/internal.h"

/* Messages are mostly of a size whose length takes three bytes; others move when they are closed.
 */
#define LIKELY_LEN 16384u

/* A builder that holds more gives back what finds entries before they are copied; nobody keeps one
 * that had grown so much. */
#define STRIPPED_MIN (1u << 20)

/* The fields of a Profile or Sample that are written once. */
#define PROFILE_FIXED 160u
#define SAMPLE_FIXED 64u

enum { REQUEST, RESOURCE, SCOPE, PROFILE }; /* br_build.depth */

struct br_build *br_build_new(struct br_host *host, size_t max_bytes)
{
    struct br_build *b = br_calloc(1, sizeof *b);
    if (b)
        br_merger_init(&b->m, host, max_bytes);
    return b;
}

void br_build_free(struct br_build *b)
{
    if (!b)
        return;
    br_merger_release(&b->m);
    br_free(b);
}

void br_build_clear(struct br_build *b)
{
    br_merger_clear(&b->m);
    b->mark = (struct br_merger_mark){0};
    b->depth = REQUEST;
}

size_t br_build_limit(struct br_build *b, size_t max_bytes)
{
    struct br_merge *m = &b->m;
    size_t before = m->budget.max;
    size_t max = max_bytes < m->max_bytes ? max_bytes : m->max_bytes;
    m->budget.max = max > m->budget.used ? max : m->budget.used;
    m->budget.moves = max < m->max_bytes;
    /* A guess by the last request must not take the room of this one's tables. */
    if (m->out_hint > (m->budget.max - m->budget.used) / 4)
        m->out_hint = 0;
    return before;
}

static size_t build_made(const struct br_budget *budget)
{
    const struct br_merge *m = br_container_of(budget, struct br_merge, budget);
    size_t made = m->out ? m->out->len : 0;
    for (unsigned t = 0; t < BR_TABLES; t++)
        made += m->tables[t].len;
    return made;
}

void br_build_follow(struct br_build *b, bool follows)
{
    struct br_budget *budget = &b->m.budget;
    budget->made = follows ? build_made : NULL;
    budget->made_before = build_made(budget);
    budget->granted = 0;
}

size_t br_build_granted(struct br_build *b)
{
    br_budget_widen(&b->m.budget);
    return b->m.budget.granted;
}

size_t br_build_take_size(const struct br_build *b)
{
    size_t size = 0, stripped = 0;
    for (unsigned t = 0; t < BR_TABLES; t++) {
        size += b->m.tables[t].len;
        stripped += br_intern_strippable(&b->m.tables[t]);
    }
    if (b->m.budget.used <= STRIPPED_MIN)
        return size;
    return size > stripped ? size - stripped : 0;
}

int br_build_rc(const struct br_build *b)
{
    return b->m.rc;
}

uint32_t br_build_items(const struct br_build *b)
{
    return b->m.n_items;
}

bool br_build_start(struct br_build *b)
{
    if (!b->m.rc && !b->m.tables[BR_TABLES - 1].n)
        br_merger_fail(&b->m, br_merger_begin(&b->m));
    return !b->m.rc;
}

static void close_to(struct br_build *b, unsigned depth)
{
    while (b->depth > depth) {
        b->depth--;
        if (b->depth == REQUEST)
            br_merger_close_part(&b->m, b->open[0]);
        else
            br_merger_close(&b->m, b->open[b->depth]);
    }
}

/* Closes what is open below `parent`, which has to be open. */
static bool enter(struct br_build *b, unsigned parent)
{
    if (!br_build_ready(b))
        return false;
    if (b->depth < parent) {
        br_merger_fail(&b->m, BR_EINVAL);
        return false;
    }
    close_to(b, parent);
    return !b->m.rc;
}

/* --- Resource and scope ----------------------------------------------------------------------- */

/* Messages that callers have encoded are put together in the scratch buffer, which may be read past
 * its end. */
static bool begin_encoded(struct br_build *b)
{
    if (!b->m.scratch)
        b->m.scratch = br_buf_new(b->m.host->pool, 0);
    if (!b->m.scratch) {
        br_merger_fail(&b->m, BR_ENOMEM);
        return false;
    }
    b->m.scratch->len = 0;
    return true;
}

static void put_encoded(struct br_build *b, const void *data, size_t len)
{
    int rc = br_buf_append(&b->m.scratch, data, len, b->m.max_bytes);
    br_merger_fail(&b->m, rc);
}

static void put_encoded_text(struct br_build *b, uint32_t field, const char *text)
{
    if (!text || !*text)
        return;
    uint8_t head[2 * BR_VARINT_MAX];
    size_t len = strlen(text);
    uint8_t *o = br_put_varint(head, BR_SCAN_LEN(field));
    put_encoded(b, head, (size_t)(br_put_varint(o, len) - head));
    put_encoded(b, text, len);
}

typedef bool walk_fn(struct br_walker *w, const uint8_t *p, const uint8_t *end, unsigned depth);

/* Validates the message in the scratch buffer, and repairs its strings. */
static void end_encoded(struct br_build *b, walk_fn *walk, const ProtobufCMessageDescriptor *desc)
{
    static const struct br_walk_options options = {.utf8 = BR_UTF8_REPAIR};
    struct br_walker w = {.options = &options, .max_depth = BR_WALK_DEPTH};
    struct br_buf *buf = b->m.scratch, *fixed;
    uint32_t n_repaired;
    if (b->m.rc)
        return;
    for (unsigned t = 0; t < BR_TABLES; t++)
        w.n_tables[t + 1] = b->m.tables[t].n;
    if (!walk(&w, buf->data, buf->data + buf->len, 3) || !br_walk_indices_fit(&w)) {
        br_merger_fail(&b->m, BR_EINVAL);
        return;
    }
    if (!w.bad_utf8)
        return;
    int rc = br_utf8_repair(desc, buf->data, buf->len, buf->pool, &fixed, &n_repaired);
    br_merger_fail(&b->m, rc);
    if (rc)
        return;
    br_buf_unref(buf);
    b->m.scratch = fixed;
}

void br_build_resource(struct br_build *b, const struct br_addition *attributes)
{
    struct br_part from = {.kind = BR_PART_RESOURCE};
    if (!enter(b, REQUEST))
        return;
    if (attributes && attributes->len) {
        if (!begin_encoded(b))
            return;
        put_encoded(b, attributes->data, attributes->len);
        end_encoded(b, br_walk_resource, &opentelemetry__proto__resource__v1__resource__descriptor);
        from.new_resource = b->m.scratch->data;
        from.new_resource_len = b->m.scratch->len;
    }
    b->open[REQUEST] = br_merger_open_part(&b->m, &from, LIKELY_LEN, false);
    b->depth = RESOURCE;
}

void br_build_scope(struct br_build *b, const char *name, const char *version,
                    const struct br_addition *attributes)
{
    if (!enter(b, RESOURCE) || !begin_encoded(b))
        return;
    put_encoded_text(b, BR_SCOPE_NAME, name);
    put_encoded_text(b, BR_SCOPE_VERSION, version);
    if (attributes)
        put_encoded(b, attributes->data, attributes->len);
    end_encoded(b, br_walk_scope,
                &opentelemetry__proto__common__v1__instrumentation_scope__descriptor);
    b->open[RESOURCE] = br_merger_open(&b->m, BR_RESOURCES_SCOPES, LIKELY_LEN);
    b->depth = SCOPE;
    if (b->m.scratch->len)
        br_merger_put_field(&b->m, BR_SCOPES_SCOPE, b->m.scratch->data, b->m.scratch->len);
}

/* --- Profile and samples ---------------------------------------------------------------------- */

static uint8_t *put_value_type(uint8_t *o, uint32_t field, uint32_t type, uint32_t unit)
{
    if (!type && !unit)
        return o;
    *o++ = (uint8_t)BR_SCAN_LEN(field);
    uint8_t *body = ++o;
    o = br_merger_put_scalar(o, BR_VALUE_TYPE_TYPE, type);
    o = br_merger_put_scalar(o, BR_VALUE_TYPE_UNIT, unit);
    return br_put_length_before(body, o);
}

static uint8_t *put_fixed64(uint8_t *o, uint32_t field, uint64_t v)
{
    if (v == 0)
        return o;
    *o++ = (uint8_t)BR_TAG(field, BR_WIRE_I64);
    return br_put_bytes(o, &v, sizeof v); /* little endian, as on the wire */
}

void br_build_profile(struct br_build *b, const struct br_build_profile *p)
{
    const uint32_t strings[] = {p->type, p->unit, p->period_type, p->period_unit};
    if (!enter(b, SCOPE) || !br_build_check(b, BR_TABLE_STRING, strings, 4) ||
        !br_build_check(b, BR_TABLE_ATTRIBUTE, p->attributes, p->n_attributes))
        return;
    b->open[SCOPE] = br_merger_open(&b->m, BR_SCOPES_ITEMS, LIKELY_LEN);
    b->depth = PROFILE;
    uint8_t *o = br_merger_room(&b->m, PROFILE_FIXED + 5 * p->n_attributes);
    if (!o)
        return;
    o = put_value_type(o, BR_PROFILE_SAMPLE_TYPE, p->type, p->unit);
    o = put_fixed64(o, BR_PROFILE_TIME, p->time_ns);
    o = br_merger_put_scalar(o, BR_PROFILE_DURATION, p->duration_ns);
    o = put_value_type(o, BR_PROFILE_PERIOD_TYPE, p->period_type, p->period_unit);
    o = br_merger_put_scalar(o, BR_PROFILE_PERIOD, (uint64_t)p->period);
    if (p->profile_id)
        o = br_put_len(o, BR_PROFILE_PROFILE_ID, p->profile_id, 16);
    o = br_build_put_list(o, BR_PROFILE_ATTRIBUTES, p->attributes, p->n_attributes);
    br_merger_wrote(&b->m, o);
}

static uint8_t *put_values(uint8_t *o, const int64_t *values, size_t n)
{
    if (n == 0)
        return o;
    *o++ = (uint8_t)BR_SCAN_LEN(BR_SAMPLE_VALUES);
    uint8_t *list = ++o;
    for (size_t i = 0; i < n; i++)
        o = br_put_varint(o, (uint64_t)values[i]);
    return br_put_length_before(list, o);
}

static uint8_t *put_times(uint8_t *o, const uint64_t *times_ns, size_t n)
{
    return n ? br_put_len(o, BR_SAMPLE_TIMES, times_ns, n * sizeof *times_ns) : o;
}

/* True when what it refers to is there; otherwise BR_EINVAL sticks. */
static bool refers_well(struct br_build *b, const struct br_build_sample *s)
{
    if (__builtin_expect(s->stack < b->m.tables[BR_TABLE_STACK].n &&
                             s->link < b->m.tables[BR_TABLE_LINK].n,
                         1))
        return s->n_attributes == 0 ||
               br_build_check(b, BR_TABLE_ATTRIBUTE, s->attributes, s->n_attributes);
    br_merger_fail(&b->m, BR_EINVAL);
    return false;
}

/* What the walk demands of samples. */
static bool is_sample(struct br_build *b, const struct br_build_sample *s)
{
    bool counts = s->n_values ? !s->n_times || s->n_times == s->n_values : s->n_times > 0;
    if (__builtin_expect(b->depth == PROFILE && counts, 1))
        return refers_well(b, s);
    br_merger_fail(&b->m, BR_EINVAL);
    return false;
}

uint8_t *br_build_prefix(struct br_build *b, const struct br_build_sample *s, uint8_t *out)
{
    if (!br_build_ready(b) || !refers_well(b, s))
        return out;
    out = br_merger_put_scalar(out, BR_SAMPLE_STACK, s->stack);
    out = br_build_put_list(out, BR_SAMPLE_ATTRIBUTES, s->attributes, s->n_attributes);
    return br_merger_put_scalar(out, BR_SAMPLE_LINK, s->link);
}

void br_build_prefixed(struct br_build *b, const uint8_t *prefix, size_t len, int64_t value)
{
    uint8_t *o = b->depth == PROFILE ? br_merger_room(&b->m, SAMPLE_FIXED + len) : NULL;
    if (!o)
        return;
    size_t size = br_varint_size((uint64_t)value);
    *o++ = (uint8_t)BR_SCAN_LEN(BR_PROFILE_SAMPLES);
    o = br_put_varint(o, len + 2 + size);
    o = br_put_bytes(o, prefix, len);
    *o++ = (uint8_t)BR_SCAN_LEN(BR_SAMPLE_VALUES);
    *o++ = (uint8_t)size;
    br_merger_wrote(&b->m, br_put_varint(o, (uint64_t)value));
    b->m.n_items++;
}

void br_build_reserve(struct br_build *b, size_t len)
{
    if (br_build_ready(b))
        (void)br_merger_room(&b->m, len);
}

void br_build_sample(struct br_build *b, const struct br_build_sample *s)
{
    if (!br_build_ready(b) || !is_sample(b, s))
        return;
    uint8_t *o =
        br_merger_room(&b->m, SAMPLE_FIXED + 5 * s->n_attributes + BR_VARINT_MAX * s->n_values +
                                  sizeof *s->times_ns * s->n_times);
    if (!o)
        return;
    *o++ = (uint8_t)BR_SCAN_LEN(BR_PROFILE_SAMPLES);
    uint8_t *body = ++o;
    o = br_merger_put_scalar(o, BR_SAMPLE_STACK, s->stack);
    o = br_build_put_list(o, BR_SAMPLE_ATTRIBUTES, s->attributes, s->n_attributes);
    o = br_merger_put_scalar(o, BR_SAMPLE_LINK, s->link);
    o = put_values(o, s->values, s->n_values);
    o = put_times(o, s->times_ns, s->n_times);
    br_merger_wrote(&b->m, br_put_length_before(body, o));
    b->m.n_items++;
}

void br_build_mark(struct br_build *b)
{
    close_to(b, REQUEST);
    if (br_build_start(b))
        br_merger_mark(&b->m, &b->mark);
    else
        b->mark = (struct br_merger_mark){0};
}

void br_build_undo(struct br_build *b)
{
    b->depth = REQUEST;
    if (b->mark.n[0])
        br_merger_restore(&b->m, &b->mark);
}

size_t br_build_memory(const struct br_build *b)
{
    return b->m.budget.used;
}

int br_build_take(struct br_build *b, struct br_item *into)
{
    close_to(b, REQUEST);
    b->mark = (struct br_merger_mark){0};
    if (b->m.budget.used > STRIPPED_MIN)
        for (unsigned t = 0; t < BR_TABLES; t++)
            br_intern_strip(&b->m.tables[t], &b->m.budget);
    if (!b->m.rc)
        br_merger_fail(&b->m, br_merger_take(&b->m, into, true));
    if (b->m.rc)
        return b->m.rc;
    br_build_clear(b);
    return 0;
}
