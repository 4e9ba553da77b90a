/* SPDX-License-Identifier: Apache-2.0 */
/* The file exporter: writes requests as lines of OTLP/JSON, or as protobuf with a length prefix. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "core/task.h"
#include "exporters/file/writer.h"
#include "otlp/json/json.h"
#include "otlp/keyvalue.h"
#include "pipeline/exporter.h"
#include "wire/compression.h"

/* number of bytes that a megabyte in the configuration means, as in the Collector */
#define MEGABYTE 1048576u
#define RETRY_MS 1000
#define TEXT_MAX (1u << 30)
/* largest text buffer, in bytes, that is kept for the next request */
#define TEXT_KEPT_MAX (1u << 20)
/* largest request, in bytes, that is written as JSON; its line is up to 14 times as long */
#define JSON_SIZE_MAX (32u << 20)
/* largest total size, in bytes, of the items queued in one worker */
#define WAITING_BYTES (64u << 20)
#define WRITE_ITEMS 64 /* largest number of items in one write */
/* delay in milliseconds before the next attempt to write to a FIFO that is full */
#define AGAIN_MS 100

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
    int format; /* format of the file, a value of enum format */
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

/* The records (spans or samples) of an item that are written to one file. Without group_by, these
 * are all records of the item. With group_by, these are the records with one value of the group_by
 * attribute. */
struct record {
    struct br_item *item;
    /* the data as protobuf; the writing thread reads the bytes but does not change the rope */
    struct br_rope payload;
    /* value of the group_by attribute, in the item's memory; NULL without group_by */
    const uint8_t *value;
    size_t value_len;
    uint32_t n_items;
    /* how many of the item's spans or samples do not have the group_by attribute; 0 except in
     * the item's first record */
    uint32_t n_no_group;
    int rc;
    int error;     /* errno of the write, if `rc` is BR_EIO */
    bool nameless; /* true if `value` is not a valid file name; the record is then dropped */
};

/* A write of several records, which runs in a thread. The task's `done` callback frees the
 * struct, possibly after the node is destroyed. */
struct writing {
    struct br_task task;
    struct state *state; /* state of the node; it may already be freed if the task was cancelled */
    struct record *records;
    uint32_t n_records, cap_records;
    uint32_t at;      /* index of the record to write next */
    uint64_t unix_ns; /* Unix time at which the write started */
    bool runs;        /* true until the `done` callback of the started task was called */
    /* true if a FIFO has accepted only the first bytes of the record at `at`; the write continues
     * later */
    bool unfinished;
    /* true if a file was opened again, because it had been deleted or replaced while Braid wrote to
     * it */
    bool reopened;
    /* this field and the following fields are used only by the thread that writes */
    struct br_codec *codec;
    struct br_str text;
    /* copy of the record at `at`, owned by the write; NULL: the record was not copied */
    struct br_buf *encoded;
    struct file_writer *writer;
    struct file_record out;
    uint8_t length[4];
};

struct state {
    struct br_node *node;
    /* writer of the file if there is only one file; NULL with group_by */
    struct file_writer *writer;
    /* writers of the files, one for each attribute value; NULL without group_by */
    struct file_groups *groups;
    struct br_list waiting; /* queued items, which contain `waiting_bytes` bytes */
    struct br_list current; /* items of the current write */
    size_t waiting_bytes;
    bool busy;
    struct writing *writing;
    struct br_timer again;
    struct br_log_limit limit, reopened_limit;
};

static const char *const formats[] = {"json", "proto", NULL};
static const char *const compressions[] = {"none", "zstd", NULL};

static const struct br_option rotation_options[] = {
    BR_INT(struct rotation, max_megabytes, 100, 0, 1e9,
           "largest size of a file in MiB; 0: 100 MiB"),
    BR_INT(struct rotation, max_days, 0, 0, 1e6,
           "remove rotated files after this many days; 0: never"),
    BR_INT(struct rotation, max_backups, 100, 0, 1e6, "number of rotated files to keep; 0: all"),
    BR_BOOL(struct rotation, localtime, false,
            "use local time instead of UTC in the names of rotated files"),
    BR_OPT_END,
};

