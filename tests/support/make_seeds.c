/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the seeds of tests/corpus/{traces,profiles,grpc,jfr}: make_seeds <directory of the
 * corpora>. The results are in the repository; this program documents how they were made. */
#include <stdio.h>

#include "tests/support/h2_frames.h"
#include "tests/support/items.h"
#include "tests/support/jfr_made.h"

static const char *root;

static void save(const char *name, struct wire *w)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(w->data, 1, w->len, f) != w->len || fclose(f))
        exit(1);
    wire_free(w);
}

static size_t open_all(struct wire *w, const uint32_t *fields, size_t *open)
{
    size_t n = 0;
    for (; fields[n]; n++)
        open[n] = wire_open(w, fields[n]);
    return n;
}

static void close_all(struct wire *w, size_t n, const size_t *open)
{
    while (n > 0)
        wire_close(w, open[--n]);
}

/* Writes an AnyValue of each type. Some values are nested. */
static void put_values(struct wire *w, uint32_t field, int depth)
{
    size_t pair = wire_open(w, field);
    wire_str(w, 1, "k");
    size_t any = wire_open(w, 2);
    switch (depth) {
    case 0:
        wire_i64(w, 4, 0x3ff8000000000000u);
        break;
    case 1:
        wire_len(w, 7, "\xff\x00", 2);
        break;
    default: {
        size_t list = wire_open(w, depth % 2 ? 6 : 5);
        if (depth % 2)
            put_values(w, 1, depth - 1);
        else
            wire_len(w, 1, "\x10\x01\x18\x05", 4);
        wire_close(w, list);
    }
    }
    wire_close(w, any);
    wire_close(w, pair);
}

static void traces(void)
{
    static const uint32_t in_span[] = {1, 2, 2, 0};
    struct wire w = {0};
    size_t open[8], n;
    items_traces(&w, 1, 3, 2);
    save("traces/three_spans", &w);
    save("traces/empty", &w);
    n = open_all(&w, in_span, open);
    for (int depth = 0; depth < 5; depth++)
        put_values(&w, 9, depth);
    size_t event = wire_open(&w, 11);
    wire_i64(&w, 1, 5);
    wire_str(&w, 2, "exception");
    put_values(&w, 3, 2);
    wire_close(&w, event);
    size_t link = wire_open(&w, 13);
    wire_len(&w, 1, "0123456789abcdef", 16);
    wire_len(&w, 2, "01234567", 8);
    wire_str(&w, 3, "a=b");
    wire_i32(&w, 6, 1);
    wire_close(&w, link);
    size_t status = wire_open(&w, 15);
    wire_str(&w, 2, "no");
    wire_varint(&w, 3, 2);
    wire_close(&w, status);
    wire_i32(&w, 16, 257);
    close_all(&w, n, open);
    save("traces/every_field", &w);
    size_t rs = wire_open(&w, 1);
    for (int i = 0; i < 2; i++) {
        size_t resource = wire_open(&w, 1);
        wire_attribute(&w, 1, "k", i ? "\xff" : "v");
        wire_close(&w, resource);
        wire_str(&w, 3, "schema");
    }
    wire_str(&w, 99, "unknown");
    wire_close(&w, rs);
    save("traces/two_resources", &w);
}

