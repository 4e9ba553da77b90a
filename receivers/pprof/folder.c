/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads profiles from a directory. The directory is polled, not watched: readdir works on every
 * file system. A file is complete when it has not changed between two scans.
 *
 * All disk access runs in a thread, one task at a time, so a disk that does not respond blocks at
 * most one thread. A task is a part of a scan (struct scan_part) or reads one file. A scan pauses
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
#include "ingest/pieces.h"
#include "ingest/profile_reading.h"
#include "receivers/pprof/pprof.h"
#include "receivers/pprof/taken.h"

/* largest number of files known at a time; other files wait until known files were removed */
#define FILES_MAX 1000000
#define BUSY_MAX 4       /* largest number of files read or in the pipeline at a time */
#define SCAN_ENTRIES 256 /* largest number of directory entries per part of a scan */
#define LOG_EVERY_MS 60000
/* largest number of files named in the log per LOG_EVERY_MS; other files are only counted */
#define NAMED_MAX 20
#define TAKEN_FILE ".braid-taken"
/* number of lines, besides two for each file, that TAKEN_FILE may have before it is rewritten */
#define TAKEN_SPARE 1000
#define NS_PER_MS 1000000

enum state {
    WAITING,  /* the file waits until it has not changed for an interval */
    BUSY,     /* the file is being read, or its records are in the pipeline */
    FINISHED, /* the file was read or rejected; it is ignored until it changes */
};

struct file {
    struct pprof_folder *folder;
    struct br_list
        /* while the file is BUSY: link in pprof_folder.ready, pprof_folder.ended or
         * scan_part.ended */
        link;
    enum state state;
    enum br_verdict verdict; /* result of delivering the file, if it is in a list `ended` */
    struct pprof_identity is;
    /* the file was read in the state `is`: size, inode and time of change */
    bool taken;
    struct pprof_mark mark; /* beginning of the file whose samples were already counted */
    uint64_t mark_inode;    /* inode of the file from which `mark` was made */
    struct pprof_mark next; /* `mark` for the data that is being read now */
    /* time in ms of the worker's monotonic clock since which the file is unchanged */
    uint64_t since_ms;
    uint64_t scan;                   /* number of the last scan that found the file */
    struct br_reading_task *reading; /* conversion of the file; NULL unless a thread runs it */
    struct br_item *item;
    char name[]; /* NUL-terminated name */
};

/* A file that was read, found by its inode instead of its name. */
struct known {
    struct pprof_taken taken;
    uint64_t scan; /* number of the last scan that found the file */
};

struct warning {
    char name[NAME_MAX + 1];
    char why[160];
};

/* A part of a scan, which runs in a thread. If the folder is freed before the part has ended,
 * `done` frees the part. */
struct scan_part {
    struct br_work work;
    struct pprof_folder *folder; /* NULL after the folder was freed */
    bool running;                /* true until `done` was called for the part */
    uint64_t now_ms;             /* time of the worker's monotonic clock */
    /* The part reads the directory. Otherwise it only records the results in `ended`. */
    bool reads_directory;
    unsigned room;        /* largest number of files that the part may add to `ready` */
    struct br_list ended; /* files whose result must be recorded */
    /* Results of the part: */
    struct br_list ready; /* files to be read; their state is BUSY */
    bool finished;        /* the end of the directory was reached */
    struct warning warnings[NAMED_MAX];
    unsigned n_warnings;
};

struct pprof_folder {
    struct br_node *node;
    const struct pprof_folder_config *config;
    struct pprof_reader *reader;
    struct br_arena arena;
    struct br_addition resource;
    struct br_map *files;    /* maps names to struct file */
    struct br_map *known;    /* maps inodes to struct known, at most one per file */
    struct br_list sendings; /* list for br_pieces_send */
    struct br_timer timer;
    /* The following fields are owned by the running task: */
    uint64_t scan;                /* number of the current scan */
    DIR *dir;                     /* NULL between scans */
    char paused_at[NAME_MAX + 1]; /* name of a file that is ready but has to wait; "": none */
    /* files that are BUSY until their result is recorded; NULL for unused places */
    struct file *busy[BUSY_MAX];
    /* log of the files that were read; NULL: after a restart all files are read again */
    struct pprof_taken_log *log;
    bool loaded; /* true after the log was read */
    /* The following fields are owned by the worker: */
    struct scan_part *part;
    bool scanning; /* a scan is in progress or paused */
    /* The last part of the scan stopped at a file that is ready but has to wait. */
    bool paused;
    struct br_list ready; /* files to be read; their state is BUSY */
    struct br_list ended; /* files whose result must be recorded */
    unsigned n_busy;      /* number of files that are ready, being read or in the pipeline */
    bool reading;         /* a thread reads a file */
    bool stopping;
    struct br_log_limit log_limit;
    unsigned n_named; /* number of files named in the log in the current interval of LOG_EVERY_MS */
    struct br_meter meter;
    double *taken, *failed;
    void (*on_idle)(void *arg);
    void *on_idle_arg;
};

