/* SPDX-License-Identifier: Apache-2.0 */
/* The file exporter: requests as lines of OTLP/JSON, or as protobuf with a length in front. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "exporters/file/groups.h"
#include "otlp/json/json.h"
#include "otlp/keyvalue.h"
#include "pipeline/exporter.h"
#include "wire/compression.h"

#define MEGABYTE 1048576u /* as the Collector counts them */
#define LOG_EVERY_MS 60000
#define RETRY_MS 1000
#define TEXT_MAX (1u << 30)
#define TEXT_KEPT_MAX (1u << 20)  /* bytes of memory for text that are kept between requests */
#define JSON_SIZE_MAX (32u << 20) /* of a request; its line is up to 14 times as long */

struct rotation {
    int64_t max_megabytes, max_days, max_backups;
    bool localtime;
};

struct compression_params {
    int64_t level;
};

struct group_by {
    bool enabled;
    const char *resource_attribute;
    int64_t max_open_files;
};

struct config {
    const char *path;
    bool append;
    struct rotation *rotation;
    int format; /* enum format */
    int compression;
    struct compression_params compression_params;
    bool create_directory;
    const char *directory_permissions;
    struct group_by group_by;
    const struct br_yaml *encoding;
    struct br_exporter_config common;
};

enum format { JSON, PROTO };
enum { NONE, ZSTD };

struct state {
    struct file_writer *writer; /* NULL with group_by */
    struct file_groups *groups; /* NULL without */
    struct br_codec *codec;
    struct br_str text;
    struct br_log_limit limit;
};

static const char *const formats[] = {"json", "proto", NULL};
static const char *const compressions[] = {"none", "zstd", NULL};

static const struct br_option rotation_options[] = {
    BR_INT(struct rotation, max_megabytes, 100, 0, 1e9, "largest file, in MiB; 0: 100"),
    BR_INT(struct rotation, max_days, 0, 0, 1e6, "remove rotated files older than that; 0: never"),
    BR_INT(struct rotation, max_backups, 100, 0, 1e6, "rotated files to keep; 0: all"),
    BR_BOOL(struct rotation, localtime, false, "local time in their names, instead of UTC"),
    BR_OPT_END,
};

static const struct br_option params_options[] = {
    BR_INT(struct compression_params, level, 0, 0, 22, "level of zstd; 0: its default here, 1"),
    BR_OPT_END,
};

static const struct br_option group_options[] = {
    BR_BOOL(struct group_by, enabled, false, "a file for each value of an attribute of resources"),
    BR_STRING(struct group_by, resource_attribute, "fileexporter.path_segment",
              "the attribute, whose value stands in the place of the * in path"),
    BR_INT(struct group_by, max_open_files, 100, 1, 100000, "files that each worker keeps open"),
    BR_OPT_END,
};

static const struct br_option options[] = {
    {.name = "path",
     .kind = BR_OPT_STRING,
     .offset = BR_OPT_FIELD(struct config, path, const char *),
     .required = true,
     .help = "the file to write; with group_by it has one *"},
    BR_BOOL(struct config, append, false, "keep what is in the file at the start"),
    BR_PRESENT(struct config, rotation, struct rotation, rotation_options,
               "begin a new file when one is full; absent: never"),
    BR_ENUM(struct config, format, "json", formats,
            "a request a line as OTLP/JSON, or protobuf with its length in four bytes in front"),
    BR_ENUM(struct config, compression, "none", compressions,
            "zstd: each request on its own, with its length in four bytes in front"),
    BR_STRUCT(struct config, compression_params, params_options, "level"),
    BR_IGNORED("flush_interval", "each request is written at once"),
    BR_BOOL(struct config, create_directory, false, "make the folders above path"),
    BR_STRING(struct config, directory_permissions, NULL,
              "octal mode of these folders; default: 0700"),
    BR_STRUCT(struct config, group_by, group_options, "a file for each value of an attribute"),
    BR_VALUE(struct config, encoding, "not supported: there are no encoding extensions"),
    BR_EXPORTER_OPTIONS_OFF(struct config, common),
    BR_OPT_END,
};

/* --- Config ---------------------------------------------------------------------------------- */

/* Octal, at most 0777; -1 when it is not. */
static int file_exporter_parse_mode(const char *text)
{
    char *end;
    if (!*text || strlen(text) > 5 || text[strspn(text, "01234567")])
        return -1;
    long mode = strtol(text, &end, 8);
    return mode > 0777 || mode <= 0 ? -1 : (int)mode;
}