static void profiles(void)
{
    struct wire w = {0};
    items_profiles(&w, 1, 3, 2);
    save("profiles/three_samples", &w);
    items_profiles(&w, 1, 2, 1);
    items_profiles(&w, 5, 2, 1);
    save("profiles/two_requests", &w);
    /* This request has references from resources and from attribute values, a sample with
     * timestamps, and unpacked lists. */
    size_t d = wire_open(&w, 2);
    wire_str(&w, 5, "");
    wire_str(&w, 5, "service.name");
    wire_str(&w, 5, "shop");
    wire_len(&w, 6, NULL, 0);
    size_t attribute = wire_open(&w, 6);
    wire_varint(&w, 1, 1);
    wire_len(&w, 2, "\x40\x02", 2);
    wire_varint(&w, 3, 2);
    wire_close(&w, attribute);
    wire_close(&w, d);
    size_t rp = wire_open(&w, 1);
    size_t resource = wire_open(&w, 1), pair = wire_open(&w, 1);
    wire_varint(&w, 3, 1);
    wire_len(&w, 2, "\x40\x02", 2);
    wire_close(&w, pair);
    wire_close(&w, resource);
    size_t scope = wire_open(&w, 2), profile = wire_open(&w, 2), sample = wire_open(&w, 2);
    wire_varint(&w, 2, 1);
    wire_varint(&w, 2, 1);
    wire_i64(&w, 5, 1000);
    wire_i64(&w, 5, 2000);
    wire_close(&w, sample);
    wire_len(&w, 7, "0123456789abcdef", 16);
    wire_str(&w, 9, "pprof");
    wire_len(&w, 10, "payload", 7);
    wire_varint(&w, 11, 1);
    wire_close(&w, profile);
    wire_close(&w, scope);
    wire_close(&w, rp);
    save("profiles/references", &w);
}

static void grpc(void)
{
    static const char *const paths[] = {"/grpc",  "/now",   "/later",
                                        "/never", "/empty", "/grpc/fail"};
    struct wire w = {0}, body = {0};
    h2_message(&body, 0, "hello", 5);
    for (size_t i = 0; i < BR_COUNT(paths); i++) {
        char name[32];
        wire_byte(&w, 3);
        h2_headers(&w, 1, paths[i], 0);
        h2_frame(&w, H2_DATA, 0, 1, body.data, 4);
        h2_frame(&w, H2_DATA, H2_END_STREAM, 1, body.data + 4, body.len - 4);
        h2_headers(&w, 3, paths[i], H2_END_STREAM);
        (void)snprintf(name, sizeof name, "grpc/request_%zu", i);
        save(name, &w);
    }
    wire_byte(&w, 60);
    /* a SETTINGS frame whose initial window size is 5 bytes */
    h2_frame(&w, H2_SETTINGS, 0, 0, "\0\4\0\0\0\5\0\3\0\0\0\1", 12);
    h2_headers(&w, 1, "/x", H2_END_STREAM);
    h2_frame(&w, H2_PING, 0, 0, "12345678", 8);
    h2_frame(&w, H2_WINDOW_UPDATE, 0, 1, "\0\0\0\1", 4);
    h2_frame(&w, H2_PRIORITY, 0, 1, "\0\0\0\0\1", 5);
    h2_headers(&w, 5, "/later", 0);
    h2_frame(&w, H2_RST_STREAM, 0, 5, "\0\0\0\10", 4);
    h2_frame(&w, H2_GOAWAY, 0, 0, "\0\0\0\5\0\0\0\0", 8);
    save("grpc/frames", &w);
    wire_free(&body);
}

/* Writes a recording with one chunk for each encoding, followed by labels. Also writes a recording
 * of two chunks. */
static void jfr(void)
{
    static const struct {
        const char *name;
        struct jfr_made how;
    } ways[] = {{"jfr/packed", {.packed = true}},
                {"jfr/plain", {.packed = false}},
                {"jfr/utf16", {.packed = true, .utf16 = true, .split = true}},
                {"jfr/plain_utf16", {.utf16 = true, .split = true}},
                {"jfr/cpu_time", {.packed = true, .cpu_time = true}}};
    struct wire w = {0};
    for (size_t i = 0; i < BR_COUNT(ways); i++) {
        jfr_made(&w, &ways[i].how);
        jfr_made_labels(&w);
        save(ways[i].name, &w);
    }
    jfr_made(&w, &ways[0].how);
    jfr_made(&w, &ways[2].how);
    save("jfr/chunks", &w);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    root = argv[1];
    traces();
    profiles();
    grpc();
    jfr();
    return 0;
}