static void folder_warn(struct pprof_folder *folder, const char *name, const char *why)
{
    uint64_t suppressed = 0, now = br_host_mono_ms(folder->node->host);
    char more[64] = "";
    if (now >= folder->log_limit.next_ms)
        folder->n_named = 0;
    if ((folder->n_named == 0 || folder->n_named == NAMED_MAX) &&
        !br_log_allow(&folder->log_limit, now, LOG_EVERY_MS, &suppressed))
        return;
    folder->n_named++;
    if (suppressed)
        (void)snprintf(more, sizeof more, " (%llu more since the last such line)",
                       (unsigned long long)suppressed);
    br_warn(&folder->node->log, "%s/%s: %s%s", folder->config->path, name, why, more);
}

/* Records a message about a file in the running thread. The worker logs the message later. */
static void folder_warn_later(struct pprof_folder *folder, const char *name, const char *why)
{
    struct scan_part *part = folder->part;
    if (part->n_warnings == NAMED_MAX)
        return;
    struct warning *warning = &part->warnings[part->n_warnings++];
    (void)snprintf(warning->name, sizeof warning->name, "%s", name);
    (void)snprintf(warning->why, sizeof warning->why, "%s", why);
}

static struct pprof_identity folder_identify(const struct stat *st)
{
    return (struct pprof_identity){(uint64_t)st->st_size, st->st_ino,
                                   (uint64_t)st->st_mtim.tv_sec * 1000000000u +
                                       (uint64_t)st->st_mtim.tv_nsec};
}

static bool folder_is_same(const struct pprof_identity *file, const struct pprof_identity *other)
{
    return file->size == other->size && file->inode == other->inode &&
           file->changed_ns == other->changed_ns;
}

/* Builds "path/name". Returns false if it is too long. */
static bool folder_join(char *out, size_t size, const char *folder, const char *name)
{
    int n = snprintf(out, size, "%s/%s", folder, name);
    return n > 0 && (size_t)n < size;
}

/* --- Results of files ------------------------------------------------------------------------- */

/* Deletes or moves a file unless it has changed since it was read. */
static void folder_delete_or_move(struct file *file)
{
    const struct pprof_folder_config *config = file->folder->config;
    char path[4096], to[4096];
    struct stat st;
    if (config->after == PPROF_REMEMBER ||
        !folder_join(path, sizeof path, config->path, file->name) || lstat(path, &st) != 0)
        return;
    struct pprof_identity is = folder_identify(&st);
    if (!folder_is_same(&is, &file->is))
        return; /* The next scan finds the change of the file. */
    int rc = 0;
    if (config->after == PPROF_DELETE)
        rc = unlink(path);
    else if (folder_join(to, sizeof to, config->move_to, file->name))
        rc = renameat2(AT_FDCWD, path, AT_FDCWD, to, RENAME_NOREPLACE);
    if (rc != 0)
        folder_warn_later(file->folder, file->name, strerror(errno));
}

static struct known *folder_known(const struct pprof_folder *folder, uint64_t inode)
{
    return br_map_get(folder->known, &inode, sizeof inode);
}

/* Records by inode the state in which a file was read. If there is not enough memory for the
 * record, the file will be read again after it is renamed. */
static void folder_remember_inode(struct pprof_folder *folder, const struct pprof_taken *taken)
{
    struct known *known = folder_known(folder, taken->is.inode);
    bool is_new = !known;
    if (is_new)
        known = br_calloc(1, sizeof *known);
    if (!known)
        return;
    *known = (struct known){*taken, folder->scan};
    if (is_new &&
        br_map_put(folder->known, &taken->is.inode, sizeof taken->is.inode, known, NULL) != 0)
        br_free(known);
}

