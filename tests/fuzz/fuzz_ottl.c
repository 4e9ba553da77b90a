/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the statements of the processor transform, one per line, for spans and for profiles.
 * Statements that the config check accepts are run, and the rig checks their output.
 */
#include <string.h>

#include "base/str.h"
#include "tests/support/rig.h"

/* longest input in bytes; in a config, one statement may have up to 64 KiB */
#define INPUT_MAX 8192

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

extern const struct br_component br_transform_processor;

#define S(key, value) "{\"key\":\"" key "\",\"value\":{\"stringValue\":\"" value "\"}}"

static const char spans[] = "{\"resourceSpans\":[{\"resource\":{\"attributes\":[" S(
    "service.name",
    "shop") "]},\"scopeSpans\":[{\"scope\":{\"name\":\"lib\"},\"spans\":[{"
            "\"traceId\":\"0102030405060708090a0b0c0d0e0f10\",\"spanId\":"
            "\"1112131415161718\",\"traceState\":\"a=1,b=2\",\"name\":\"GET\","
            "\"kind\":2,\"startTimeUnixNano\":\"1000\",\"attributes\":[" S("a", "x") "," S(
                "j",
                "{\\\"k\\\":[1,null,\\\"v\\\"]}") ",{\"key\":\"m\",\"value\":{\"kvlistValue\":{"
                                                  "\"values\":[" S("k",
                                                                   "v") "]}}}],\"events\":[{"
                                                                        "\"name\":\"e\","
                                                                        "\"attributes\""
                                                                        ":[" S("k",
                                                                               "1") "]},{}],"
                                                                                    "\"status\":{"
                                                                                    "\"code\":2}}"
                                                                                    "]}]}]}";

static const char profile[] =
    "{\"resourceProfiles\":[{\"scopeProfiles\":[{\"profiles\":[{\"sampleType\":{\"typeStrindex\":1,"
    "\"unitStrindex\":2},\"samples\":[{\"stackIndex\":1,\"attributeIndices\":[1,2],\"linkIndex\":1,"
    "\"values\":[\"10\"]}],\"period\":\"8\",\"attributeIndices\":[2]}]}]}],\"dictionary\":{"
    "\"locationTable\":[{},{\"lines\":[{\"functionIndex\":1}]}],\"functionTable\":[{},{"
    "\"nameStrindex\":3}],\"linkTable\":[{},{\"traceId\":\"0102030405060708090a0b0c0d0e0f10\","
    "\"spanId\":\"1112131415161718\"}],\"stringTable\":[\"\",\"cpu\",\"nanoseconds\",\"main\","
    "\"thread\",\"size\"],\"attributeTable\":[{},{\"keyStrindex\":4,\"value\":{\"stringValue\":"
    "\"t1\"}},{\"keyStrindex\":5,\"value\":{\"intValue\":\"3\"}}],\"stackTable\":[{},{"
    "\"locationIndices\":[1]}]}}";

/* Writes a config with each line of the input as a statement of the list `key`. */
static void write_config(struct br_str *out, const char *key, const uint8_t *data, size_t size)
{
    const uint8_t *p = data, *end = data + size;
    br_str_printf(out, "{error_mode: silent, %s: [", key);
    while (p < end) {
        const uint8_t *newline = memchr(p, '\n', (size_t)(end - p)),
                      *stop = newline ? newline : end;
        br_str_json(out, (const char *)p, (size_t)(stop - p));
        br_str_putc(out, ',');
        p = newline ? newline + 1 : end;
    }
    br_str_puts(out, "]}");
}

static void run(const char *key, enum br_signal signal, const char *in, const uint8_t *data,
                size_t size)
{
    struct br_str yaml = {0};
    write_config(&yaml, key, data, size);
    if (!*rig_errors(&br_transform_processor, yaml.data)) {
        struct rig *r = rig_new(&br_transform_processor, yaml.data);
        (void)rig_run(r, signal, in);
        rig_free(r);
    }
    br_str_release(&yaml);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size || size > INPUT_MAX || memchr(data, '\0', size))
        return 0;
    run("trace_statements", BR_TRACES, spans, data, size);
    run("profile_statements", BR_PROFILES, profile, data, size);
    return 0;
}
