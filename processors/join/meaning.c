/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/meaning.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "wire/protobuf.h"

#define NAME_MAX_LEN 159

static bool is(struct br_entry s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

static void read_value_type(const struct br_dictionary_view *view, const struct br_field *f,
                            struct br_entry *type, struct br_entry *unit)
{
    const uint8_t *p = f->data, *end = p + f->value;
    struct br_field g;
    while (p < end && (p = br_field_next(p, end, &g))) {
        if (g.number == 1)
            *type = br_dictionary_string(view, (uint32_t)g.value);
        else if (g.number == 2)
            *unit = br_dictionary_string(view, (uint32_t)g.value);
    }
}

static uint64_t time_unit(struct br_entry unit)
{
    return is(unit, "nanoseconds") || is(unit, "ns")    ? 1
           : is(unit, "microseconds") || is(unit, "us") ? 1000
           : is(unit, "milliseconds") || is(unit, "ms") ? 1000000
           : is(unit, "seconds") || is(unit, "s")       ? 1000000000
                                                        : 0;
}

static bool is_cpu(struct br_entry type)
{
    return is(type, "cpu") || is(type, "itimer") || is(type, "process_cpu");
}

/* "alloc_space" of Go and pprof, JFR's "alloc_in_new_tlab_bytes", and their like. */
static bool is_allocation(struct br_entry type)
{
    return type.len >= 5 && memcmp(type.data, "alloc", 5) == 0;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint16_t type_number(struct join_table *t, struct br_entry type, struct br_entry unit)
{
    char name[NAME_MAX_LEN + 1];
    struct br_str s = {.data = name, .cap = sizeof name, .max = NAME_MAX_LEN, .fixed = true};
    br_str_add(&s, type.data, type.len);
    br_str_putc(&s, ':');
    br_str_add(&s, unit.data, unit.len);
    return join_table_type(t, name, br_utf8_valid((const uint8_t *)name, s.len));
}

void join_meaning_read(struct join_table *t, const struct br_dictionary_view *view,
                       const uint8_t *p, const uint8_t *end, struct join_meaning *ret)
{
    struct br_entry type = {0}, unit = {0}, period_type = {0}, period_unit = {0};
    struct br_field f;
    int64_t period = 0;
    struct join_meaning m = {.measure = JOIN_OTHER};
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.number == 1) {
            read_value_type(view, &f, &type, &unit);
        } else if (f.number == 5) {
            read_value_type(view, &f, &period_type, &period_unit);
        } else if (f.number == 6) {
            period = (int64_t)f.value;
        } else if (f.number == 7) {
            m.has_profile_id = f.value == sizeof m.profile_id;
            if (m.has_profile_id)
                memcpy(m.profile_id, f.data, sizeof m.profile_id);
        }
    }
    m.type = type_number(t, type, unit);
    m.unit_ns = time_unit(unit);
    m.counts = is(unit, "count");
    m.allocates = is(unit, "bytes") && is_allocation(type);
    if (period > 0)
        m.period_ns = times((uint64_t)period, time_unit(period_unit));
    if (m.period_ns == UINT64_MAX)
        m.period_ns = 0;
    if (m.unit_ns)
        m.measure = is_cpu(type) ? JOIN_CPU_TIME : JOIN_WALL_TIME;
    else if (m.counts && m.period_ns && is_cpu(period_type) && is(type, "samples"))
        m.measure = JOIN_CPU_COUNT;
    *ret = m;
}

void join_meaning_apply(const struct join_meaning *m, uint64_t value, bool has_value,
                        uint64_t n_times, struct join_sample *ret)
{
    uint64_t time_ns = 0, count = n_times ? n_times : 1;
    if (m->unit_ns) {
        time_ns = has_value ? times(value, m->unit_ns) : times(n_times, m->period_ns);
        if (!n_times && m->period_ns)
            count = time_ns / m->period_ns + (time_ns % m->period_ns >= (m->period_ns + 1) / 2);
    } else if (m->counts && has_value) {
        count = value;
    }
    if (m->measure == JOIN_CPU_COUNT)
        time_ns = times(count, m->period_ns);
    ret->measure = m->measure;
    ret->time_ns = time_ns;
    ret->count = count > UINT32_MAX ? UINT32_MAX : count ? (uint32_t)count : 1;
    ret->type = m->type;
    ret->value = m->measure < JOIN_OTHER ? time_ns : has_value ? value : count;
    ret->allocated_bytes = m->allocates ? value : 0;
    ret->profile_id = m->has_profile_id ? m->profile_id : NULL;
}