/* The Collector's conditions (its Config.Validate), and that rotation, which it ignores there, is
 * not written. */
static void file_exporter_check_groups(const struct config *settings, const struct br_yaml *node,
                                       const char *path, struct br_errs *errs)
{
    const char *star = settings->path ? strchr(settings->path, '*') : NULL;
    if (settings->path && (!star || strchr(star + 1, '*') || star == settings->path))
        br_errs_add_key(
            errs, node, path, "path",
            "must have exactly one *, and not begin with it, where group_by is enabled");
    if (!settings->group_by.resource_attribute[0])
        br_errs_add_key(errs, node, path, "group_by", "resource_attribute must name an attribute");
    if (settings->rotation)
        br_errs_warn(errs, br_yaml_get(node, "rotation"), path,
                     "rotation has no effect where group_by is enabled");
}

static int file_exporter_check(void *config, const struct br_yaml *node, const char *path,
                               struct br_arena *arena, struct br_errs *errs)
{
    struct config *settings = config;
    size_t before = errs->n_errors;
    (void)arena;
    (void)br_exporter_check(&settings->common, node, path, errs);
    if (settings->append && settings->rotation)
        br_errs_add_key(
            errs, node, path, "append",
            "and rotation cannot be used together; a rotated file is always appended to");
    if (settings->directory_permissions && !settings->create_directory)
        br_errs_add_key(errs, node, path, "directory_permissions", "needs create_directory: true");
    else if (settings->directory_permissions &&
             file_exporter_parse_mode(settings->directory_permissions) < 0)
        br_errs_add_key(errs, node, path, "directory_permissions",
                        "must be an octal mode up to 0777, such as \"0755\"");
    if (settings->group_by.enabled)
        file_exporter_check_groups(settings, node, path, errs);
    if (settings->encoding && settings->encoding->type != BR_YAML_NULL)
        br_errs_add_key(errs, node, path, "encoding",
                        "is not supported; use format: json or format: proto");
    return errs->n_errors > before ? BR_EINVAL : 0;
}

static int file_exporter_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    state->text.max = TEXT_MAX;
    state->codec = config->compression == ZSTD ? br_codec_new() : NULL;
    return config->compression == ZSTD && !state->codec
               ? br_err_set(err, BR_ENOMEM, "out of memory")
               : 0;
}

static int file_exporter_start(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    const struct rotation *rotation = config->rotation;
    struct file_writer_config writer_config = {.path = config->path,
                                               .owner = node->id,
                                               .append = config->append,
                                               .only_looks = node->host->checking};
    if (config->create_directory)
        writer_config.make_folders = config->directory_permissions
                                         ? file_exporter_parse_mode(config->directory_permissions)
                                         : 0700;
    if (config->group_by.enabled) {
        if (!writer_config.make_folders)
            writer_config.make_folders = 0700;
        state->groups =
            file_groups_new(node->host, &writer_config, (size_t)config->group_by.max_open_files);
        return state->groups ? 0 : br_err_set(err, BR_ENOMEM, "out of memory");
    }
    if (rotation) {
        writer_config.max_bytes =
            (rotation->max_megabytes ? (uint64_t)rotation->max_megabytes : 100) * MEGABYTE;
        writer_config.max_backups = rotation->max_backups;
        writer_config.max_days = rotation->max_days;
        writer_config.local_time = rotation->localtime;
    }
    return file_writer_open(node->host, &writer_config, &state->writer, err);
}

/* --- Traffic --------------------------------------------------------------------------------- */

/* The item as a payload: protobuf, or JSON in s->text. */
static int file_exporter_encode(struct state *state, const struct config *config,
                                const struct br_item *item, struct br_rope *ret)
{
    const uint8_t *data;
    int rc = br_item_write(item, ret);
    if (rc || config->format == PROTO)
        return rc;
    struct br_buf *flat = br_rope_flat(ret, item->host->pool, &data);
    size_t len = ret->len;
    br_rope_release(ret);
    if (!flat)
        return BR_ENOMEM;
    br_str_clear(&state->text);
    rc = br_json_encode(br_otlp_request(item->signal), data, len, &state->text);
    br_buf_unref(flat);
    return rc ? rc : br_rope_add(ret, NULL, state->text.data, state->text.len);
}

