/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the conversion of OTLP/JSON to protobuf. Makes a few requests of some MiB, as SDKs write
 * them, decodes each repeatedly, and prints the best round's MB of text per second. With a signal
 * and a file it decodes that file instead.
 *
 *     json [ROUNDS [traces|profiles FILE]]
 */
#include <string.h>

#include "bench/bench.h"
#include "otlp/json/json.h"

#define TEXT_SIZE (4u << 20)

static uint64_t next_random(uint64_t *random)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return *random >> 33;
}

static void add_attribute(struct br_str *out, const char *key, const char *type, const char *value)
{
    br_str_printf(out, "%s{\"key\":\"%s\",\"value\":{\"%s\":%s}}",
                  out->data[out->len - 1] == '[' ? "" : ",", key, type, value);
}

/* Adds a span whose fields are in the order in which the JavaScript SDK writes them. */
static void add_span(struct br_str *out, uint64_t *random, const char *text)
{
    char value[64];
    unsigned long long start = 1700000000000000000u + next_random(random);
    br_str_printf(out, "{\"traceId\":\"%016llx%016llx\",\"spanId\":\"%016llx\",",
                  (unsigned long long)next_random(random), start, start);
    br_str_printf(out, "\"parentSpanId\":\"%016llx\",\"name\":\"GET /api/v1/orders/{id}\",",
                  (unsigned long long)next_random(random));
    br_str_printf(out,
                  "\"kind\":2,\"startTimeUnixNano\":\"%llu\",\"endTimeUnixNano\":\"%llu\","
                  "\"attributes\":[",
                  start, start + 5000000);
    add_attribute(out, "http.request.method", "stringValue", "\"GET\"");
    add_attribute(out, "url.full", "stringValue", text);
    (void)snprintf(value, sizeof value, "\"%llu\"", (unsigned long long)next_random(random) % 600);
    add_attribute(out, "http.response.status_code", "intValue", value);
    add_attribute(out, "cache.hit", "boolValue", "true");
    (void)snprintf(value, sizeof value, "%.3f", (double)next_random(random) / 1e6);
    add_attribute(out, "app.queue.seconds", "doubleValue", value);
    br_str_puts(out, "],\"droppedAttributesCount\":0,\"events\":[],\"droppedEventsCount\":0,"
                     "\"status\":{\"code\":0},\"links\":[],\"droppedLinksCount\":0}");
}

static void make_traces(struct br_str *out, const char *text)
{
    uint64_t random = 1;
    br_str_puts(out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    add_attribute(out, "service.name", "stringValue", "\"checkout\"");
    br_str_puts(out, "],\"droppedAttributesCount\":0},\"scopeSpans\":[{\"scope\":{\"name\":"
                     "\"@opentelemetry/instrumentation-http\"},\"spans\":[");
    for (bool more = false; out->len < TEXT_SIZE; more = true) {
        if (more)
            br_str_putc(out, ',');
        add_span(out, &random, text);
    }
    br_str_puts(out, "]}]}]}");
}

static void make_plain(struct br_str *out)
{
    make_traces(out, "\"https://shop.example.com/api/v1/orders/4711?expand=items\"");
}

static void make_escaped(struct br_str *out)
{
    make_traces(out, "\"at checkout.Cart.total(Cart.java:88)\\n\\tat checkout.Order.place"
                     "(Order.java:12)\\n\\tsaid \\\"no\\\" to \\u00fcber\\n\"");
}

static void make_unknown(struct br_str *out)
{
    br_str_puts(out, "{\"resourceLogs\":");
    make_plain(out);
    br_str_putc(out, '}');
}

static void make_profiles(struct br_str *out)
{
    uint64_t random = 1;
    br_str_puts(out, "{\"resourceProfiles\":[{\"scopeProfiles\":[{\"profiles\":[{\"samples\":[");
    for (unsigned i = 0; out->len < TEXT_SIZE / 2; i++) {
        unsigned long long at = 1700000000000000000u + next_random(&random);
        br_str_printf(out,
                      "%s{\"stackIndex\":%u,\"values\":[\"%llu\"],\"attributeIndices\":[%u,%u],"
                      "\"timestampsUnixNano\":[\"%llu\",\"%llu\"]}",
                      i ? "," : "", i % 5000, (unsigned long long)next_random(&random), i % 7,
                      i % 300, at, at + 10000000);
    }
    br_str_puts(out, "]}]}]}],\"dictionary\":{\"stackTable\":[{}");
    while (out->len < TEXT_SIZE - TEXT_SIZE / 4) {
        br_str_puts(out, ",{\"locationIndices\":[");
        for (unsigned n = 0; n < 20; n++)
            br_str_printf(out, "%s%u", n ? "," : "", (unsigned)next_random(&random) % 20000);
        br_str_puts(out, "]}");
    }
    br_str_puts(out, "],\"stringTable\":[\"\"");
    for (unsigned i = 0; out->len < TEXT_SIZE; i++)
        br_str_printf(out, ",\"com.example.shop.checkout.internal.Cart.method%u\"", i);
    br_str_puts(out, "]}}");
}

static void measure(const char *name, enum br_signal signal, const char *text, size_t len,
                    unsigned rounds)
{
    struct br_pool *pool = br_pool_new(64u << 20);
    double best = 1e30;
    uint32_t size = 0;
    for (unsigned i = 0; pool && i < rounds; i++) {
        struct br_buf *buf = NULL;
        struct br_err err = {0};
        double start = cpu_ns();
        if (br_json_decode(br_otlp_request(signal), text, len, 64, BR_BUF_MAX, pool, &buf, &err))
            die(err.text, name);
        double took = cpu_ns() - start;
        best = took < best ? took : best;
        size = buf->len;
        br_buf_unref(buf);
    }
    (void)printf("%-16s %7.0f MB/s, %zu bytes became %u\n", name, (double)len * 1e3 / best, len,
                 (unsigned)size);
    br_pool_free(pool);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        enum br_signal signal;
        void (*make)(struct br_str *out);
    } shapes[] = {
        {"traces", BR_TRACES, make_plain},
        {"escaped", BR_TRACES, make_escaped},
        {"profiles", BR_PROFILES, make_profiles},
        {"unknown", BR_TRACES, make_unknown},
    };
    unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 50;
    if (argc > 3) {
        struct br_pool *pool = br_pool_new(0);
        struct br_buf *text = pool ? read_file(pool, argv[3]) : NULL;
        if (!text)
            die("no memory", argv[3]);
        measure(argv[2], strcmp(argv[2], "traces") == 0 ? BR_TRACES : BR_PROFILES,
                (const char *)text->data, text->len, rounds);
        br_buf_unref(text);
        br_pool_free(pool);
        return 0;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct br_str text = {0};
        shapes[i].make(&text);
        if (text.failed)
            die("no memory", shapes[i].name);
        measure(shapes[i].name, shapes[i].signal, text.data, text.len, rounds);
        br_str_release(&text);
    }
    return 0;
}
