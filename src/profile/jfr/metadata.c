/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metadata is a tree of elements (a name, attributes, children), all of whose texts are numbers of
 * strings: root > metadata > class > field. What else is in it (annotations, settings, the region)
 * is walked over.
 */
#include <string.h>

#include "base/mem.h"
#include "profile/jfr/jfr.h"

#define DEPTH_MAX 16
#define CLASSES_MAX (1u << 20)
#define WORD_MAX 64

static const char *const TYPES[BR_JFR_N_TYPES] = {
    [BR_JFR_BOOLEAN] = "boolean",
    [BR_JFR_BYTE] = "byte",
    [BR_JFR_CHAR] = "char",
    [BR_JFR_SHORT] = "short",
    [BR_JFR_INT] = "int",
    [BR_JFR_LONG] = "long",
    [BR_JFR_FLOAT] = "float",
    [BR_JFR_DOUBLE] = "double",
    [BR_JFR_STRING] = "java.lang.String",
    [BR_JFR_THREAD] = "java.lang.Thread",
    [BR_JFR_THREAD_STATE] = "jdk.types.ThreadState",
    [BR_JFR_STACK_TRACE] = "jdk.types.StackTrace",
    [BR_JFR_METHOD] = "jdk.types.Method",
    [BR_JFR_CLASS] = "java.lang.Class",
    [BR_JFR_SYMBOL] = "jdk.types.Symbol",
    [BR_JFR_CHUNK_HEADER] = "jdk.types.ChunkHeader",
    [BR_JFR_STACK_FRAME] = "jdk.types.StackFrame",
    [BR_JFR_EXECUTION_SAMPLE] = "jdk.ExecutionSample",
    [BR_JFR_CPU_TIME_SAMPLE] = "jdk.CPUTimeSample",
    [BR_JFR_WALL_CLOCK_SAMPLE] = "profiler.WallClockSample",
    [BR_JFR_ALLOC_IN_NEW_TLAB] = "jdk.ObjectAllocationInNewTLAB",
    [BR_JFR_ALLOC_OUTSIDE_TLAB] = "jdk.ObjectAllocationOutsideTLAB",
    [BR_JFR_ALLOC_SAMPLE] = "jdk.ObjectAllocationSample",
    [BR_JFR_MONITOR_ENTER] = "jdk.JavaMonitorEnter",
    [BR_JFR_THREAD_PARK] = "jdk.ThreadPark",
    [BR_JFR_LIVE_OBJECT] = "profiler.LiveObject",
    [BR_JFR_MALLOC] = "profiler.Malloc",
    [BR_JFR_ACTIVE_SETTING] = "jdk.ActiveSetting",
};

/* Texts that mean something here; those of TYPES follow, from FIRST_TYPE on. */
enum word {
    NO_WORD,
    W_ROOT,
    W_CLASS,
    W_FIELD,
    W_ID,
    W_NAME,
    W_CONSTANT_POOL,
    W_DIMENSION,
    W_TRUE,
    W_ZERO,
    W_ONE,
    W_START_TIME,
    W_DURATION,
    W_STACK_TRACE,
    W_SAMPLED_THREAD,
    W_EVENT_THREAD,
    W_STATE,
    W_SAMPLES,
    W_SAMPLING_PERIOD,
    W_TLAB_SIZE,
    W_ALLOCATION_SIZE,
    W_WEIGHT,
    W_SIZE,
    W_SPAN_ID,
    W_SPAN_NAME,
    W_CONTEXT_ID,
    W_TRACE_ID_HI,
    W_TRACE_ID_LO,
    W_VALUE,
    W_STRING,
    W_TYPE,
    W_FRAMES,
    W_METHOD,
    W_LINE_NUMBER,
    W_OS_NAME,
    W_JAVA_NAME,
    W_JAVA_THREAD_ID,
    FIRST_TYPE,
    N_WORDS = FIRST_TYPE + BR_JFR_N_TYPES
};

