/* SPDX-License-Identifier: Apache-2.0 */
#include "receivers/pprof/delta.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "pprof/profile.pb-c.h"

#define TYPES_MAX 16
#define SLOTS_MIN 64

typedef Perftools__Profiles__Profile Profile;
typedef Perftools__Profiles__Sample Sample;
typedef Perftools__Profiles__Location Location;

/* Sums by stack: a hash table, at most half full; a key of 0 is an empty slot. */
struct sums {
    uint64_t *keys;
    int64_t *values; /* n_types for each slot */
    size_t n_slots, n_types;
};

struct pprof_delta {
    uint8_t secret[16];
    struct sums before; /* without slots: there was none yet */
    uint64_t types;     /* what they are of */
    int64_t time_ns;
};

/* An id, and the hash of what it stands for. */
struct known {
    uint64_t id, hash;
};

struct reading {
    struct pprof_delta *d;
    struct br_arena *arena;
    struct br_err *err;
    Profile *profile;
    bool cumulative[TYPES_MAX]; /* by type */
    bool tells[TYPES_MAX];      /* which types tell a new program */
    uint64_t types;
    struct known *functions, *locations;
    uint64_t *keys; /* of samples */
    struct sums now;
};

static int no_memory(struct reading *r)
{
    return br_err_set(r->err, BR_ENOMEM, "no memory to compare profiles");
}

/* --- Sums ------------------------------------------------------------------------------------- */

static void release_sums(struct sums *s)
{
    br_free(s->keys);
    br_free(s->values);
    *s = (struct sums){0};
}

static bool make_sums(struct sums *s, size_t n, size_t n_types)
{
    size_t slots = SLOTS_MIN;
    while (slots < 2 * n)
        slots *= 2;
    *s = (struct sums){br_calloc(slots, sizeof *s->keys),
                       br_calloc(slots * n_types, sizeof *s->values), slots, n_types};
    return s->keys && s->values;
}

/* The values of a key; of a new one they are zeros. */
static int64_t *put_sums(struct sums *s, uint64_t key)
{
    size_t i = key & (s->n_slots - 1);
    while (s->keys[i] != 0 && s->keys[i] != key)
        i = (i + 1) & (s->n_slots - 1);
    s->keys[i] = key;
    return s->values + i * s->n_types;
}

/* NULL when it is not there. */
static const int64_t *find_sums(const struct sums *s, uint64_t key)
{
    size_t i = key & (s->n_slots - 1);
    while (s->keys[i] != 0 && s->keys[i] != key)
        i = (i + 1) & (s->n_slots - 1);
    return s->keys[i] ? s->values + i * s->n_types : NULL;
}

/* --- What a stack says ------------------------------------------------------------------------ */

static const char *text_of(const Profile *p, int64_t i)
{
    return i >= 0 && (uint64_t)i < p->n_string_table ? p->string_table[i] : "";
}

static uint64_t hash_text(const struct reading *r, int64_t i)
{
    const char *text = text_of(r->profile, i);
    return br_siphash(r->d->secret, text, strlen(text));
}

static int by_id(const void *a, const void *b)
{
    uint64_t x = ((const struct known *)a)->id, y = ((const struct known *)b)->id;
    return x < y ? -1 : x > y;
}

static uint64_t hash_of(const struct known *v, size_t n, uint64_t id)
{
    const struct known key = {.id = id};
    const struct known *found = n ? bsearch(&key, v, n, sizeof *v, by_id) : NULL;
    return found ? found->hash : 0;
}

static uint64_t hash_location(const struct reading *r, const Location *l)
{
    uint64_t h = br_siphash(r->d->secret, &l->address, sizeof l->address);
    for (size_t i = 0; i < l->n_line; i++) {
        const uint64_t v[] = {
            h, hash_of(r->functions, r->profile->n_function, l->line[i]->function_id),
            (uint64_t)l->line[i]->line};
        h = br_siphash(r->d->secret, v, sizeof v);
    }
    return h;
}

