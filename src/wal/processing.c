/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file `processing` contains the record that each thread currently processes, and the records
 * whose processing has ended with a crash. The file is mapped into memory, so its contents survive
 * a crash without a system call for each record.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "wal/internal.h"

#define DEATHS_MAX 3u

/* A record, identified by number and queue. Number 0 marks an unused entry. */
struct wal_suspect {
    uint64_t number;
    uint32_t name_crc; /* CRC32C of the queue's name */
    /* used in `suspects`: number of processes that died while processing the record */
    uint32_t n_deaths;
};

struct wal_processing {
    struct wal_suspect current[BR_WAL_SLOTS], suspects[BR_WAL_SLOTS];
};

static uint32_t processing_name_crc(const struct br_wal_queue *queue)
{
    return br_frame_checksum_more(0, queue->name, queue->name_len);
}

/* Counts one death for the record that a thread was processing when the process died. */
static void processing_add_death(struct wal_processing *processing,
                                 const struct wal_suspect *record)
{
    struct wal_suspect *free_place = NULL;
    for (unsigned i = 0; i < BR_WAL_SLOTS; i++) {
        struct wal_suspect *suspect = &processing->suspects[i];
        if (suspect->number == record->number && suspect->name_crc == record->name_crc) {
            suspect->n_deaths++;
            return;
        }
        free_place = suspect->number == 0 && !free_place ? suspect : free_place;
    }
    if (free_place)
        *free_place = (struct wal_suspect){record->number, record->name_crc, 1};
}

/* Allocates the blocks of the file in advance. A write to the mapping would crash the process if it
 * needed a block and the disk were full. */
static bool processing_reserve(int fd)
{
    static const uint8_t zeros[sizeof(struct wal_processing)];
    struct stat st;
    if (fstat(fd, &st))
        return false;
    struct iovec piece = {(void *)(uintptr_t)zeros, sizeof zeros};
    return st.st_size == (off_t)sizeof zeros ||
           (ftruncate(fd, 0) == 0 && br_wal_write(fd, &piece, 1, 0) == 0);
}

void br_wal_processing_open(struct br_wal *wal)
{
    char path[WAL_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/processing", wal->config.directory);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return;
    if (processing_reserve(fd)) {
        void *map =
            mmap(NULL, sizeof(struct wal_processing), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        wal->processing = map == MAP_FAILED ? NULL : map;
    }
    (void)close(fd);
    for (unsigned i = 0; wal->processing && i < BR_WAL_SLOTS; i++) {
        struct wal_suspect *record = &wal->processing->current[i];
        if (record->number)
            processing_add_death(wal->processing, record);
        *record = (struct wal_suspect){0};
    }
}

void br_wal_processing_close(struct br_wal *wal)
{
    if (wal->processing)
        (void)munmap(wal->processing, sizeof *wal->processing);
    wal->processing = NULL;
}

bool br_wal_processing_is_fatal(const struct br_wal_queue *queue, uint64_t number)
{
    const struct wal_processing *processing = queue->wal->processing;
    uint32_t crc = processing_name_crc(queue);
    for (unsigned i = 0; processing && i < BR_WAL_SLOTS; i++) {
        const struct wal_suspect *suspect = &processing->suspects[i];
        if (suspect->number == number && suspect->name_crc == crc)
            return suspect->n_deaths >= DEATHS_MAX;
    }
    return false;
}

void br_wal_processing_forget_done(struct br_wal *wal)
{
    for (unsigned i = 0; wal->processing && i < BR_WAL_SLOTS; i++) {
        struct wal_suspect *suspect = &wal->processing->suspects[i];
        bool waits = false;
        for (struct br_list *l = wal->queues.next; l != &wal->queues; l = l->next) {
            const struct br_wal_queue *queue = br_container_of(l, struct br_wal_queue, link);
            waits = waits || (processing_name_crc(queue) == suspect->name_crc &&
                              !br_ranges_contain(&queue->done, suspect->number));
        }
        if (!waits)
            *suspect = (struct wal_suspect){0};
    }
}

void br_wal_process(struct br_wal_queue *queue, unsigned slot, uint64_t number)
{
    struct wal_processing *processing = queue->wal->processing;
    if (!processing || slot >= BR_WAL_SLOTS)
        return;
    struct wal_suspect *current = &processing->current[slot];
    current->name_crc = number ? processing_name_crc(queue) : 0;
    /* The number is written last, because it makes the entry valid. `volatile` keeps the compiler
     * from delaying the write: the process can crash immediately afterwards. */
    *(volatile uint64_t *)&current->number = number;
}