static const char *const WORDS[FIRST_TYPE] = {
    [NO_WORD] = "",
    [W_ROOT] = "root",
    [W_CLASS] = "class",
    [W_FIELD] = "field",
    [W_ID] = "id",
    [W_NAME] = "name",
    [W_CONSTANT_POOL] = "constantPool",
    [W_DIMENSION] = "dimension",
    [W_TRUE] = "true",
    [W_ZERO] = "0",
    [W_ONE] = "1",
    [W_START_TIME] = "startTime",
    [W_DURATION] = "duration",
    [W_STACK_TRACE] = "stackTrace",
    [W_SAMPLED_THREAD] = "sampledThread",
    [W_EVENT_THREAD] = "eventThread",
    [W_STATE] = "state",
    [W_SAMPLES] = "samples",
    [W_SAMPLING_PERIOD] = "samplingPeriod",
    [W_TLAB_SIZE] = "tlabSize",
    [W_ALLOCATION_SIZE] = "allocationSize",
    [W_WEIGHT] = "weight",
    [W_SIZE] = "size",
    [W_SPAN_ID] = "spanId",
    [W_SPAN_NAME] = "spanName",
    [W_CONTEXT_ID] = "contextId",
    [W_TRACE_ID_HI] = "traceIdHi",
    [W_TRACE_ID_LO] = "traceIdLo",
    [W_VALUE] = "value",
    [W_STRING] = "string",
    [W_TYPE] = "type",
    [W_FRAMES] = "frames",
    [W_METHOD] = "method",
    [W_LINE_NUMBER] = "lineNumber",
    [W_OS_NAME] = "osName",
    [W_JAVA_NAME] = "javaName",
    [W_JAVA_THREAD_ID] = "javaThreadId",
};

/* A field of another shape under the same name means something else, and nobody reads it. */
static const struct {
    uint8_t name, type, slot; /* enum word, enum br_jfr_type, enum br_jfr_slot */
    bool pool, array;
} SLOTS[] = {
    {W_START_TIME, BR_JFR_LONG, BR_JFR_START, false, false},
    {W_DURATION, BR_JFR_LONG, BR_JFR_DURATION, false, false},
    {W_STACK_TRACE, BR_JFR_STACK_TRACE, BR_JFR_STACK, true, false},
    {W_SAMPLED_THREAD, BR_JFR_THREAD, BR_JFR_BY_THREAD, true, false},
    {W_EVENT_THREAD, BR_JFR_THREAD, BR_JFR_BY_THREAD, true, false},
    {W_STATE, BR_JFR_THREAD_STATE, BR_JFR_STATE, true, false},
    {W_SAMPLES, BR_JFR_INT, BR_JFR_SAMPLES, false, false},
    {W_SAMPLING_PERIOD, BR_JFR_LONG, BR_JFR_SAMPLING_PERIOD, false, false},
    {W_TLAB_SIZE, BR_JFR_LONG, BR_JFR_TLAB_SIZE, false, false},
    {W_ALLOCATION_SIZE, BR_JFR_LONG, BR_JFR_ALLOCATION_SIZE, false, false},
    {W_WEIGHT, BR_JFR_LONG, BR_JFR_WEIGHT, false, false},
    {W_SIZE, BR_JFR_LONG, BR_JFR_SIZE, false, false},
    {W_SPAN_ID, BR_JFR_LONG, BR_JFR_SPAN_ID, false, false},
    {W_SPAN_NAME, BR_JFR_LONG, BR_JFR_SPAN_NAME, false, false},
    {W_CONTEXT_ID, BR_JFR_LONG, BR_JFR_CONTEXT_ID, false, false},
    {W_TRACE_ID_HI, BR_JFR_LONG, BR_JFR_TRACE_HI, false, false},
    {W_TRACE_ID_LO, BR_JFR_LONG, BR_JFR_TRACE_LO, false, false},
    {W_ID, BR_JFR_LONG, BR_JFR_ID, false, false},
    {W_NAME, BR_JFR_STRING, BR_JFR_NAME, false, false},
    {W_VALUE, BR_JFR_STRING, BR_JFR_VALUE, false, false},
    {W_STRING, BR_JFR_STRING, BR_JFR_TEXT, false, false},
    {W_TYPE, BR_JFR_CLASS, BR_JFR_HOLDER, true, false},
    {W_NAME, BR_JFR_SYMBOL, BR_JFR_SYMBOL_NAME, true, false},
    {W_FRAMES, BR_JFR_STACK_FRAME, BR_JFR_FRAMES, false, true},
    {W_METHOD, BR_JFR_METHOD, BR_JFR_FRAME_METHOD, true, false},
    {W_LINE_NUMBER, BR_JFR_INT, BR_JFR_LINE, false, false},
    {W_OS_NAME, BR_JFR_STRING, BR_JFR_OS_NAME, false, false},
    {W_JAVA_NAME, BR_JFR_STRING, BR_JFR_JAVA_NAME, false, false},
    {W_JAVA_THREAD_ID, BR_JFR_LONG, BR_JFR_JAVA_ID, false, false},
};

