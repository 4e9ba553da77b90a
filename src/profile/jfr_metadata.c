/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metadata is a tree of elements (a name, attributes, children), all of whose texts are numbers of
 * strings: root > metadata > class > field. What else is in it (annotations, settings, the region)
 * is walked over.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "profile/jfr.h"

#define DEPTH_MAX 16
#define CLASSES_MAX (1u << 20)

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

/* A field of another shape under the same name means something else, and nobody reads it. */
static const struct {
    const char *name;
    uint8_t type, slot;
    bool pool, array;
} SLOTS[] = {
    {"startTime", BR_JFR_LONG, BR_JFR_START, false, false},
    {"duration", BR_JFR_LONG, BR_JFR_DURATION, false, false},
    {"stackTrace", BR_JFR_STACK_TRACE, BR_JFR_STACK, true, false},
    {"sampledThread", BR_JFR_THREAD, BR_JFR_BY_THREAD, true, false},
    {"eventThread", BR_JFR_THREAD, BR_JFR_BY_THREAD, true, false},
    {"state", BR_JFR_THREAD_STATE, BR_JFR_STATE, true, false},
    {"samples", BR_JFR_INT, BR_JFR_SAMPLES, false, false},
    {"tlabSize", BR_JFR_LONG, BR_JFR_TLAB_SIZE, false, false},
    {"allocationSize", BR_JFR_LONG, BR_JFR_ALLOCATION_SIZE, false, false},
    {"weight", BR_JFR_LONG, BR_JFR_WEIGHT, false, false},
    {"size", BR_JFR_LONG, BR_JFR_SIZE, false, false},
    {"spanId", BR_JFR_LONG, BR_JFR_SPAN_ID, false, false},
    {"spanName", BR_JFR_LONG, BR_JFR_SPAN_NAME, false, false},
    {"contextId", BR_JFR_LONG, BR_JFR_CONTEXT_ID, false, false},
    {"traceIdHi", BR_JFR_LONG, BR_JFR_TRACE_HI, false, false},
    {"traceIdLo", BR_JFR_LONG, BR_JFR_TRACE_LO, false, false},
    {"id", BR_JFR_LONG, BR_JFR_ID, false, false},
    {"name", BR_JFR_STRING, BR_JFR_NAME, false, false},
    {"value", BR_JFR_STRING, BR_JFR_VALUE, false, false},
    {"string", BR_JFR_STRING, BR_JFR_TEXT, false, false},
    {"type", BR_JFR_CLASS, BR_JFR_HOLDER, true, false},
    {"name", BR_JFR_SYMBOL, BR_JFR_SYMBOL_NAME, true, false},
    {"frames", BR_JFR_STACK_FRAME, BR_JFR_FRAMES, false, true},
    {"method", BR_JFR_METHOD, BR_JFR_FRAME_METHOD, true, false},
    {"lineNumber", BR_JFR_INT, BR_JFR_LINE, false, false},
    {"osName", BR_JFR_STRING, BR_JFR_OS_NAME, false, false},
    {"javaName", BR_JFR_STRING, BR_JFR_JAVA_NAME, false, false},
    {"javaThreadId", BR_JFR_LONG, BR_JFR_JAVA_ID, false, false},
};

/* A string of ASCII letters; of others only that they are none. */
struct text {
    const uint8_t *p; /* the low byte of the first unit */
    uint32_t n;
    uint32_t step; /* bytes of a unit; 0: not ASCII */
};

struct element {
    uint32_t name, n_attributes, n_children;
    uint32_t id, named, type, pool, dimension; /* string + 1 of these attributes; 0: not there */
};

struct walk {
    struct br_jfr_chunk *c;
    struct br_jfr_in in;
    struct text *texts;
    uint32_t n_texts;
};

