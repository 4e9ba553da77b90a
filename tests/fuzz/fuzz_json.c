/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes OTLP/JSON. Bit 0 of the first byte selects the signal. Bit 1 selects whether the input is
 * JSON or protobuf. Accepted JSON must encode to the same bytes after a round trip. Protobuf input
 * must not cause a crash.
 */
#include <stdlib.h>
#include <string.h>

#include "otlp/json/json.h"

#define MAX (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void round_trip(const ProtobufCMessageDescriptor *desc, const char *text, size_t len,
                       struct br_pool *pool)
{
    struct br_buf *first = NULL, *second = NULL;
    struct br_str json = {0};
    if (br_json_decode(desc, text, len, 64, MAX, pool, &first, NULL) != 0)
        return;
    require(br_json_encode(desc, first->data, first->len, &json) == 0);
    require(br_json_decode(desc, json.data, json.len, 64, BR_BUF_MAX, pool, &second, NULL) == 0);
    require(first->len == second->len && memcmp(first->data, second->data, first->len) == 0);
    br_str_release(&json);
    br_buf_unref(first);
    br_buf_unref(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const ProtobufCMessageDescriptor *desc = br_otlp_request(data[0] & 1 ? BR_PROFILES : BR_TRACES);
    struct br_pool *pool = br_pool_new(0);
    require(pool != NULL);
    if (data[0] & 2) {
        struct br_str json = {0};
        (void)br_json_encode(desc, data + 1, size - 1, &json);
        br_str_release(&json);
    } else {
        round_trip(desc, (const char *)data + 1, size - 1, pool);
    }
    br_pool_free(pool);
    return 0;
}
