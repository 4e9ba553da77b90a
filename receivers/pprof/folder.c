/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder is looked at, not watched: a timer and readdir work on every file system, and a file
 * is complete when it has not changed between two looks. A large file is read and converted in a
 * thread, all else here.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/map.h"
#include "base/mem.h"
#include "ingest/pieces.h"
#include "ingest/profile_reading.h"
#include "receivers/pprof/pprof.h"
#include "receivers/pprof/taken.h"

#define FILES_MAX 10000 /* that are known at a time; further ones wait */
#define BUSY_MAX 4      /* files that are read or in the pipeline at a time */
#define LOG_EVERY_MS 60000
#define NAMED_MAX 20 /* files that are named in the log within it; further ones are counted */
#define TAKEN_FILE ".braid-taken"
#define TAKEN_SPARE 1000 /* lines of it that say nothing any more */
#define NS_PER_MS 1000000

enum state {
    WATCHED, /* until it has not changed for an interval */
    BUSY,    /* being read, or in the pipeline */
    OVER,    /* taken or refused: nothing more happens unless it changes */
};

struct file {
    struct pprof_folder *folder;
    char name[NAME_MAX + 1];
    enum state state;
    struct pprof_identity is;
    bool taken;                    /* as `is` says */
    struct pprof_mark mark;        /* what was counted of it, when it was taken last ... */
    uint64_t mark_inode;           /* ... and was this file */
    struct pprof_mark next;        /* and what will have been, when what is read now is taken ... */
    struct pprof_mark *read;       /* ... where a thread writes it */
    uint64_t since_ms;             /* it has been the same */
    uint64_t look;                 /* number of the last look that saw it */
    int fd;                        /* while it is read */
    struct pprof_reading *reading; /* NULL unless a thread has it */
    struct br_item *item;
};

/* A file that was taken, whatever its name is now. */
struct known {
    struct pprof_taken taken;
    uint64_t look; /* number of the last look that saw it */
};

struct pprof_folder {
    struct br_node *node;
    const struct pprof_folder_config *config;
    struct pprof_reader *reader;
    struct br_arena arena;
    struct br_addition resource;
    struct br_map *files;    /* of struct file, by name */
    struct br_map *known;    /* of struct known, by inode; as many */
    struct br_list sendings; /* of pieces.h */
    struct br_timer timer;
    uint64_t look;
    struct pprof_taken_log *log; /* NULL: a restart takes all files again */
    unsigned n_busy;
    bool more; /* files were ready and had to wait */
    bool stopping;
    struct br_log_limit log_limit;
    unsigned n_named; /* since it began */
    struct br_meter meter;
    double *taken, *failed;
    void (*on_idle)(void *arg);
    void *on_idle_arg;
};

static void folder_complain(struct pprof_folder *folder, const char *name, const char *why)
{
    uint64_t held = 0, now = br_host_mono_ms(folder->node->host);
    char more[64] = "";
    if (now >= folder->log_limit.next_ms)
        folder->n_named = 0;
    if ((folder->n_named == 0 || folder->n_named == NAMED_MAX) &&
        !br_log_allow(&folder->log_limit, now, LOG_EVERY_MS, &held))
        return;
    folder->n_named++;
    if (held)
        (void)snprintf(more, sizeof more, " (%llu such messages held back)",
                       (unsigned long long)held);
    br_warn(&folder->node->log, "%s/%s: %s%s", folder->config->path, name, why, more);
}

static struct pprof_identity folder_identify(const struct stat *st)
{
    return (struct pprof_identity){(uint64_t)st->st_size, st->st_ino,
                                   (uint64_t)st->st_mtim.tv_sec * 1000000000u +
                                       (uint64_t)st->st_mtim.tv_nsec};
}

static bool folder_same(const struct pprof_identity *left, const struct pprof_identity *right)
{
    return left->size == right->size && left->inode == right->inode &&
           left->changed_ns == right->changed_ns;
}

/* "path/name"; false when it is too long. */
static bool folder_join(char *out, size_t size, const char *folder, const char *name)
{
    int n = snprintf(out, size, "%s/%s", folder, name);
    return n > 0 && (size_t)n < size;
}

/* --- What becomes of a file ------------------------------------------------------------------- */

