/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads profiles from a directory. The directory is polled, not watched: readdir works on every
 * file system. A file is complete when it has not changed between two scans.
 *
 * All disk access runs in a thread, one task at a time, so a disk that does not respond blocks at
 * most one thread. A task runs a part of a scan (struct scan_part) or reads one file. A scan pauses
 * when enough files are ready, and continues after they were read. The running task owns the tables
 * of files; the worker owns the items in the pipeline.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/decimal.h"
#include "base/map.h"
#include "base/mem.h"
#include "core/task.h"
#include "ingest/pieces.h"
#include "ingest/reading.h"
#include "receivers/pprof/pprof.h"
#include "receivers/pprof/read_files.h"

/* largest number of files known at a time; further files are not read until known files are
 * removed from the directory */
#define FILES_MAX 1000000
#define BUSY_MAX 4       /* largest number of files read or in the pipeline at a time */
#define SCAN_ENTRIES 256 /* largest number of directory entries per part of a scan */
#define LOG_EVERY_MS 60000
/* largest number of warnings that name a file, per LOG_EVERY_MS; further warnings are only
 * counted */
#define NAMED_MAX 20
#define READ_FILES_NAME ".braid-taken"
/* READ_FILES_NAME is rewritten when the number of its lines exceeds READ_FILES_SPARE plus two
 * for each file */
#define READ_FILES_SPARE 1000
#define NS_PER_MS 1000000

enum state {
    WAITING,  /* the file waits until it has not changed for an interval */
    BUSY,     /* the file is being read, or its records are in the pipeline */
    FINISHED, /* the file was read or rejected; it is ignored until it changes */
};

struct file {
    struct pprof_directory *directory;
    /* while the file is BUSY: link in pprof_directory.ready, pprof_directory.ended or
     * scan_part.ended */
    struct br_list link;
    enum state state;
    enum br_verdict
        verdict; /* result of the delivery; valid only while the file is in an `ended` list */
    struct pprof_identity identity;
    bool was_read; /* the file was read in the state that `identity` describes */
    /* the bytes at the beginning of the file whose samples were counted by an earlier read */
    struct pprof_mark mark;
    uint64_t mark_inode; /* inode of the file from which `mark` was made */
    /* new value of `mark`, stored when the current content has been delivered */
    struct pprof_mark next;
    /* time since which the file has been unchanged, in ms of the worker's monotonic clock */
    uint64_t since_ms;
    uint64_t scan; /* number of the last scan that found the file */
    /* conversion of the file; NULL unless a thread runs the conversion */
    struct br_reading_task *reading;
    struct br_item *item;
    char name[]; /* NUL-terminated name */
};

/* The state in which a file was read, found by the file's inode, so that a renamed file is not read
 * again. */
struct known {
    struct pprof_file_state state; /* state of the file at the time when it was read */
    uint64_t scan;                 /* number of the last scan that found the file */
};

struct warning {
    char name[NAME_MAX + 1];
    char why[160];
};

/* A part of a scan, which runs in a thread. If the directory is freed before the part has ended,
 * `done` frees the part. */
struct scan_part {
    struct br_task task;
    struct pprof_directory *directory; /* NULL after the directory was freed */
    bool running;                      /* true until `done` was called for the part */
    /* time at which the part was started, in ms of the worker's monotonic clock */
    uint64_t now_ms;
    /* true: the part reads the directory; false: it only records the results in `ended` */
    bool reads_directory;
    unsigned room;        /* largest number of files that the part may add to `ready` */
    struct br_list ended; /* files that are finished and whose result the part has to record */
    /* The following fields are the results of the part of the scan: */
    struct br_list ready; /* files to be read; their state is BUSY */
    bool finished;        /* the end of the directory was reached */
    struct warning warnings[NAMED_MAX];
    unsigned n_warnings;
};