static const struct br_option params_options[] = {
    BR_INT(struct compression_params, level, 0, 0, 22, "zstd compression level; 0 selects level 1"),
    BR_OPT_END,
};

static const struct br_option group_options[] = {
    BR_BOOL(struct group_by, enabled, false, "write one file per value of a resource attribute"),
    BR_STRING(struct group_by, resource_attribute, "fileexporter.path_segment",
              "resource attribute whose value replaces the * in path"),
    BR_INT(struct group_by, max_open_files, 100, 1, 100000,
           "largest number of files that all workers together keep open"),
    BR_OPT_END,
};

static const struct br_option options[] = {
    {.name = "path",
     .kind = BR_OPT_STRING,
     .offset = BR_OPT_FIELD(struct config, path, const char *),
     .required = true,
     .help = "path of the file to write; with group_by, it must contain one *"},
    BR_BOOL(struct config, append, false,
            "append to an existing file at startup instead of truncating it"),
    BR_PRESENT(struct config, rotation, struct rotation, rotation_options,
               "start a new file when the current one reaches max_megabytes; if absent, the file "
               "grows without limit"),
    BR_ENUM(struct config, format, "json", formats,
            "json: each request is one line of OTLP/JSON; proto: each request is a protobuf "
            "message after its length in four bytes"),
    BR_ENUM(struct config, compression, "none", compressions,
            "zstd: each request is compressed separately and written after its compressed length "
            "in four bytes"),
    BR_STRUCT(struct config, compression_params, params_options, "parameters of the compression"),
    BR_IGNORED("flush_interval", "each request is written to the file immediately"),
    BR_BOOL(struct config, create_directory, false, "create missing parent directories of path"),
    BR_STRING(struct config, directory_permissions, NULL,
              "octal mode of created directories; default: 0700"),
    BR_STRUCT(struct config, group_by, group_options,
              "write one file per value of a resource attribute"),
    BR_VALUE(struct config, encoding, "not supported: there are no encoding extensions"),
    BR_EXPORTER_OPTIONS_OFF(struct config, common),
    BR_OPT_END,
};

/* --- Config ---------------------------------------------------------------------------------- */

/* Parses an octal mode up to 0777. Returns -1 if the mode is invalid. */
static int file_exporter_parse_mode(const char *text)
{
    char *end;
    if (!*text || strlen(text) > 5 || text[strspn(text, "01234567")])
        return -1;
    long mode = strtol(text, &end, 8);
    return mode > 0777 || mode <= 0 ? -1 : (int)mode;
}

/* Checks the same conditions as the Collector's Config.Validate. Rotation together with group_by
 * only causes a warning, because the Collector ignores rotation then. */
static void file_exporter_check_groups(const struct config *settings, const struct br_yaml *node,
                                       const char *path, struct br_errs *errs)
{
    const char *star = settings->path ? strchr(settings->path, '*') : NULL;
    if (settings->path && (!star || strchr(star + 1, '*') || star == settings->path))
        br_errs_add_key(errs, node, path, "path",
                        "must have exactly one *, and not begin with it, if group_by is enabled");
    if (!settings->group_by.resource_attribute[0])
        br_errs_add_key(errs, node, path, "group_by", "resource_attribute must name an attribute");
    if (settings->rotation)
        br_errs_warn(errs, br_yaml_get(node, "rotation"), path,
                     "rotation has no effect if group_by is enabled");
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

static br_task_fn file_exporter_on_run, file_exporter_on_done;

static int file_exporter_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    struct writing *writing = br_calloc(1, sizeof *writing);
    state->node = node;
    br_list_init(&state->waiting);
    br_list_init(&state->current);
    state->writing = writing;
    if (!writing)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    writing->state = state;
    writing->text.max = TEXT_MAX;
    br_task_init(&writing->task, node->host, file_exporter_on_run, file_exporter_on_done);
    writing->task.work.kind = BR_WORK_DISK;
    int rc = br_task_add_pool(&writing->task, NULL);
    if (!rc && config->compression == ZSTD) {
        writing->codec = br_codec_new();
        rc = writing->codec ? 0 : BR_ENOMEM;
    }
    return rc ? br_err_set(err, rc, "out of memory") : 0;
}