static bool is(const struct walk *w, uint32_t i, const char *name)
{
    const struct text *t = &w->texts[i];
    size_t n = strlen(name);
    if (t->n != n || !t->step)
        return false;
    if (t->step == 1)
        return memcmp(t->p, name, n) == 0;
    for (size_t k = 0; k < n; k++)
        if (t->p[2 * k] != (uint8_t)name[k] || *(t->p + 2 * k - 1) != 0)
            return false;
    return true;
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
    for (uint32_t i = 0; i < n; i++)
        w->texts[i] = read_text(&w->in);
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
        if (is(w, key, "id"))
            e->id = value;
        else if (is(w, key, "name"))
            e->named = value;
        else if (is(w, key, "class"))
            e->type = value;
        else if (is(w, key, "constantPool"))
            e->pool = value;
        else if (is(w, key, "dimension"))
            e->dimension = value;
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
    for (uint8_t t = BR_JFR_OTHER + 1; t < BR_JFR_N_TYPES && !k.type; t++)
        if (is(w, e->named - 1, TYPES[t]))
            k.type = t;
    int rc = br_grow(&c->classes, &c->classes_cap, (size_t)c->n_classes + 1, sizeof *c->classes,
                     CLASSES_MAX);
    if (!rc)
        c->classes[c->n_classes++] = k;
    return rc == BR_EFULL ? BR_EINVAL : rc;
}

static int add_field(struct walk *w, const struct element *e)
{
    struct br_jfr_chunk *c = w->c;
    struct br_jfr_field f = {.class = BR_JFR_NO_CLASS};
    if (!e->type || !e->named || !number(w, e->type - 1, &f.type_id))
        return BR_EINVAL;
    f.name = e->named - 1;
    f.pool = e->pool && is(w, e->pool - 1, "true");
    f.array = e->dimension && is(w, e->dimension - 1, "1");
    if (e->dimension && !f.array && !is(w, e->dimension - 1, "0"))
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
    if (!read_element(w, &e) || !is(w, e.name, "root"))
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
        bool class = depth == 2 && is(w, e.name, "class");
        int rc = class ? add_class(w, &e) : 0;
        if (stack[depth - 1].class && is(w, e.name, "field"))
            rc = add_field(w, &e);
        if (rc)
            return rc;
        stack[depth].left = e.n_children;
        stack[depth++].class = class;
    }
    return 0;
}

static int by_id(const void *a, const void *b)
{
    int64_t x = ((const struct br_jfr_class *)a)->id, y = ((const struct br_jfr_class *)b)->id;
    return (x > y) - (x < y);
}

const struct br_jfr_class *br_jfr_class(const struct br_jfr_chunk *c, int64_t id)
{
    uint32_t low = 0, high = c->n_classes;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (c->classes[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < c->n_classes && c->classes[low].id == id ? &c->classes[low] : NULL;
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
    if (c->n_classes)
        qsort(c->classes, c->n_classes, sizeof *c->classes, by_id);
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
        if (k->type >= BR_JFR_FIRST_EVENT)
            c->event_ids[k->type - BR_JFR_FIRST_EVENT] = k->id;
        for (uint32_t n = 0; n < k->n_fields; n++) {
            struct br_jfr_field *f = &c->fields[k->first + n];
            f->slot = slot_of(w, f);
            if (f->slot)
                k->n_needed = n + 1;
        }
    }
}

int br_jfr_metadata(struct br_jfr_chunk *c, struct br_err *err)
{
    struct walk w = {.c = c, .in = br_jfr_at(c, c->metadata_at)};
    (void)br_jfr_int(&w.in); /* size */
    for (int i = 0; i < 4; i++)
        (void)br_jfr_long(&w.in); /* type, start, duration, the metadata's id */
    int rc = read_texts(&w);
    if (!rc)
        rc = read_elements(&w);
    if (!rc)
        connect(&w);
    br_free(w.texts);
    if (rc == BR_EINVAL)
        return br_err_set(err, rc, "the metadata at byte %u of the chunk is cut off or malformed",
                          c->metadata_at);
    return rc;
}
