/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The profile is read as it lies: each text is hashed once, functions and locations out of the
 * hashes of what they consist of, and so on up to the samples. What is written is the profile as it came,
 * but for its samples.
 */
#include "receivers/pprof/delta.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "otlp/scan.h"
#include "profile/pprof/fields.h"

#define TYPES_MAX 16
/* Bytes that a comparison may take for each byte of the profile, and beside them; with the
 * difference, which is hardly larger than the profile, four times its size and a MiB. */
#define GROWTH 3
#define SPARE (((size_t)1 << 20) - (16u << 10))

/* Fields of Profile. */
enum { SAMPLE_TYPE = 1, SAMPLE, LOCATION = 4, FUNCTION, STRING, TIME = 9, DURATION };

/* Sums by stack. */
struct sums {
    uint64_t *keys;
    int64_t *values; /* n_types for each key */
    uint32_t *slots; /* a key's place + 1; 0: empty; at most two thirds full */
    size_t n, n_slots, n_types;
};

struct pprof_delta {
    uint8_t secret[16];
    struct sums before; /* without slots: there was none yet */
    uint64_t types;     /* what they are of */
    int64_t time_ns;
};

/* Hashes of what ids stand for. */
struct known {
    uint64_t *ids, *hashes;
    uint32_t *slots; /* as in struct sums; NULL: the ids count from 1 */
    size_t n, n_slots;
};

struct text {
    uint64_t hash;
    uint32_t at, len;
};

struct reading {
    struct pprof_delta *d;
    struct br_arena arena; /* of what lives until return */
    struct br_err *err;
    const uint8_t *data, *end;
    size_t max_bytes;
    size_t counts[STRING + 1]; /* fields of these numbers */
    int64_t time_ns, duration_ns;
    struct text *texts, empty;
    bool cumulative[TYPES_MAX]; /* by type */
    bool tells[TYPES_MAX];      /* which types tell a new program */
    size_t n_types;
    uint64_t types;
    struct known functions, locations;
    uint32_t *places; /* of samples, in `now` */
    uint32_t *firsts; /* of what is in `now`: the first sample */
    struct sums now;
};

static int no_memory(struct reading *r)
{
    if (r->arena.full)
        return br_err_set(r->err, BR_EFULL,
                          "pprof: comparing takes more than %zu bytes of memory, for %zu bytes",
                          r->max_bytes, (size_t)(r->end - r->data));
    return br_err_set(r->err, BR_ENOMEM, "no memory to compare profiles");
}

static int malformed(struct reading *r)
{
    return br_err_set(r->err, BR_EINVAL, "pprof: malformed");
}

static uint64_t hash_numbers(const struct reading *r, const uint64_t *v, size_t n)
{
    return br_siphash(r->d->secret, v, n * sizeof *v);
}

/* --- Fields ----------------------------------------------------------------------------------- */

/* The next message or text of this number; false at the end. What is there is well-formed. */
static bool next_of(const struct reading *r, const uint8_t **at, uint32_t number,
                    struct br_field *ret)
{
    while (*at < r->end) {
        *at = br_scan(*at, r->end, ret);
        if (br_scan_tag(ret) == BR_SCAN_LEN(number))
            return true;
    }
    return false;
}

/* Calls `fn` with the varints of the fields of one number of a message, packed ones too. */
typedef int number_fn(struct reading *r, void *arg, uint64_t value);

static int each_packed(struct reading *r, const struct br_field *f, number_fn *fn, void *arg)
{
    const uint8_t *at = f->data, *end = at + f->value;
    int rc = 0;
    while (at < end && !rc) {
        uint64_t value;
        at = br_scan_varint(at, end, &value);
        rc = at ? fn(r, arg, value) : malformed(r);
    }
    return rc;
}