static void file_exporter_on_again(struct br_timer *timer);

static int file_exporter_start(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    const struct rotation *rotation = config->rotation;
    if (!br_host_timer_park(node->host, &state->again, file_exporter_on_again))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    struct file_writer_config writer_config = {.path = config->path,
                                               .owner = node->id,
                                               .append = config->append,
                                               .only_checks = node->host->checking};
    if (config->create_directory)
        writer_config.directory_mode = config->directory_permissions
                                           ? file_exporter_parse_mode(config->directory_permissions)
                                           : 0700;
    if (config->group_by.enabled) {
        if (!writer_config.directory_mode)
            writer_config.directory_mode = 0700;
        state->groups =
            file_groups_open(node->host, &writer_config, (size_t)config->group_by.max_open_files);
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

/* --- In a thread ----------------------------------------------------------------------------- */

/* Sets `*ret` to the record's payload as contiguous bytes, in the format of the file: protobuf or
 * JSON. */
static int file_exporter_encode(struct writing *writing, const struct record *record,
                                struct br_slice *ret)
{
    const struct config *config = writing->state->node->config;
    const struct br_rope *payload = &record->payload;
    ret->len = payload->len;
    ret->data = br_rope_bytes(payload, writing->task.host.pool, &writing->encoded);
    if (!ret->data && payload->len)
        return BR_ENOMEM;
    if (config->format == PROTO)
        return 0;
    br_str_clear(&writing->text);
    int rc =
        br_json_encode(br_otlp_request(record->item->signal), ret->data, ret->len, &writing->text);
    writing->encoded = br_buf_unref(writing->encoded);
    *ret = (struct br_slice){NULL, (const uint8_t *)writing->text.data, writing->text.len};
    return rc;
}

static int file_exporter_compress(struct writing *writing, struct br_slice *slice)
{
    const struct config *config = writing->state->node->config;
    struct br_buf *packed = NULL;
    int rc = br_compress(writing->codec, BR_ENCODING_ZSTD, (int)config->compression_params.level,
                         &(struct br_rope){slice, 1, 1, slice->len}, 0, writing->task.host.pool,
                         &packed);
    (void)br_buf_unref(writing->encoded);
    writing->encoded = packed;
    if (!rc)
        *slice = (struct br_slice){packed, packed->data, packed->len};
    return rc;
}

/* Writes the length of a record in four bytes, the most significant byte first. */
static void file_exporter_put_length(uint8_t out[4], size_t len)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(len >> (24 - 8 * i));
}

/* Prepares `writing->out` for a record, and opens the record's file. */
static int file_exporter_prepare(struct writing *writing, struct record *record)
{
    const struct state *state = writing->state;
    const struct config *config = state->node->config;
    struct br_slice slice = {0};
    int rc = file_exporter_encode(writing, record, &slice);
    if (!rc && config->compression == ZSTD)
        rc = file_exporter_compress(writing, &slice);
    if (rc)
        return rc;
    writing->writer = state->writer;
    if (state->groups) {
        rc = file_groups_writer(state->groups, record->value, record->value_len, &writing->writer);
        record->nameless = rc == BR_EINVAL;
        if (rc)
            return record->nameless ? 0 : rc;
    }
    bool line = config->format == JSON && config->compression == NONE;
    file_exporter_put_length(writing->length, slice.len);
    writing->out = (struct file_record){.data = {writing->length, slice.data, "\n"},
                                        .len = {line ? 0 : 4, slice.len, line}};
    return 0;
}

/* Releases the data and the file of the record at `at`. */
static void file_exporter_release_record(struct writing *writing)
{
    struct state *state = writing->state;
    if (state->groups && writing->writer)
        file_groups_done(state->groups, writing->writer);
    writing->writer = NULL;
    writing->encoded = br_buf_unref(writing->encoded);
    if (writing->text.cap > TEXT_KEPT_MAX)
        br_str_release(&writing->text);
}

/* Writes the record at `at`. Returns false if the remaining bytes have to be written later. */
static bool file_exporter_write_record(struct writing *writing)
{
    struct record *record = &writing->records[writing->at];
    if (!writing->writer)
        record->rc = file_exporter_prepare(writing, record);
    if (!record->rc && !record->nameless) {
        record->error = file_writer_put(writing->writer, &writing->out, writing->unix_ns);
        writing->reopened |= writing->out.reopened;
        if (record->error == EINPROGRESS)
            return false;
        record->rc = record->error ? BR_EIO : 0;
    }
    file_exporter_release_record(writing);
    return true;
}

/* Returns true if the previous record belongs to the same item and failed. The record is then not
 * written, and gets the error code of that failure. */
static bool file_exporter_follows_failure(struct record *record, const struct record *first)
{
    if (record == first || record[-1].item != record->item || !record[-1].rc)
        return false;
    record->rc = record[-1].rc;
    record->error = record[-1].error;
    return true;
}

static void file_exporter_on_run(struct br_task *task)
{
    struct writing *writing = br_container_of(task, struct writing, task);
    writing->unfinished = false;
    for (; writing->at < writing->n_records && !writing->unfinished;
         writing->at += !writing->unfinished)
        if (!file_exporter_follows_failure(&writing->records[writing->at], writing->records))
            writing->unfinished = !file_exporter_write_record(writing);
}

/* --- Records --------------------------------------------------------------------------------- */

/* Appends a record with the content of `part`, which is `item` or a piece of it. */
static int file_exporter_add_record(struct state *state, struct br_item *item,
                                    const struct br_item *part, const uint8_t *value,
                                    size_t value_len)
{
    struct writing *writing = state->writing;
    if (br_grow(&writing->records, &writing->cap_records, (size_t)writing->n_records + 1,
                sizeof *writing->records, UINT32_MAX))
        return BR_ENOMEM;
    struct record *record = &writing->records[writing->n_records++];
    *record = (struct record){
        .item = item, .value = value, .value_len = value_len, .n_items = part->n_records};
    return br_item_write(part, &record->payload);
}

/* A ResourceSpans or ResourceProfiles of an item, with the value of its group_by attribute. */
struct grouped {
    const uint8_t *value;
    size_t len;
    uint32_t part;
};

/* Orders parts by attribute value, then by their position in the item. */
static int file_exporter_by_value(const void *first, const void *second)
{
    const struct grouped *one = first, *other = second;
    size_t len = one->len < other->len ? one->len : other->len;
    int order = memcmp(one->value, other->value, len);
    if (order)
        return order;
    if (one->len != other->len)
        return one->len < other->len ? -1 : 1;
    return one->part < other->part ? -1 : 1;
}

/* Finds the attribute `name` in the Resource of a part (ResourceSpans or ResourceProfiles). Returns
 * false if the Resource does not have the attribute with a text value. */
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

/* Makes an item that contains the first `count` parts of `grouped`, and the dictionary. */
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

/* Appends one record per attribute value. Resources without the group_by attribute are not
 * written. */
static int file_exporter_add_groups(struct state *state, struct br_item *item)
{
    const struct config *config = state->node->config;
    struct grouped *grouped = br_arena_calloc(&item->arena, item->n_parts, sizeof *grouped);
    uint32_t n = 0, n_no_group = 0, first = state->writing->n_records;
    int rc = grouped || !item->n_parts ? 0 : BR_ENOMEM;
    for (uint32_t i = 0; i < item->n_parts && !rc; i++) {
        if (item->parts[i].kind != BR_PART_RESOURCE)
            continue;
        grouped[n].part = i;
        if (file_exporter_value_of(&item->parts[i], config->group_by.resource_attribute,
                                   &grouped[n]))
            n++;
        else
            n_no_group += item->parts[i].n_records;
    }
    if (n > 1)
        qsort(grouped, n, sizeof *grouped, file_exporter_by_value);
    for (uint32_t from = 0, to; from < n && !rc; from = to) {
        to = from + 1;
        while (to < n && br_bytes_equal(grouped[to].value, grouped[to].len, grouped[from].value,
                                        grouped[from].len))
            to++;
        struct br_item *piece = file_exporter_piece(item, grouped + from, to - from);
        rc = piece ? file_exporter_add_record(state, item, piece, grouped[from].value,
                                              grouped[from].len)
                   : BR_ENOMEM;
        br_item_free(piece);
    }
    if (!rc && state->writing->n_records > first)
        state->writing->records[first].n_no_group = n_no_group;
    return rc;
}

static void file_exporter_drop_records(struct writing *writing, uint32_t first)
{
    while (writing->n_records > first)
        br_rope_release(&writing->records[--writing->n_records].payload);
}

/* --- Results --------------------------------------------------------------------------------- */

/* Finishes an item that could not be written. The client is asked to retry, because a full disk
 * may have free space by then. */
static void file_exporter_fail(struct state *state, struct br_item *item, int rc, int error)
{
    const struct config *config = state->node->config;
    if (rc == BR_EINVAL || rc == BR_ETOOBIG) {
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT,
                       "file: the request cannot be written as JSON");
        return;
    }
    struct br_outcome outcome =
        br_outcome_retry(BR_STATUS_UNAVAILABLE, RETRY_MS, "file: cannot write to %s: %s",
                         config->path, rc == BR_EIO ? file_writer_reason(error) : "out of memory");
    br_node_warn(state->node, &state->limit, "%s", outcome.text);
    br_item_finish(item, &outcome);
}