/* The length of a payload before it, big-endian. */
static void file_exporter_put_length(uint8_t out[4], size_t len)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(len >> (24 - 8 * i));
}

/* Writes a payload as one record. Returns 0, BR_ENOMEM, or BR_EIO with `*ret_error`. */
static int file_exporter_write_record(struct br_node *node, struct file_writer *writer,
                                      const struct br_rope *payload, int *ret_error)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    struct br_buf *buf = NULL;
    const uint8_t *data;
    uint8_t length[4];
    size_t len = payload->len;
    if (config->compression == ZSTD) {
        int rc = br_compress(state->codec, BR_ENCODING_ZSTD, (int)config->compression_params.level,
                             payload, 0, node->host->pool, &buf);
        if (rc)
            return rc;
        data = buf->data;
        len = buf->len;
    } else if (payload->count == 1) {
        data = payload->slices[0].data;
    } else {
        buf = br_rope_flat(payload, node->host->pool, &data);
        if (!buf)
            return BR_ENOMEM;
    }
    bool line = config->format == JSON && config->compression == NONE;
    struct file_record record = {{length, data, "\n"}, {line ? 0 : 4, len, line}};
    file_exporter_put_length(length, len);
    *ret_error = file_writer_put(writer, &record, br_host_unix_ns(node->host));
    br_buf_unref(buf);
    return *ret_error ? BR_EIO : 0;
}

/* The data stays with its sender, who tries again: a full disk may be emptied. */
static void file_exporter_fail(struct br_node *node, struct br_item *item, int rc, int error)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    uint64_t held;
    if (rc == BR_EINVAL || rc == BR_ETOOBIG) {
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT,
                       "file: the request cannot be written as JSON");
        return;
    }
    struct br_outcome outcome =
        br_outcome_retry(BR_STATUS_UNAVAILABLE, RETRY_MS, "file: cannot write to %s: %s",
                         config->path, rc == BR_EIO ? strerror(error) : "out of memory");
    if (br_log_allow(&state->limit, br_host_mono_ms(node->host), LOG_EVERY_MS, &held))
        br_warn(&node->log, "%s", outcome.text);
    br_item_finish(item, &outcome);
}

/* Writes what an item has as one record. Returns as file_exporter_encode and _write_record. */
static int file_exporter_write(struct br_node *node, struct file_writer *writer,
                               const struct br_item *item, int *ret_error)
{
    struct state *state = node->state;
    struct br_rope payload = {0};
    int rc = file_exporter_encode(state, node->config, item, &payload);
    if (!rc)
        rc = file_exporter_write_record(node, writer, &payload, ret_error);
    br_rope_release(&payload);
    return rc;
}

/* --- A file for each value of an attribute --------------------------------------------------- */

struct grouped {
    const uint8_t *value;
    size_t len;
    uint32_t part;
};

/* Orders by value, and within one value as they came. */
static int file_exporter_by_value(const void *left, const void *right)
{
    const struct grouped *one = left, *other = right;
    size_t len = one->len < other->len ? one->len : other->len;
    int order = memcmp(one->value, other->value, len);
    if (order == 0 && one->len != other->len)
        order = one->len < other->len ? -1 : 1;
    return order ? order : one->part < other->part ? -1 : 1;
}

/* The value of the attribute that a part's Resource has as text; false when it has none. */
static bool file_exporter_value_of(const struct br_part *part, const char *name,
                                   struct grouped *ret)
{
    size_t len, name_len = strlen(name);
    const uint8_t *p = br_part_resource(part, &len), *end = p ? p + len : p;
    struct br_keyvalue pair;
    while ((p = br_keyvalue_next(p, end, BR_RESOURCE_ATTRIBUTES, &pair))) {
        if (pair.key_len != name_len || memcmp(pair.key, name, name_len) != 0)
            continue;
        struct br_any any = br_any_read(pair.value);
        ret->value = any.data ? any.data : (const uint8_t *)"";
        ret->len = any.len;
        return any.type == BR_VALUE_STRING;
    }
    return false;
}

