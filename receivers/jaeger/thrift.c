/* SPDX-License-Identifier: Apache-2.0 */
/* Reads Jaeger's Thrift messages (jaegertracing/jaeger-idl, thrift/jaeger.thrift and agent.thrift).
 */
#include "base/bytes.h"
#include "base/mem.h"
#include "receivers/jaeger/jaeger.h"

#define NS_PER_US 1000u

enum { TAG_KEY = 1, TAG_TYPE, TAG_STRING, TAG_DOUBLE, TAG_BOOL, TAG_LONG, TAG_BINARY };
enum { LOG_TIMESTAMP = 1, LOG_FIELDS };
enum { REFERENCE_TYPE = 1, REFERENCE_TRACE_LOW, REFERENCE_TRACE_HIGH, REFERENCE_SPAN_ID };
enum {
    SPAN_TRACE_LOW = 1,
    SPAN_TRACE_HIGH,
    SPAN_ID,
    SPAN_PARENT_ID,
    SPAN_NAME,
    SPAN_REFERENCES,
    SPAN_FLAGS,
    SPAN_START,
    SPAN_DURATION,
    SPAN_TAGS,
    SPAN_LOGS,
};
enum { PROCESS_SERVICE = 1, PROCESS_TAGS };
enum { BATCH_PROCESS = 1, BATCH_SPANS };

/* The batch that is read, and the Resource of its process. */
struct batch {
    struct jaeger_reading *reading;
    uint32_t resource;
};

/* Returns true if the field has this id and type. Fields of another type are skipped, as code that
 * Thrift generates does. */
static bool jaeger_thrift_is(const struct br_thrift_field *field, int id, enum br_thrift_type type)
{
    return field->id == id && field->type == type;
}

/* Reads a list of structs and calls `read` for each. Lists of other types are skipped. */
typedef int jaeger_struct_fn(void *arg, struct br_thrift *thrift);
static int jaeger_thrift_list(struct br_thrift *thrift, jaeger_struct_fn *read, void *arg)
{
    uint8_t type;
    uint32_t count;
    int rc = br_thrift_list(thrift, &type, &count);
    if (!rc && count && type != BR_THRIFT_STRUCT)
        return br_err_set(thrift->err, BR_EINVAL, "a list has elements of a wrong type");
    for (uint32_t i = 0; i < count && !rc; i++)
        rc = read(arg, thrift);
    return rc;
}

/* --- Tags ------------------------------------------------------------------------------------- */

/* A tag with the values of all types, of which one is used. */
struct tag {
    const uint8_t *key, *text, *binary;
    uint32_t key_len, text_len, binary_len;
    int64_t type, integer;
    uint64_t bits;
    bool is_true;
};

static int jaeger_thrift_tag_field(struct br_thrift *thrift, const struct br_thrift_field *field,
                                   struct tag *tag)
{
    if (jaeger_thrift_is(field, TAG_KEY, BR_THRIFT_STRING))
        return br_thrift_string(thrift, &tag->key, &tag->key_len);
    if (jaeger_thrift_is(field, TAG_TYPE, BR_THRIFT_I32))
        return br_thrift_integer(thrift, field->type, &tag->type);
    if (jaeger_thrift_is(field, TAG_STRING, BR_THRIFT_STRING))
        return br_thrift_string(thrift, &tag->text, &tag->text_len);
    if (jaeger_thrift_is(field, TAG_DOUBLE, BR_THRIFT_DOUBLE))
        return br_thrift_double(thrift, &tag->bits);
    if (jaeger_thrift_is(field, TAG_LONG, BR_THRIFT_I64))
        return br_thrift_integer(thrift, field->type, &tag->integer);
    if (jaeger_thrift_is(field, TAG_BINARY, BR_THRIFT_STRING))
        return br_thrift_string(thrift, &tag->binary, &tag->binary_len);
    if (jaeger_thrift_is(field, TAG_BOOL, BR_THRIFT_BOOL))
        tag->is_true = field->is_true;
    return br_thrift_skip(thrift, field->type);
}

static int jaeger_thrift_add_tag(struct jaeger_reading *reading, struct br_tags *into,
                                 const struct tag *tag)
{
    /* in the order of the enum TagType */
    static const enum br_value_type types[] = {BR_VALUE_STRING, BR_VALUE_DOUBLE, BR_VALUE_BOOL,
                                               BR_VALUE_INT, BR_VALUE_BYTES};
    struct br_tag made = {.key = (const char *)tag->key, .key_len = tag->key_len};
    if (tag->type >= 0 && tag->type < (int64_t)BR_COUNT(types))
        made.type = types[tag->type];
    if (made.type == BR_VALUE_STRING) {
        made.data = tag->text;
        made.len = tag->text_len;
    } else if (made.type == BR_VALUE_BYTES) {
        made.data = tag->binary;
        made.len = tag->binary_len;
    } else if (made.type == BR_VALUE_BOOL) {
        made.number = tag->is_true;
    } else {
        made.number = made.type == BR_VALUE_INT ? (uint64_t)tag->integer : tag->bits;
    }
    return jaeger_add_tag(reading, into, made, "<UNSET>");
}