static int each_number(struct reading *r, const struct br_field *message, uint32_t number,
                       number_fn *fn, void *arg)
{
    const uint8_t *at = message->data, *end = at + message->value;
    struct br_field f;
    int rc = 0;
    while (at < end && !rc) {
        at = br_scan(at, end, &f);
        if (!at)
            return malformed(r);
        if (f.number != number)
            continue;
        if (f.wire == BR_WIRE_VARINT)
            rc = fn(r, arg, f.value);
        else if (f.wire == BR_WIRE_LEN)
            rc = each_packed(r, &f, fn, arg);
    }
    return rc;
}

/* Fields 1 to `n` of a message of varints, into v[1] to v[n]; the last one of each. */
static int read_numbers(struct reading *r, const struct br_field *message, uint64_t *v, uint32_t n)
{
    const uint8_t *at = message->data, *end = at + message->value;
    struct br_field f;
    while (at < end) {
        at = br_scan(at, end, &f);
        if (!at)
            return malformed(r);
        if (f.number <= n && f.wire == BR_WIRE_VARINT)
            v[f.number] = f.value;
    }
    return 0;
}

static int read_top(struct reading *r)
{
    struct br_field f;
    for (const uint8_t *at = r->data; at < r->end;) {
        at = br_scan(at, r->end, &f);
        if (!at)
            return malformed(r);
        if (f.number <= STRING && f.wire == BR_WIRE_LEN)
            r->counts[f.number]++;
        else if (f.number == TIME && f.wire == BR_WIRE_VARINT)
            r->time_ns = (int64_t)f.value;
        else if (f.number == DURATION && f.wire == BR_WIRE_VARINT)
            r->duration_ns = (int64_t)f.value;
    }
    return 0;
}

/* --- Texts and types -------------------------------------------------------------------------- */

static int hash_texts(struct reading *r)
{
    const uint8_t *at = r->data;
    struct br_field f;
    r->empty.hash = br_siphash(r->d->secret, "", 0);
    r->texts = br_arena_calloc(&r->arena, r->counts[STRING], sizeof *r->texts);
    if (!r->texts)
        return no_memory(r);
    for (size_t i = 0; next_of(r, &at, STRING, &f); i++)
        r->texts[i] = (struct text){br_siphash(r->d->secret, f.data, f.value),
                                    (uint32_t)(f.data - r->data), (uint32_t)f.value};
    return 0;
}

static const struct text *text_of(const struct reading *r, uint64_t i)
{
    return i < r->counts[STRING] ? &r->texts[i] : &r->empty;
}

static bool starts_with(const struct reading *r, const struct text *text, const char *start)
{
    size_t len = strlen(start);
    return text->len >= len && memcmp(r->data + text->at, start, len) == 0;
}

/* Counts tell a new program; of a profile without counts, every type does. */
static int read_types(struct reading *r)
{
    const uint8_t *at = r->data;
    struct br_field f;
    bool counts = false;
    r->n_types = r->counts[SAMPLE_TYPE];
    if (r->n_types == 0 || r->n_types > TYPES_MAX)
        return br_err_set(r->err, BR_EINVAL, "pprof: no sample types, or more than %d", TYPES_MAX);
    for (size_t i = 0; next_of(r, &at, SAMPLE_TYPE, &f); i++) {
        uint64_t v[3] = {0};
        int rc = read_numbers(r, &f, v, 2);
        if (rc)
            return rc;
        const struct text *type = text_of(r, v[1]), *unit = text_of(r, v[2]);
        if (type->len == 0)
            return br_err_set(r->err, BR_EINVAL, "pprof: a sample type without a name");
        r->types = hash_numbers(r, (const uint64_t[]){r->types, type->hash, unit->hash}, 3);
        r->cumulative[i] = !starts_with(r, type, "inuse_");
        r->tells[i] = r->cumulative[i] && unit->len == strlen("count") &&
                      starts_with(r, unit, "count");
        counts = counts || r->tells[i];
    }
    if (!counts)
        memcpy(r->tells, r->cumulative, sizeof r->tells);
    return 0;
}

/* --- Tables by hash --------------------------------------------------------------------------- */