/* An item of the parts that are grouped[0] to [count - 1], with the dictionary. */
static struct br_item *file_exporter_piece(const struct br_item *item,
                                           const struct grouped *grouped, size_t count)
{
    struct br_item *piece = br_item_new(item->host, item->signal);
    bool ok = piece != NULL;
    for (size_t i = 0; i < count && ok; i++)
        ok = br_item_add_part(piece, &item->parts[grouped[i].part]) == 0;
    for (uint32_t i = 0; i < item->n_parts && ok; i++)
        if (item->parts[i].kind == BR_PART_DICTIONARY)
            ok = br_item_add_part(piece, &item->parts[i]) == 0;
    if (ok)
        return piece;
    br_item_free(piece);
    return NULL;
}

/* Writes one value's parts. Returns 0 with `*ret_dropped` more where the value names no file. */
static int file_exporter_write_group(struct br_node *node, const struct br_item *item,
                                     const struct grouped *grouped, size_t count,
                                     uint32_t *ret_dropped, int *ret_error)
{
    struct state *state = node->state;
    struct file_writer *writer = NULL;
    struct br_err err = {0};
    int rc = file_groups_writer(state->groups, grouped->value, grouped->len, &writer, &err);
    struct br_item *piece = file_exporter_piece(item, grouped, count);
    if (!piece)
        return BR_ENOMEM;
    if (rc == BR_EINVAL)
        *ret_dropped += piece->n_items;
    else if (!rc)
        rc = file_exporter_write(node, writer, piece, ret_error);
    br_item_free(piece);
    return rc == BR_EINVAL && !writer ? 0 : rc;
}

/* Drops and counts what has no such attribute, as the Collector does. */
static void file_exporter_consume_groups(struct br_node *node, struct br_item *item)
{
    const struct config *config = node->config;
    struct grouped *grouped = br_arena_calloc(&item->arena, item->n_parts, sizeof *grouped);
    uint32_t n = 0, n_dropped = 0;
    int rc = grouped || !item->n_parts ? 0 : BR_ENOMEM, error = EIO;
    for (uint32_t i = 0; i < item->n_parts && !rc; i++) {
        if (item->parts[i].kind != BR_PART_RESOURCE)
            continue;
        grouped[n].part = i;
        if (file_exporter_value_of(&item->parts[i], config->group_by.resource_attribute,
                                   &grouped[n]))
            n++;
        else
            n_dropped += item->parts[i].n_items;
    }
    if (n > 1)
        qsort(grouped, n, sizeof *grouped, file_exporter_by_value);
    uint32_t from = 0;
    for (uint32_t to; from < n && !rc; from = rc ? from : to) {
        to = from + 1;
        while (to < n && grouped[to].len == grouped[from].len &&
               memcmp(grouped[to].value, grouped[from].value, grouped[to].len) == 0)
            to++;
        rc = file_exporter_write_group(node, item, grouped + from, to - from, &n_dropped, &error);
    }
    if (rc && from == 0) {
        file_exporter_fail(node, item, rc, error);
        return;
    }
    for (; from < n; from++) /* again, what was written would come twice */
        n_dropped += item->parts[grouped[from].part].n_items;
    if (n_dropped)
        br_item_settle(item, BR_FATE_DROPPED, rc ? "not_written" : "no_group", n_dropped);
    br_item_done(item);
}

static void file_exporter_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    int error = 0;
    if (config->format == JSON && item->size > JSON_SIZE_MAX) {
        br_item_reject(item, BR_STATUS_RESOURCE_EXHAUSTED,
                       "file: the request is over 32 MiB, too large for one line");
        return;
    }
    if (state->groups) {
        file_exporter_consume_groups(node, item);
        return;
    }
    int rc = file_exporter_write(node, state->writer, item, &error);
    if (state->text.cap > TEXT_KEPT_MAX)
        br_str_release(&state->text);
    if (rc) {
        file_exporter_fail(node, item, rc, error);
        return;
    }
    br_item_done(item);
}

static void file_exporter_destroy(struct br_node *node)
{
    struct state *state = node->state;
    file_writer_close(node->host, state->writer);
    file_groups_free(state->groups);
    br_codec_free(state->codec);
    br_str_release(&state->text);
}

extern const struct br_component br_file_exporter;
const struct br_component br_file_exporter = {
    .name = "file",
    .kind = BR_EXPORTER,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "requests as lines of OTLP/JSON, or protobuf, with rotation",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .exporter_wrapped = true,
    .common_at = offsetof(struct config, common),
    .resolves = true,
    .check = file_exporter_check,
    .create = file_exporter_create,
    .start = file_exporter_start,
    .consume = file_exporter_consume,
    .destroy = file_exporter_destroy,
};