/* Deletes or moves it, if it is still what was read. */
static void folder_put_away(struct file *file)
{
    const struct pprof_folder_config *config = file->folder->config;
    char path[4096], to[4096];
    struct stat st;
    if (config->after == PPROF_REMEMBER ||
        !folder_join(path, sizeof path, config->path, file->name) || lstat(path, &st) != 0)
        return;
    struct pprof_identity is = folder_identify(&st);
    if (!folder_same(&is, &file->is))
        return; /* the next look finds that it has changed */
    int rc = 0;
    if (config->after == PPROF_DELETE)
        rc = unlink(path);
    else if (folder_join(to, sizeof to, config->move_to, file->name))
        rc = renameat2(AT_FDCWD, path, AT_FDCWD, to, RENAME_NOREPLACE);
    if (rc != 0)
        folder_complain(file->folder, file->name, strerror(errno));
}

static struct known *folder_known(const struct pprof_folder *folder, uint64_t inode)
{
    return br_map_get(folder->known, &inode, sizeof inode);
}

/* Notes what a file is like that was taken. Without memory it is another one under another name. */
static void folder_note_known(struct pprof_folder *folder, const struct pprof_taken *taken)
{
    struct known *known = folder_known(folder, taken->is.inode);
    bool is_new = !known;
    if (is_new)
        known = br_calloc(1, sizeof *known);
    if (!known)
        return;
    *known = (struct known){*taken, folder->look};
    if (is_new &&
        br_map_put(folder->known, &taken->is.inode, sizeof taken->is.inode, known, NULL) != 0)
        br_free(known);
}

/* Notes the file, so that neither the next look nor a restart takes it again. */
static void folder_note_taken(struct file *file)
{
    struct pprof_folder *folder = file->folder;
    const struct pprof_taken taken = {file->is, file->next};
    file->taken = true;
    file->mark = file->next;
    file->mark_inode = file->is.inode;
    folder_note_known(folder, &taken);
    if (folder->log && !pprof_taken_add(folder->log, file->name, &taken))
        folder_complain(folder, TAKEN_FILE, strerror(errno));
}

static void folder_end(struct file *file, enum br_verdict verdict)
{
    struct pprof_folder *folder = file->folder;
    file->state = verdict == BR_RETRY ? WATCHED : OVER;
    file->since_ms = br_host_mono_ms(folder->node->host);
    *(verdict == BR_DONE ? folder->taken : folder->failed) += verdict != BR_RETRY;
    if (verdict == BR_DONE) {
        folder_note_taken(file);
        folder_put_away(file);
    }
}

static void folder_look(struct br_timer *timer);

/* It was BUSY. */
static void folder_leave(struct file *file, enum br_verdict verdict)
{
    struct pprof_folder *folder = file->folder;
    folder->n_busy--;
    folder_end(file, verdict);
    if (folder->stopping && folder->n_busy == 0 && folder->on_idle)
        folder->on_idle(folder->on_idle_arg);
    else if (!folder->stopping && folder->n_busy == 0 && folder->more)
        (void)br_host_timer(folder->node->host, &folder->timer, 0, folder_look);
}

static void folder_on_done(struct br_item *item, void *arg)
{
    struct file *file = arg;
    struct pprof_folder *folder = file->folder;
    const struct br_outcome *outcome = &item->outcome;
    br_meter_count_outcome(&folder->meter, item);
    file->item = NULL;
    if (outcome->verdict == BR_REJECT)
        folder_complain(folder, file->name, outcome->text);
    folder_leave(file, outcome->verdict);
}

/* --- Taking a file ---------------------------------------------------------------------------- */

