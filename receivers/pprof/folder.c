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
#include "receivers/pprof/pprof.h"
#include "receivers/pprof/taken.h"

#define FILES_MAX 10000 /* that are known at a time; further ones wait */
#define BUSY_MAX 4      /* files that are read or in the pipeline at a time */
#define LOG_EVERY_MS 60000
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
    bool taken;             /* as `is` says */
    struct pprof_mark mark; /* what was counted of it, when it was taken last */
    struct pprof_mark next; /* and what will have been, when what is read now is taken ... */
    struct pprof_mark *read; /* ... where a thread writes it */
    uint64_t since_ms; /* it has been the same */
    uint64_t look;     /* number of the last look that saw it */
    int fd;            /* while it is read */
    struct pprof_reading *reading; /* NULL unless a thread has it */
    struct br_item *item;
};

struct pprof_folder {
    struct br_node *node;
    const struct pprof_folder_config *config;
    struct pprof_reader *reader;
    struct br_arena arena;
    struct br_addition resource;
    struct br_map *files; /* of struct file, by name */
    struct br_list sendings; /* of pieces.h */
    struct br_timer timer;
    uint64_t look;
    struct pprof_taken_log *log; /* NULL: a restart takes all files again */
    unsigned n_busy;
    bool more; /* files were ready and had to wait */
    bool stopping;
    struct br_log_limit log_limit;
    struct br_meter meter;
    double *taken, *failed;
    void (*on_idle)(void *arg);
    void *on_idle_arg;
};

static void complain(struct pprof_folder *f, const char *name, const char *why)
{
    uint64_t held;
    char more[64] = "";
    if (!br_log_allow(&f->log_limit, br_host_mono_ms(f->node->host), LOG_EVERY_MS, &held))
        return;
    if (held)
        (void)snprintf(more, sizeof more, " (%llu such messages held back)",
                       (unsigned long long)held);
    br_warn(&f->node->log, "%s/%s: %s%s", f->config->path, name, why, more);
}

static struct pprof_identity identify(const struct stat *st)
{
    return (struct pprof_identity){(uint64_t)st->st_size, st->st_ino,
                             (uint64_t)st->st_mtim.tv_sec * 1000000000u +
                                 (uint64_t)st->st_mtim.tv_nsec};
}

static bool same(const struct pprof_identity *a, const struct pprof_identity *b)
{
    return a->size == b->size && a->inode == b->inode && a->changed_ns == b->changed_ns;
}

/* "path/name"; false when it is too long. */
static bool join(char *out, size_t size, const char *folder, const char *name)
{
    int n = snprintf(out, size, "%s/%s", folder, name);
    return n > 0 && (size_t)n < size;
}

/* --- What becomes of a file ------------------------------------------------------------------- */

/* Deletes or moves it, if it is still what was read. */
static void put_away(struct file *x)
{
    const struct pprof_folder_config *c = x->folder->config;
    char path[4096], to[4096];
    struct stat st;
    if (c->after == PPROF_REMEMBER || !join(path, sizeof path, c->path, x->name) ||
        lstat(path, &st) != 0)
        return;
    struct pprof_identity is = identify(&st);
    if (!same(&is, &x->is))
        return; /* the next look finds that it has changed */
    int rc = 0;
    if (c->after == PPROF_DELETE)
        rc = unlink(path);
    else if (join(to, sizeof to, c->move_to, x->name))
        rc = renameat2(AT_FDCWD, path, AT_FDCWD, to, RENAME_NOREPLACE);
    if (rc != 0)
        complain(x->folder, x->name, strerror(errno));
}

/* So that neither the next look nor a restart takes it again. */
static void note_taken(struct file *x)
{
    struct pprof_folder *f = x->folder;
    const struct pprof_taken taken = {x->is, x->next};
    x->taken = true;
    x->mark = x->next;
    if (f->log && !pprof_taken_add(f->log, x->name, &taken))
        complain(f, TAKEN_FILE, strerror(errno));
}

static void end(struct file *x, enum br_verdict verdict)
{
    struct pprof_folder *f = x->folder;
    x->state = verdict == BR_RETRY ? WATCHED : OVER;
    x->since_ms = br_host_mono_ms(f->node->host);
    *(verdict == BR_DONE ? f->taken : f->failed) += verdict != BR_RETRY;
    if (verdict == BR_DONE) {
        note_taken(x);
        put_away(x);
    }
}

static void look(struct br_timer *t);

/* It was BUSY. */
static void leave(struct file *x, enum br_verdict verdict)
{
    struct pprof_folder *f = x->folder;
    f->n_busy--;
    end(x, verdict);
    if (f->stopping && f->n_busy == 0 && f->on_idle)
        f->on_idle(f->on_idle_arg);
    else if (!f->stopping && f->n_busy == 0 && f->more)
        (void)br_host_timer(f->node->host, &f->timer, 0, look);
}