static int hash_tables(struct reading *r)
{
    const Profile *p = r->profile;
    r->functions = br_arena_calloc(r->arena, p->n_function + 1, sizeof *r->functions);
    r->locations = br_arena_calloc(r->arena, p->n_location + 1, sizeof *r->locations);
    if (!r->functions || !r->locations)
        return no_memory(r);
    for (size_t i = 0; i < p->n_function; i++) {
        const uint64_t v[] = {hash_text(r, p->function[i]->name),
                              hash_text(r, p->function[i]->filename)};
        r->functions[i] = (struct known){p->function[i]->id, br_siphash(r->d->secret, v, sizeof v)};
    }
    qsort(r->functions, p->n_function, sizeof *r->functions, by_id);
    for (size_t i = 0; i < p->n_location; i++)
        r->locations[i] = (struct known){p->location[i]->id, hash_location(r, p->location[i])};
    qsort(r->locations, p->n_location, sizeof *r->locations, by_id);
    return 0;
}

static uint64_t hash_sample(const struct reading *r, const Sample *s)
{
    uint64_t h = 0;
    for (size_t i = 0; i < s->n_location_id; i++) {
        const uint64_t v[] = {h, hash_of(r->locations, r->profile->n_location, s->location_id[i])};
        h = br_siphash(r->d->secret, v, sizeof v);
    }
    for (size_t i = 0; i < s->n_label; i++) {
        const uint64_t v[] = {h, hash_text(r, s->label[i]->key), hash_text(r, s->label[i]->str),
                              (uint64_t)s->label[i]->num, hash_text(r, s->label[i]->num_unit)};
        h = br_siphash(r->d->secret, v, sizeof v);
    }
    return h ? h : 1;
}

/* --- The difference --------------------------------------------------------------------------- */

/* Counts tell a new program; of a profile without counts, every type does. */
static void read_types(struct reading *r)
{
    const Profile *p = r->profile;
    bool counts = false;
    for (size_t i = 0; i < p->n_sample_type; i++) {
        const char *type = text_of(p, p->sample_type[i]->type);
        const char *unit = text_of(p, p->sample_type[i]->unit);
        const uint64_t v[] = {r->types, br_siphash(r->d->secret, type, strlen(type)),
                              br_siphash(r->d->secret, unit, strlen(unit))};
        r->types = br_siphash(r->d->secret, v, sizeof v);
        r->cumulative[i] = strncmp(type, "inuse_", strlen("inuse_")) != 0;
        r->tells[i] = r->cumulative[i] && strcmp(unit, "count") == 0;
        counts = counts || r->tells[i];
    }
    if (!counts)
        memcpy(r->tells, r->cumulative, sizeof r->tells);
}

static int check_profile(struct reading *r)
{
    const Profile *p = r->profile;
    if (p->n_sample_type == 0 || p->n_sample_type > TYPES_MAX)
        return br_err_set(r->err, BR_EINVAL, "pprof: no sample types, or more than %d", TYPES_MAX);
    if (p->n_sample > PPROF_DELTA_STACKS_MAX)
        return br_err_set(r->err, BR_EFULL, "pprof: more than %u stacks to compare",
                          PPROF_DELTA_STACKS_MAX);
    for (size_t i = 0; i < p->n_sample; i++)
        if (p->sample[i]->n_value != p->n_sample_type)
            return br_err_set(r->err, BR_EINVAL,
                              "pprof: a sample has not as many values as there are types");
    for (size_t i = 0; i < p->n_sample_type; i++)
        if (text_of(p, p->sample_type[i]->type)[0] == '\0')
            return br_err_set(r->err, BR_EINVAL, "pprof: a sample type without a name");
    read_types(r);
    return 0;
}

static int sum_up(struct reading *r)
{
    const Profile *p = r->profile;
    r->keys = br_arena_calloc(r->arena, p->n_sample + 1, sizeof *r->keys);
    if (!r->keys || !make_sums(&r->now, p->n_sample, p->n_sample_type))
        return no_memory(r);
    for (size_t i = 0; i < p->n_sample; i++) {
        r->keys[i] = hash_sample(r, p->sample[i]);
        int64_t *values = put_sums(&r->now, r->keys[i]);
        for (size_t t = 0; t < p->n_sample_type; t++) {
            int64_t value = p->sample[i]->value[t];
            if (r->cumulative[t] &&
                (value < 0 || __builtin_add_overflow(values[t], value, &values[t])))
                return br_err_set(r->err, BR_EINVAL,
                                  "pprof: a value that is negative, or whose sum is too large");
        }
    }
    return 0;
}

/* True when a count is less than it was. */
static bool is_new_program(const struct reading *r)
{
    const struct sums *now = &r->now, *before = &r->d->before;
    for (size_t i = 0; i < now->n_slots; i++) {
        const int64_t *old = now->keys[i] ? find_sums(before, now->keys[i]) : NULL;
        for (size_t t = 0; old && t < now->n_types; t++)
            if (r->tells[t] && now->values[i * now->n_types + t] < old[t])
                return true;
    }
    return false;
}

