/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the recovery of the write-ahead log. The input is a segment, as a damaged disk may return
 * it. Opening the log must not fail. If it is opened again, it must return the same records. The
 * first byte of the input selects whether the frames get correct checksums. Without correct
 * checksums, most inputs would be rejected early.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "wal/wal.h"

#define SEGMENT_HEADER "BRAIDWAL\2\0\0\0\0\0\0\0"
#define SEGMENT_HEADER_LEN 16u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char directory[64];

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void remove_files(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        (void)closedir(dir);
}

static void remove_directory(void)
{
    char path[96];
    (void)snprintf(path, sizeof path, "%s/quarantine", directory);
    remove_files(path);
    (void)rmdir(path);
    remove_files(directory);
    (void)rmdir(directory);
}

static void make_directory(void)
{
    (void)snprintf(directory, sizeof directory, "/tmp/fuzz_wal.XXXXXX");
    require(mkdtemp(directory) != NULL);
    require(atexit(remove_directory) == 0);
    br_log_setup(BR_LOG_ERROR, false, open("/dev/null", O_WRONLY | O_CLOEXEC));
}

/* Corrects the checksums and lengths of frames in `data`, so that the log accepts these frames. */
static void repair(uint8_t *data, size_t size)
{
    for (size_t at = 0; size - at >= BR_FRAME_HEADER;) {
        uint8_t *header = data + at, *payload = header + BR_FRAME_HEADER;
        size_t left = size - at - BR_FRAME_HEADER;
        struct br_frame frame = {.kind = (enum br_frame_kind)(header[12] % 4 + 1),
                                 .signal = header[13],
                                 .name_len = header[14] % 8,
                                 .number = header[16] % 16,
                                 .time_ns = header[24] % 16,
                                 .payload_len = header[32],
                                 .metadata_len = header[36] % 8,
                                 .n_records = header[40]};
        frame.payload_len = frame.payload_len < left ? frame.payload_len : (uint32_t)left;
        if (frame.payload_len < (uint32_t)frame.name_len + frame.metadata_len)
            return;
        frame.payload_crc = br_frame_checksum_more(0, payload, frame.payload_len);
        br_frame_encode(&frame, header);
        at += BR_FRAME_HEADER + frame.payload_len;
    }
}

static void write_segment(const uint8_t *data, size_t size)
{
    char path[96];
    (void)snprintf(path, sizeof path, "%s/00000001.wal", directory);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    require(write(fd, SEGMENT_HEADER, SEGMENT_HEADER_LEN) == SEGMENT_HEADER_LEN);
    require(write(fd, data, size) == (ssize_t)size);
    (void)close(fd);
}

/* Opens the log, and reads all records of one queue. Returns the number of records. */
static uint64_t read_all(void)
{
    const struct br_wal_config config = {.directory = directory,
                                         .directory_mode = 0700,
                                         .max_size = 1 << 24,
                                         .segment_size = 1 << 20,
                                         .sync = BR_WAL_OFF};
    struct br_wal *wal = NULL;
    struct br_wal_found found;
    uint64_t count = 0, last = 0;
    require(br_wal_open(&config, &wal, NULL) == 0);
    struct br_wal_queue *queue = br_wal_queue(wal, "q");
    require(queue != NULL);
    while (br_wal_read_begin(queue)) {
        int rc = br_wal_read(queue, &found, NULL);
        uint8_t *room = rc == 0 ? malloc(found.metadata_len + found.data_len + 1) : NULL;
        if (room)
            rc = br_wal_read_take(queue, &found, room, NULL);
        free(room);
        br_wal_read_end(queue);
        require(rc == 0 || rc == BR_ENOTFOUND);
        require(rc || found.number > last);
        count += rc == 0;
        last = rc ? last : found.number;
    }
    br_wal_close(wal);
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!directory[0])
        make_directory();
    if (size < 1)
        return 0;
    uint8_t *segment = malloc(size);
    require(segment != NULL);
    memcpy(segment, data + 1, size - 1);
    if (data[0] & 1)
        repair(segment, size - 1);
    write_segment(segment, size - 1);
    free(segment);
    uint64_t count = read_all();
    require(read_all() == count);
    remove_files(directory);
    return 0;
}
