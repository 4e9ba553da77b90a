/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metadata is a tree of elements: root > metadata > class > field. An element consists of a name,
 * attributes and children; names and values are indices of strings. Other elements (annotations,
 * settings, the region) are skipped.
 */
#include <string.h>

#include "base/decimal.h"
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

/* Strings of the metadata that the reader knows. The names in TYPES have the numbers from
 * FIRST_TYPE on. */
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

/* Fields of events whose values are stored in a slot. A field with the same name but another
 * type or shape has another meaning and is ignored. */
static const struct {
    /* name as enum word, type as enum br_jfr_type, slot as enum br_jfr_slot */
    uint8_t name, type, slot;
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

/* A string of the metadata. Only ASCII strings are decoded. */
struct text {
    const uint8_t *p; /* points to the low byte of the first character */
    uint32_t count;
    uint8_t step; /* distance between characters, in bytes; 0: the string is not ASCII */
    uint8_t word; /* number of the string in enum word, if the string is one of the known strings */
};

struct element {
    uint32_t name, n_attributes, n_children;
    /* for each of these attributes: index of the string with its value + 1; 0: the element lacks
     * the attribute */
    uint32_t id, named, type, pool, dimension;
};

/* number of slots in the hash table of known strings: a power of two, several times N_WORDS */
#define PLACES 512

struct walk {
    struct br_jfr_chunk *chunk;
    struct br_jfr_in in;
    struct text *texts;
    uint32_t n_texts;
    uint8_t places[PLACES]; /* hash table of the known strings, indexed by jfr_metadata_place_of */
};

static const char *jfr_metadata_word_text(unsigned word)
{
    return word < FIRST_TYPE ? WORDS[word] : TYPES[word - FIRST_TYPE];
}

/* Returns a hash of a string, computed from its length and its first and last character. There
 * are few collisions among the known strings. */
static size_t jfr_metadata_place_of(size_t count, uint8_t first, uint8_t last)
{
    return (count * 67 + first * 5u + last * 29u) % PLACES;
}

static void jfr_metadata_place_words(struct walk *walk)
{
    for (unsigned word = NO_WORD + 1; word < N_WORDS; word++) {
        const char *s = jfr_metadata_word_text(word);
        if (!s)
            continue;
        size_t n = strlen(s), i = jfr_metadata_place_of(n, (uint8_t)s[0], (uint8_t)s[n - 1]);
        while (walk->places[i])
            i = (i + 1) % PLACES;
        walk->places[i] = (uint8_t)word;
    }
}

static bool jfr_metadata_text_is(const struct text *text, const char *word)
{
    if (strlen(word) != text->count)
        return false;
    if (text->step == 1)
        return memcmp(text->p, word, text->count) == 0;
    for (size_t k = 0; k < text->count; k++)
        if (text->p[2 * k] != (uint8_t)word[k] || *(text->p + 2 * k - 1) != 0)
            return false;
    return true;
}

static uint8_t jfr_metadata_find_word(const struct walk *walk, const struct text *text)
{
    if (!text->step || !text->count || text->count > WORD_MAX)
        return NO_WORD;
    size_t i =
        jfr_metadata_place_of(text->count, text->p[0], text->p[(text->count - 1) * text->step]);
    while (walk->places[i] && !jfr_metadata_text_is(text, jfr_metadata_word_text(walk->places[i])))
        i = (i + 1) % PLACES;
    return walk->places[i];
}

static bool jfr_metadata_is(const struct walk *walk, uint32_t index, enum word word)
{
    return walk->texts[index].word == word;
}

/* Parses an ID, which the metadata contains as decimal text. */
static bool jfr_metadata_number(const struct walk *walk, uint32_t index, int64_t *ret)
{
    const struct text *text = &walk->texts[index];
    char digits[19];
    if (!text->step || text->count > sizeof digits)
        return false;
    for (uint32_t k = 0; k < text->count; k++)
        digits[k] = (char)text->p[k * text->step];
    return br_decimal_parse_signed(digits, text->count, ret);
}

static struct text jfr_metadata_read_text(struct br_jfr_in *in)
{
    struct br_jfr_in at = *in;
    struct text text = {0};
    br_jfr_skip_string(in);
    uint64_t encoding = br_jfr_fixed(&at, 1);
    if (in->bad || encoding < 3)
        return text;
    text.count = br_jfr_int(&at);
    text.p = at.p;
    size_t bytes = (size_t)(in->p - at.p);
    text.step = encoding == 4 && !at.packed ? 2 : bytes == text.count;
    if (text.step == 2)
        text.p++;
    return text;
}

static int jfr_metadata_read_texts(struct walk *walk)
{
    uint32_t n = br_jfr_int(&walk->in);
    if (walk->in.bad || n > (size_t)(walk->in.end - walk->in.p))
        return BR_EINVAL;
    walk->texts = br_calloc(n ? n : 1, sizeof *walk->texts);
    if (!walk->texts)
        return BR_ENOMEM;
    walk->n_texts = n;
    jfr_metadata_place_words(walk);
    for (uint32_t i = 0; i < n; i++) {
        walk->texts[i] = jfr_metadata_read_text(&walk->in);
        walk->texts[i].word = jfr_metadata_find_word(walk, &walk->texts[i]);
    }
    return walk->in.bad ? BR_EINVAL : 0;
}

static uint32_t jfr_metadata_text_index(const struct walk *walk, struct br_jfr_in *in)
{
    uint32_t i = br_jfr_int(in);
    if (i < walk->n_texts)
        return i;
    in->bad = true;
    in->p = in->end;
    return 0;
}

static void jfr_metadata_note_attribute(struct element *element, uint8_t word, uint32_t value)
{
    switch (word) {
    case W_ID:
        element->id = value;
        break;
    case W_NAME:
        element->named = value;
        break;
    case W_CLASS:
        element->type = value;
        break;
    case W_CONSTANT_POOL:
        element->pool = value;
        break;
    case W_DIMENSION:
        element->dimension = value;
        break;
    default:
        break;
    }
}

static bool jfr_metadata_read_element(struct walk *walk, struct element *element)
{
    struct br_jfr_in in = walk->in;
    memset(element, 0, sizeof *element);
    if (!walk->n_texts)
        return false;
    element->name = jfr_metadata_text_index(walk, &in);
    element->n_attributes = br_jfr_int(&in);
    for (uint32_t i = 0; i < element->n_attributes && !in.bad; i++) {
        uint32_t key = jfr_metadata_text_index(walk, &in);
        uint32_t value = jfr_metadata_text_index(walk, &in) + 1;
        jfr_metadata_note_attribute(element, walk->texts[key].word, value);
    }
    element->n_children = br_jfr_int(&in);
    walk->in.p = in.p;
    walk->in.bad = in.bad;
    return !in.bad;
}

static int jfr_metadata_add_class(struct walk *walk, const struct element *element)
{
    struct br_jfr_chunk *chunk = walk->chunk;
    struct br_jfr_class k = {.first = chunk->n_fields};
    if (!element->id || !element->named || !jfr_metadata_number(walk, element->id - 1, &k.id))
        return BR_EINVAL;
    uint8_t word = walk->texts[element->named - 1].word;
    if (word >= FIRST_TYPE)
        k.type = (uint8_t)(word - FIRST_TYPE);
    int rc = br_grow(&chunk->classes, &chunk->classes_cap, (size_t)chunk->n_classes + 1,
                     sizeof *chunk->classes, CLASSES_MAX);
    if (rc)
        return rc == BR_EFULL ? BR_EINVAL : rc;
    chunk->classes[chunk->n_classes++] = k;
    /* If several classes have the same ID, the first one is used. */
    return br_jfr_class(chunk, k.id)
               ? 0
               : br_jfr_ids_put(&chunk->class_of_id, (uint64_t)k.id, chunk->n_classes);
}

static int jfr_metadata_add_field(struct walk *walk, const struct element *element)
{
    struct br_jfr_chunk *chunk = walk->chunk;
    struct br_jfr_field field = {.class = BR_JFR_NO_CLASS};
    if (!element->type || !element->named ||
        !jfr_metadata_number(walk, element->type - 1, &field.type_id))
        return BR_EINVAL;
    field.name = element->named - 1;
    field.pool = element->pool && jfr_metadata_is(walk, element->pool - 1, W_TRUE);
    field.array = element->dimension && jfr_metadata_is(walk, element->dimension - 1, W_ONE);
    if (element->dimension && !field.array &&
        !jfr_metadata_is(walk, element->dimension - 1, W_ZERO))
        return BR_EINVAL;
    int rc = br_grow(&chunk->fields, &chunk->fields_cap, (size_t)chunk->n_fields + 1,
                     sizeof *chunk->fields, UINT32_MAX);
    if (rc)
        return rc;
    chunk->fields[chunk->n_fields++] = field;
    chunk->classes[chunk->n_classes - 1].n_fields++;
    return 0;
}

/* Reads all elements of the tree. The stack contains, for each level, the number of children not
 * yet read. */
static int jfr_metadata_read_elements(struct walk *walk)
{
    struct {
        uint32_t left;
        bool class;
    } stack[DEPTH_MAX];
    unsigned depth = 0;
    struct element element;
    if (!jfr_metadata_read_element(walk, &element) || !jfr_metadata_is(walk, element.name, W_ROOT))
        return BR_EINVAL;
    stack[depth].left = element.n_children;
    stack[depth++].class = false;
    while (depth) {
        if (!stack[depth - 1].left) {
            depth--;
            continue;
        }
        stack[depth - 1].left--;
        if (!jfr_metadata_read_element(walk, &element) || depth == DEPTH_MAX)
            return BR_EINVAL;
        /* Classes are accepted only at depth 2. The fields of a class inside another class would
         * be added to the outer class. */
        bool class = depth == 2 && jfr_metadata_is(walk, element.name, W_CLASS);
        int rc = class ? jfr_metadata_add_class(walk, &element) : 0;
        if (stack[depth - 1].class && jfr_metadata_is(walk, element.name, W_FIELD))
            rc = jfr_metadata_add_field(walk, &element);
        if (rc)
            return rc;
        stack[depth].left = element.n_children;
        stack[depth++].class = class;
    }
    return 0;
}

const struct br_jfr_class *br_jfr_class(const struct br_jfr_chunk *chunk, int64_t id)
{
    const struct br_jfr_entry *entry = br_jfr_ids_find(&chunk->class_of_id, (uint64_t)id);
    return entry ? &chunk->classes[entry->at - 1] : NULL;
}

static uint8_t jfr_metadata_slot_of(const struct walk *walk, const struct br_jfr_field *field)
{
    for (size_t i = 0; i < BR_COUNT(SLOTS); i++)
        if (SLOTS[i].type == field->type && SLOTS[i].pool == field->pool &&
            SLOTS[i].array == field->array && jfr_metadata_is(walk, field->name, SLOTS[i].name))
            return SLOTS[i].slot;
    return BR_JFR_NOWHERE;
}

static bool jfr_metadata_is_plain(const struct br_jfr_field *field)
{
    if (field->array || field->pool)
        return !field->array;
    return field->type == BR_JFR_CHAR || field->type == BR_JFR_SHORT || field->type == BR_JFR_INT ||
           field->type == BR_JFR_LONG;
}

/* Marks a class ID as wanted. The JVM may encode an ID with more bytes than necessary. */
static void jfr_metadata_want(struct br_jfr_chunk *chunk, uint64_t id)
{
    chunk->wanted[id % BR_JFR_WANTED] = true;
    chunk->wanted_first[id % 0x80 | 0x80] = true;
    if (id < 0x80)
        chunk->wanted_first[id] = true;
}

/* Sets the type of each field, and the slots in known classes, after all classes have been read. */
static void jfr_metadata_connect(struct walk *walk)
{
    struct br_jfr_chunk *chunk = walk->chunk;
    for (uint32_t i = 0; i < chunk->n_fields; i++) {
        const struct br_jfr_class *type = br_jfr_class(chunk, chunk->fields[i].type_id);
        if (type) {
            chunk->fields[i].class = (uint32_t)(type - chunk->classes);
            chunk->fields[i].type = type->type;
        }
        chunk->fields[i].plain = jfr_metadata_is_plain(&chunk->fields[i]);
    }
    for (uint32_t i = 0; i < chunk->n_classes; i++) {
        struct br_jfr_class *k = &chunk->classes[i];
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): not NULL if there are classes. */
        if (k->type == BR_JFR_OTHER)
            continue;
        chunk->class_of[k->type] = i;
        if (k->type >= BR_JFR_FIRST_EVENT) {
            chunk->event_ids[k->type - BR_JFR_FIRST_EVENT] = k->id;
            jfr_metadata_want(chunk, (uint64_t)k->id);
        }
        for (uint32_t n = 0; n < k->n_fields; n++) {
            struct br_jfr_field *field = &chunk->fields[k->first + n];
            field->slot = jfr_metadata_slot_of(walk, field);
            if (field->slot)
                k->n_needed = n + 1;
        }
    }
}