/* A text of ASCII; of others only that they are none. */
struct text {
    const uint8_t *p; /* the low byte of the first character */
    uint32_t n;
    uint8_t step; /* bytes of a character; 0: not ASCII */
    uint8_t word; /* enum word */
};

struct element {
    uint32_t name, n_attributes, n_children;
    uint32_t id, named, type, pool, dimension; /* string + 1 of these attributes; 0: not there */
};

#define PLACES 512 /* several times N_WORDS, a power of two */

struct walk {
    struct br_jfr_chunk *c;
    struct br_jfr_in in;
    struct text *texts;
    uint32_t n_texts;
    uint8_t places[PLACES]; /* hash table of the words */
};

static const char *word_text(unsigned word)
{
    return word < FIRST_TYPE ? WORDS[word] : TYPES[word - FIRST_TYPE];
}

/* Tells the words apart well enough; a text with the hash of many words is compared with each. */
static size_t place_of(size_t n, uint8_t first, uint8_t last)
{
    return (n * 67 + first * 5u + last * 29u) % PLACES;
}

static void place_words(struct walk *w)
{
    for (unsigned word = NO_WORD + 1; word < N_WORDS; word++) {
        const char *s = word_text(word);
        if (!s)
            continue;
        size_t n = strlen(s), i = place_of(n, (uint8_t)s[0], (uint8_t)s[n - 1]);
        while (w->places[i])
            i = (i + 1) % PLACES;
        w->places[i] = (uint8_t)word;
    }
}

static bool text_is(const struct text *t, const char *word)
{
    if (strlen(word) != t->n)
        return false;
    if (t->step == 1)
        return memcmp(t->p, word, t->n) == 0;
    for (size_t k = 0; k < t->n; k++)
        if (t->p[2 * k] != (uint8_t)word[k] || *(t->p + 2 * k - 1) != 0)
            return false;
    return true;
}

static uint8_t find_word(const struct walk *w, const struct text *t)
{
    if (!t->step || !t->n || t->n > WORD_MAX)
        return NO_WORD;
    size_t i = place_of(t->n, t->p[0], t->p[(t->n - 1) * t->step]);
    while (w->places[i] && !text_is(t, word_text(w->places[i])))
        i = (i + 1) % PLACES;
    return w->places[i];
}

static bool is(const struct walk *w, uint32_t i, enum word word)
{
    return w->texts[i].word == word;
}

/* Ids are written as decimal text. */
static bool number(const struct walk *w, uint32_t i, int64_t *ret)
{
    const struct text *t = &w->texts[i];
    int64_t v = 0;
    uint32_t k = 0;
    bool minus = t->step && t->n > 1 && t->p[0] == '-';
    if (!t->step || !t->n || t->n > 19)
        return false;
    for (k = minus; k < t->n; k++) {
        int digit = t->p[k * t->step] - '0';
        if (digit < 0 || digit > 9 || __builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, digit, &v))
            return false;
    }
    *ret = minus ? -v : v;
    return true;
}

static struct text read_text(struct br_jfr_in *in)
{
    struct br_jfr_in at = *in;
    struct text t = {0};
    br_jfr_pass_string(in);
    uint64_t encoding = br_jfr_fixed(&at, 1);
    if (in->bad || encoding < 3)
        return t;
    t.n = br_jfr_int(&at);
    t.p = at.p;
    size_t bytes = (size_t)(in->p - at.p);
    t.step = encoding == 4 && !at.packed ? 2 : bytes == t.n;
    if (t.step == 2)
        t.p++;
    return t;
}