/* The slot of a key, or the empty one where it would go. */
static size_t slot_of(const uint64_t *keys, const uint32_t *slots, size_t n_slots, uint64_t hash,
                      uint64_t key)
{
    size_t at = (size_t)((hash >> 32) * n_slots >> 32);
    while (slots[at] && keys[slots[at] - 1] != key)
        at = at + 1 < n_slots ? at + 1 : 0;
    return at;
}

static size_t slots_for(size_t n)
{
    return n + n / 2 + 2;
}

static int make_known(struct reading *r, struct known *k, size_t n)
{
    k->ids = br_arena_alloc(&r->arena, n * sizeof *k->ids);
    k->hashes = br_arena_alloc(&r->arena, n * sizeof *k->hashes);
    return k->ids && k->hashes ? 0 : no_memory(r);
}

/* Once all are there; of equal ids the first one stays. */
static int find_known(struct reading *r, struct known *k)
{
    size_t i = 0;
    while (i < k->n && k->ids[i] == i + 1)
        i++;
    if (i == k->n)
        return 0;
    k->n_slots = slots_for(k->n);
    k->slots = br_arena_calloc(&r->arena, k->n_slots, sizeof *k->slots);
    if (!k->slots)
        return no_memory(r);
    for (i = 0; i < k->n; i++) {
        uint64_t id = k->ids[i], hash = hash_numbers(r, &id, 1);
        size_t at = slot_of(k->ids, k->slots, k->n_slots, hash, id);
        if (!k->slots[at])
            k->slots[at] = (uint32_t)i + 1;
    }
    return 0;
}

/* 0 where there is no such id. */
static uint64_t hash_of(const struct reading *r, const struct known *k, uint64_t id)
{
    if (!k->slots)
        return id - 1 < k->n ? k->hashes[id - 1] : 0;
    size_t at = slot_of(k->ids, k->slots, k->n_slots, hash_numbers(r, &id, 1), id);
    return k->slots[at] ? k->hashes[k->slots[at] - 1] : 0;
}

/* --- What a stack says ------------------------------------------------------------------------ */

static int hash_functions(struct reading *r)
{
    enum { ID = 1, NAME, FILENAME = 4, FIELDS };
    struct known *k = &r->functions;
    const uint8_t *at = r->data;
    struct br_field f;
    int rc = make_known(r, k, r->counts[FUNCTION]);
    for (; !rc && next_of(r, &at, FUNCTION, &f); k->n++) {
        uint64_t v[FIELDS] = {0};
        rc = read_numbers(r, &f, v, FIELDS - 1);
        k->ids[k->n] = v[ID];
        k->hashes[k->n] = hash_numbers(
            r, (const uint64_t[]){text_of(r, v[NAME])->hash, text_of(r, v[FILENAME])->hash}, 2);
    }
    return rc ? rc : find_known(r, k);
}

static int hash_lines(struct reading *r, const struct br_field *location, uint64_t *hash)
{
    enum { LINES = 4, FUNCTION_ID = 1, LINE, FIELDS };
    const uint8_t *at = location->data, *end = at + location->value;
    struct br_field f;
    while (at < end) {
        at = br_scan(at, end, &f);
        if (!at)
            return malformed(r);
        if (br_scan_tag(&f) != BR_SCAN_LEN(LINES))
            continue;
        uint64_t v[FIELDS] = {0};
        int rc = read_numbers(r, &f, v, FIELDS - 1);
        if (rc)
            return rc;
        *hash = hash_numbers(
            r, (const uint64_t[]){*hash, hash_of(r, &r->functions, v[FUNCTION_ID]), v[LINE]}, 3);
    }
    return 0;
}

