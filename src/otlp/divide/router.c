/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/divide/router.h"

#include <string.h>

#include "base/mem.h"
#include "otlp/keyvalue.h"
#include "otlp/scan.h"
#include "otlp/trace_id.h"

#define ID_LEN 16u
/* value in `links` for a link without a valid trace id */
#define LINK_INVALID UINT32_MAX

int br_divide_router_init(struct divide_router *router, enum br_signal signal,
                          const struct br_routing *routing, struct br_merge *merge)
{
    router->routing = routing;
    router->merge = merge;
    router->budget.max = BR_BUF_MAX;
    router->signal = signal;
    router->resource_bucket = router->last_bucket = BR_BUCKET_NONE;
    uint32_t n = signal == BR_PROFILES ? merge->source.tables[BR_TABLE_LINK].count : 0;
    int rc = br_budget_grow(&router->budget, &router->links, &router->cap_links, n,
                            sizeof *router->links);
    if (!rc && n)
        memset(router->links, 0, n * sizeof *router->links);
    return rc;
}

void br_divide_router_release(struct divide_router *router)
{
    br_budget_free(&router->budget, &router->links, &router->cap_links, sizeof *router->links);
}

void br_divide_router_begin(struct divide_router *router, const struct br_part *part)
{
    router->part = part;
    router->resource_bucket = BR_BUCKET_NONE;
}

static int divide_router_check(const struct divide_router *router, uint32_t bucket)
{
    if (bucket == BR_BUCKET_NONE)
        return BR_ENOMEM;
    bool valid = bucket < router->routing->max_buckets && bucket + 1 < LINK_INVALID;
    return valid ? 0 : BR_EINVAL;
}

/* --- Resources ------------------------------------------------------------------------------- */

/* Returns the value of the attribute `name` if it is a non-empty string, otherwise an empty
 * value. */
static struct br_value divide_router_attribute(const uint8_t *resource, size_t len,
                                               const char *name)
{
    const uint8_t *p = resource, *end = br_mem_end(p, len);
    size_t name_len = strlen(name);
    struct br_keyvalue kv;
    struct br_value found = {0};
    while ((p = br_keyvalue_next(p, end, BR_RESOURCE_ATTRIBUTES, &kv))) {
        if (kv.key_len != name_len || memcmp(kv.key, name, name_len) != 0)
            continue;
        struct br_any any = br_any_read(kv.value);
        if (any.type == BR_VALUE_STRING && any.len)
            found = (struct br_value){any.data, any.len};
    }
    return found;
}

/* Replaces the dictionary references in a Resource with strings, so that equal resources have equal
 * bytes in requests with different dictionaries. The merger's scratch buffer contains the
 * result. */
static int divide_router_inline(struct divide_router *router, const uint8_t **resource, size_t *len)
{
    struct br_inliner in;
    if (router->signal != BR_PROFILES ||
        !br_attributes_have_references(*resource, *len, BR_RESOURCE_ATTRIBUTES))
        return 0;
    int rc = br_merger_inliner(router->merge, &in);
    if (!rc)
        rc = br_attributes_inline(&in, *resource, *len, BR_RESOURCE_ATTRIBUTES);
    *resource = router->merge->scratch ? router->merge->scratch->data : NULL;
    *len = router->merge->scratch ? router->merge->scratch->len : 0;
    return rc;
}

int br_divide_router_resource(struct divide_router *router, uint32_t *ret)
{
    const struct br_routing *routing = router->routing;
    *ret = router->resource_bucket;
    if (*ret != BR_BUCKET_NONE)
        return 0;
    size_t len;
    const uint8_t *resource = br_part_resource(router->part, &len);
    int rc = divide_router_inline(router, &resource, &len);
    if (rc)
        return rc;
    struct br_value key = {0};
    if (routing->route == BR_ROUTE_SERVICE)
        key = divide_router_attribute(resource, len, "service.name");
    if (!key.len)
        key = divide_router_attribute(resource, len, "service.instance.id");
    if (!key.len)
        key = (struct br_value){resource, len};
    *ret = routing->of_key(routing->arg, key.data, key.len);
    rc = divide_router_check(router, *ret);
    if (!rc)
        router->resource_bucket = *ret;
    return rc;
}

/* --- Records --------------------------------------------------------------------------------- */

/* Copies the trace id from field `number` of a message. If the message has no trace id of 16 bytes,
 * sets the result to zeros and returns false. */
static bool divide_router_id(const uint8_t *p, const uint8_t *end, uint32_t number,
                             uint8_t ret[ID_LEN])
{
    struct br_field field;
    bool found = false;
    memset(ret, 0, ID_LEN);
    while (p && p < end && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) != BR_SCAN_LEN(number))
            continue;
        found = field.value == ID_LEN;
        if (found)
            memcpy(ret, field.data, ID_LEN);
        else
            memset(ret, 0, ID_LEN);
    }
    return found;
}

static int divide_router_span(struct divide_router *router, const struct br_field *span,
                              uint32_t *ret)
{
    const struct br_routing *routing = router->routing;
    uint8_t id[ID_LEN];
    (void)divide_router_id(span->data, span->data + span->value, BR_SPAN_TRACE_ID, id);
    if (router->last_bucket != BR_BUCKET_NONE && memcmp(id, router->last_id, ID_LEN) == 0) {
        *ret = router->last_bucket;
        return 0;
    }
    *ret = routing->of_trace(routing->arg, id);
    int rc = divide_router_check(router, *ret);
    if (!rc) {
        memcpy(router->last_id, id, ID_LEN);
        router->last_bucket = *ret;
    }
    return rc;
}

/* Returns the index of a sample's link in the dictionary, or 0 if the sample has no link. */
static uint64_t divide_router_link_of(const struct br_field *sample)
{
    const uint8_t *p = sample->data, *end = p + sample->value;
    struct br_field field;
    uint64_t link = 0;
    while (p && p < end && (p = br_scan(p, end, &field)))
        if (br_scan_tag(&field) == BR_SCAN_VARINT(BR_SAMPLE_LINK))
            link = field.value;
    return link;
}

static int divide_router_sample(struct divide_router *router, const struct br_field *sample,
                                uint32_t *ret)
{
    const struct br_routing *routing = router->routing;
    const struct br_source *source = &router->merge->source;
    uint64_t link = divide_router_link_of(sample);
    uint8_t id[ID_LEN];
    uint32_t len;
    if (link == 0 || link >= source->tables[BR_TABLE_LINK].count)
        return br_divide_router_resource(router, ret);
    if (router->links[link] == LINK_INVALID)
        return br_divide_router_resource(router, ret);
    if (router->links[link]) {
        *ret = router->links[link] - 1;
        return 0;
    }
    const uint8_t *body = br_source_body(source, BR_TABLE_LINK, (uint32_t)link, &len);
    if (!divide_router_id(body, body + len, BR_LINK_TRACE_ID, id) || !br_trace_id_valid(id)) {
        router->links[link] = LINK_INVALID;
        return br_divide_router_resource(router, ret);
    }
    *ret = routing->of_trace(routing->arg, id);
    int rc = divide_router_check(router, *ret);
    if (!rc)
        router->links[link] = *ret + 1;
    return rc;
}

int br_divide_router_record(struct divide_router *router, const struct br_field *leaf,
                            uint32_t *ret)
{
    if (router->routing->route == BR_ROUTE_SERVICE)
        return br_divide_router_resource(router, ret);
    return router->signal == BR_TRACES ? divide_router_span(router, leaf, ret)
                                       : divide_router_sample(router, leaf, ret);
}
