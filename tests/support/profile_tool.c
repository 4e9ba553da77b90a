/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command that converts other profile formats: `profile_tool FORMAT FILE [key=value...]` reads a
 * file (decompressed if it is gzip) as a receiver would, and prints the resulting OTLP/JSON. On an
 * error it prints a message on stderr and exits with status 1. FORMAT is pprof, jfr, folded, lines,
 * trie, tree, speedscope, perf, cpuprofile, firefox, or guess. Keys:
 *
 *     pyroscope_name, spy_name, type, units   texts of br_profile_source
 *     from_pyroscope, cumulative              1: true
 *     start_ns, end_ns, sample_rate           numbers
 *     profile_id                              32 hex digits
 *     labels                                  a file with the LabelsSnapshot of a JFR
 *     resource.NAME                           an attribute of the Resource
 *     display.TYPE                            display name of the sample type TYPE
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "core/host.h"
#include "otlp/json/json.h"
#include "otlp/walk/walk.h"
#include "profile/profile.h"
#include "wire/compression.h"

#define FILE_MAX (256u << 20)
#define TYPES_MAX 64

struct tool {
    struct br_host host;
    struct br_arena arena;
    struct br_profile_source source;
    struct br_addition resource;
    struct br_sample_type types[TYPES_MAX];
    uint8_t profile_id[16];
    struct br_err err;
};

static _Noreturn void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static struct br_buf *read_file(struct tool *t, const char *path)
{
    FILE *f = fopen(path, "rb");
    struct br_buf *buf = f ? br_buf_new(t->host.pool, 4096) : NULL;
    if (!buf)
        die(path, "cannot be read");
    uint8_t block[65536];
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;)
        if (br_buf_append(&buf, block, n, FILE_MAX))
            die(path, "too large");
    (void)fclose(f);
    if (buf->len < 2 || buf->data[0] != 0x1f || buf->data[1] != 0x8b)
        return buf;
    struct br_codec *codec = br_codec_new();
    struct br_buf *plain = NULL;
    if (!codec || br_decompress(codec, BR_ENCODING_GZIP, buf->data, buf->len, FILE_MAX,
                                t->host.pool, &plain, &t->err))
        die(path, t->err.text);
    br_codec_free(codec);
    br_buf_unref(buf);
    return plain;
}

/* --- Arguments -------------------------------------------------------------------------------- */

static const char *const formats[] = {
    [BR_FORMAT_PPROF] = "pprof",
    [BR_FORMAT_JFR] = "jfr",
    [BR_FORMAT_FOLDED] = "folded",
    [BR_FORMAT_LINES] = "lines",
    [BR_FORMAT_TRIE] = "trie",
    [BR_FORMAT_TREE] = "tree",
    [BR_FORMAT_SPEEDSCOPE] = "speedscope",
    [BR_FORMAT_PERF_SCRIPT] = "perf",
    [BR_FORMAT_CPUPROFILE] = "cpuprofile",
    [BR_FORMAT_GECKO] = "firefox",
};

static enum br_profile_format format_of(const char *name, const struct br_buf *buf)
{
    enum br_profile_format format;
    for (size_t i = 0; i < BR_COUNT(formats); i++)
        if (!strcmp(name, formats[i]))
            return (enum br_profile_format)i;
    if (strcmp(name, "guess"))
        die(name, "no such format");
    if (!br_profile_guess(buf->data, buf->len, &format))
        die(name, "a format that is not known");
    return format;
}

static void set_text(struct tool *t, const char *key, const char *value)
{
    struct br_profile_source *s = &t->source;
    const struct {
        const char *key;
        const char **field;
    } texts[] = {{"pyroscope_name", &s->pyroscope_name},
                 {"spy_name", &s->spy_name},
                 {"type", &s->type},
                 {"units", &s->units}};
    for (size_t i = 0; i < BR_COUNT(texts); i++) {
        if (!strcmp(key, texts[i].key)) {
            *texts[i].field = value;
            return;
        }
    }
    die(key, "no such key");
}