static int hash_locations(struct reading *r)
{
    enum { ID = 1, ADDRESS = 3, FIELDS };
    struct known *k = &r->locations;
    const uint8_t *at = r->data;
    struct br_field f;
    int rc = make_known(r, k, r->counts[LOCATION]);
    for (; !rc && next_of(r, &at, LOCATION, &f); k->n++) {
        uint64_t v[FIELDS] = {0};
        rc = read_numbers(r, &f, v, FIELDS - 1);
        k->ids[k->n] = v[ID];
        k->hashes[k->n] = hash_numbers(r, &v[ADDRESS], 1);
        if (!rc)
            rc = hash_lines(r, &f, &k->hashes[k->n]);
    }
    return rc ? rc : find_known(r, k);
}

static int hash_place(struct reading *r, void *arg, uint64_t id)
{
    uint64_t *hash = arg;
    *hash = hash_numbers(r, (const uint64_t[]){*hash, hash_of(r, &r->locations, id)}, 2);
    return 0;
}

static int hash_labels(struct reading *r, const struct br_field *sample, uint64_t *hash)
{
    enum { LABELS = 3, KEY = 1, STR, NUM, UNIT, FIELDS };
    const uint8_t *at = sample->data, *end = at + sample->value;
    struct br_field f;
    while (at < end) {
        at = br_scan(at, end, &f);
        if (!at)
            return malformed(r);
        if (br_scan_tag(&f) != BR_SCAN_LEN(LABELS))
            continue;
        uint64_t v[FIELDS] = {0};
        int rc = read_numbers(r, &f, v, FIELDS - 1);
        if (rc)
            return rc;
        *hash = hash_numbers(r,
                             (const uint64_t[]){*hash, text_of(r, v[KEY])->hash,
                                                text_of(r, v[STR])->hash, v[NUM],
                                                text_of(r, v[UNIT])->hash},
                             5);
    }
    return 0;
}

/* --- Sums ------------------------------------------------------------------------------------- */

static void release_sums(struct sums *s)
{
    br_free(s->keys);
    br_free(s->values);
    br_free(s->slots);
    *s = (struct sums){0};
}

/* Places for `n` stacks at most. */
static int make_sums(struct reading *r, struct sums *s, size_t n)
{
    size_t n_slots = slots_for(n);
    size_t size = n * (sizeof *s->keys + r->n_types * sizeof *s->values) +
                  n_slots * sizeof *s->slots;
    r->arena.full = size > r->arena.max - r->arena.used;
    if (r->arena.full)
        return no_memory(r);
    r->arena.max -= size;
    *s = (struct sums){br_malloc(n * sizeof *s->keys),
                       br_calloc(n * r->n_types, sizeof *s->values),
                       br_calloc(n_slots, sizeof *s->slots),
                       0,
                       n_slots,
                       r->n_types};
    return s->keys && s->values && s->slots ? 0 : no_memory(r);
}

/* The place of a key; a new one has zeros. */
static uint32_t put_sums(struct sums *s, uint64_t key, bool *ret_new)
{
    size_t at = slot_of(s->keys, s->slots, s->n_slots, key, key);
    *ret_new = !s->slots[at];
    if (*ret_new) {
        s->keys[s->n++] = key;
        s->slots[at] = (uint32_t)s->n;
    }
    return s->slots[at] - 1;
}

/* NULL when it is not there. */
static const int64_t *find_sums(const struct sums *s, uint64_t key)
{
    if (!s->slots)
        return NULL;
    size_t at = slot_of(s->keys, s->slots, s->n_slots, key, key);
    return s->slots[at] ? s->values + (s->slots[at] - 1) * s->n_types : NULL;
}

/* The values of one sample. */
struct values {
    int64_t v[TYPES_MAX];
    size_t n;
};

static int put_value(struct reading *r, void *arg, uint64_t value)
{
    struct values *values = arg;
    if (values->n < r->n_types)
        values->v[values->n] = (int64_t)value;
    values->n++;
    return 0;
}

static int read_values(struct reading *r, const struct br_field *sample, struct values *ret)
{
    ret->n = 0;
    int rc = each_number(r, sample, 2, put_value, ret);
    if (!rc && ret->n != r->n_types)
        rc = br_err_set(r->err, BR_EINVAL,
                        "pprof: a sample has not as many values as there are types");
    return rc;
}