static void jfr_metadata_forget(struct br_jfr_chunk *chunk)
{
    chunk->n_classes = chunk->n_fields = chunk->known_len = 0;
    br_jfr_ids_clear(&chunk->class_of_id);
    memset(chunk->wanted, 0, sizeof chunk->wanted);
    memset(chunk->wanted_first, 0, sizeof chunk->wanted_first);
    for (unsigned i = 0; i < BR_JFR_N_TYPES; i++)
        chunk->class_of[i] = BR_JFR_NO_CLASS;
}

/* Finds the content of the metadata, from its first string to the end of its event. Returns
 * false if the metadata is malformed. */
static bool jfr_metadata_find_body(const struct br_jfr_chunk *chunk, struct br_jfr_in *ret)
{
    *ret = br_jfr_at(chunk, chunk->metadata_at);
    uint32_t size = br_jfr_int(ret);
    for (int i = 0; i < 4; i++)
        /* Skips the event's type, start and duration, and the metadata ID. */
        (void)br_jfr_long(ret);
    if (ret->bad || size > chunk->size - chunk->metadata_at ||
        ret->p > chunk->data + chunk->metadata_at + size)
        return false;
    ret->end = chunk->data + chunk->metadata_at + size;
    return true;
}

static int jfr_metadata_read_body(struct br_jfr_chunk *chunk, const struct br_jfr_in *in)
{
    struct walk walk = {.chunk = chunk, .in = *in};
    int rc = jfr_metadata_read_texts(&walk);
    if (!rc)
        rc = jfr_metadata_read_elements(&walk);
    if (!rc)
        jfr_metadata_connect(&walk);
    br_free(walk.texts);
    return rc;
}

int br_jfr_metadata(struct br_jfr_chunk *chunk, struct br_err *err)
{
    struct br_jfr_in in;
    int rc = BR_EINVAL;
    if (jfr_metadata_find_body(chunk, &in)) {
        /* Usually the metadata of all chunks of a recording is the same. */
        size_t len = (size_t)(in.end - in.p);
        if (len && len == chunk->known_len && in.packed == chunk->known_packed &&
            memcmp(in.p, chunk->known, len) == 0)
            return 0;
        jfr_metadata_forget(chunk);
        rc = jfr_metadata_read_body(chunk, &in);
        chunk->known = in.p;
        chunk->known_len = rc ? 0 : (uint32_t)len;
        chunk->known_packed = in.packed;
    }
    if (rc == BR_EINVAL)
        return br_err_set(err, rc, "the metadata at byte %u of the chunk is truncated or malformed",
                          chunk->metadata_at);
    return rc;
}
