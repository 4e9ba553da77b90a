/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/timed.h"

#include <string.h>

#include "base/mem.h"
#include "wire/protobuf.h"

/* Earliest time, in ns, that is treated as a time of day rather than an uptime: September 2001.
 * The uptime of a machine is always less. */
#define DAY_CLOCK_NS UINT64_C(1000000000000000000)

#define BLOCK_MIN 512u
#define BLOCK_MAX 65536u
#define SAMPLE_MAX ((BR_TIMED_ATTRIBUTES + 3) * BR_VARINT_MAX)

/* Packed samples. A sample is a sequence of varints: stack, attributes, value, and the
 * difference to the time of the previous sample. */
struct br_timed_block {
    struct br_timed_block *next;
    uint32_t len, size;
    uint8_t data[];
};

static uint8_t *timed_room(struct br_timed_type *type)
{
    struct br_timed_block *last = type->last;
    if (last && last->size - last->len >= SAMPLE_MAX)
        return last->data + last->len;
    uint32_t size = last ? last->size * 2 : BLOCK_MIN;
    size = size < BLOCK_MAX ? size : BLOCK_MAX;
    struct br_timed_block *block = br_malloc(sizeof *block + size);
    if (!block)
        return NULL;
    *block = (struct br_timed_block){.size = size};
    *(last ? &last->next : &type->first) = block;
    type->last = block;
    return block->data;
}

/* Maps small positive and small negative differences to small varints. */
static uint64_t timed_zigzag(uint64_t value)
{
    return value << 1 ^ (0 - (value >> 63));
}

static uint64_t timed_unzigzag(uint64_t value)
{
    return value >> 1 ^ (0 - (value & 1));
}

int br_timed_add(struct br_timed *timed, const struct br_timed_sample *sample)
{
    struct br_timed_type *type = &timed->types[sample->type];
    uint8_t *o = timed_room(type);
    if (!o)
        return BR_ENOMEM;
    o = br_put_varint(o, sample->stack);
    for (uint32_t i = 0; i < BR_TIMED_ATTRIBUTES; i++)
        o = br_put_varint(o, sample->attributes[i]);
    o = br_put_varint(o, (uint64_t)sample->value);
    o = br_put_varint(o, timed_zigzag(sample->time_ns - type->last_ns));
    type->last->len = (uint32_t)(o - type->last->data);
    type->last_ns = sample->time_ns;
    if (timed->count++ == 0 || sample->time_ns < timed->first_ns)
        timed->first_ns = sample->time_ns;
    if (sample->time_ns > timed->last_ns)
        timed->last_ns = sample->time_ns;
    return 0;
}

static void timed_free(struct br_timed_type *type)
{
    for (struct br_timed_block *block = type->first, *next; block; block = next) {
        next = block->next;
        br_free(block);
    }
    type->first = type->last = NULL;
}

static void timed_empty(struct br_timed *timed)
{
    for (uint32_t i = 0; i < timed->n_types; i++) {
        timed_free(&timed->types[i]);
        timed->types[i].last_ns = 0;
    }
    timed->count = 0;
    timed->first_ns = timed->last_ns = 0;
}

void br_timed_release(struct br_timed *timed)
{
    timed_empty(timed);
    *timed = (struct br_timed){0};
}

static uint32_t timed_string(struct br_build *build, const char *text)
{
    return text ? br_build_string(build, text, strlen(text)) : 0;
}

/* Conversion from the file's clock to the time of day. */
struct timed_clock {
    uint64_t shift_ns; /* number that is added to each time of the file's clock, modulo 2^64 */
    /* attribute that marks the times of a sample as estimated; 0: the times are exact */
    uint32_t attribute;
};

static struct timed_clock timed_clock_of(const struct br_timed *timed,
                                         const struct br_profile_source *source)
{
    uint64_t first_ns = timed->has_clock ? timed->clock_first_ns : timed->first_ns;
    uint64_t last_ns = timed->has_clock ? timed->clock_last_ns : timed->last_ns;
    struct timed_clock clock = {0};
    if (last_ns >= DAY_CLOCK_NS)
        return clock;
    if (source->end_ns >= last_ns - first_ns)
        clock.shift_ns = source->end_ns - last_ns;
    uint32_t key = br_build_string(timed->build, BR_SAMPLE_TIME, strlen(BR_SAMPLE_TIME));
    clock.attribute = br_build_attribute_text(timed->build, key, BR_SAMPLE_TIME_ESTIMATED,
                                              strlen(BR_SAMPLE_TIME_ESTIMATED));
    return clock;
}