static void set(struct tool *t, const char *key, const char *value)
{
    struct br_profile_source *s = &t->source;
    if (!strncmp(key, "resource.", strlen("resource."))) {
        if (br_add_string(&t->arena, &t->resource, 1, key + strlen("resource."), value,
                          strlen(value)))
            die(key, "no memory");
    } else if (!strncmp(key, "display.", strlen("display."))) {
        if (s->n_types == TYPES_MAX)
            die(key, "too many");
        t->types[s->n_types++] =
            (struct br_sample_type){.type = key + strlen("display."), .display_name = value};
        s->types = t->types;
    } else if (!strcmp(key, "labels")) {
        const struct br_buf *buf = read_file(t, value);
        s->labels = buf->data;
        s->labels_len = buf->len;
    } else if (!strcmp(key, "profile_id")) {
        if (!br_hex_id(value, strlen(value), t->profile_id, sizeof t->profile_id))
            die(value, "no id");
        s->profile_id = t->profile_id;
    } else if (!strcmp(key, "from_pyroscope")) {
        s->from_pyroscope = *value == '1';
    } else if (!strcmp(key, "cumulative")) {
        s->cumulative = *value == '1';
    } else if (!strcmp(key, "start_ns")) {
        s->start_ns = strtoull(value, NULL, 10);
    } else if (!strcmp(key, "end_ns")) {
        s->end_ns = strtoull(value, NULL, 10);
    } else if (!strcmp(key, "sample_rate")) {
        s->sample_rate = strtod(value, NULL);
    } else {
        set_text(t, key, value);
    }
}

/* --- The result ------------------------------------------------------------------------------- */

/* Prints the item, which must equal the result of the walk over its bytes. */
static void print(struct tool *t, const struct br_item *item)
{
    struct br_rope rope = {0};
    const uint8_t *data;
    struct br_buf *flat =
        br_item_write(item, &rope) ? NULL : br_rope_flat(&rope, t->host.pool, &data);
    struct br_item *walked = br_item_new(&t->host, BR_PROFILES);
    const struct br_walk_options options = {.utf8 = BR_UTF8_REJECT};
    struct br_str json = {.max = SIZE_MAX};
    uint32_t repaired;
    if (!flat || !walked || br_walk(walked, flat, data, rope.len, &options, &repaired, &t->err))
        die("the result is not valid", t->err.text);
    if (br_json_encode(br_otlp_request(BR_PROFILES), data, rope.len, &json))
        die("json", "no memory");
    puts(json.data ? json.data : "{}");
    br_str_release(&json);
    br_item_free(walked);
    br_buf_unref(flat);
    br_rope_release(&rope);
}

int main(int argc, char **argv)
{
    static const struct br_host_ops ops = {0};
    struct tool t = {.host = {.ops = &ops, .pool = br_pool_new(0)}, .arena = {.max = FILE_MAX}};
    if (argc < 3 || !t.host.pool)
        die("usage", "profile_tool FORMAT FILE [key=value...]");
    const struct br_buf *buf = read_file(&t, argv[2]);
    for (int i = 3; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value)
            die(argv[i], "no key=value");
        *value = '\0';
        set(&t, argv[i], value + 1);
    }
    t.source.data = buf->data;
    t.source.len = buf->len;
    t.source.resource = t.resource.len ? &t.resource : NULL;
    struct br_build *b = br_build_new(&t.host, FILE_MAX);
    struct br_item *item = br_item_new(&t.host, BR_PROFILES);
    if (!b || !item)
        die(argv[2], "no memory");
    if (br_profile_read(b, format_of(argv[1], buf), &t.source, &t.arena, &t.err))
        die(argv[2], t.err.text);
    if (br_build_take(b, item))
        die(argv[2], br_strerror(br_build_rc(b)));
    print(&t, item);
    return 0;
}
