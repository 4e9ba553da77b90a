/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a flame graph as pprof. Field numbers are those of proto/pprof/profile.proto. Each name
 * of the flame graph becomes a location and a function, which have the same id: one more than
 * the index of the name. The string table contains the file at index 2 * id, and the name
 * directly before it. */
#include <stdlib.h>
#include <string.h>

#include "query/flame_output.h"
#include "wire/protobuf.h"

enum profile_field {
    PROFILE_SAMPLE_TYPE = 1,
    PROFILE_SAMPLE = 2,
    PROFILE_LOCATION = 4,
    PROFILE_FUNCTION = 5,
    PROFILE_STRING = 6,
    PROFILE_TIME = 9,
    PROFILE_DURATION = 10,
    PROFILE_PERIOD_TYPE = 11,
};

#define SMALL_MAX                                                                                  \
    128 /* maximum number of bytes of an encoded message that contains only a few numbers */

struct small {
    uint8_t bytes[SMALL_MAX];
    size_t len;
};

static void flame_pprof_number(struct small *small, uint32_t field, uint64_t value)
{
    uint8_t *end = br_put_varint(small->bytes + small->len, BR_TAG(field, BR_WIRE_VARINT));
    small->len = (size_t)(br_put_varint(end, value) - small->bytes);
}

/* Writes the tag and length of a length-delimited field. The caller then appends the `len` bytes
 * of the field. */
static void flame_pprof_head(struct br_str *out, uint32_t field, size_t len)
{
    uint8_t head[2 * BR_VARINT_MAX];
    uint8_t *end = br_put_varint(head, BR_TAG(field, BR_WIRE_LEN));
    end = br_put_varint(end, len);
    br_str_add(out, head, (size_t)(end - head));
}

static void flame_pprof_message(struct br_str *out, uint32_t field, const struct small *small)
{
    flame_pprof_head(out, field, small->len);
    br_str_add(out, small->bytes, small->len);
}

static void flame_pprof_varint(struct br_str *out, uint64_t value)
{
    uint8_t bytes[BR_VARINT_MAX];
    br_str_add(out, bytes, (size_t)(br_put_varint(bytes, value) - bytes));
}

/* Writes a Sample with two packed fields: location ids (field 1), leaf first, and values (field
 * 2). */
static void flame_pprof_sample(struct br_str *out, const struct br_flame *flame, uint32_t node)
{
    uint64_t value = (uint64_t)flame->nodes[node].self[0];
    size_t ids_len = 0, value_len = br_varint_size(value);
    for (uint32_t at = node; at; at = flame->nodes[at].parent)
        ids_len += br_varint_size((uint64_t)flame->nodes[at].name + 1);
    if (!node)
        ids_len = 1;
    flame_pprof_head(out, PROFILE_SAMPLE, br_len_size(1, ids_len) + br_len_size(2, value_len));
    flame_pprof_head(out, 1, ids_len);
    for (uint32_t at = node; at; at = flame->nodes[at].parent)
        flame_pprof_varint(out, (uint64_t)flame->nodes[at].name + 1);
    if (!node)
        flame_pprof_varint(out, 1);
    flame_pprof_head(out, 2, value_len);
    flame_pprof_varint(out, value);
}

static void flame_pprof_name(struct br_str *out, const struct br_flame *flame, uint32_t name)
{
    uint64_t id = (uint64_t)name + 1;
    struct small line = {0}, location = {0}, function = {0};
    flame_pprof_number(&line, 1, id);
    flame_pprof_number(&location, 1, id);
    uint8_t *end = br_put_len(location.bytes + location.len, 4, line.bytes, line.len);
    location.len = (size_t)(end - location.bytes);
    flame_pprof_message(out, PROFILE_LOCATION, &location);
    flame_pprof_number(&function, 1, id);
    flame_pprof_number(&function, 2, 2 * id - 1);
    flame_pprof_number(&function, 3, 2 * id - 1);
    if (*flame->files[name])
        flame_pprof_number(&function, 4, 2 * id);
    flame_pprof_message(out, PROFILE_FUNCTION, &function);
}

static void flame_pprof_type(struct br_str *out, uint32_t field, uint64_t string)
{
    struct small type = {0};
    flame_pprof_number(&type, 1, string);
    flame_pprof_number(&type, 2, string + 1);
    flame_pprof_message(out, field, &type);
}

static void flame_pprof_string(struct br_str *out, const char *text)
{
    flame_pprof_head(out, PROFILE_STRING, strlen(text));
    br_str_puts(out, text);
}

int br_flame_pprof(struct br_str *out, const struct br_flame *flame,
                   const struct br_flame_about *about)
{
    uint64_t types = 2 * (uint64_t)flame->n_names + 1;
    struct small numbers = {0};
    flame_pprof_type(out, PROFILE_SAMPLE_TYPE, types);
    for (uint32_t i = 0; i < flame->n_nodes && !out->failed; i++)
        if (flame->nodes[i].self[0])
            flame_pprof_sample(out, flame, i);
    for (uint32_t i = 0; i < flame->n_names && !out->failed; i++)
        flame_pprof_name(out, flame, i);
    flame_pprof_string(out, "");
    for (uint32_t i = 0; i < flame->n_names && !out->failed; i++) {
        flame_pprof_string(out, flame->names[i]);
        flame_pprof_string(out, flame->files[i]);
    }
    flame_pprof_string(out, about->type);
    flame_pprof_string(out, about->unit);
    flame_pprof_string(out, about->period_type);
    flame_pprof_string(out, about->period_unit);
    flame_pprof_number(&numbers, PROFILE_TIME, about->time_ns);
    flame_pprof_number(&numbers, PROFILE_DURATION, about->duration_ns);
    br_str_add(out, numbers.bytes, numbers.len);
    flame_pprof_type(out, PROFILE_PERIOD_TYPE, types + 2);
    return out->failed ? BR_ENOMEM : 0;
}