static int folder_open_file(struct file *file, struct br_err *err)
{
    struct pprof_folder *folder = file->folder;
    char path[4096];
    struct stat st;
    file->fd = -1;
    if (folder_join(path, sizeof path, folder->config->path, file->name))
        file->fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file->fd < 0)
        return br_err_set(err, BR_EIO, "cannot be opened: %s", strerror(errno));
    if (fstat(file->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return br_err_set(err, BR_EIO, "cannot be read");
    file->is = folder_identify(&st);
    if (file->is.size > folder->reader->max)
        return br_err_set(err, BR_ETOOBIG, "larger than max_profile_size");
    return 0;
}

/* From the beginning: it may be read again in a thread. */
static int folder_read_bytes(const struct file *file, struct br_buf *buf, struct br_err *err)
{
    while (buf->len < file->is.size) {
        ssize_t n =
            pread(file->fd, buf->data + buf->len, (size_t)file->is.size - buf->len, buf->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return br_err_set(err, BR_EIO, "%s", n < 0 ? strerror(errno) : "became shorter");
        buf->len += (uint32_t)n;
    }
    return 0;
}

static int folder_load(struct br_reading *reading)
{
    const struct file *file = reading->arg;
    size_t size = (size_t)file->is.size;
    if (size > reading->max_now)
        return BR_EAGAIN;
    reading->scope.max += size * BR_READING_GROWTH; /* the file is the first of it */
    struct br_buf *buf = br_buf_new(reading->host->pool, size);
    if (!buf)
        return br_err_set(&reading->err, BR_ENOMEM, "out of memory");
    br_reading_replace(reading, buf);
    return folder_read_bytes(file, buf, &reading->err);
}

/* The number in `text`, of at most 18 digits and nothing else; false where it is none. */
static bool folder_read_number(const uint8_t *text, const uint8_t *end, uint64_t *ret)
{
    uint64_t number = 0;
    if (text == end || end - text > 18)
        return false;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9')
            return false;
        number = number * 10 + (uint64_t)(*text - '0');
    }
    *ret = number;
    return true;
}

/* A line was counted up to `counted`, since the program that writes it had just got so far. Makes
 * it a line of what is new: of a stack that was counted the number becomes the difference. False
 * where it is another stack now. */
static bool folder_count_rest(uint8_t *line, const uint8_t *counted, const uint8_t *eol)
{
    uint8_t *space = memrchr(line, ' ', (size_t)(counted - line));
    uint64_t before, all;
    if (!space)
        return true; /* so far it was no stack */
    if (eol > counted && eol[-1] == '\r')
        eol--;
    if (!folder_read_number(space + 1, counted, &before) ||
        !folder_read_number(space + 1, eol, &all))
        return false;
    uint64_t rest = all - before;
    for (uint8_t *digit = space + (eol - space) - 1; digit > space; digit--, rest /= 10)
        *digit = (uint8_t)('0' + rest % 10);
    return true;
}

static struct pprof_mark folder_mark_of(const uint8_t *data, size_t len)
{
    static const uint8_t key[16]; /* the hash is kept in a file */
    return (struct pprof_mark){len, br_siphash(key, data, len)};
}

/* Of folded text that grew, what is new: its beginning was counted. `data` is the source's. */
static void folder_skip_counted(const struct file *file, struct br_reading *reading, uint8_t *data,
                                struct br_profile_source *source)
{
    const struct pprof_mark *mark = &file->mark;
    size_t skip = 0;
    if (mark->len && mark->len <= source->len && folder_mark_of(data, mark->len).hash == mark->hash)
        skip = mark->len;
    if (skip && skip < source->len && data[skip - 1] != '\n' && data[skip] != '\n') {
        const uint8_t *eol = memchr(data + skip, '\n', source->len - skip);
        const uint8_t *before = memrchr(data, '\n', skip);
        size_t end = eol ? (size_t)(eol - data) : source->len,
               start = before ? (size_t)(before - data) + 1 : 0;
        bool goes_on = folder_count_rest(data + start, data + skip, data + end);
        skip = goes_on ? start : end + (eol != NULL);
        if (!goes_on) {
            reading->n_lost = 1;
            (void)snprintf(reading->lost, sizeof reading->lost,
                           "a line went on after it was counted");
        }
    }
    source->data += skip;
    source->len -= skip;
}

/* In whichever thread. Of the file only what does not change while it is BUSY. */
static int folder_read_item(struct br_reading *reading)
{
    const struct file *file = reading->arg;
    const struct pprof_folder *folder = file->folder;
    enum br_profile_format format = BR_FORMAT_PPROF;
    int rc = folder_load(reading);
    if (rc)
        return rc;
    const struct br_buf *raw = br_reading_bytes(reading);
    bool packed = pprof_is_gzip(raw->data, raw->len);
    *file->read = folder_mark_of(raw->data, raw->len);
    if (file->mark_inode == file->is.inode && file->mark.len == file->read->len &&
        file->mark.hash == file->read->hash)
        return 0; /* only its time has changed */
    rc = pprof_unpack(reading);
    if (rc)
        return rc;
    struct br_buf *plain = br_reading_bytes(reading);
    struct br_profile_source source = {.data = plain->data,
                                       .len = plain->len,
                                       .resource = &folder->resource,
                                       .start_ns = file->is.changed_ns,
                                       .end_ns = file->is.changed_ns,
                                       .sample_rate = folder->config->sample_rate,
                                       .from_file = true};
    rc = pprof_guess(source.data, source.len, &format, &reading->err);
    if (!rc && format == BR_FORMAT_FOLDED && !packed)
        folder_skip_counted(file, reading, plain->data, &source);
    if (rc == 0 && source.len)
        rc = pprof_read(reading, format, &source);
    return rc ? rc : br_profile_reading_cut(reading);
}

static void folder_close_file(struct file *file)
{
    if (file->fd >= 0)
        (void)close(file->fd);
    file->fd = -1;
}

static void folder_give_up(struct file *file, int rc, const char *why)
{
    struct pprof_folder *folder = file->folder;
    if (rc == BR_ENOMEM) {
        folder_leave(file, BR_RETRY);
        return;
    }
    *folder->meter.failed[BR_PROFILES] += 1;
    folder_complain(folder, file->name, why);
    folder_leave(file, BR_REJECT);
}

static void folder_on_read(void *arg, struct br_reading *reading, int rc)
{
    struct file *file = arg;
    char flaws[BR_FLAWS_SIZE];
    folder_close_file(file);
    if (rc) {
        folder_give_up(file, rc, br_reading_why(reading, rc));
        return;
    }
    if (br_meter_flaws(&file->folder->meter, reading, flaws))
        folder_complain(file->folder, file->name, flaws);
    file->item = reading->item;
    reading->item = NULL;
    if (!file->item) {
        folder_leave(file, BR_DONE);
        return;
    }
    br_item_received(file->item);
    file->item->done = folder_on_done;
    file->item->done_arg = file;
    if (br_list_empty(&reading->pieces))
        br_node_forward(file->folder->node, file->item);
    else
        br_pieces_send(file->folder->node, file->item, &reading->pieces, &file->folder->sendings);
}

/* Which counted beginning the file may have: its own, where it was taken under any name; else that
 * of the file that had its name, unless this has another one now. */
static void folder_choose_mark(struct file *file)
{
    const struct known *known = folder_known(file->folder, file->is.inode);
    if (known) {
        file->mark = known->taken.mark;
        file->mark_inode = file->is.inode;
    } else if (file->mark_inode != file->is.inode && folder_known(file->folder, file->mark_inode)) {
        file->mark = (struct pprof_mark){0};
    }
}

static void folder_take(struct file *file)
{
    struct pprof_folder *folder = file->folder;
    struct br_err err = {0};
    file->state = BUSY;
    file->next = (struct pprof_mark){0};
    file->read = &file->next;
    folder->n_busy++;
    int rc = folder_open_file(file, &err);
    if (rc == 0) {
        folder_choose_mark(file);
        pprof_reader_start(folder->reader, NULL, folder_read_item, file, folder_on_read, file,
                           &file->reading);
        return;
    }
    folder_close_file(file);
    folder_give_up(file, rc, err.text);
}

/* --- Looking ---------------------------------------------------------------------------------- */

static struct file *folder_find(struct pprof_folder *folder, const char *name)
{
    size_t len = strlen(name);
    struct file *file = br_map_get(folder->files, name, len);
    if (file || len > NAME_MAX)
        return file;
    if (br_map_count(folder->files) >= FILES_MAX) {
        folder_complain(folder, name, "waits: there are too many files");
        return NULL;
    }
    file = br_calloc(1, sizeof *file);
    if (!file)
        return NULL;
    file->folder = folder;
    file->fd = -1;
    memcpy(file->name, name, len);
    if (br_map_put(folder->files, name, len, file, NULL) == 0)
        return file;
    br_free(file);
    return NULL;
}

static bool folder_ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* Names that programs give to what they have not finished, or want nobody to see. */
static bool folder_is_hidden(const char *name)
{
    return name[0] == '.' || folder_ends_with(name, ".tmp") || folder_ends_with(name, ".part");
}

/* A file that was taken and has another name now, as nothing else of it has changed. */
static bool folder_was_taken(struct file *file, const struct known *known)
{
    if (!known || !folder_same(&file->is, &known->taken.is))
        return false;
    file->state = OVER;
    file->next = known->taken.mark;
    folder_note_taken(file);
    return true;
}

/* Whether it is read, or in the pipeline, under a name that it had. */
static bool folder_is_busy(const struct pprof_folder *folder, const struct pprof_identity *is)
{
    const void *key;
    size_t len, n = folder->n_busy ? br_map_count(folder->files) : 0;
    for (size_t i = 0; i < n; i++) {
        const struct file *file = br_map_at(folder->files, i, &key, &len);
        if (file->state == BUSY && folder_same(&file->is, is))
            return true;
    }
    return false;
}

static void folder_look_at(struct pprof_folder *folder, int dir, const char *name)
{
    uint64_t now = br_host_mono_ms(folder->node->host);
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
        return;
    struct pprof_identity is = folder_identify(&st);
    struct known *known = folder_known(folder, is.inode);
    if (known)
        known->look = folder->look;
    struct file *file = folder_is_hidden(name) ? NULL : folder_find(folder, name);
    if (!file)
        return;
    bool seen = file->look != 0;
    file->look = folder->look;
    if (file->state == BUSY)
        return;
    if (!seen || !folder_same(&is, &file->is)) {
        file->is = is;
        file->taken = false;
        file->state = WATCHED;
        file->since_ms = now;
        (void)folder_was_taken(file, known);
        return;
    }
    if (file->state != WATCHED || is.size == 0 ||
        now - file->since_ms < folder->config->poll_interval / NS_PER_MS ||
        folder_was_taken(file, known) || folder_is_busy(folder, &is))
        return;
    if (folder->n_busy < BUSY_MAX && !br_host_over_limit(folder->node->host) &&
        br_shed_step(folder->node->host) == BR_SHED_NONE)
        folder_take(file);
    else
        folder->more = true;
}

static void folder_forget_gone(struct pprof_folder *folder)
{
    for (size_t i = br_map_count(folder->files); i-- > 0;) {
        const void *key;
        size_t len;
        struct file *file = br_map_at(folder->files, i, &key, &len);
        if (file->look == folder->look || file->state == BUSY)
            continue;
        (void)br_map_remove(folder->files, key, len);
        br_free(file);
    }
    for (size_t i = br_map_count(folder->known); i-- > 0;) {
        const void *key;
        size_t len;
        struct known *known = br_map_at(folder->known, i, &key, &len);
        if (known->look == folder->look)
            continue;
        (void)br_map_remove(folder->known, key, len);
        br_free(known);
    }
}

/* Only what is there, when more lines are about what is not. */
static void folder_rewrite_taken(struct pprof_folder *folder)
{
    size_t n = br_map_count(folder->files), len;
    const void *key;
    if (!folder->log || pprof_taken_lines(folder->log) <= 2 * n + TAKEN_SPARE)
        return;
    bool ok = pprof_taken_begin(folder->log);
    for (size_t i = 0; i < n && ok; i++) {
        const struct file *file = br_map_at(folder->files, i, &key, &len);
        ok = !file->taken ||
             pprof_taken_add(folder->log, file->name, &(struct pprof_taken){file->is, file->mark});
    }
    if (!ok || !pprof_taken_end(folder->log))
        folder_complain(folder, TAKEN_FILE, strerror(errno));
}

static void folder_look(struct br_timer *timer)
{
    struct pprof_folder *folder = br_container_of(timer, struct pprof_folder, timer);
    (void)br_host_timer(folder->node->host, &folder->timer,
                        folder->config->poll_interval / NS_PER_MS, folder_look);
    DIR *dir = opendir(folder->config->path);
    if (!dir) {
        folder_complain(folder, "", strerror(errno));
        return;
    }
    folder->look++;
    folder->more = false;
    for (struct dirent *dirent = readdir(dir); dirent; dirent = readdir(dir))
        folder_look_at(folder, dirfd(dir), dirent->d_name);
    (void)closedir(dir);
    folder_forget_gone(folder);
    folder_rewrite_taken(folder);
}

/* --- The whole -------------------------------------------------------------------------------- */

int pprof_folder_new(struct br_node *node, struct pprof_reader *reader, struct pprof_folder **ret,
                     struct br_err *err)
{
    const struct pprof_config *config = node->config;
    struct pprof_folder *folder = br_calloc(1, sizeof *folder);
    if (!folder)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    folder->node = node;
    br_list_init(&folder->sendings);
    folder->config = config->file;
    folder->reader = reader;
    br_meter_init(&folder->meter, node, "file", BR_SIGNAL_BIT(BR_PROFILES));
    folder->taken = br_node_metric(node, BR_COUNTER, "braid_receiver_pprof_files", "result", "ok");
    folder->failed =
        br_node_metric(node, BR_COUNTER, "braid_receiver_pprof_files", "result", "failed");
    folder->files = br_map_new(FILES_MAX);
    folder->known = br_map_new(FILES_MAX);
    int rc = folder->files && folder->known ? pprof_resource(config->file->labels, NULL, 0,
                                                             &folder->arena, &folder->resource, err)
                                            : br_err_set(err, BR_ENOMEM, "out of memory");
    if (rc == 0)
        *ret = folder;
    else
        pprof_folder_free(folder);
    return rc;
}

static int folder_check(const char *key, const char *path, int mode, struct br_err *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return br_err_set(err, BR_EIO, "file::%s: %s: %s", key, path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return br_err_set(err, BR_EINVAL, "file::%s: %s is no folder", key, path);
    if (access(path, mode) != 0)
        return br_err_set(err, BR_EIO, "file::%s: %s may not be %s: %s", key, path,
                          mode & W_OK ? "changed" : "read", strerror(errno));
    return 0;
}

/* A misspelt path would look like a folder to which nothing comes. */
static int folder_check_all(const struct pprof_folder_config *config, struct br_err *err)
{
    int mode = R_OK | X_OK | (config->after == PPROF_REMEMBER ? 0 : W_OK);
    int rc = folder_check("path", config->path, mode, err);
    return rc == 0 && config->after == PPROF_MOVE
               ? folder_check("move_to", config->move_to, W_OK | X_OK, err)
               : rc;
}

/* A file that was taken before this process began. */
static void folder_on_taken(void *arg, const char *name, const struct pprof_taken *taken)
{
    struct pprof_folder *folder = arg;
    struct file *file = folder_find(folder, name);
    if (!file)
        return;
    file->is = taken->is;
    file->mark = taken->mark;
    file->mark_inode = taken->is.inode;
    file->taken = true;
    file->state = OVER;
    file->look = UINT64_MAX; /* it was seen */
    folder_note_known(folder, taken);
}

/* A record that cannot be opened is no error where the config did not name it. */
static int folder_open_taken(struct pprof_folder *folder, struct br_err *err)
{
    const struct pprof_folder_config *config = folder->config;
    char path[4096];
    struct br_err why = {0};
    if (config->after != PPROF_REMEMBER)
        return 0;
    if (config->state && config->state[0])
        return pprof_taken_open(config->state, folder_on_taken, folder, &folder->log, err);
    int rc = folder_join(path, sizeof path, config->path, TAKEN_FILE)
                 ? pprof_taken_open(path, folder_on_taken, folder, &folder->log, &why)
                 : br_err_set(&why, BR_EINVAL, "%s is too long", config->path);
    if (rc)
        br_warn(&folder->node->log,
                "%s: after a restart all files are taken again (file::state names "
                "another place to remember them)",
                why.text);
    return rc == BR_ENOMEM ? br_err_set(err, rc, "out of memory") : 0;
}

int pprof_folder_start(struct pprof_folder *folder, struct br_err *err)
{
    int rc = folder_check_all(folder->config, err);
    if (!rc)
        rc = folder_open_taken(folder, err);
    if (rc)
        return rc;
    if (!br_host_timer_park(folder->node->host, &folder->timer, folder_look))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    (void)br_host_timer(folder->node->host, &folder->timer, 0, folder_look);
    return 0;
}

void pprof_folder_stop(struct pprof_folder *folder, void (*on_idle)(void *arg), void *arg)
{
    folder->stopping = true;
    br_host_timer_stop(folder->node->host, &folder->timer);
    folder->on_idle = on_idle;
    folder->on_idle_arg = arg;
    if (folder->n_busy == 0)
        on_idle(arg);
}

static void folder_free_known(void *arg)
{
    br_free(arg);
}

static void folder_free_file(void *arg)
{
    struct file *file = arg;
    if (file->reading) {
        pprof_reading_leave(file->reading);
        folder_close_file(file);
    }
    if (file->item)
        file->item->done = NULL; /* it is still in the pipeline; nobody waits any more */
    br_free(file);
}

void pprof_folder_free(struct pprof_folder *folder)
{
    if (!folder)
        return;
    br_host_timer_stop(folder->node->host, &folder->timer);
    br_map_free(folder->files, folder_free_file);
    br_map_free(folder->known, folder_free_known);
    br_pieces_stop(&folder->sendings);
    pprof_taken_close(folder->log);
    br_arena_release(&folder->arena);
    br_free(folder);
}