/* Finishes the item to which the first `count` records belong. */
static void file_exporter_finish_item(struct state *state, const struct record *records,
                                      uint32_t count)
{
    struct br_item *item = records->item;
    uint32_t n_dropped = records->n_no_group;
    bool failed = false;
    if (records->rc) {
        file_exporter_fail(state, item, records->rc, records->error);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        /* only the failed records are dropped: a retry would write the other records twice */
        failed = failed || records[i].rc;
        n_dropped += records[i].rc || records[i].nameless ? records[i].n_items : 0;
    }
    if (n_dropped)
        br_item_report(item, BR_RESULT_DROPPED, failed ? "not_written" : "no_group", n_dropped);
    br_item_done(item);
}

static void file_exporter_finish(struct state *state)
{
    struct writing *writing = state->writing;
    for (uint32_t from = 0, to; from < writing->n_records; from = to) {
        const struct br_item *item = writing->records[from].item;
        for (to = from + 1; to < writing->n_records && writing->records[to].item == item;)
            to++;
        (void)br_list_shift(&state->current);
        file_exporter_finish_item(state, writing->records + from, to - from);
    }
    file_exporter_drop_records(writing, 0);
}

static void file_exporter_warn_reopened(struct state *state)
{
    const struct config *config = state->node->config;
    br_node_warn(state->node, &state->reopened_limit,
                 "%s was deleted, renamed or replaced while it was open; it was opened again",
                 config->path);
}