struct pprof_directory {
    struct br_node *node;
    const struct pprof_directory_config *config;
    struct pprof_reader *reader;
    struct br_arena arena;
    struct br_addition resource;
    struct br_map *files;    /* maps names to struct file */
    struct br_map *known;    /* maps inodes to struct known, at most one per file */
    struct br_list sendings; /* large items whose pieces are being sent (br_pieces_send) */
    struct br_timer timer;
    /* Only the running task accesses the following fields: */
    uint64_t scan; /* number of the current scan */
    DIR *dir;      /* the open directory; NULL between scans */
    /* name of the file at which the scan paused, because BUSY_MAX files are busy; "": the scan did
     * not pause */
    char paused_at[NAME_MAX + 1];
    /* files that are BUSY until their result is recorded; NULL for unused places */
    struct file *busy[BUSY_MAX];
    /* list of the files that were read; NULL: there is no list, so all files are read again
     * after a restart */
    struct pprof_read_files *read_files;
    bool loaded; /* true after `read_files` was loaded */
    /* Only the worker accesses the following fields: */
    struct scan_part *part;
    bool scanning; /* a scan is in progress or paused */
    /* the last part of the scan stopped at a file that cannot be read yet, because BUSY_MAX files
     * are busy */
    bool paused;
    struct br_list ready; /* files to be read; their state is BUSY */
    struct br_list ended; /* files that are finished and whose result has not been recorded yet */
    unsigned n_busy;      /* number of files that are ready, being read or in the pipeline */
    bool reading;         /* a thread reads a file */
    bool stopping;
    struct br_log_limit log_limit;
    unsigned n_named; /* number of files named in the log in the current interval of LOG_EVERY_MS */
    struct br_meter meter;
    /* metrics: number of accepted files, and number of files that failed */
    double *n_accepted, *n_failed;
    void (*on_idle)(void *arg);
    void *on_idle_arg;
};

/* Logs a warning that names a file. After NAMED_MAX warnings in LOG_EVERY_MS, further warnings are
 * only counted. */
static void directory_warn(struct pprof_directory *directory, const char *name, const char *why)
{
    const struct br_log *log = &directory->node->log;
    const char *path = directory->config->path;
    uint64_t now = br_host_mono_ms(directory->node->host);
    if (now >= directory->log_limit.next_ms)
        directory->n_named = 0;
    if (directory->n_named > 0 && directory->n_named < NAMED_MAX) {
        directory->n_named++;
        br_warn(log, "%s/%s: %s", path, name, why);
    } else if (br_log_limited(log, BR_LOG_WARN, &directory->log_limit, now, LOG_EVERY_MS,
                              "%s/%s: %s", path, name, why)) {
        directory->n_named++;
    }
}

/* Records a message about a file in the running thread. The worker logs the message later. */
static void directory_warn_later(struct pprof_directory *directory, const char *name,
                                 const char *why)
{
    struct scan_part *part = directory->part;
    if (part->n_warnings == NAMED_MAX)
        return;
    struct warning *warning = &part->warnings[part->n_warnings++];
    (void)snprintf(warning->name, sizeof warning->name, "%s", name);
    (void)snprintf(warning->why, sizeof warning->why, "%s", why);
}

static struct pprof_identity directory_identify(const struct stat *st)
{
    return (struct pprof_identity){(uint64_t)st->st_size, st->st_ino,
                                   (uint64_t)st->st_mtim.tv_sec * 1000000000u +
                                       (uint64_t)st->st_mtim.tv_nsec};
}

static bool directory_is_same(const struct pprof_identity *file, const struct pprof_identity *other)
{
    return file->size == other->size && file->inode == other->inode &&
           file->changed_ns == other->changed_ns;
}

/* Builds "path/name". Returns false if the path is too long. */
static bool directory_join(char *out, size_t size, const char *directory, const char *name)
{
    int n = snprintf(out, size, "%s/%s", directory, name);
    return n > 0 && (size_t)n < size;
}

/* --- Results of files ------------------------------------------------------------------------- */

/* Deletes or moves a file unless it has changed since it was read. */
static void directory_delete_or_move(struct file *file)
{
    const struct pprof_directory_config *config = file->directory->config;
    char path[4096], to[4096];
    struct stat st;
    if (config->after == PPROF_REMEMBER ||
        !directory_join(path, sizeof path, config->path, file->name) || lstat(path, &st) != 0)
        return;
    struct pprof_identity identity = directory_identify(&st);
    if (!directory_is_same(&identity, &file->identity))
        return; /* The file is not deleted; the next scan finds that it has changed. */
    int rc = 0;
    if (config->after == PPROF_DELETE)
        rc = unlink(path);
    else if (directory_join(to, sizeof to, config->move_to, file->name))
        rc = renameat2(AT_FDCWD, path, AT_FDCWD, to, RENAME_NOREPLACE);
    if (rc != 0)
        directory_warn_later(file->directory, file->name, strerror(errno));
}

static struct known *directory_known(const struct pprof_directory *directory, uint64_t inode)
{
    return br_map_get(directory->known, &inode, sizeof inode);
}

/* Records by inode the state in which a file was read. If there is not enough memory for the
 * record, the file will be read again if it is renamed. */