/* Writes the differences into the samples and drops those that have none. The first of equal stacks
 * gets what is theirs; values that are no sums since the beginning stay where they are. */
static void subtract(struct reading *r, const struct sums *before)
{
    Profile *p = r->profile;
    size_t kept = 0;
    for (size_t i = 0; i < p->n_sample; i++) {
        Sample *s = p->sample[i];
        const int64_t *old = before->n_slots ? find_sums(before, r->keys[i]) : NULL;
        int64_t *sum = put_sums(&r->now, r->keys[i]);
        bool any = false;
        for (size_t t = 0; t < s->n_value; t++) {
            if (r->cumulative[t]) {
                int64_t less = old ? old[t] : 0;
                s->value[t] = sum[t] > less ? sum[t] - less : 0;
                sum[t] = less; /* for the next equal one */
            }
            any = any || s->value[t] != 0;
        }
        if (any)
            p->sample[kept++] = s;
    }
    p->n_sample = kept;
}

static int pack(struct reading *r, const uint8_t **ret, size_t *ret_len)
{
    size_t len = perftools__profiles__profile__get_packed_size(r->profile);
    uint8_t *out = br_arena_alloc(r->arena, len + 1);
    if (!out)
        return no_memory(r);
    *ret_len = perftools__profiles__profile__pack(r->profile, out);
    *ret = out;
    return 0;
}

/* `again`: the sums once more, because subtracting uses up r->now. */
static int compare(struct reading *r, const uint8_t **ret, size_t *ret_len, struct sums *again)
{
    static const struct sums none;
    struct pprof_delta *d = r->d;
    Profile *p = r->profile;
    size_t n = r->now.n_slots;
    *again = (struct sums){br_calloc(n, sizeof *again->keys),
                           br_calloc(n * r->now.n_types, sizeof *again->values), n, r->now.n_types};
    if (!again->keys || !again->values)
        return no_memory(r);
    memcpy(again->keys, r->now.keys, n * sizeof *again->keys);
    memcpy(again->values, r->now.values, n * r->now.n_types * sizeof *again->values);
    bool same = d->types == r->types && !is_new_program(r);
    subtract(r, same ? &d->before : &none);
    if (p->duration_nanos == 0 && d->time_ns > 0 && p->time_nanos > d->time_ns)
        p->duration_nanos = p->time_nanos - d->time_ns;
    return pack(r, ret, ret_len);
}

static int take(struct reading *r, const uint8_t **ret, size_t *ret_len)
{
    struct pprof_delta *d = r->d;
    struct sums again = {0};
    int rc = check_profile(r);
    if (rc == 0)
        rc = hash_tables(r);
    if (rc == 0)
        rc = sum_up(r);
    *ret_len = 0;
    if (rc == 0 && d->before.n_slots == 0) {
        again = r->now;
        r->now = (struct sums){0};
    } else if (rc == 0) {
        rc = compare(r, ret, ret_len, &again);
    }
    release_sums(&r->now);
    if (rc != 0) {
        release_sums(&again);
        return rc;
    }
    release_sums(&d->before);
    d->before = again;
    d->types = r->types;
    d->time_ns = r->profile->time_nanos;
    return 0;
}

struct pprof_delta *pprof_delta_new(void)
{
    struct pprof_delta *d = br_calloc(1, sizeof *d);
    if (d)
        br_random_bytes(d->secret, sizeof d->secret);
    return d;
}

void pprof_delta_clear(struct pprof_delta *d)
{
    if (!d)
        return;
    release_sums(&d->before);
    d->types = 0;
    d->time_ns = 0;
}

void pprof_delta_free(struct pprof_delta *d)
{
    pprof_delta_clear(d);
    br_free(d);
}

int pprof_delta_take(struct pprof_delta *d, const uint8_t *data, size_t len, struct br_arena *arena,
                     const uint8_t **ret, size_t *ret_len, struct br_err *err)
{
    struct reading r = {.d = d, .arena = arena, .err = err};
    r.profile = perftools__profiles__profile__unpack(br_arena_pb(arena), len, data);
    if (r.profile)
        return take(&r, ret, ret_len);
    return br_err_set(err, BR_EINVAL, "pprof: malformed, or too large to be compared");
}
