/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/edit/edit.h"

#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "otlp/edit/rewrite.h"
#include "otlp/fields.h"
#include "wire/protobuf.h"

#define DAY_NS (UINT64_C(86400) * 1000000000)
#define PAST_NS (31 * DAY_NS)
#define TIME_FIELD_SIZE 9u /* bytes of a time field: a tag of one byte and a fixed64 */

struct times {
    uint64_t now_ns;
    /* smallest timestamp of the current profile's samples; 0: the samples have no timestamps */
    uint64_t earliest_ns;
    bool changed; /* a sample of the current profile was changed */
    uint32_t n_corrected;
    uint8_t *scratch; /* copy of the message that is being corrected */
    uint32_t cap;
};

static uint64_t times_correct(const struct times *times, uint64_t time)
{
    static const uint64_t units_ns[] = {1000, 1000000, 1000000000};
    for (size_t i = 0; i < BR_COUNT(units_ns); i++) {
        uint64_t ns;
        if (!__builtin_mul_overflow(time, units_ns[i], &ns) && ns + PAST_NS >= times->now_ns &&
            ns <= times->now_ns + DAY_NS)
            return ns;
    }
    return times->now_ns;
}

/* Copies the message of a visit to the scratch buffer, with room for one more time field.
 * Returns NULL if memory runs out. */
static uint8_t *times_copy(struct times *times, const struct br_visit *visit)
{
    if (br_grow(&times->scratch, &times->cap, visit->len + TIME_FIELD_SIZE, 1, UINT32_MAX))
        return NULL;
    return visit->len ? memcpy(times->scratch, visit->body, visit->len) : times->scratch;
}

/* Corrects the time at `at` in the copy of a message. Returns true if the time changed. */
static bool times_correct_at(const struct times *times, uint8_t *at)
{
    uint64_t time = br_load64(at);
    if (time >= BR_TIME_MIN_NS)
        return false;
    time = times_correct(times, time);
    memcpy(at, &time, sizeof time);
    return true;
}

static void times_note_earliest(struct times *times, uint64_t time)
{
    if (!times->earliest_ns || time < times->earliest_ns)
        times->earliest_ns = time;
}

static int times_on_sample(struct times *times, struct br_visit *visit)
{
    uint8_t *copy = times_copy(times, visit);
    const uint8_t *p = copy, *end = copy ? copy + visit->len : NULL;
    struct br_field field;
    bool changed = false;
    if (!copy)
        return BR_ENOMEM;
    while (p < end && (p = br_field_next(p, end, &field))) {
        if (field.number != BR_SAMPLE_TIMES)
            continue;
        size_t len = field.wire == BR_WIRE_I64 ? 8 : (size_t)field.value;
        uint8_t *first = copy + (p - copy) - len;
        for (uint8_t *at = first; at + 8 <= first + len; at += 8) {
            changed = times_correct_at(times, at) || changed;
            times_note_earliest(times, br_load64(at));
        }
    }
    times->changed = times->changed || changed;
    visit->out = (struct br_addition){copy, visit->len};
    return changed ? BR_REPLACE : BR_KEEP;
}

static int times_on_profile(struct times *times, struct br_visit *visit)
{
    uint8_t *copy = times_copy(times, visit);
    const uint8_t *p = copy, *end = copy ? copy + visit->len : NULL;
    struct br_field field;
    bool found = false, changed = false;
    size_t len = visit->len;
    if (!copy)
        return BR_ENOMEM;
    while (p < end && (p = br_field_next(p, end, &field))) {
        if (field.number != BR_PROFILE_TIME)
            continue;
        uint8_t *at = copy + (p - copy) - 8;
        found = br_load64(at) != 0;
        changed = found && times_correct_at(times, at);
    }
    if (!found) { /* the time field is absent, or its last occurrence, which counts, is 0 */
        uint64_t time = times->earliest_ns ? times->earliest_ns : times->now_ns;
        copy[len] = BR_TAG(BR_PROFILE_TIME, BR_WIRE_I64);
        memcpy(copy + len + 1, &time, sizeof time);
        len += TIME_FIELD_SIZE;
        changed = true;
    }
    times->n_corrected += changed || times->changed;
    times->earliest_ns = 0;
    times->changed = false;
    visit->out = (struct br_addition){copy, len};
    return changed ? BR_REPLACE : BR_KEEP;
}

static int times_on_visit(void *arg, struct br_visit *visit)
{
    return visit->level == BR_LEVEL_RECORD ? times_on_sample(arg, visit)
                                           : times_on_profile(arg, visit);
}

int br_item_correct_times(struct br_item *item, uint64_t now_ns, uint32_t *ret_corrected)
{
    struct times times = {.now_ns = now_ns};
    int rc = br_item_rewrite(item, 1u << BR_LEVEL_PROFILE | 1u << BR_LEVEL_RECORD, times_on_visit,
                             &times);
    *ret_corrected = rc ? 0 : times.n_corrected;
    br_free(times.scratch);
    return rc;
}
