/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues the lines of the log in a ring of bytes, from which a thread writes them. Only log.c uses
 * it; log.h describes the behaviour.
 *
 * A thread is used instead of a non-blocking descriptor because O_NONBLOCK applies to the open
 * file, which stderr shares with the terminal, the shell and other processes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the longest line with its line feed: PIPE_BUF, so that lines of several writers do not
 * mix. */
#define BR_LOG_LINE_MAX 4096

/* Takes a line, whose last character is its only line feed. Writes it at once if there is no
 * thread, else queues it in the ring or counts it as dropped. */
void br_log_sink_put(int fd, const char *line, size_t len);

/* Starts the thread that writes. `notice` makes a line which reports that `n` lines were
 * dropped, and returns the length of that line. */
bool br_log_sink_start(int fd, size_t (*notice)(uint64_t n, char line[BR_LOG_LINE_MAX + 1]));
bool br_log_sink_stop(uint64_t wait_ms);
uint64_t br_log_sink_dropped(void);