static int timed_scope(struct br_timed *timed, const struct br_timed_type *type,
                       const struct br_profile_source *source, struct br_arena *scratch)
{
    struct br_addition scope = {0};
    const char *name = source->pyroscope_name ? source->pyroscope_name : type->metric;
    const char *key = source->pyroscope_name ? BR_SCOPE_PYROSCOPE_NAME : BR_SCOPE_PYROSCOPE_METRIC;
    if (name && br_add_string(scratch, &scope, 3, key, name, strlen(name)) != 0)
        return BR_ENOMEM;
    br_build_scope(timed->build, NULL, NULL, &scope);
    return 0;
}

/* Reads one sample written by br_timed_add. The data is trusted, so no bounds are checked. */
static const uint8_t *timed_unpack(const uint8_t *p, const uint8_t *end, uint64_t *time_ns,
                                   struct br_timed_sample *ret)
{
    uint64_t v[BR_TIMED_ATTRIBUTES + 3];
    for (size_t i = 0; i < BR_COUNT(v); i++)
        p = br_varint(p, end, &v[i]);
    *ret = (struct br_timed_sample){.stack = (uint32_t)v[0],
                                    .value = (int64_t)v[BR_TIMED_ATTRIBUTES + 1]};
    for (size_t i = 0; i < BR_TIMED_ATTRIBUTES; i++)
        ret->attributes[i] = (uint32_t)v[1 + i];
    ret->time_ns = *time_ns += timed_unzigzag(v[BR_TIMED_ATTRIBUTES + 2]);
    return p;
}

static void timed_put(struct br_timed *timed, const struct br_timed_sample *from,
                      const struct timed_clock *clock)
{
    uint32_t attributes[BR_TIMED_ATTRIBUTES + 1];
    uint64_t time_ns = from->time_ns + clock->shift_ns;
    struct br_build_sample sample = {.stack = from->stack,
                                     .attributes = attributes,
                                     .values = &from->value,
                                     .n_values = 1,
                                     .times_ns = &time_ns,
                                     .n_times = 1};
    for (uint32_t k = 0; k < BR_TIMED_ATTRIBUTES; k++)
        if (from->attributes[k])
            attributes[sample.n_attributes++] = from->attributes[k];
    if (clock->attribute)
        attributes[sample.n_attributes++] = clock->attribute;
    br_build_sample(timed->build, &sample);
}

/* Writes the samples of one type. Frees each block after its samples are written. */
static void timed_samples(struct br_timed *timed, struct br_timed_type *type,
                          const struct timed_clock *clock)
{
    struct br_timed_sample sample;
    uint64_t time_ns = 0;
    while (type->first && !br_build_rc(timed->build)) {
        struct br_timed_block *block = type->first;
        for (const uint8_t *p = block->data, *end = p + block->len; p < end;) {
            p = timed_unpack(p, end, &time_ns, &sample);
            timed_put(timed, &sample, clock);
        }
        type->first = block->next;
        br_free(block);
    }
}

static int timed_profile(struct br_timed *timed, struct br_timed_type *type,
                         const struct timed_clock *clock, const struct br_profile_source *source,
                         struct br_arena *scratch)
{
    struct br_build *build = timed->build;
    int rc = timed_scope(timed, type, source, scratch);
    if (rc)
        return rc;
    const struct br_build_profile profile = {.type = timed_string(build, type->type),
                                             .unit = timed_string(build, type->unit),
                                             .period_type = timed_string(build, type->period_type),
                                             .period_unit = timed_string(build, type->period_unit),
                                             .period = type->period,
                                             .time_ns = timed->first_ns + clock->shift_ns,
                                             .duration_ns = timed->last_ns - timed->first_ns,
                                             .profile_id = source->profile_id};
    br_build_profile(build, &profile);
    timed_samples(timed, type, clock);
    return br_build_rc(build);
}

int br_timed_emit(struct br_timed *timed, const struct br_profile_source *source,
                  struct br_arena *scratch, struct br_err *err)
{
    struct timed_clock clock = timed_clock_of(timed, source);
    int rc = br_build_rc(timed->build);
    if (timed->count)
        br_build_resource(timed->build, source->resource);
    for (uint32_t i = 0; i < timed->n_types && !rc; i++)
        if (timed->types[i].first)
            rc = timed_profile(timed, &timed->types[i], &clock, source, scratch);
    timed_empty(timed);
    return rc ? br_err_set(err, rc, "cannot be converted: %s", br_strerror(rc)) : 0;
}