/* Records that a file was read, so that neither the next scan nor a restart reads it again. */
static void folder_remember(struct file *file)
{
    struct pprof_folder *folder = file->folder;
    const struct pprof_taken taken = {file->is, file->next};
    file->taken = true;
    file->mark = file->next;
    file->mark_inode = file->is.inode;
    folder_remember_inode(folder, &taken);
    if (folder->log && !pprof_taken_add(folder->log, file->name, &taken))
        folder_warn_later(folder, TAKEN_FILE, strerror(errno));
}

/* Replaces the file `old` in `folder->busy` by `file`. NULL stands for an unused place. There is
 * always an unused place for a new file. */
static void folder_swap_busy(struct pprof_folder *folder, const struct file *old, struct file *file)
{
    size_t i = 0;
    while (folder->busy[i] != old)
        i++;
    folder->busy[i] = file;
}

/* Records the result of a file. Runs in the thread. */
static void folder_record_end(struct file *file, uint64_t now_ms)
{
    folder_swap_busy(file->folder, file, NULL);
    file->state = file->verdict == BR_RETRY ? WAITING : FINISHED;
    file->since_ms = now_ms;
    if (file->verdict == BR_DONE) {
        folder_remember(file);
        folder_delete_or_move(file);
    }
}

static void folder_record_ends(struct br_list *ended, uint64_t now_ms)
{
    struct br_list *link;
    while ((link = br_list_shift(ended)))
        folder_record_end(br_container_of(link, struct file, link), now_ms);
}

static void folder_continue(struct pprof_folder *folder);

/* Ends the processing of a file. It stays BUSY until the thread has recorded the result. */
static void folder_end_file(struct file *file, enum br_verdict verdict)
{
    struct pprof_folder *folder = file->folder;
    folder->n_busy--;
    *(verdict == BR_DONE ? folder->taken : folder->failed) += verdict != BR_RETRY;
    file->verdict = verdict;
    br_list_append(&folder->ended, &file->link);
    folder_continue(folder);
}

static void folder_on_done(struct br_item *item, void *arg)
{
    struct file *file = arg;
    struct pprof_folder *folder = file->folder;
    const struct br_outcome *outcome = &item->outcome;
    br_item_answered(item);
    br_meter_count_outcome(&folder->meter, item);
    file->item = NULL;
    if (outcome->verdict == BR_REJECT)
        folder_warn(folder, file->name, outcome->text);
    folder_end_file(file, outcome->verdict);
}

/* --- Reading a file --------------------------------------------------------------------------- */