static int add_values(struct reading *r, int64_t *sums, const struct values *values)
{
    for (size_t t = 0; t < r->n_types; t++)
        if (r->cumulative[t] && (values->v[t] < 0 ||
                                 __builtin_add_overflow(sums[t], values->v[t], &sums[t])))
            return br_err_set(r->err, BR_EINVAL,
                              "pprof: a value that is negative, or whose sum is too large");
    return 0;
}

static int add_sample(struct reading *r, const struct br_field *sample, uint32_t i)
{
    uint64_t key = 0;
    struct values values;
    bool is_new;
    int rc = read_values(r, sample, &values);
    if (!rc)
        rc = each_number(r, sample, 1, hash_place, &key);
    if (!rc)
        rc = hash_labels(r, sample, &key);
    if (rc)
        return rc;
    uint32_t place = r->places[i] = put_sums(&r->now, key, &is_new);
    if (is_new)
        r->firsts[place] = i;
    return add_values(r, r->now.values + place * r->n_types, &values);
}

static int sum_up(struct reading *r)
{
    const uint8_t *at = r->data;
    struct br_field f;
    size_t n = r->counts[SAMPLE];
    if (n > PPROF_DELTA_STACKS_MAX)
        return br_err_set(r->err, BR_EFULL, "pprof: more than %u stacks to compare",
                          PPROF_DELTA_STACKS_MAX);
    r->places = br_arena_alloc(&r->arena, n * sizeof *r->places);
    r->firsts = br_arena_alloc(&r->arena, n * sizeof *r->firsts);
    if (!r->places || !r->firsts)
        return no_memory(r);
    int rc = make_sums(r, &r->now, n);
    for (uint32_t i = 0; !rc && next_of(r, &at, SAMPLE, &f); i++)
        rc = add_sample(r, &f, i);
    return rc;
}

/* --- The difference --------------------------------------------------------------------------- */

/* True when a count is less than it was. */
static bool is_new_program(const struct reading *r)
{
    const struct sums *now = &r->now;
    for (size_t i = 0; i < now->n; i++) {
        const int64_t *old = find_sums(&r->d->before, now->keys[i]);
        for (size_t t = 0; old && t < now->n_types; t++)
            if (r->tells[t] && now->values[i * now->n_types + t] < old[t])
                return true;
    }
    return false;
}

/* Makes the values of sample `i` the differences; false when there are none. The first of equal
 * stacks gets what is theirs; values that are no sums since the beginning stay where they are. */
static bool subtract(const struct reading *r, const struct sums *before, uint32_t i,
                     struct values *values)
{
    uint32_t place = r->places[i];
    const int64_t *sum = r->now.values + place * r->n_types;
    const int64_t *old = find_sums(before, r->now.keys[place]);
    bool first = r->firsts[place] == i, any = false;
    for (size_t t = 0; t < r->n_types; t++) {
        int64_t less = old ? old[t] : 0;
        if (r->cumulative[t])
            values->v[t] = first && sum[t] > less ? sum[t] - less : 0;
        any = any || values->v[t] != 0;
    }
    return any;
}

/* Copies all but the values. */
static uint8_t *put_others(const struct br_field *sample, uint8_t *o)
{
    const uint8_t *at = sample->data, *end = at + sample->value;
    struct br_field f;
    while (at < end) {
        at = br_scan(at, end, &f);
        if (f.number != BR_PPROF_SAMPLE_VALUES)
            o = br_put_bytes(o, f.at, (size_t)(at - f.at));
    }
    return o;
}

static size_t others_size(const struct br_field *sample)
{
    const uint8_t *at = sample->data, *end = at + sample->value;
    struct br_field f;
    size_t size = 0;
    while (at < end) {
        at = br_scan(at, end, &f);
        if (f.number != BR_PPROF_SAMPLE_VALUES)
            size += (size_t)(at - f.at);
    }
    return size;
}

