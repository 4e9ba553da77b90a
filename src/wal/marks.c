/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file `marks` contains the numbers of records that are done, or were delivered, and whose
 * marks are not in a segment yet. The file is mapped into memory. A mark therefore survives a crash
 * as soon as it is set, without a system call for each record.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "wal/internal.h"

/* maximum number of marks in the file; further marks are only in memory until the next group */
#define MARKS_MAX 8192u

/* A mark. Number 0 stands for an empty entry. */
struct wal_saved_mark {
    uint64_t number;
    uint64_t name;  /* hash of the queue's name */
    uint64_t check; /* checksum of the other fields, which detects an incomplete mark */
};

/* A ring of marks. `begin` and `end` are positions that only increase; the entry of a position is
 * the position modulo MARKS_MAX. */
struct wal_marks {
    struct wal_saved_mark *places; /* mapped file with MARKS_MAX entries */
    uint64_t begin, end;
};

/* constants of the file format; their values are arbitrary odd numbers */
static const uint64_t marks_secret[2] = {0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9};

static uint64_t marks_check(uint64_t number, uint64_t name)
{
    return br_hash_mix(number ^ marks_secret[0], name ^ marks_secret[1]);
}

static uint64_t marks_name(const struct br_wal_queue *queue)
{
    return br_hash_keyed(marks_secret, queue->name, queue->name_len);
}

/* Allocates the blocks of the file in advance. A write to the mapping would crash the process if it
 * needed a block and the disk were full. */
static bool marks_reserve(int fd)
{
    const size_t len = MARKS_MAX * sizeof(struct wal_saved_mark);
    struct stat st;
    if (fstat(fd, &st))
        return false;
    if (st.st_size == (off_t)len)
        return true;
    uint8_t *zeros = br_calloc(1, len);
    struct iovec piece = {zeros, len};
    bool reserved = zeros && ftruncate(fd, 0) == 0 && br_wal_write(fd, &piece, 1, 0) == 0;
    br_free(zeros);
    return reserved;
}

void br_wal_marks_open(struct br_wal *wal)
{
    char path[WAL_PATH_MAX];
    void *map = MAP_FAILED;
    (void)snprintf(path, sizeof path, "%s/marks", wal->config.directory);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return;
    if (marks_reserve(fd))
        map = mmap(NULL, MARKS_MAX * sizeof(struct wal_saved_mark), PROT_READ | PROT_WRITE,
                   MAP_SHARED, fd, 0);
    (void)close(fd);
    wal->marks = map == MAP_FAILED ? NULL : br_calloc(1, sizeof *wal->marks);
    if (wal->marks)
        wal->marks->places = map;
    else if (map != MAP_FAILED)
        (void)munmap(map, MARKS_MAX * sizeof(struct wal_saved_mark));
}

void br_wal_marks_close(struct br_wal *wal)
{
    if (wal->marks)
        (void)munmap(wal->marks->places, MARKS_MAX * sizeof(struct wal_saved_mark));
    br_free(wal->marks);
    wal->marks = NULL;
}

static struct br_wal_queue *marks_queue(struct br_wal *wal, uint64_t name)
{
    for (struct br_list *l = wal->queues.next; l != &wal->queues; l = l->next) {
        struct br_wal_queue *queue = br_container_of(l, struct br_wal_queue, link);
        if (marks_name(queue) == name)
            return queue;
    }
    return NULL;
}

int br_wal_marks_recover(struct br_wal *wal)
{
    struct wal_marks *marks = wal->marks;
    for (size_t i = 0; marks && i < MARKS_MAX; i++) {
        struct wal_saved_mark *mark = &marks->places[i];
        bool valid = mark->number && mark->check == marks_check(mark->number, mark->name);
        struct br_wal_queue *queue = valid ? marks_queue(wal, mark->name) : NULL;
        if (!queue) {
            /* empty entries are not written, so that their memory pages remain clean */
            if (mark->number)
                *mark = (struct wal_saved_mark){0};
            continue;
        }
        if (br_ranges_add(&queue->done, mark->number, mark->number) ||
            br_ranges_add(&queue->unwritten, mark->number, mark->number))
            return BR_ENOMEM;
        /* The number must not be used again, even if no segment contains the record any more. */
        queue->next = mark->number >= queue->next ? mark->number + 1 : queue->next;
        marks->end = MARKS_MAX;
    }
    return 0;
}

void br_wal_marks_add(const struct br_wal_queue *queue, uint64_t number)
{
    struct wal_marks *marks = queue->wal->marks;
    if (!marks || marks->end - marks->begin == MARKS_MAX)
        return;
    uint64_t name = marks_name(queue);
    marks->places[marks->end++ % MARKS_MAX] =
        (struct wal_saved_mark){number, name, marks_check(number, name)};
}

uint64_t br_wal_marks_end(const struct br_wal *wal)
{
    return wal->marks ? wal->marks->end : 0;
}

void br_wal_marks_remove(struct br_wal *wal, uint64_t end)
{
    struct wal_marks *marks = wal->marks;
    for (; marks && marks->begin < end; marks->begin++)
        marks->places[marks->begin % MARKS_MAX] = (struct wal_saved_mark){0};
}