/* Returns a file descriptor, or a negative code with a message. */
static int folder_open_file(struct file *file, struct br_err *err)
{
    struct pprof_folder *folder = file->folder;
    char path[4096];
    struct stat st;
    int fd = -1, rc = 0;
    if (folder_join(path, sizeof path, folder->config->path, file->name))
        fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return br_err_set(err, BR_EIO, "cannot be opened: %s", strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        rc = br_err_set(err, BR_EIO, "cannot be read");
    else
        file->is = folder_identify(&st);
    if (!rc && file->is.size > folder->reader->max)
        rc = br_err_set(err, BR_ETOOBIG, "larger than max_profile_size");
    if (!rc)
        return fd;
    (void)close(fd);
    return rc;
}

static int folder_read_bytes(int fd, size_t size, struct br_buf *buf, struct br_err *err)
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

static int folder_load(struct br_reading *reading, struct file *file)
{
    int fd = folder_open_file(file, &reading->err), rc = 0;
    if (fd < 0)
        return fd;
    size_t size = (size_t)file->is.size;
    /* The memory limit also covers the buffer into which the file is read. */
    reading->scope.max += size * BR_READING_GROWTH;
    struct br_buf *buf = br_buf_new(reading->host->pool, size);
    if (buf)
        br_reading_replace(reading, buf);
    else
        rc = br_err_set(&reading->err, BR_ENOMEM, "out of memory");
    if (!rc)
        rc = folder_read_bytes(fd, size, buf, &reading->err);
    (void)close(fd);
    return rc;
}

/* Corrects a line that was read up to `counted` while a program was still writing it. If that
 * part was already a stack with a number, the number becomes the difference. Returns false if
 * the stack itself has become longer. */
static bool folder_subtract_counted(uint8_t *line, const uint8_t *counted, const uint8_t *eol)
{
    uint8_t *space = memrchr(line, ' ', (size_t)(counted - line));
    uint64_t before, all;
    if (!space)
        return true; /* no stack of the line was counted */
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

static struct pprof_mark folder_mark_of(const uint8_t *data, size_t len)
{
    static const uint8_t key[16]; /* The key is fixed, because the hash is stored in the log. */
    return (struct pprof_mark){len, br_siphash(key, data, len)};
}

/* Skips the beginning of folded text that was already counted, if the file has grown. `data` is
 * the writable content of the source. */
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
        bool same_stack = folder_subtract_counted(data + start, data + skip, data + end);
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

/* Sets `file->mark`, the beginning of the file that was already counted. If the same inode was
 * read under any name, its mark is used. Otherwise the mark of the previous file with this name
 * is used, unless that file still exists under another name. */
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

static int folder_read_item(struct br_reading *reading)
{
    struct file *file = (struct file *)(uintptr_t)reading->arg;
    const struct pprof_folder *folder = file->folder;
    enum br_profile_format format = BR_FORMAT_PPROF;
    int rc = folder_load(reading, file);
    if (rc)
        return rc;
    folder_choose_mark(file);
    const struct br_buf *raw = br_reading_bytes(reading);
    bool packed = pprof_is_gzip(raw->data, raw->len);
    file->next = folder_mark_of(raw->data, raw->len);
    if (file->mark_inode == file->is.inode && file->mark.len == file->next.len &&
        file->mark.hash == file->next.hash)
        return 0; /* The content is unchanged; only the modification time differs. */
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

static void folder_fail(struct file *file, int rc, const char *why)
{
    struct pprof_folder *folder = file->folder;
    if (rc == BR_ENOMEM) {
        folder_end_file(file, BR_RETRY);
        return;
    }
    *folder->meter.failed[BR_PROFILES] += 1;
    folder_warn(folder, file->name, why);
    folder_end_file(file, BR_REJECT);
}

static void folder_on_read(void *arg, struct br_reading *reading, int rc)
{
    struct file *file = arg;
    char flaws[BR_FLAWS_SIZE];
    file->folder->reading = false;
    if (rc) {
        folder_fail(file, rc, br_reading_why(reading, rc));
        return;
    }
    if (br_meter_flaws(&file->folder->meter, reading, flaws))
        folder_warn(file->folder, file->name, flaws);
    file->item = reading->item;
    reading->item = NULL;
    if (!file->item) {
        folder_end_file(file, BR_DONE);
        return;
    }
    br_item_received(file->item);
    file->item->done = folder_on_done;
    file->item->done_arg = file;
    if (br_list_empty(&reading->pieces))
        br_node_forward(file->folder->node, file->item);
    else
        br_pieces_send(file->folder->node, file->item, &reading->pieces, &file->folder->sendings);
    folder_continue(file->folder);
}

static void folder_read_file(struct file *file)
{
    struct pprof_folder *folder = file->folder;
    folder->reading = true;
    pprof_reader_start_in_thread(folder->reader, folder_read_item, file, folder_on_read, file,
                                 &file->reading);
}

/* --- Scanning --------------------------------------------------------------------------------- */

static struct file *folder_find(struct pprof_folder *folder, const char *name)
{
    size_t len = strlen(name);
    struct file *file = br_map_get(folder->files, name, len);
    if (file || len > NAME_MAX)
        return file;
    if (br_map_count(folder->files) >= FILES_MAX) {
        folder_warn_later(folder, name, "not read yet: too many files are in the directory");
        return NULL;
    }
    file = br_calloc(1, sizeof *file + len + 1);
    if (!file)
        return NULL;
    file->folder = folder;
    br_list_init(&file->link);
    memcpy(file->name, name, len);
    if (br_map_put(folder->files, name, len, file, NULL) == 0)
        return file;
    br_free(file);
    return NULL;
}

/* Returns true for names that programs use for unfinished or hidden files. */
static bool folder_is_hidden(const char *name)
{
    return name[0] == '.' || br_text_ends(name, ".tmp") || br_text_ends(name, ".part");
}

/* Recognises a file that was read under another name: everything except the name is unchanged. */
static bool folder_was_taken(struct file *file, const struct known *known)
{
    if (!known || !folder_is_same(&file->is, &known->taken.is))
        return false;
    file->state = FINISHED;
    file->next = known->taken.mark;
    folder_remember(file);
    return true;
}

/* Returns true if the file is already BUSY under its previous name. */
static bool folder_is_busy(const struct pprof_folder *folder, const struct pprof_identity *is)
{
    for (size_t i = 0; i < BUSY_MAX; i++)
        if (folder->busy[i] && folder_is_same(&folder->busy[i]->is, is))
            return true;
    return false;
}

/* Examines an entry of the directory. Returns false if the file is ready but has to wait for
 * room. */
static bool folder_examine(struct pprof_folder *folder, const char *name)
{
    struct scan_part *part = folder->part;
    struct stat st;
    if (fstatat(dirfd(folder->dir), name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
        return true;
    struct pprof_identity is = folder_identify(&st);
    struct known *known = folder_known(folder, is.inode);
    if (known)
        known->scan = folder->scan;
    struct file *file = folder_is_hidden(name) ? NULL : folder_find(folder, name);
    if (!file)
        return true;
    bool seen = file->scan != 0;
    file->scan = folder->scan;
    if (file->state == BUSY)
        return true;
    if (!seen || !folder_is_same(&is, &file->is)) {
        file->is = is;
        file->taken = false;
        file->state = WAITING;
        file->since_ms = part->now_ms;
        (void)folder_was_taken(file, known);
        return true;
    }
    if (file->state != WAITING || is.size == 0 ||
        part->now_ms - file->since_ms < folder->config->poll_interval / NS_PER_MS ||
        folder_was_taken(file, known) || folder_is_busy(folder, &is))
        return true;
    if (!part->room)
        return false;
    part->room--;
    file->state = BUSY;
    file->next = (struct pprof_mark){0};
    folder_swap_busy(folder, NULL, file);
    br_list_append(&part->ready, &file->link);
    return true;
}

static void folder_forget_gone(struct pprof_folder *folder)
{
    for (size_t i = br_map_count(folder->files); i-- > 0;) {
        const void *key;
        size_t len;
        struct file *file = br_map_at(folder->files, i, &key, &len);
        if (file->scan == folder->scan || file->state == BUSY)
            continue;
        (void)br_map_remove(folder->files, key, len);
        br_free(file);
    }
    for (size_t i = br_map_count(folder->known); i-- > 0;) {
        const void *key;
        size_t len;
        struct known *known = br_map_at(folder->known, i, &key, &len);
        if (known->scan == folder->scan)
            continue;
        (void)br_map_remove(folder->known, key, len);
        br_free(known);
    }
}

/* Rewrites the log so that it contains only the existing files, if the log has too many obsolete
 * lines or was deleted. */
static void folder_rewrite_taken(struct pprof_folder *folder)
{
    size_t n = br_map_count(folder->files), len;
    const void *key;
    if (!folder->log || (pprof_taken_lines(folder->log) <= 2 * n + TAKEN_SPARE &&
                         !pprof_taken_is_deleted(folder->log)))
        return;
    bool ok = pprof_taken_begin(folder->log);
    for (size_t i = 0; i < n && ok; i++) {
        const struct file *file = br_map_at(folder->files, i, &key, &len);
        ok = !file->taken ||
             pprof_taken_add(folder->log, file->name, &(struct pprof_taken){file->is, file->mark});
    }
    if (!pprof_taken_end(folder->log, ok))
        folder_warn_later(folder, TAKEN_FILE, strerror(errno));
}

/* Begins or continues a scan. Returns false if the directory cannot be opened; the worker logs
 * the reason later. */
static bool folder_open_dir(struct pprof_folder *folder)
{
    if (!folder->dir)
        folder->dir = opendir(folder->config->path);
    else
        return true;
    if (!folder->dir) {
        folder_warn_later(folder, "", strerror(errno));
        return false;
    }
    folder->scan++;
    return true;
}

static void folder_close_dir(struct pprof_folder *folder)
{
    (void)closedir(folder->dir);
    folder->dir = NULL;
    folder_forget_gone(folder);
    folder_rewrite_taken(folder);
}

/* Examines the next entry. Returns false at the end of the directory or if the scan pauses. */
static bool folder_examine_next(struct pprof_folder *folder)
{
    char paused_at[NAME_MAX + 1];
    const char *name = NULL;
    if (folder->paused_at[0]) {
        name = memcpy(paused_at, folder->paused_at, sizeof paused_at);
        folder->paused_at[0] = '\0';
    } else {
        const struct dirent *dirent = readdir(folder->dir);
        name = dirent ? dirent->d_name : NULL;
    }
    if (!name) {
        folder_close_dir(folder);
        folder->part->finished = true;
        return false;
    }
    if (folder_examine(folder, name))
        return true;
    (void)snprintf(folder->paused_at, sizeof folder->paused_at, "%s", name);
    return false;
}

static void folder_on_logged(void *arg, const char *name, const struct pprof_taken *taken);

static void folder_on_run(struct br_work *work)
{
    struct scan_part *part = br_container_of(work, struct scan_part, work);
    struct pprof_folder *folder = part->folder;
    if (folder->log && !folder->loaded && !pprof_taken_load(folder->log, folder_on_logged, folder))
        folder_warn_later(folder, TAKEN_FILE, strerror(errno));
    folder->loaded = true;
    folder_record_ends(&part->ended, part->now_ms);
    if (part->reads_directory && !folder_open_dir(folder))
        part->finished = true;
    for (int i = 0; i < SCAN_ENTRIES && part->reads_directory && !part->finished; i++)
        if (!folder_examine_next(folder))
            break;
    br_mem_flush();
}

/* --- Worker ----------------------------------------------------------------------------------- */

/* Returns the number of files that may be read now. */
static unsigned folder_room(const struct pprof_folder *folder)
{
    struct br_host *host = folder->node->host;
    return br_host_over_limit(host) || br_shed_step(host) != BR_SHED_NONE
               ? 0
               : BUSY_MAX - folder->n_busy;
}

static void folder_on_timer(struct br_timer *timer);

static void folder_wait(struct pprof_folder *folder)
{
    if (!folder->stopping)
        (void)br_host_timer(folder->node->host, &folder->timer,
                            folder->config->poll_interval / NS_PER_MS, folder_on_timer);
}

static void folder_on_ran(struct br_work *work)
{
    struct scan_part *part = br_container_of(work, struct scan_part, work);
    struct pprof_folder *folder = part->folder;
    struct br_list *link;
    part->running = false;
    if (!folder) {
        br_free(part);
        return;
    }
    for (unsigned i = 0; i < part->n_warnings; i++)
        folder_warn(folder, part->warnings[i].name, part->warnings[i].why);
    while ((link = br_list_shift(&part->ready))) {
        folder->n_busy++;
        br_list_append(&folder->ready, link);
    }
    folder->paused = folder->paused_at[0] != '\0';
    if (part->finished) {
        folder->scanning = false;
        folder_wait(folder);
    }
    folder_continue(folder);
}

/* Starts the next part of a scan. While the receiver is stopping, the part only records results. */
static void folder_scan(struct pprof_folder *folder, unsigned room)
{
    struct scan_part *part = folder->part;
    struct br_list *link;
    part->work =
        (struct br_work){.run = folder_on_run, .done = folder_on_ran, .kind = BR_WORK_DISK};
    part->now_ms = br_host_mono_ms(folder->node->host);
    part->reads_directory = folder->scanning && !folder->stopping;
    part->room = room;
    part->finished = false;
    part->n_warnings = 0;
    while ((link = br_list_shift(&folder->ended)))
        br_list_append(&part->ended, link);
    part->running = true;
    br_host_work(folder->node->host, &part->work);
}

static void folder_read_next(struct pprof_folder *folder)
{
    struct br_list *link = br_list_shift(&folder->ready);
    folder_read_file(br_container_of(link, struct file, link));
}

/* Starts the next task in the thread, if the thread is idle. */
static void folder_continue(struct pprof_folder *folder)
{
    unsigned room = folder_room(folder);
    if (folder->part->running || folder->reading)
        return;
    if (!br_list_empty(&folder->ready))
        folder_read_next(folder);
    else if (!br_list_empty(&folder->ended) ||
             (folder->scanning && !folder->stopping && (room || !folder->paused)))
        folder_scan(folder, room);
    else if (folder->stopping && folder->n_busy == 0 && folder->on_idle)
        folder->on_idle(folder->on_idle_arg);
    else if (folder->scanning && folder->n_busy == 0)
        folder_wait(folder); /* A later attempt may find enough memory. */
}

static void folder_on_timer(struct br_timer *timer)
{
    struct pprof_folder *folder = br_container_of(timer, struct pprof_folder, timer);
    folder->scanning = true;
    folder_continue(folder);
}

/* --- Life cycle ------------------------------------------------------------------------------- */

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
    br_list_init(&folder->ready);
    br_list_init(&folder->ended);
    folder->part = br_calloc(1, sizeof *folder->part);
    folder->files = br_map_new(FILES_MAX);
    folder->known = br_map_new(FILES_MAX);
    if (folder->part) {
        folder->part->folder = folder;
        br_list_init(&folder->part->ready);
        br_list_init(&folder->part->ended);
    }
    int rc =
        folder->part && folder->files && folder->known
            ? pprof_resource(config->file->labels, NULL, 0, &folder->arena, &folder->resource, err)
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
        return br_err_set(err, BR_EINVAL, "file::%s: %s is not a directory", key, path);
    if (access(path, mode) != 0)
        return br_err_set(err, BR_EIO, "file::%s: %s cannot be %s: %s", key, path,
                          mode & W_OK ? "written" : "read", strerror(errno));
    return 0;
}

/* Checks that the directories exist. Otherwise a misspelt path would look like an empty
 * directory. */
static int folder_check_all(const struct pprof_folder_config *config, struct br_err *err)
{
    int mode = R_OK | X_OK | (config->after == PPROF_REMEMBER ? 0 : W_OK);
    int rc = folder_check("path", config->path, mode, err);
    return rc == 0 && config->after == PPROF_MOVE
               ? folder_check("move_to", config->move_to, W_OK | X_OK, err)
               : rc;
}

/* Adds a file that was read before this process started. */
static void folder_on_logged(void *arg, const char *name, const struct pprof_taken *taken)
{
    struct pprof_folder *folder = arg;
    struct file *file = folder_find(folder, name);
    if (!file)
        return;
    file->is = taken->is;
    file->mark = taken->mark;
    file->mark_inode = taken->is.inode;
    file->taken = true;
    file->state = FINISHED;
    file->scan = UINT64_MAX; /* marks the file as seen before */
    folder_remember_inode(folder, taken);
}

/* Opens the log of files that were read. An error is only fatal if the config names the log. */
static int folder_open_taken(struct pprof_folder *folder, struct br_err *err)
{
    const struct pprof_folder_config *config = folder->config;
    char path[4096];
    struct br_err why = {0};
    if (config->after != PPROF_REMEMBER)
        return 0;
    if (config->state && config->state[0])
        return pprof_taken_open(config->state, &folder->log, err);
    int rc = folder_join(path, sizeof path, config->path, TAKEN_FILE)
                 ? pprof_taken_open(path, &folder->log, &why)
                 : br_err_set(&why, BR_EINVAL, "%s is too long", config->path);
    if (rc)
        br_warn(&folder->node->log,
                "%s: all files are read again after a restart; set file::state to keep "
                "the list of files elsewhere",
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
    if (!br_host_timer_park(folder->node->host, &folder->timer, folder_on_timer))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    (void)br_host_timer(folder->node->host, &folder->timer, 0, folder_on_timer);
    return 0;
}

void pprof_folder_stop(struct pprof_folder *folder, void (*on_idle)(void *arg), void *arg)
{
    folder->stopping = true;
    br_host_timer_stop(folder->node->host, &folder->timer);
    folder->on_idle = on_idle;
    folder->on_idle_arg = arg;
    folder_continue(folder);
}

static void folder_free_known(void *arg)
{
    br_free(arg);
}

static void folder_free_file(void *arg)
{
    struct file *file = arg;
    br_reading_stop(&file->reading);
    if (file->item)
        file->item->done = NULL; /* the item is still in the pipeline; its result is ignored */
    br_free(file);
}

/* Waits for the thread and records the remaining results. */
static void folder_end_part(struct pprof_folder *folder)
{
    struct scan_part *part = folder->part;
    if (!part)
        return;
    if (part->running) {
        br_host_work_leave(folder->node->host, &part->work);
        br_host_work_wait(folder->node->host, &part->work);
    }
    folder_record_ends(&part->ended, part->now_ms);
    folder_record_ends(&folder->ended, part->now_ms);
    part->folder = NULL;
    if (!part->running)
        br_free(part);
}

void pprof_folder_free(struct pprof_folder *folder)
{
    if (!folder)
        return;
    br_host_timer_stop(folder->node->host, &folder->timer);
    folder_end_part(folder);
    if (folder->dir)
        (void)closedir(folder->dir);
    br_map_free(folder->files, folder_free_file);
    br_map_free(folder->known, folder_free_known);
    br_pieces_stop(&folder->sendings);
    pprof_taken_close(folder->log);
    br_arena_release(&folder->arena);
    br_free(folder);
}
