/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues the lines of the log in a ring of bytes, from which a thread writes them. For log.c only;
 * what it promises is in log.h.
 *
 * A thread, and not a descriptor that does not block: O_NONBLOCK belongs to the open file, which
 * stderr shares with the terminal, the shell and whoever else has it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BR_LOG_LINE_MAX                                                                            \
    4096 /* with its end; PIPE_BUF, so that lines of several writers do not mix */

/* Hands a line over, which ends in the only line feed it has: written at once while there is no
 * thread, else put into the ring, or counted as dropped. */
void br_log_sink_put(int fd, const char *line, size_t len);

/* Starts the thread that writes. `notice` makes a line that says how many lines were dropped, and
 * returns its length. */
bool br_log_sink_start(int fd, size_t (*notice)(uint64_t n, char line[BR_LOG_LINE_MAX + 1]));
bool br_log_sink_stop(uint64_t wait_ms);
uint64_t br_log_sink_dropped(void);