/* --- Traffic --------------------------------------------------------------------------------- */

static void file_exporter_begin(struct state *state);

static void file_exporter_free_writing(struct writing *writing)
{
    br_codec_free(writing->codec);
    br_task_release(&writing->task);
    br_str_release(&writing->text);
    br_free(writing->records);
    br_free(writing);
}

static void file_exporter_on_done(struct br_task *task)
{
    struct writing *writing = br_container_of(task, struct writing, task);
    struct state *state = writing->state;
    writing->runs = false;
    if (br_task_is_cancelled(task)) {
        file_exporter_free_writing(writing);
        return;
    }
    if (writing->unfinished) {
        (void)br_host_timer(state->node->host, &state->again, AGAIN_MS, file_exporter_on_again);
        return;
    }
    state->busy = false;
    if (writing->reopened)
        file_exporter_warn_reopened(state);
    file_exporter_finish(state);
    file_exporter_begin(state);
    if (!state->busy && state->node->draining && !state->node->drained)
        br_node_drained(state->node);
}

static void file_exporter_run(struct state *state)
{
    state->writing->runs = true;
    br_task_start(&state->writing->task);
}

static void file_exporter_on_again(struct br_timer *timer)
{
    struct state *state = br_container_of(timer, struct state, again);
    (void)br_host_timer_park(state->node->host, timer, file_exporter_on_again);
    file_exporter_run(state);
}