static int read_texts(struct walk *w)
{
    uint32_t n = br_jfr_int(&w->in);
    if (w->in.bad || n > (size_t)(w->in.end - w->in.p))
        return BR_EINVAL;
    w->texts = br_calloc(n ? n : 1, sizeof *w->texts);
    if (!w->texts)
        return BR_ENOMEM;
    w->n_texts = n;
    place_words(w);
    for (uint32_t i = 0; i < n; i++) {
        w->texts[i] = read_text(&w->in);
        w->texts[i].word = find_word(w, &w->texts[i]);
    }
    return w->in.bad ? BR_EINVAL : 0;
}

static uint32_t text_index(struct walk *w)
{
    uint32_t i = br_jfr_int(&w->in);
    if (i < w->n_texts)
        return i;
    w->in.bad = true;
    w->in.p = w->in.end;
    return 0;
}

static bool read_element(struct walk *w, struct element *e)
{
    memset(e, 0, sizeof *e);
    if (!w->n_texts)
        return false;
    e->name = text_index(w);
    e->n_attributes = br_jfr_int(&w->in);
    for (uint32_t i = 0; i < e->n_attributes && !w->in.bad; i++) {
        uint32_t key = text_index(w), value = text_index(w) + 1;
        switch (w->texts[key].word) {
        case W_ID:
            e->id = value;
            break;
        case W_NAME:
            e->named = value;
            break;
        case W_CLASS:
            e->type = value;
            break;
        case W_CONSTANT_POOL:
            e->pool = value;
            break;
        case W_DIMENSION:
            e->dimension = value;
            break;
        default:
            break;
        }
    }
    e->n_children = br_jfr_int(&w->in);
    return !w->in.bad;
}

static int add_class(struct walk *w, const struct element *e)
{
    struct br_jfr_chunk *c = w->c;
    struct br_jfr_class k = {.first = c->n_fields};
    if (!e->id || !e->named || !number(w, e->id - 1, &k.id))
        return BR_EINVAL;
    uint8_t word = w->texts[e->named - 1].word;
    if (word >= FIRST_TYPE)
        k.type = (uint8_t)(word - FIRST_TYPE);
    int rc = br_grow(&c->classes, &c->classes_cap, (size_t)c->n_classes + 1, sizeof *c->classes,
                     CLASSES_MAX);
    if (rc)
        return rc == BR_EFULL ? BR_EINVAL : rc;
    c->classes[c->n_classes++] = k;
    /* Of equal ids the first is the one that is meant. */
    return br_jfr_class(c, k.id) ? 0
                                 : br_jfr_ids_put(&c->class_of_id, (uint64_t)k.id, c->n_classes);
}

static int add_field(struct walk *w, const struct element *e)
{
    struct br_jfr_chunk *c = w->c;
    struct br_jfr_field f = {.class = BR_JFR_NO_CLASS};
    if (!e->type || !e->named || !number(w, e->type - 1, &f.type_id))
        return BR_EINVAL;
    f.name = e->named - 1;
    f.pool = e->pool && is(w, e->pool - 1, W_TRUE);
    f.array = e->dimension && is(w, e->dimension - 1, W_ONE);
    if (e->dimension && !f.array && !is(w, e->dimension - 1, W_ZERO))
        return BR_EINVAL;
    int rc =
        br_grow(&c->fields, &c->fields_cap, (size_t)c->n_fields + 1, sizeof *c->fields, UINT32_MAX);
    if (rc)
        return rc;
    c->fields[c->n_fields++] = f;
    c->classes[c->n_classes - 1].n_fields++;
    return 0;
}

/* The elements below the root, with a stack of how many children are still to come. */
static int read_elements(struct walk *w)
{
    struct {
        uint32_t left;
        bool class;
    } stack[DEPTH_MAX];
    unsigned depth = 0;
    struct element e;
    if (!read_element(w, &e) || !is(w, e.name, W_ROOT))
        return BR_EINVAL;
    stack[depth].left = e.n_children;
    stack[depth++].class = false;
    while (depth) {
        if (!stack[depth - 1].left) {
            depth--;
            continue;
        }
        stack[depth - 1].left--;
        if (!read_element(w, &e) || depth == DEPTH_MAX)
            return BR_EINVAL;
        /* A class inside a class would take over its fields. */
        bool class = depth == 2 && is(w, e.name, W_CLASS);
        int rc = class ? add_class(w, &e) : 0;
        if (stack[depth - 1].class && is(w, e.name, W_FIELD))
            rc = add_field(w, &e);
        if (rc)
            return rc;
        stack[depth].left = e.n_children;
        stack[depth++].class = class;
    }
    return 0;
}