static void on_done(struct br_item *item, void *arg)
{
    struct file *x = arg;
    struct pprof_folder *f = x->folder;
    const struct br_outcome *o = &item->outcome;
    double *const *by = o->verdict == BR_DONE    ? f->meter.accepted
                        : o->verdict == BR_RETRY ? f->meter.refused
                                                 : f->meter.failed;
    *by[BR_PROFILES] += item->received_items;
    x->item = NULL;
    if (o->verdict == BR_REJECT)
        complain(f, x->name, o->text);
    leave(x, o->verdict);
}

/* --- Taking a file ---------------------------------------------------------------------------- */

static int open_file(struct file *x, struct br_err *err)
{
    struct pprof_folder *f = x->folder;
    char path[4096];
    struct stat st;
    x->fd = -1;
    if (join(path, sizeof path, f->config->path, x->name))
        x->fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (x->fd < 0)
        return br_err_set(err, BR_EIO, "cannot be opened: %s", strerror(errno));
    if (fstat(x->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return br_err_set(err, BR_EIO, "cannot be read");
    x->is = identify(&st);
    if (x->is.size > f->reader->max)
        return br_err_set(err, BR_ETOOBIG, "larger than max_profile_size");
    return 0;
}

/* From the beginning: it may be read again in a thread. */
static int read_bytes(const struct file *x, struct br_buf *buf, struct br_err *err)
{
    while (buf->len < x->is.size) {
        ssize_t n = pread(x->fd, buf->data + buf->len, (size_t)x->is.size - buf->len, buf->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return br_err_set(err, BR_EIO, "%s", n < 0 ? strerror(errno) : "became shorter");
        buf->len += (uint32_t)n;
    }
    return 0;
}

static int load(struct br_reading *r)
{
    const struct file *x = r->arg;
    size_t size = (size_t)x->is.size;
    if (size > r->max_now)
        return BR_EAGAIN;
    r->scope.max += size * (BR_READING_GROWTH + 1); /* the file itself is not there yet */
    struct br_buf *buf = br_buf_new(r->host->pool, size);
    if (!buf)
        return br_err_set(&r->err, BR_ENOMEM, "out of memory");
    br_reading_replace(r, buf);
    return read_bytes(x, buf, &r->err);
}

/* Of folded text that grew, what is new: its beginning was counted. Where that ended in the middle of a
 * line, as the program that writes it had just got so far, the rest of the line is no stack. */
static void skip_counted(const struct file *x, struct br_reading *r, struct br_profile_source *s)
{
    static const uint8_t key[16]; /* the hash is kept in a file */
    const struct pprof_mark *mark = &x->mark;
    size_t skip = 0;
    if (mark->len && mark->len <= s->len && br_siphash(key, s->data, mark->len) == mark->hash)
        skip = mark->len;
    *x->read = (struct pprof_mark){s->len, br_siphash(key, s->data, s->len)};
    if (skip && skip < s->len && s->data[skip - 1] != '\n' && s->data[skip] != '\n') {
        const uint8_t *eol = memchr(s->data + skip, '\n', s->len - skip);
        skip = eol ? (size_t)(eol - s->data) + 1 : s->len;
        r->n_lost = 1;
        (void)snprintf(r->lost, sizeof r->lost, "a line went on after it was counted");
    }
    s->data += skip;
    s->len -= skip;
}

/* In whichever thread. Of the file only what does not change while it is BUSY. */
static int read_item(struct br_reading *r)
{
    const struct file *x = r->arg;
    const struct pprof_folder *f = x->folder;
    enum br_profile_format format = BR_FORMAT_PPROF;
    int rc = load(r);
    if (rc)
        return rc;
    bool packed = pprof_is_gzip(br_reading_bytes(r)->data, br_reading_bytes(r)->len);
    rc = pprof_unpack(r);
    if (rc)
        return rc;
    const struct br_buf *plain = br_reading_bytes(r);
    struct br_profile_source s = {.data = plain->data,
                                        .len = plain->len,
                                        .resource = &f->resource,
                                        .start_ns = x->is.changed_ns,
                                        .end_ns = x->is.changed_ns,
                                        .sample_rate = f->config->sample_rate,
                                        .from_file = true};
    rc = pprof_guess(s.data, s.len, &format, &r->err);
    if (!rc && format == BR_FORMAT_FOLDED && !packed)
        skip_counted(x, r, &s);
    if (rc == 0)
        rc = pprof_read(r, format, &s);
    return rc || !r->item ? rc : br_pieces_cut(r, NULL);
}

static void close_file(struct file *x)
{
    if (x->fd >= 0)
        (void)close(x->fd);
    x->fd = -1;
}

static void give_up(struct file *x, int rc, const char *why)
{
    struct pprof_folder *f = x->folder;
    if (rc == BR_ENOMEM) {
        leave(x, BR_RETRY);
        return;
    }
    *f->meter.failed[BR_PROFILES] += 1;
    complain(f, x->name, why);
    leave(x, BR_REJECT);
}

static void on_read(void *arg, struct br_reading *r, int rc)
{
    struct file *x = arg;
    close_file(x);
    if (rc) {
        give_up(x, rc, br_reading_why(r, rc));
        return;
    }
    if (r->n_lost) {
        *x->folder->meter.failed[BR_PROFILES] += r->n_lost;
        complain(x->folder, x->name, r->lost);
    }
    x->item = r->item;
    r->item = NULL;
    if (!x->item) {
        leave(x, BR_DONE);
        return;
    }
    br_item_received(x->item);
    x->item->done = on_done;
    x->item->done_arg = x;
    if (br_list_empty(&r->pieces))
        br_node_forward(x->folder->node, x->item);
    else
        br_pieces_send(x->folder->node, x->item, &r->pieces, &x->folder->sendings);
}

static void take(struct file *x)
{
    struct pprof_folder *f = x->folder;
    struct br_err err = {0};
    x->state = BUSY;
    x->next = (struct pprof_mark){0};
    x->read = &x->next;
    f->n_busy++;
    int rc = open_file(x, &err);
    if (rc == 0) {
        pprof_reader_start(f->reader, NULL, read_item, x, on_read, x, &x->reading);
        return;
    }
    close_file(x);
    give_up(x, rc, err.text);
}

/* --- Looking ---------------------------------------------------------------------------------- */

static struct file *find(struct pprof_folder *f, const char *name)
{
    size_t len = strlen(name);
    struct file *x = br_map_get(f->files, name, len);
    if (x || len > NAME_MAX)
        return x;
    if (br_map_count(f->files) >= FILES_MAX) {
        complain(f, name, "waits: there are too many files");
        return NULL;
    }
    x = br_calloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->folder = f;
    x->fd = -1;
    memcpy(x->name, name, len);
    if (br_map_put(f->files, name, len, x, NULL) == 0)
        return x;
    br_free(x);
    return NULL;
}

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* Names that programs give to what they have not finished, or want nobody to see. */
static bool is_hidden(const char *name)
{
    return name[0] == '.' || ends_with(name, ".tmp") || ends_with(name, ".part");
}

static void look_at(struct pprof_folder *f, int dir, const char *name)
{
    uint64_t now = br_host_mono_ms(f->node->host);
    struct stat st;
    if (is_hidden(name) || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(st.st_mode))
        return;
    struct file *x = find(f, name);
    if (!x)
        return;
    struct pprof_identity is = identify(&st);
    bool seen = x->look != 0;
    x->look = f->look;
    if (x->state == BUSY)
        return;
    if (!seen || !same(&is, &x->is)) {
        x->is = is;
        x->taken = false;
        x->state = WATCHED;
        x->since_ms = now;
        return;
    }
    if (x->state != WATCHED || is.size == 0 ||
        now - x->since_ms < f->config->poll_interval / NS_PER_MS)
        return;
    if (f->n_busy < BUSY_MAX && !br_host_over_limit(f->node->host) &&
        br_shed_step(f->node->host) == BR_SHED_NONE)
        take(x);
    else
        f->more = true;
}

static void forget_gone(struct pprof_folder *f)
{
    for (size_t i = br_map_count(f->files); i-- > 0;) {
        const void *key;
        size_t len;
        struct file *x = br_map_at(f->files, i, &key, &len);
        if (x->look == f->look || x->state == BUSY)
            continue;
        (void)br_map_remove(f->files, key, len);
        br_free(x);
    }
}

/* Only what is there, when more lines are about what is not. */
static void rewrite_taken(struct pprof_folder *f)
{
    size_t n = br_map_count(f->files), len;
    const void *key;
    if (!f->log || pprof_taken_lines(f->log) <= 2 * n + TAKEN_SPARE)
        return;
    bool ok = pprof_taken_begin(f->log);
    for (size_t i = 0; i < n && ok; i++) {
        const struct file *x = br_map_at(f->files, i, &key, &len);
        ok = !x->taken || pprof_taken_add(f->log, x->name, &(struct pprof_taken){x->is, x->mark});
    }
    if (!ok || !pprof_taken_end(f->log))
        complain(f, TAKEN_FILE, strerror(errno));
}

static void look(struct br_timer *t)
{
    struct pprof_folder *f = br_container_of(t, struct pprof_folder, timer);
    (void)br_host_timer(f->node->host, &f->timer, f->config->poll_interval / NS_PER_MS, look);
    DIR *dir = opendir(f->config->path);
    if (!dir) {
        complain(f, "", strerror(errno));
        return;
    }
    f->look++;
    f->more = false;
    for (struct dirent *e = readdir(dir); e; e = readdir(dir))
        look_at(f, dirfd(dir), e->d_name);
    (void)closedir(dir);
    forget_gone(f);
    rewrite_taken(f);
}

/* --- The whole -------------------------------------------------------------------------------- */

int pprof_folder_new(struct br_node *node, struct pprof_reader *reader, struct pprof_folder **ret,
                     struct br_err *err)
{
    const struct pprof_config *c = node->config;
    struct pprof_folder *f = br_calloc(1, sizeof *f);
    if (!f)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    f->node = node;
    br_list_init(&f->sendings);
    f->config = c->file;
    f->reader = reader;
    br_meter_init(&f->meter, node, "file", BR_SIGNAL_BIT(BR_PROFILES));
    f->taken = br_node_metric(node, BR_COUNTER, "braid_receiver_pprof_files", "result", "ok");
    f->failed = br_node_metric(node, BR_COUNTER, "braid_receiver_pprof_files", "result", "failed");
    f->files = br_map_new(FILES_MAX);
    int rc = f->files ? pprof_resource(c->file->labels, NULL, 0, &f->arena, &f->resource, err)
                      : br_err_set(err, BR_ENOMEM, "out of memory");
    if (rc == 0)
        *ret = f;
    else
        pprof_folder_free(f);
    return rc;
}

static int check_folder(const char *key, const char *path, int mode, struct br_err *err)
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
static int check_folders(const struct pprof_folder_config *c, struct br_err *err)
{
    int mode = R_OK | X_OK | (c->after == PPROF_REMEMBER ? 0 : W_OK);
    int rc = check_folder("path", c->path, mode, err);
    return rc == 0 && c->after == PPROF_MOVE ? check_folder("move_to", c->move_to, W_OK | X_OK, err)
                                             : rc;
}

/* A file that was taken before this process began. */
static void on_taken(void *arg, const char *name, const struct pprof_taken *taken)
{
    struct pprof_folder *f = arg;
    struct file *x = find(f, name);
    if (!x)
        return;
    x->is = taken->is;
    x->mark = taken->mark;
    x->taken = true;
    x->state = OVER;
    x->look = UINT64_MAX; /* it was seen */
}

/* Where nobody asked for the file, it is no reason not to begin that there can be none. */
static int open_taken(struct pprof_folder *f, struct br_err *err)
{
    const struct pprof_folder_config *c = f->config;
    char path[4096];
    struct br_err why = {0};
    if (c->after != PPROF_REMEMBER)
        return 0;
    if (c->state && c->state[0])
        return pprof_taken_open(c->state, on_taken, f, &f->log, err);
    int rc = join(path, sizeof path, c->path, TAKEN_FILE)
                 ? pprof_taken_open(path, on_taken, f, &f->log, &why)
                 : br_err_set(&why, BR_EINVAL, "%s is too long", c->path);
    if (rc)
        br_warn(&f->node->log, "%s: after a restart all files are taken again (file::state names "
                               "another place to remember them)", why.text);
    return rc == BR_ENOMEM ? br_err_set(err, rc, "out of memory") : 0;
}

int pprof_folder_start(struct pprof_folder *f, struct br_err *err)
{
    int rc = check_folders(f->config, err);
    if (!rc)
        rc = open_taken(f, err);
    if (rc)
        return rc;
    if (!br_host_timer_park(f->node->host, &f->timer, look))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    (void)br_host_timer(f->node->host, &f->timer, 0, look);
    return 0;
}

void pprof_folder_stop(struct pprof_folder *f, void (*on_idle)(void *arg), void *arg)
{
    f->stopping = true;
    br_host_timer_stop(f->node->host, &f->timer);
    f->on_idle = on_idle;
    f->on_idle_arg = arg;
    if (f->n_busy == 0)
        on_idle(arg);
}

static void free_file(void *arg)
{
    struct file *x = arg;
    if (x->reading) {
        pprof_reading_leave(x->reading);
        close_file(x);
    }
    if (x->item)
        x->item->done = NULL; /* it is still in the pipeline; nobody waits any more */
    br_free(x);
}

void pprof_folder_free(struct pprof_folder *f)
{
    if (!f)
        return;
    br_host_timer_stop(f->node->host, &f->timer);
    br_map_free(f->files, free_file);
    br_pieces_stop(&f->sendings);
    pprof_taken_close(f->log);
    br_arena_release(&f->arena);
    br_free(f);
}