struct tags {
    struct jaeger_reading *reading;
    struct br_tags *into;
};

static int jaeger_thrift_tag(void *arg, struct br_thrift *thrift)
{
    struct tags *tags = arg;
    struct br_thrift_field field = {0};
    struct tag tag = {.key = NULL};
    int rc;
    while (!(rc = br_thrift_next(thrift, &field)) && field.type != BR_THRIFT_STOP)
        if ((rc = jaeger_thrift_tag_field(thrift, &field, &tag)))
            return rc;
    return rc ? rc : jaeger_thrift_add_tag(tags->reading, tags->into, &tag);
}

static int jaeger_thrift_tags(struct jaeger_reading *reading, struct br_thrift *thrift,
                              struct br_tags *into)
{
    struct tags tags = {reading, into};
    return jaeger_thrift_list(thrift, jaeger_thrift_tag, &tags);
}

/* --- Spans ------------------------------------------------------------------------------------ */

static int jaeger_thrift_log(void *arg, struct br_thrift *thrift)
{
    struct jaeger_reading *reading = arg;
    struct br_thrift_field field = {0};
    int64_t timestamp_us = 0;
    int rc;
    br_tags_clear(&reading->fields);
    while (!(rc = br_thrift_next(thrift, &field)) && field.type != BR_THRIFT_STOP) {
        if (jaeger_thrift_is(&field, LOG_TIMESTAMP, BR_THRIFT_I64))
            rc = br_thrift_integer(thrift, field.type, &timestamp_us);
        else if (jaeger_thrift_is(&field, LOG_FIELDS, BR_THRIFT_LIST))
            rc = jaeger_thrift_tags(reading, thrift, &reading->fields);
        else
            rc = br_thrift_skip(thrift, field.type);
        if (rc)
            return rc;
    }
    return rc ? rc : jaeger_put_event(reading, (uint64_t)timestamp_us * NS_PER_US);
}

static int jaeger_thrift_reference(void *arg, struct br_thrift *thrift)
{
    struct br_thrift_field field = {0};
    int64_t values[REFERENCE_SPAN_ID + 1] = {0};
    int rc;
    while (!(rc = br_thrift_next(thrift, &field)) && field.type != BR_THRIFT_STOP) {
        bool known = field.id >= REFERENCE_TYPE && field.id <= REFERENCE_SPAN_ID &&
                     field.type == (field.id == REFERENCE_TYPE ? BR_THRIFT_I32 : BR_THRIFT_I64);
        rc = known ? br_thrift_integer(thrift, field.type, &values[field.id])
                   : br_thrift_skip(thrift, field.type);
        if (rc)
            return rc;
    }
    const struct jaeger_reference reference = {.trace_high = (uint64_t)values[REFERENCE_TRACE_HIGH],
                                               .trace_low = (uint64_t)values[REFERENCE_TRACE_LOW],
                                               .span_id = (uint64_t)values[REFERENCE_SPAN_ID],
                                               .follows = values[REFERENCE_TYPE] != 0};
    return rc ? rc : jaeger_add_reference(arg, &reference);
}

/* Reads a field of a span: integers into `values`, which is indexed by the id of the field. */
static int jaeger_thrift_span_field(struct jaeger_reading *reading, struct br_thrift *thrift,
                                    const struct br_thrift_field *field, int64_t *values,
                                    const uint8_t **name, uint32_t *name_len)
{
    const unsigned integers = 1u << SPAN_TRACE_LOW | 1u << SPAN_TRACE_HIGH | 1u << SPAN_ID |
                              1u << SPAN_PARENT_ID | 1u << SPAN_START | 1u << SPAN_DURATION;
    bool known = field->id > 0 && field->id <= SPAN_LOGS;
    if (known && (integers >> field->id & 1) && field->type == BR_THRIFT_I64)
        return br_thrift_integer(thrift, field->type, &values[field->id]);
    if (jaeger_thrift_is(field, SPAN_FLAGS, BR_THRIFT_I32))
        return br_thrift_integer(thrift, field->type, &values[SPAN_FLAGS]);
    if (jaeger_thrift_is(field, SPAN_NAME, BR_THRIFT_STRING))
        return br_thrift_string(thrift, name, name_len);
    if (jaeger_thrift_is(field, SPAN_REFERENCES, BR_THRIFT_LIST))
        return jaeger_thrift_list(thrift, jaeger_thrift_reference, reading);
    if (jaeger_thrift_is(field, SPAN_TAGS, BR_THRIFT_LIST))
        return jaeger_thrift_tags(reading, thrift, &reading->tags);
    if (jaeger_thrift_is(field, SPAN_LOGS, BR_THRIFT_LIST))
        return jaeger_thrift_list(thrift, jaeger_thrift_log, reading);
    return br_thrift_skip(thrift, field->type);
}

