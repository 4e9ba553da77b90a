/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the JSON of Zipkin's API (zipkin.io/zipkin-api, schemas of versions 1 and 2). */
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "receivers/zipkin/zipkin.h"

#define TRACE_ID_MAX 32 /* largest number of hex digits of a trace id */

static void zipkin_json_on_member(void *arg, const struct br_json_scan *scan,
                                  const struct br_json_token *name,
                                  const struct br_json_token *value)
{
    for (struct zipkin_member *member = arg; member->name; member++) {
        if (!br_json_part_is(name, member->name))
            continue;
        member->value = *value;
        member->part.at =
            value->type == BR_JSON_OBJECT || value->type == BR_JSON_ARRAY ? scan->at : NULL;
        return;
    }
}

int zipkin_json_object(struct zipkin_reading *reading, struct br_json_scan *scan, const char *what,
                       struct zipkin_member *members)
{
    struct br_json_scan start = *scan;
    struct br_json_token value;
    int rc = br_json_scan_value(scan, &value);
    if (!rc && value.type != BR_JSON_OBJECT)
        return zipkin_fail(reading, "%s must be an object", what);
    if (rc)
        return rc;
    *scan = start;
    return br_json_members(scan, zipkin_json_on_member, members);
}

int zipkin_json_plain(struct zipkin_reading *reading, const struct br_json_token *token,
                      struct zipkin_text *ret)
{
    *ret = (struct zipkin_text){token->text, token->len};
    if (!token->escaped)
        return 0;
    char *plain = zipkin_alloc(reading, token->len);
    if (!plain)
        return BR_ENOMEM;
    *ret = (struct zipkin_text){plain, br_json_plain(token->text, token->len, plain)};
    return 0;
}

int zipkin_json_text(struct zipkin_reading *reading, const struct zipkin_member *member,
                     struct zipkin_text *ret)
{
    *ret = (struct zipkin_text){"", 0};
    if (member->value.type == BR_JSON_STRING)
        return zipkin_json_plain(reading, &member->value, ret);
    return member->value.type == BR_JSON_NULL
               ? 0
               : zipkin_fail(reading, "%s must be a string", member->name);
}

int zipkin_json_integer(struct zipkin_reading *reading, const struct zipkin_member *member,
                        int64_t min, int64_t max, int64_t *ret)
{
    bool negative = false;
    uint64_t magnitude = 0;
    *ret = 0;
    if (member->value.type == BR_JSON_NULL)
        return 0;
    bool valid = member->value.type == BR_JSON_NUMBER &&
                 br_number_integer(member->value.text, member->value.len, &negative, &magnitude) &&
                 magnitude <= (uint64_t)INT64_MAX;
    if (valid)
        *ret = negative ? -(int64_t)magnitude : (int64_t)magnitude;
    return valid && *ret >= min && *ret <= max
               ? 0
               : zipkin_fail(reading, "%s must be an integer from %lld to %lld", member->name,
                             (long long)min, (long long)max);
}

int zipkin_json_trace_id(struct zipkin_reading *reading, const struct zipkin_member *member,
                         uint64_t *ret_high, uint64_t *ret_low)
{
    struct zipkin_text text;
    int rc = zipkin_json_text(reading, member, &text);
    size_t high = text.len > 16 ? text.len - 16 : 0;
    if (rc || !text.len)
        return rc;
    return text.len <= TRACE_ID_MAX && (!high || zipkin_parse_hex(text.data, high, ret_high)) &&
                   zipkin_parse_hex(text.data + high, text.len - high, ret_low)
               ? 0
               : zipkin_fail(reading, "traceId must have 1 to 32 hex digits");
}

int zipkin_json_id(struct zipkin_reading *reading, const struct zipkin_member *member,
                   uint64_t *ret)
{
    struct zipkin_text text;
    int rc = zipkin_json_text(reading, member, &text);
    if (rc || !text.len)
        return rc;
    return zipkin_parse_hex(text.data, text.len, ret)
               ? 0
               : zipkin_fail(reading, "%s must have 1 to 16 hex digits", member->name);
}

struct spans {
    struct zipkin_reading *reading;
    zipkin_json_span_fn *read;
};

static int zipkin_json_on_span(void *arg, struct br_json_scan *scan)
{
    struct spans *spans = arg;
    struct zipkin_reading *reading = spans->reading;
    zipkin_begin_span(reading);
    return spans->read(reading, scan);
}

int zipkin_json_list(struct zipkin_reading *reading, const struct br_json_scan *whole,
                     const struct zipkin_member *member, br_json_element_fn *fn, void *arg)
{
    if (member->value.type == BR_JSON_NULL)
        return 0;
    if (member->value.type != BR_JSON_ARRAY)
        return zipkin_fail(reading, "%s must be a list", member->name);
    return br_json_elements(whole, member->part, fn, arg);
}

int zipkin_json_spans(struct zipkin_reading *reading, const uint8_t *data, size_t len,
                      zipkin_json_span_fn *read)
{
    struct br_json_scan scan;
    struct br_json_token root;
    struct spans spans = {reading, read};
    struct br_err *err = &reading->reading->err;
    int rc = br_json_scan_init(&scan, (const char *)data, len, ZIPKIN_DEPTH, err);
    if (!rc)
        rc = br_json_scan_value(&scan, &root);
    if (rc)
        return rc;
    if (root.type != BR_JSON_ARRAY)
        return br_err_set(err, BR_EINVAL, "the request must be a list of spans");
    rc = br_json_elements_here(&scan, zipkin_json_on_span, &spans);
    return rc ? rc : br_json_scan_end(&scan);
}
