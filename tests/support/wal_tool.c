/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Usage: wal_tool DIRECTORY. The directory must be empty. Writes a log of 64 KiB, damages it at
 * every byte, and counts the records that are lost. Each byte is changed once. The file is also cut
 * before each byte. Prints one line of JSON.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/log.h"
#include "wal/wal.h"

#define RECORDS 64u
#define RECORD_SIZE 1000u
/* size of the header of a segment in bytes; if its version is damaged, the log refuses the
 * segment */
#define HEADER 16u
#define FILE_MAX (256u << 10)

struct damage {
    const char *directory;
    char path[PATH_MAX]; /* the segment */
    uint8_t data[FILE_MAX];
    size_t len;
    /* number of damaged logs, by fault: more than one record is missing; a record has other
     * contents; a loss is not counted; a record before the cut is missing */
    unsigned n_more, n_wrong, n_uncounted, n_early;
    unsigned n_flips, n_cuts, n_lost, n_refused;
};

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static struct br_wal *open_log(const struct damage *damage)
{
    const struct br_wal_config config = {.directory = damage->directory,
                                         .directory_mode = 0700,
                                         .max_size = 1 << 24,
                                         .segment_size = 1 << 20,
                                         .sync = BR_WAL_OFF};
    struct br_wal *wal = NULL;
    struct br_err err = {0};
    return br_wal_open(&config, &wal, &err) ? NULL : wal;
}

static void make_text(unsigned number, char out[RECORD_SIZE])
{
    for (unsigned i = 0; i < RECORD_SIZE; i++)
        out[i] = (char)('a' + (number * 7 + i * i) % 26);
}

static void append_all(struct br_wal *wal)
{
    struct br_wal_queue *queue = br_wal_queue(wal, "otlp");
    char text[RECORD_SIZE];
    for (unsigned n = 0; n < RECORDS; n++) {
        struct br_err err = {0};
        make_text(n, text);
        struct iovec pieces[] = {{0}, {0}, {NULL, 0}, {text, sizeof text}};
        struct br_wal_record record = {.queue = queue,
                                       .signal = 1,
                                       .n_records = 1,
                                       .time_ns = 1,
                                       .pieces = pieces,
                                       .n_pieces = 4};
        if (br_wal_append(wal, &record, 1, &err))
            fail(err.text);
    }
}

/* Removes the files of a folder, except the file with the path `kept`. */
static void clear(const char *folder, const char *kept)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    char path[PATH_MAX];
    while (dir && (entry = readdir(dir))) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.' && strcmp(path, kept) != 0 && unlink(path) != 0)
            clear(path, kept);
    }
    if (dir)
        (void)closedir(dir);
}

static void load(struct damage *damage)
{
    (void)snprintf(damage->path, sizeof damage->path, "%s/00000001.wal", damage->directory);
    int fd = open(damage->path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, damage->data, sizeof damage->data);
    if (n < (64 << 10) || n == FILE_MAX)
        fail(damage->path);
    (void)close(fd);
    damage->len = (size_t)n;
}

static void put(const struct damage *damage, size_t len)
{
    clear(damage->directory, damage->path);
    int fd = open(damage->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, damage->data, len) != (ssize_t)len)
        fail(damage->path);
    (void)close(fd);
}

/* Reads all records. Sets a bit in `*ret_got` for each record that was read. Returns false if the
 * contents of a record are wrong. */
static bool read_all(struct br_wal *wal, uint64_t *ret_got)
{
    struct br_wal_queue *queue = br_wal_queue(wal, "otlp");
    static uint8_t room[2 * RECORD_SIZE];
    char text[RECORD_SIZE];
    bool right = true;
    *ret_got = 0;
    while (br_wal_read_begin(queue)) {
        struct br_wal_found found = {0};
        struct br_err err = {0};
        int rc = br_wal_read(queue, &found, &err);
        bool fits = found.metadata_len + found.data_len <= sizeof room;
        int taken = rc == 0 && fits ? br_wal_read_take(queue, &found, room, &err) : rc;
        br_wal_read_end(queue);
        if (rc)
            break;
        right = right && fits;
        if (taken || !fits)
            continue;
        unsigned n = (unsigned)found.number - 1;
        make_text(n, text);
        right = right && n < RECORDS && found.data_len == RECORD_SIZE &&
                memcmp(room, text, RECORD_SIZE) == 0;
        *ret_got |= n < RECORDS ? (uint64_t)1 << n : 0;
    }
    return right;
}

static void flip(struct damage *damage, size_t at)
{
    uint64_t got = 0;
    damage->data[at] ^= 0x40;
    put(damage, damage->len);
    damage->data[at] ^= 0x40;
    struct br_wal *wal = open_log(damage);
    damage->n_flips++;
    if (!wal) {
        damage->n_refused++;
        damage->n_more += at >= HEADER;
        return;
    }
    damage->n_wrong += !read_all(wal, &got);
    unsigned missing = RECORDS - (unsigned)__builtin_popcountll(got);
    damage->n_lost += missing;
    damage->n_more += missing > 1;
    damage->n_uncounted += missing && br_wal_stats(wal).n_corrupt == 0;
    br_wal_close(wal);
}

/* Cuts the file. Returns the number of records that are left. */
static unsigned cut(struct damage *damage, size_t len, unsigned before)
{
    uint64_t got = 0;
    put(damage, len);
    struct br_wal *wal = open_log(damage);
    damage->n_cuts++;
    if (!wal) {
        damage->n_early++;
        return before;
    }
    damage->n_wrong += !read_all(wal, &got);
    br_wal_close(wal);
    unsigned n = (unsigned)__builtin_popcountll(got);
    bool first = got == (n == RECORDS ? UINT64_MAX : ((uint64_t)1 << n) - 1);
    damage->n_early += !first || n < before || n > before + 1;
    return n;
}

int main(int argc, char **argv)
{
    static struct damage damage;
    unsigned left = 0;
    if (argc != 2)
        return 2;
    damage.directory = argv[1];
    br_log_setup(BR_LOG_ERROR, false, open("/dev/null", O_WRONLY | O_CLOEXEC));
    struct br_wal *wal = open_log(&damage);
    if (!wal)
        fail(argv[1]);
    append_all(wal);
    br_wal_close(wal);
    load(&damage);
    for (size_t at = 0; at < damage.len; at++)
        flip(&damage, at);
    for (size_t len = 0; len <= damage.len; len++)
        left = cut(&damage, len, left);
    damage.n_early += left != RECORDS;
    printf("{\"bytes\": %zu, \"flips\": %u, \"cuts\": %u, \"lost\": %u, \"refused\": %u, "
           "\"more_than_one\": %u, \"wrong\": %u, \"uncounted\": %u, \"early\": %u}\n",
           damage.len, damage.n_flips, damage.n_cuts, damage.n_lost, damage.n_refused,
           damage.n_more, damage.n_wrong, damage.n_uncounted, damage.n_early);
    return 0;
}