static int jaeger_thrift_span(void *arg, struct br_thrift *thrift)
{
    struct batch *batch = arg;
    struct br_thrift_field field = {0};
    int64_t values[SPAN_LOGS + 1] = {0};
    const uint8_t *name = NULL;
    uint32_t name_len = 0;
    int rc;
    jaeger_begin_span(batch->reading);
    while (!(rc = br_thrift_next(thrift, &field)) && field.type != BR_THRIFT_STOP)
        if ((rc = jaeger_thrift_span_field(batch->reading, thrift, &field, values, &name,
                                           &name_len)))
            return rc;
    const struct jaeger_span span = {.trace_high = (uint64_t)values[SPAN_TRACE_HIGH],
                                     .trace_low = (uint64_t)values[SPAN_TRACE_LOW],
                                     .id = (uint64_t)values[SPAN_ID],
                                     .parent_id = (uint64_t)values[SPAN_PARENT_ID],
                                     .start_ns = (uint64_t)values[SPAN_START] * NS_PER_US,
                                     .duration_ns = (uint64_t)values[SPAN_DURATION] * NS_PER_US,
                                     .name = name,
                                     .name_len = name_len,
                                     .sampled = values[SPAN_FLAGS] & 1};
    return rc ? rc : jaeger_end_span(batch->reading, &span, batch->resource);
}

/* --- Batches ---------------------------------------------------------------------------------- */

static int jaeger_thrift_process(struct batch *batch, struct br_thrift *thrift)
{
    struct jaeger_reading *reading = batch->reading;
    struct br_thrift_field field = {0};
    const uint8_t *service = NULL;
    uint32_t service_len = 0;
    int rc;
    br_tags_clear(&reading->process);
    while (!(rc = br_thrift_next(thrift, &field)) && field.type != BR_THRIFT_STOP) {
        if (jaeger_thrift_is(&field, PROCESS_SERVICE, BR_THRIFT_STRING))
            rc = br_thrift_string(thrift, &service, &service_len);
        else if (jaeger_thrift_is(&field, PROCESS_TAGS, BR_THRIFT_LIST))
            rc = jaeger_thrift_tags(reading, thrift, &reading->process);
        else
            rc = br_thrift_skip(thrift, field.type);
        if (rc)
            return rc;
    }
    return rc ? rc : jaeger_resource(reading, service, service_len, &batch->resource);
}

/* Reads the fields of a batch with this id and type, and skips the others. */
static int jaeger_thrift_batch(struct batch *batch, struct br_thrift *thrift, int id)
{
    struct br_thrift_field field = {0};
    int rc;
    while (!(rc = br_thrift_next(thrift, &field)) && field.type != BR_THRIFT_STOP) {
        if (id == BATCH_PROCESS && jaeger_thrift_is(&field, id, BR_THRIFT_STRUCT))
            rc = jaeger_thrift_process(batch, thrift);
        else if (id == BATCH_SPANS && jaeger_thrift_is(&field, id, BR_THRIFT_LIST))
            rc = jaeger_thrift_list(thrift, jaeger_thrift_span, batch);
        else
            rc = br_thrift_skip(thrift, field.type);
        if (rc)
            return rc;
    }
    return rc;
}

int jaeger_read_batch(struct jaeger_reading *reading, struct br_thrift *thrift)
{
    struct batch batch = {.reading = reading};
    struct br_thrift again = *thrift;
    br_tags_clear(&reading->process);
    /* The process may follow the spans, so it is read first. */
    int rc = jaeger_resource(reading, NULL, 0, &batch.resource);
    if (!rc)
        rc = jaeger_thrift_batch(&batch, &again, BATCH_PROCESS);
    return rc ? rc : jaeger_thrift_batch(&batch, thrift, BATCH_SPANS);
}

int jaeger_read_call(struct jaeger_reading *reading, struct br_thrift *thrift)
{
    struct br_thrift_message message;
    struct br_thrift_field field = {0};
    int rc = br_thrift_message(thrift, &message);
    if (rc)
        return rc;
    if (!br_bytes_are(message.name, message.name_len, "emitBatch"))
        return br_err_set(thrift->err, BR_EINVAL, "the call must be emitBatch");
    while (!(rc = br_thrift_next(thrift, &field)) && field.type != BR_THRIFT_STOP) {
        rc = jaeger_thrift_is(&field, 1, BR_THRIFT_STRUCT) ? jaeger_read_batch(reading, thrift)
                                                           : br_thrift_skip(thrift, field.type);
        if (rc)
            return rc;
    }
    return rc;
}
