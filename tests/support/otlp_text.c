/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/otlp_text.h"

#include "opentelemetry/proto/resource/v1/resource.pb-c.h"
#include "otlp/json/json.h"
#include "otlp/walk/walk.h"
#include "tests/support/test.h"

#define DEPTH_MAX 64
#define SIZE_MAX_BYTES (1u << 24)

struct br_buf *otlp_text_message(struct br_pool *pool, const ProtobufCMessageDescriptor *type,
                                 const char *text)
{
    struct br_err err = {0};
    struct br_buf *buf = NULL;
    size_t len = strlen(text);
    char *json = malloc(len + 1);
    assert_non_null(json);
    memcpy(json, text, len + 1);
    if (!strchr(text, '"'))
        for (char *quote = json; (quote = memchr(quote, '\'', len - (size_t)(quote - json)));)
            *quote = '"';
    if (br_json_decode(type, json, len, DEPTH_MAX, SIZE_MAX_BYTES, pool, &buf, &err) != 0)
        fail_msg("%s", err.text);
    free(json);
    return buf;
}

struct br_buf *otlp_text(struct br_pool *pool, enum br_signal signal, const char *text)
{
    return otlp_text_message(pool, br_otlp_request(signal), text);
}

struct br_buf *otlp_text_service(struct br_pool *pool, const char *service)
{
    char text[256];
    int len = snprintf(text, sizeof text,
                       "{'attributes': [{'key': 'service.name', 'value': {'stringValue': '%s'}}]}",
                       service);
    assert_in_range(len, 0, sizeof text - 1);
    return otlp_text_message(pool, &opentelemetry__proto__resource__v1__resource__descriptor, text);
}

struct br_item *otlp_text_item(struct br_host *host, enum br_signal signal, const char *text)
{
    const struct br_walk_options options = {.utf8 = BR_UTF8_PASS};
    struct br_err err = {0};
    uint32_t repaired;
    struct br_buf *buf = otlp_text(host->pool, signal, text);
    struct br_item *item = br_item_new(host, signal);
    assert_non_null(item);
    if (br_walk(item, buf, buf->data, buf->len, &options, &repaired, &err) != 0)
        fail_msg("%s", err.text);
    br_buf_unref(buf);
    return item;
}