static void directory_remember_inode(struct pprof_directory *directory,
                                     const struct pprof_file_state *state)
{
    struct known *known = directory_known(directory, state->identity.inode);
    bool is_new = !known;
    if (is_new)
        known = br_calloc(1, sizeof *known);
    if (!known)
        return;
    *known = (struct known){*state, directory->scan};
    if (is_new && br_map_put(directory->known, &state->identity.inode, sizeof state->identity.inode,
                             known, NULL) != 0)
        br_free(known);
}

/* Records that a file was read, so that neither the next scan nor a restart reads it again. */
static void directory_remember(struct file *file)
{
    struct pprof_directory *directory = file->directory;
    const struct pprof_file_state state = {file->identity, file->next};
    file->was_read = true;
    file->mark = file->next;
    file->mark_inode = file->identity.inode;
    directory_remember_inode(directory, &state);
    if (directory->read_files && !pprof_read_files_add(directory->read_files, file->name, &state))
        directory_warn_later(directory, READ_FILES_NAME, strerror(errno));
}

/* Replaces the entry `old` of `directory->busy` by `file`. NULL stands for an unused entry. The
 * caller ensures that `old` is in the array; at most BUSY_MAX files are busy, so a new file always
 * finds an unused entry. */
static void directory_swap_busy(struct pprof_directory *directory, const struct file *old,
                                struct file *file)
{
    size_t i = 0;
    while (directory->busy[i] != old)
        i++;
    directory->busy[i] = file;
}

/* Records whether a file was accepted or has to be read again. Runs in the thread that reads the
 * directory. */
static void directory_record_end(struct file *file, uint64_t now_ms)
{
    directory_swap_busy(file->directory, file, NULL);
    file->state = file->verdict == BR_RETRY ? WAITING : FINISHED;
    file->since_ms = now_ms;
    if (file->verdict == BR_DONE) {
        directory_remember(file);
        directory_delete_or_move(file);
    }
}

static void directory_record_ends(struct br_list *ended, uint64_t now_ms)
{
    struct br_list *link;
    while ((link = br_list_shift(ended)))
        directory_record_end(br_container_of(link, struct file, link), now_ms);
}

static void directory_continue(struct pprof_directory *directory);

/* Ends the processing of a file. The file stays BUSY until the thread has recorded the result. */
static void directory_end_file(struct file *file, enum br_verdict verdict)
{
    struct pprof_directory *directory = file->directory;
    directory->n_busy--;
    *(verdict == BR_DONE ? directory->n_accepted : directory->n_failed) += verdict != BR_RETRY;
    file->verdict = verdict;
    br_list_append(&directory->ended, &file->link);
    directory_continue(directory);
}

static void directory_on_done(struct br_item *item, void *arg)
{
    struct file *file = arg;
    struct pprof_directory *directory = file->directory;
    const struct br_outcome *outcome = &item->outcome;
    br_item_answered(item);
    br_meter_count_outcome(&directory->meter, item);
    file->item = NULL;
    if (outcome->verdict == BR_REJECT)
        directory_warn(directory, file->name, outcome->text);
    directory_end_file(file, outcome->verdict);
}

/* --- Reading a file --------------------------------------------------------------------------- */