const struct br_jfr_class *br_jfr_class(const struct br_jfr_chunk *c, int64_t id)
{
    const struct br_jfr_entry *e = br_jfr_ids_find(&c->class_of_id, (uint64_t)id);
    return e ? &c->classes[e->at - 1] : NULL;
}

static uint8_t slot_of(const struct walk *w, const struct br_jfr_field *f)
{
    for (size_t i = 0; i < BR_COUNT(SLOTS); i++)
        if (SLOTS[i].type == f->type && SLOTS[i].pool == f->pool && SLOTS[i].array == f->array &&
            is(w, f->name, SLOTS[i].name))
            return SLOTS[i].slot;
    return BR_JFR_NOWHERE;
}

/* With all classes known: the fields' types, and for the classes that matter their slots. */
static void connect(struct walk *w)
{
    struct br_jfr_chunk *c = w->c;
    for (uint32_t i = 0; i < c->n_fields; i++) {
        const struct br_jfr_class *type = br_jfr_class(c, c->fields[i].type_id);
        if (type) {
            c->fields[i].class = (uint32_t)(type - c->classes);
            c->fields[i].type = type->type;
        }
    }
    for (uint32_t i = 0; i < c->n_classes; i++) {
        struct br_jfr_class *k = &c->classes[i];
        if (k->type == BR_JFR_OTHER)
            continue;
        c->class_of[k->type] = i;
        if (k->type >= BR_JFR_FIRST_EVENT) {
            c->event_ids[k->type - BR_JFR_FIRST_EVENT] = k->id;
            c->wanted[(uint64_t)k->id % BR_JFR_WANTED] = true;
        }
        for (uint32_t n = 0; n < k->n_fields; n++) {
            struct br_jfr_field *f = &c->fields[k->first + n];
            f->slot = slot_of(w, f);
            if (f->slot)
                k->n_needed = n + 1;
        }
    }
}

static void forget(struct br_jfr_chunk *c)
{
    c->n_classes = c->n_fields = c->known_len = 0;
    br_jfr_ids_clear(&c->class_of_id);
    memset(c->wanted, 0, sizeof c->wanted);
    for (unsigned i = 0; i < BR_JFR_N_TYPES; i++)
        c->class_of[i] = BR_JFR_NO_CLASS;
}

/* What the metadata says, from its first text to the end of its event; false: there is no such. */
static bool find_body(const struct br_jfr_chunk *c, struct br_jfr_in *ret)
{
    *ret = br_jfr_at(c, c->metadata_at);
    uint32_t size = br_jfr_int(ret);
    for (int i = 0; i < 4; i++)
        (void)br_jfr_long(ret); /* type, start, duration, the metadata's id */
    if (ret->bad || size > c->size - c->metadata_at || ret->p > c->data + c->metadata_at + size)
        return false;
    ret->end = c->data + c->metadata_at + size;
    return true;
}

static int read_body(struct br_jfr_chunk *c, const struct br_jfr_in *in)
{
    struct walk w = {.c = c, .in = *in};
    int rc = read_texts(&w);
    if (!rc)
        rc = read_elements(&w);
    if (!rc)
        connect(&w);
    br_free(w.texts);
    return rc;
}

int br_jfr_metadata(struct br_jfr_chunk *c, struct br_err *err)
{
    struct br_jfr_in in;
    int rc = BR_EINVAL;
    if (find_body(c, &in)) {
        /* The chunks of a recording mostly say the same. */
        size_t len = (size_t)(in.end - in.p);
        if (len && len == c->known_len && in.packed == c->known_packed &&
            memcmp(in.p, c->known, len) == 0)
            return 0;
        forget(c);
        rc = read_body(c, &in);
        c->known = in.p;
        c->known_len = rc ? 0 : (uint32_t)len;
        c->known_packed = in.packed;
    }
    if (rc == BR_EINVAL)
        return br_err_set(err, rc, "the metadata at byte %u of the chunk is cut off or malformed",
                          c->metadata_at);
    return rc;
}