/* A sample with these values, unless `o` is NULL; returns its size. */
static size_t put_sample(const struct br_field *sample, const struct values *values, uint8_t *o)
{
    uint8_t packed[TYPES_MAX * BR_VARINT_MAX], *p = packed;
    for (size_t t = 0; t < values->n; t++)
        p = br_put_varint(p, (uint64_t)values->v[t]);
    size_t packed_len = (size_t)(p - packed);
    size_t len = others_size(sample) + br_len_size(BR_PPROF_SAMPLE_VALUES, packed_len);
    if (o) {
        o = br_put_varint(o, BR_SCAN_LEN(SAMPLE));
        o = br_put_varint(o, len);
        o = put_others(sample, o);
        br_put_len(o, BR_PPROF_SAMPLE_VALUES, packed, packed_len);
    }
    return br_len_size(SAMPLE, len);
}

/* The profile with the differences, unless `out` is NULL; returns its size. */
static size_t put_profile(struct reading *r, const struct sums *before, uint8_t *out)
{
    size_t len = 0;
    uint32_t i = 0;
    struct br_field f;
    for (const uint8_t *at = r->data; at < r->end;) {
        struct values values;
        at = br_scan(at, r->end, &f);
        if (br_scan_tag(&f) != BR_SCAN_LEN(SAMPLE)) {
            if (out)
                br_put_bytes(out + len, f.at, (size_t)(at - f.at));
            len += (size_t)(at - f.at);
            continue;
        }
        (void)read_values(r, &f, &values);
        if (subtract(r, before, i++, &values))
            len += put_sample(&f, &values, out ? out + len : NULL);
    }
    return len;
}

/* The time between the two, where the profile says none. */
static uint8_t *put_duration(const struct reading *r, uint8_t *o)
{
    const struct pprof_delta *d = r->d;
    if (r->duration_ns != 0 || d->time_ns <= 0 || r->time_ns <= d->time_ns)
        return o;
    o = br_put_varint(o, BR_SCAN_VARINT(DURATION));
    return br_put_varint(o, (uint64_t)(r->time_ns - d->time_ns));
}

static int write(struct reading *r, struct br_arena *arena, const uint8_t **ret, size_t *ret_len)
{
    static const struct sums none;
    bool same = r->d->types == r->types && !is_new_program(r);
    const struct sums *before = same ? &r->d->before : &none;
    size_t len = put_profile(r, before, NULL);
    uint8_t *out = br_arena_alloc(arena, len + 2 * BR_VARINT_MAX);
    if (!out)
        return no_memory(r);
    (void)put_profile(r, before, out);
    *ret = out;
    *ret_len = (size_t)(put_duration(r, out + len) - out);
    return 0;
}

static int take(struct reading *r, struct br_arena *arena, const uint8_t **ret, size_t *ret_len)
{
    int rc = pprof_delta_check(r->data, (size_t)(r->end - r->data)) ? read_top(r) : malformed(r);
    if (!rc)
        rc = hash_texts(r);
    if (!rc)
        rc = read_types(r);
    if (!rc)
        rc = hash_functions(r);
    if (!rc)
        rc = hash_locations(r);
    if (!rc)
        rc = sum_up(r);
    *ret_len = 0;
    return rc || !r->d->before.slots ? rc : write(r, arena, ret, ret_len);
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
    struct reading r = {.d = d, .err = err, .data = data, .end = data + len};
    if (len > UINT32_MAX)
        return br_err_set(err, BR_ETOOBIG, "pprof: 4 GiB or more");
    r.max_bytes = GROWTH * len + SPARE;
    br_arena_init(&r.arena, r.max_bytes);
    int rc = take(&r, arena, ret, ret_len);
    br_arena_release(&r.arena);
    if (rc) {
        release_sums(&r.now);
        return rc;
    }
    release_sums(&d->before);
    d->before = r.now;
    d->types = r.types;
    d->time_ns = r.time_ns;
    return 0;
}