/* Returns a file descriptor, or a negative code with a message. */
static int directory_open_file(struct file *file, struct br_err *err)
{
    struct pprof_directory *directory = file->directory;
    char path[4096];
    struct stat st;
    int fd = -1, rc = 0;
    if (directory_join(path, sizeof path, directory->config->path, file->name))
        fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return br_err_set(err, BR_EIO, "cannot be opened: %s", strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        rc = br_err_set(err, BR_EIO, "cannot be read");
    else
        file->identity = directory_identify(&st);
    if (!rc && file->identity.size > directory->reader->max)
        rc = br_err_set(err, BR_ETOOBIG, "larger than max_profile_size");
    if (!rc)
        return fd;
    (void)close(fd);
    return rc;
}

static int directory_read_bytes(int fd, size_t size, struct br_buf *buf, struct br_err *err)
{
    while (buf->len < size) {
        ssize_t n = read(fd, buf->data + buf->len, size - buf->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return br_err_set(err, BR_EIO, "%s",
                              n < 0 ? strerror(errno)
                                    : "the file became shorter while it was read");
        buf->len += (uint32_t)n;
    }
    return 0;
}

static int directory_load(struct br_reading *reading, struct file *file)
{
    int fd = directory_open_file(file, &reading->err), rc = 0;
    if (fd < 0)
        return fd;
    size_t size = (size_t)file->identity.size;
    /* The memory limit is raised by the size of the buffer into which the file is read. */
    reading->scope.max += size * BR_READING_GROWTH;
    struct br_buf *buf = br_buf_new(reading->host->pool, size);
    if (buf)
        br_reading_replace(reading, buf);
    else
        rc = br_err_set(&reading->err, BR_ENOMEM, "out of memory");
    if (!rc)
        rc = directory_read_bytes(fd, size, buf, &reading->err);
    (void)close(fd);
    return rc;
}

/* Corrects a line of which an earlier read has counted the bytes up to `counted`, while a program
 * was still writing the line. If these bytes ended in a number, replaces the number of the line by
 * the difference to it. Returns false if the stack itself has become longer. */
static bool directory_subtract_counted(uint8_t *line, const uint8_t *counted, const uint8_t *eol)
{
    uint8_t *space = memrchr(line, ' ', (size_t)(counted - line));
    uint64_t before, all;
    if (!space)
        /* the earlier read did not include the end of a stack, so nothing of the line was
         * counted */
        return true;
    if (eol > counted && eol[-1] == '\r')
        eol--;
    const char *number = (const char *)space + 1;
    if (!br_decimal_parse(number, (size_t)(counted - space) - 1, INT64_MAX, &before) ||
        !br_decimal_parse(number, (size_t)(eol - space) - 1, INT64_MAX, &all))
        return false;
    uint64_t difference = all - before;
    for (uint8_t *digit = space + (eol - space) - 1; digit > space; digit--, difference /= 10)
        *digit = (uint8_t)('0' + difference % 10);
    return true;
}

static struct pprof_mark directory_mark_of(const uint8_t *data, size_t len)
{
    /* The key is constant, because the hash is stored in the list of files and compared after a
     * restart. */
    static const uint8_t key[16];
    return (struct pprof_mark){len, br_siphash(key, data, len)};
}

/* Skips the beginning of folded text that was already counted, if the file has grown. `data` is
 * the writable content of the source. */
static void directory_skip_counted(const struct file *file, struct br_reading *reading,
                                   uint8_t *data, struct br_profile_source *source)
{
    const struct pprof_mark *mark = &file->mark;
    size_t skip = 0;
    if (mark->len && mark->len <= source->len &&
        directory_mark_of(data, mark->len).hash == mark->hash)
        skip = mark->len;
    if (skip && skip < source->len && data[skip - 1] != '\n' && data[skip] != '\n') {
        const uint8_t *eol = memchr(data + skip, '\n', source->len - skip);
        const uint8_t *before = memrchr(data, '\n', skip);
        size_t end = eol ? (size_t)(eol - data) : source->len,
               start = before ? (size_t)(before - data) + 1 : 0;
        bool same_stack = directory_subtract_counted(data + start, data + skip, data + end);
        skip = same_stack ? start : end + (eol != NULL);
        if (!same_stack) {
            reading->n_lost = 1;
            (void)snprintf(reading->lost, sizeof reading->lost,
                           "a line became longer after it was counted");
        }
    }
    source->data += skip;
    source->len -= skip;
}

/* Sets `file->mark`, which describes the beginning of the file that was already counted. If a
 * file with the same inode was read under any name, uses the mark of that file. For a new inode,
 * uses the mark of the previous file with this name, unless that file still exists under another
 * name. */
static void directory_choose_mark(struct file *file)
{
    const struct known *known = directory_known(file->directory, file->identity.inode);
    if (known) {
        file->mark = known->state.mark;
        file->mark_inode = file->identity.inode;
    } else if (file->mark_inode != file->identity.inode &&
               directory_known(file->directory, file->mark_inode)) {
        file->mark = (struct pprof_mark){0};
    }
}

static int directory_read_item(struct br_reading *reading)
{
    struct file *file = (struct file *)(uintptr_t)reading->arg;
    const struct pprof_directory *directory = file->directory;
    enum br_profile_format format = BR_FORMAT_PPROF;
    int rc = directory_load(reading, file);
    if (rc)
        return rc;
    directory_choose_mark(file);
    const struct br_buf *raw = br_reading_bytes(reading);
    bool packed = pprof_is_gzip(raw->data, raw->len);
    file->next = directory_mark_of(raw->data, raw->len);
    if (file->mark_inode == file->identity.inode && file->mark.len == file->next.len &&
        file->mark.hash == file->next.hash)
        return 0; /* The content is unchanged; only the modification time differs. */
    rc = pprof_unpack(reading);
    if (rc)
        return rc;
    struct br_buf *plain = br_reading_bytes(reading);
    struct br_profile_source source = {.data = plain->data,
                                       .len = plain->len,
                                       .resource = &directory->resource,
                                       .start_ns = file->identity.changed_ns,
                                       .end_ns = file->identity.changed_ns,
                                       .sample_rate = directory->config->sample_rate,
                                       .from_file = true};
    rc = pprof_guess(source.data, source.len, &format, &reading->err);
    if (!rc && format == BR_FORMAT_FOLDED && !packed)
        directory_skip_counted(file, reading, plain->data, &source);
    if (rc == 0 && source.len)
        rc = pprof_read(reading, format, &source);
    return rc ? rc : br_profile_reading_cut(reading);
}

static void directory_fail(struct file *file, int rc, const char *why)
{
    struct pprof_directory *directory = file->directory;
    if (rc == BR_ENOMEM) {
        directory_end_file(file, BR_RETRY);
        return;
    }
    *directory->meter.failed[BR_PROFILES] += 1;
    directory_warn(directory, file->name, why);
    directory_end_file(file, BR_REJECT);
}

static void directory_on_read(void *arg, struct br_reading *reading, int rc)
{
    struct file *file = arg;
    char flaws[BR_FLAWS_SIZE];
    file->directory->reading = false;
    if (rc) {
        directory_fail(file, rc, br_reading_why(reading, rc));
        return;
    }
    if (br_meter_flaws(&file->directory->meter, reading, flaws))
        directory_warn(file->directory, file->name, flaws);
    file->item = reading->item;
    reading->item = NULL;
    if (!file->item) {
        directory_end_file(file, BR_DONE);
        return;
    }
    br_item_received(file->item);
    file->item->done = directory_on_done;
    file->item->done_arg = file;
    if (br_list_empty(&reading->pieces))
        br_node_forward(file->directory->node, file->item);
    else
        br_pieces_send(file->directory->node, file->item, &reading->pieces,
                       &file->directory->sendings);
    directory_continue(file->directory);
}

static void directory_read_file(struct file *file)
{
    struct pprof_directory *directory = file->directory;
    directory->reading = true;
    pprof_reader_start_in_thread(directory->reader, directory_read_item, file, directory_on_read,
                                 file, &file->reading);
}

/* --- Scanning --------------------------------------------------------------------------------- */

static struct file *directory_find(struct pprof_directory *directory, const char *name)
{
    size_t len = strlen(name);
    struct file *file = br_map_get(directory->files, name, len);
    if (file || len > NAME_MAX)
        return file;
    if (br_map_count(directory->files) >= FILES_MAX) {
        directory_warn_later(directory, name, "not read yet: too many files are in the directory");
        return NULL;
    }
    file = br_calloc(1, sizeof *file + len + 1);
    if (!file)
        return NULL;
    file->directory = directory;
    br_list_init(&file->link);
    memcpy(file->name, name, len);
    if (br_map_put(directory->files, name, len, file, NULL) == 0)
        return file;
    br_free(file);
    return NULL;
}

/* Returns true for names that programs give to unfinished or hidden files. */
static bool directory_is_hidden(const char *name)
{
    return name[0] == '.' || br_text_ends(name, ".tmp") || br_text_ends(name, ".part");
}

/* Returns true if the file was read under another name: everything except the name is unchanged. */
static bool directory_was_read(struct file *file, const struct known *known)
{
    if (!known || !directory_is_same(&file->identity, &known->state.identity))
        return false;
    file->state = FINISHED;
    file->next = known->state.mark;
    directory_remember(file);
    return true;
}

/* Returns true if the file is already BUSY under its previous name. */
static bool directory_is_busy(const struct pprof_directory *directory,
                              const struct pprof_identity *identity)
{
    for (size_t i = 0; i < BUSY_MAX; i++)
        if (directory->busy[i] && directory_is_same(&directory->busy[i]->identity, identity))
            return true;
    return false;
}

/* Examines an entry of the directory. Returns false if the file is ready but has to wait,
 * because too many files are already being read or in the pipeline. */
static bool directory_examine(struct pprof_directory *directory, const char *name)
{
    struct scan_part *part = directory->part;
    struct stat st;
    if (fstatat(dirfd(directory->dir), name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
        return true;
    struct pprof_identity identity = directory_identify(&st);
    struct known *known = directory_known(directory, identity.inode);
    if (known)
        known->scan = directory->scan;
    struct file *file = directory_is_hidden(name) ? NULL : directory_find(directory, name);
    if (!file)
        return true;
    bool seen = file->scan != 0;
    file->scan = directory->scan;
    if (file->state == BUSY)
        return true;
    if (!seen || !directory_is_same(&identity, &file->identity)) {
        file->identity = identity;
        file->was_read = false;
        file->state = WAITING;
        file->since_ms = part->now_ms;
        (void)directory_was_read(file, known);
        return true;
    }
    if (file->state != WAITING || identity.size == 0 ||
        part->now_ms - file->since_ms < directory->config->poll_interval / NS_PER_MS ||
        directory_was_read(file, known) || directory_is_busy(directory, &identity))
        return true;
    if (!part->room)
        return false;
    part->room--;
    file->state = BUSY;
    file->next = (struct pprof_mark){0};
    directory_swap_busy(directory, NULL, file);
    br_list_append(&part->ready, &file->link);
    return true;
}

static void directory_forget_gone(struct pprof_directory *directory)
{
    for (size_t i = br_map_count(directory->files); i-- > 0;) {
        const void *key;
        size_t len;
        struct file *file = br_map_at(directory->files, i, &key, &len);
        if (file->scan == directory->scan || file->state == BUSY)
            continue;
        (void)br_map_remove(directory->files, key, len);
        br_free(file);
    }
    for (size_t i = br_map_count(directory->known); i-- > 0;) {
        const void *key;
        size_t len;
        struct known *known = br_map_at(directory->known, i, &key, &len);
        if (known->scan == directory->scan)
            continue;
        (void)br_map_remove(directory->known, key, len);
        br_free(known);
    }
}

/* Rewrites the list of read files if it has too many obsolete lines or was deleted. The new list
 * contains only the existing files. */
static void directory_rewrite_read_files(struct pprof_directory *directory)
{
    size_t n = br_map_count(directory->files), len;
    const void *key;
    if (!directory->read_files ||
        (pprof_read_files_lines(directory->read_files) <= 2 * n + READ_FILES_SPARE &&
         !pprof_read_files_is_deleted(directory->read_files)))
        return;
    bool ok = pprof_read_files_begin(directory->read_files);
    for (size_t i = 0; i < n && ok; i++) {
        const struct file *file = br_map_at(directory->files, i, &key, &len);
        ok = !file->was_read ||
             pprof_read_files_add(directory->read_files, file->name,
                                  &(struct pprof_file_state){file->identity, file->mark});
    }
    if (!pprof_read_files_end(directory->read_files, ok))
        directory_warn_later(directory, READ_FILES_NAME, strerror(errno));
}

/* Begins or continues a scan. Returns false if the directory cannot be opened; the worker logs
 * the reason later. */
static bool directory_open_dir(struct pprof_directory *directory)
{
    if (!directory->dir)
        directory->dir = opendir(directory->config->path);
    else
        return true;
    if (!directory->dir) {
        directory_warn_later(directory, "", strerror(errno));
        return false;
    }
    directory->scan++;
    return true;
}

static void directory_close_dir(struct pprof_directory *directory)
{
    (void)closedir(directory->dir);
    directory->dir = NULL;
    directory_forget_gone(directory);
    directory_rewrite_read_files(directory);
}

/* Examines the next entry. Returns false at the end of the directory or if the scan pauses. */
static bool directory_examine_next(struct pprof_directory *directory)
{
    char paused_at[NAME_MAX + 1];
    const char *name = NULL;
    if (directory->paused_at[0]) {
        name = memcpy(paused_at, directory->paused_at, sizeof paused_at);
        directory->paused_at[0] = '\0';
    } else {
        const struct dirent *dirent = readdir(directory->dir);
        name = dirent ? dirent->d_name : NULL;
    }
    if (!name) {
        directory_close_dir(directory);
        directory->part->finished = true;
        return false;
    }
    if (directory_examine(directory, name))
        return true;
    (void)snprintf(directory->paused_at, sizeof directory->paused_at, "%s", name);
    return false;
}

static void directory_on_loaded(void *arg, const char *name, const struct pprof_file_state *state);

static void directory_on_run(struct br_task *task)
{
    struct scan_part *part = br_container_of(task, struct scan_part, task);
    struct pprof_directory *directory = part->directory;
    if (directory->read_files && !directory->loaded &&
        !pprof_read_files_load(directory->read_files, directory_on_loaded, directory))
        directory_warn_later(directory, READ_FILES_NAME, strerror(errno));
    directory->loaded = true;
    directory_record_ends(&part->ended, part->now_ms);
    if (part->reads_directory && !directory_open_dir(directory))
        part->finished = true;
    for (int i = 0; i < SCAN_ENTRIES && part->reads_directory && !part->finished; i++)
        if (!directory_examine_next(directory))
            break;
}

/* --- Worker ----------------------------------------------------------------------------------- */

/* Returns the number of files that may be read now. */
static unsigned directory_free_places(const struct pprof_directory *directory)
{
    struct br_host *host = directory->node->host;
    return br_host_over_limit(host) || br_shed_step(host) != BR_SHED_NONE
               ? 0
               : BUSY_MAX - directory->n_busy;
}

static void directory_on_timer(struct br_timer *timer);

static void directory_wait(struct pprof_directory *directory)
{
    if (!directory->stopping)
        (void)br_host_timer(directory->node->host, &directory->timer,
                            directory->config->poll_interval / NS_PER_MS, directory_on_timer);
}

static void directory_on_ran(struct br_task *task)
{
    struct scan_part *part = br_container_of(task, struct scan_part, task);
    struct pprof_directory *directory = part->directory;
    struct br_list *link;
    part->running = false;
    if (!directory) {
        br_free(part);
        return;
    }
    for (unsigned i = 0; i < part->n_warnings; i++)
        directory_warn(directory, part->warnings[i].name, part->warnings[i].why);
    while ((link = br_list_shift(&part->ready))) {
        directory->n_busy++;
        br_list_append(&directory->ready, link);
    }
    directory->paused = directory->paused_at[0] != '\0';
    if (part->finished) {
        directory->scanning = false;
        directory_wait(directory);
    }
    directory_continue(directory);
}

/* Starts the next part of a scan. While the receiver is stopping, the part only records the
 * results of files. */
static void directory_scan(struct pprof_directory *directory, unsigned room)
{
    struct scan_part *part = directory->part;
    struct br_list *link;
    part->now_ms = br_host_mono_ms(directory->node->host);
    part->reads_directory = directory->scanning && !directory->stopping;
    part->room = room;
    part->finished = false;
    part->n_warnings = 0;
    while ((link = br_list_shift(&directory->ended)))
        br_list_append(&part->ended, link);
    part->running = true;
    br_task_start(&part->task);
}

static void directory_read_next(struct pprof_directory *directory)
{
    struct br_list *link = br_list_shift(&directory->ready);
    directory_read_file(br_container_of(link, struct file, link));
}

/* Starts the next task in the thread, if the thread is idle. */
static void directory_continue(struct pprof_directory *directory)
{
    unsigned room = directory_free_places(directory);
    if (directory->part->running || directory->reading)
        return;
    if (!br_list_empty(&directory->ready))
        directory_read_next(directory);
    else if (!br_list_empty(&directory->ended) ||
             (directory->scanning && !directory->stopping && (room || !directory->paused)))
        directory_scan(directory, room);
    else if (directory->stopping && directory->n_busy == 0 && directory->on_idle)
        directory->on_idle(directory->on_idle_arg);
    else if (directory->scanning && directory->n_busy == 0)
        directory_wait(directory); /* A later attempt may find enough memory. */
}

static void directory_on_timer(struct br_timer *timer)
{
    struct pprof_directory *directory = br_container_of(timer, struct pprof_directory, timer);
    directory->scanning = true;
    directory_continue(directory);
}

/* --- Life cycle ------------------------------------------------------------------------------- */

int pprof_directory_new(struct br_node *node, struct pprof_reader *reader,
                        struct pprof_directory **ret, struct br_err *err)
{
    const struct pprof_config *config = node->config;
    struct pprof_directory *directory = br_calloc(1, sizeof *directory);
    if (!directory)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    directory->node = node;
    br_list_init(&directory->sendings);
    directory->config = config->file;
    directory->reader = reader;
    br_meter_init(&directory->meter, node, "file", BR_SIGNAL_BIT(BR_PROFILES));
    directory->n_accepted =
        br_node_metric(node, BR_COUNTER, "braid_receiver_pprof_files", "result", "ok");
    directory->n_failed =
        br_node_metric(node, BR_COUNTER, "braid_receiver_pprof_files", "result", "failed");
    br_list_init(&directory->ready);
    br_list_init(&directory->ended);
    directory->part = br_calloc(1, sizeof *directory->part);
    directory->files = br_map_new(FILES_MAX);
    directory->known = br_map_new(FILES_MAX);
    if (directory->part) {
        br_task_init(&directory->part->task, node->host, directory_on_run, directory_on_ran);
        directory->part->task.work.kind = BR_WORK_DISK;
        directory->part->directory = directory;
        br_list_init(&directory->part->ready);
        br_list_init(&directory->part->ended);
    }
    int rc = directory->part && directory->files && directory->known
                 ? pprof_resource(config->file->labels, NULL, 0, &directory->arena,
                                  &directory->resource, err)
                 : br_err_set(err, BR_ENOMEM, "out of memory");
    if (rc == 0)
        *ret = directory;
    else
        pprof_directory_free(directory);
    return rc;
}

static int directory_check(const char *key, const char *path, int mode, struct br_err *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return br_err_set(err, BR_EIO, "file::%s: %s: %s", key, path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return br_err_set(err, BR_EINVAL, "file::%s: %s is not a directory", key, path);
    if (access(path, mode) != 0)
        return br_err_set(err, BR_EIO, "file::%s: %s cannot be %s: %s", key, path,
                          mode & W_OK ? "written" : "read", strerror(errno));
    return 0;
}

/* Checks that the configured directories exist. Without the check, a misspelt path would look
 * like an empty directory. */
static int directory_check_all(const struct pprof_directory_config *config, struct br_err *err)
{
    int mode = R_OK | X_OK | (config->after == PPROF_REMEMBER ? 0 : W_OK);
    int rc = directory_check("path", config->path, mode, err);
    return rc == 0 && config->after == PPROF_MOVE
               ? directory_check("move_to", config->move_to, W_OK | X_OK, err)
               : rc;
}

/* Adds a file that was read before this process started. */
static void directory_on_loaded(void *arg, const char *name, const struct pprof_file_state *state)
{
    struct pprof_directory *directory = arg;
    struct file *file = directory_find(directory, name);
    if (!file)
        return;
    file->identity = state->identity;
    file->mark = state->mark;
    file->mark_inode = state->identity.inode;
    file->was_read = true;
    file->state = FINISHED;
    file->scan = UINT64_MAX; /* marks the file as found by an earlier scan */
    directory_remember_inode(directory, state);
}

/* Opens the list of files that were read. An error is only fatal if the config names the list. */
static int directory_open_read_files(struct pprof_directory *directory, struct br_err *err)
{
    const struct pprof_directory_config *config = directory->config;
    char path[4096];
    struct br_err why = {0};
    if (config->after != PPROF_REMEMBER)
        return 0;
    if (config->state && config->state[0])
        return pprof_read_files_open(config->state, &directory->read_files, err);
    int rc = directory_join(path, sizeof path, config->path, READ_FILES_NAME)
                 ? pprof_read_files_open(path, &directory->read_files, &why)
                 : br_err_set(&why, BR_EINVAL, "%s is too long", config->path);
    if (rc)
        br_warn(&directory->node->log,
                "%s: all files are read again after a restart; set file::state to keep "
                "the list of files elsewhere",
                why.text);
    return rc == BR_ENOMEM ? br_err_set(err, rc, "out of memory") : 0;
}

int pprof_directory_start(struct pprof_directory *directory, struct br_err *err)
{
    int rc = directory_check_all(directory->config, err);
    if (!rc)
        rc = directory_open_read_files(directory, err);
    if (rc)
        return rc;
    if (!br_host_timer_park(directory->node->host, &directory->timer, directory_on_timer))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    (void)br_host_timer(directory->node->host, &directory->timer, 0, directory_on_timer);
    return 0;
}

void pprof_directory_stop(struct pprof_directory *directory, void (*on_idle)(void *arg), void *arg)
{
    directory->stopping = true;
    br_host_timer_stop(directory->node->host, &directory->timer);
    directory->on_idle = on_idle;
    directory->on_idle_arg = arg;
    directory_continue(directory);
}

static void directory_free_known(void *arg)
{
    br_free(arg);
}

static void directory_free_file(void *arg)
{
    struct file *file = arg;
    br_reading_stop(&file->reading);
    if (file->item)
        file->item->done = NULL; /* the item is still in the pipeline; its result is ignored */
    br_free(file);
}

/* Waits for the thread, and records the results that have not been recorded yet. */
static void directory_end_part(struct pprof_directory *directory)
{
    struct scan_part *part = directory->part;
    if (!part)
        return;
    if (part->running)
        br_task_stop(&part->task);
    directory_record_ends(&part->ended, part->now_ms);
    directory_record_ends(&directory->ended, part->now_ms);
    part->directory = NULL;
    if (!part->running)
        br_free(part);
}

void pprof_directory_free(struct pprof_directory *directory)
{
    if (!directory)
        return;
    br_host_timer_stop(directory->node->host, &directory->timer);
    directory_end_part(directory);
    if (directory->dir)
        (void)closedir(directory->dir);
    br_map_free(directory->files, directory_free_file);
    br_map_free(directory->known, directory_free_known);
    br_pieces_stop(&directory->sendings);
    pprof_read_files_close(directory->read_files);
    br_arena_release(&directory->arena);
    br_free(directory);
}