/* Makes the records of an item, one for each file to write. An item without records is finished
 * immediately. */
static void file_exporter_take(struct state *state, struct br_item *item)
{
    struct writing *writing = state->writing;
    uint32_t first = writing->n_records;
    int rc = state->groups ? file_exporter_add_groups(state, item)
                           : file_exporter_add_record(state, item, item, NULL, 0);
    if (rc) {
        file_exporter_drop_records(writing, first);
        file_exporter_fail(state, item, rc, 0);
    } else if (writing->n_records > first) {
        br_list_append(&state->current, &item->link);
    } else {
        if (item->n_records)
            br_item_report(item, BR_RESULT_DROPPED, "no_group", item->n_records);
        br_item_done(item);
    }
}

/* Starts the next write if any queued item has a record. */
static void file_exporter_begin(struct state *state)
{
    struct writing *writing = state->writing;
    struct br_list *link;
    for (int i = 0;
         (i < WRITE_ITEMS || !writing->n_records) && (link = br_list_shift(&state->waiting)); i++) {
        struct br_item *item = br_container_of(link, struct br_item, link);
        state->waiting_bytes -= item->size;
        file_exporter_take(state, item);
    }
    if (!writing->n_records)
        return;
    state->busy = true;
    writing->at = 0;
    writing->reopened = false;
    writing->unix_ns = br_host_unix_ns(state->node->host);
    file_exporter_run(state);
}

static void file_exporter_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    if (config->format == JSON && item->size > JSON_SIZE_MAX) {
        br_item_reject(item, BR_STATUS_RESOURCE_EXHAUSTED,
                       "file: the request is larger than 32 MiB, too large for one line");
        return;
    }
    if (state->busy && state->waiting_bytes + item->size > WAITING_BYTES) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, RETRY_MS,
                      "file: too many bytes are queued for the file");
        return;
    }
    state->waiting_bytes += item->size;
    br_list_append(&state->waiting, &item->link);
    if (!state->busy)
        file_exporter_begin(state);
}

static void file_exporter_drain(struct br_node *node)
{
    const struct state *state = node->state;
    if (!state->busy)
        br_node_drained(node);
}

static void file_exporter_give_back(struct br_list *list)
{
    struct br_list *link;
    while ((link = br_list_shift(list)))
        br_item_retry(br_container_of(link, struct br_item, link), BR_STATUS_UNAVAILABLE, 0,
                      "shutting down");
}

/* Finishes the items whose records a thread has written. All other items fail, so that their
 * senders can send them again. */
static void file_exporter_stop(struct state *state)
{
    struct writing *writing = state->writing;
    if (writing->runs)
        br_task_stop(&writing->task);
    for (uint32_t i = writing->at; i < writing->n_records; i++) {
        writing->records[i].rc = BR_EIO;
        writing->records[i].error = ECANCELED;
    }
    file_exporter_finish(state);
}

static void file_exporter_destroy(struct br_node *node)
{
    struct state *state = node->state;
    struct writing *writing = state->writing;
    if (!writing)
        return;
    br_host_timer_stop(node->host, &state->again);
    if (state->busy)
        file_exporter_stop(state);
    file_exporter_give_back(&state->waiting);
    file_exporter_release_record(writing);
    file_writer_close(node->host, state->writer);
    file_groups_close(node->host, state->groups);
    if (!writing->runs)
        file_exporter_free_writing(writing);
}

extern const struct br_component br_file_exporter;
const struct br_component br_file_exporter = {
    .name = "file",
    .kind = BR_EXPORTER,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "writes requests to a file as lines of OTLP/JSON or as protobuf",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .owns_files = true,
    .exporter_wrapped = true,
    .common_at = offsetof(struct config, common),
    .resolves = true,
    .check = file_exporter_check,
    .create = file_exporter_create,
    .start = file_exporter_start,
    .consume = file_exporter_consume,
    .drain = file_exporter_drain,
    .destroy = file_exporter_destroy,
};
