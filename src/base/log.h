/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the log: one line of text or JSON per message, to stderr. Every node has a logger of its
 * own, named by where it stands (`traces/exporter/otlp/tempo`). Thread-safe: a line is one write,
 * and holds no control characters (C0, DEL, C1, Unicode's marks of line and direction): JSON has
 * them as \uXXXX, text has blanks instead; what is no UTF-8 becomes U+FFFD.
 *
 * Between br_log_start and br_log_stop nobody who logs waits for whoever reads the log: lines go
 * into a ring of 256 KiB, in their order, and a thread of its own writes them. When the ring is
 * full, lines are dropped and counted, and once it is empty again a line says how many. Before and
 * after, whoever logs writes.
 *
 * Library layers do not log above debug; the component that decides logs, once. Nothing is logged
 * per item above trace. Repeats go through a br_log_limit.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum br_log_level { BR_LOG_ERROR, BR_LOG_WARN, BR_LOG_INFO, BR_LOG_DEBUG, BR_LOG_TRACE };

struct br_log {
    const char *name; /* borrowed; NULL: no name */
};

/* Lets one message through in each `every_ms`, and says with it how many were held back. */
struct br_log_limit {
    uint64_t next_ms;
    uint64_t held;
};

/* Sets what the sink does, for the whole process: the highest level that is written, JSON instead
 * of text, and the file descriptor (2 by default). Before any other thread runs. */
void br_log_setup(enum br_log_level level, bool json, int fd);

/* Starts the log's thread. What is left in the ring when the process crashes (SIGSEGV, SIGABRT and
 * their like) is written by the crash, as far as that does not wait. False when there is no thread;
 * then lines are written as before. Once, before any other thread runs. */
bool br_log_start(void);

/* Ends the thread when it has written everything, or after `wait_ms`: then false is returned, what
 * is left and what comes counts as dropped, and nothing waits for the thread any more. After all
 * other threads. */
bool br_log_stop(uint64_t wait_ms);

/* Lines that were dropped since the process began; from any thread. */
uint64_t br_log_dropped(void);

/* Returns true when a message of this level would be written. */
bool br_log_on(enum br_log_level level);

/* Writes one printf-style line. `log` may be NULL. Lines over 4 KiB are cut. */
void br_log_write(const struct br_log *log, enum br_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Reads "error", "warn", "info", "debug" or "trace" (any case; "warning", "fatal" and "panic" too);
 * false when it is none of them. */
bool br_log_parse_level(const char *name, enum br_log_level *ret);

/* Returns true when the message may go out now, at most once in `every_ms`; `*ret_held` is how many
 * were held back since the last. `now_ms` is monotonic. */
bool br_log_allow(struct br_log_limit *limit, uint64_t now_ms, uint64_t every_ms,
                  uint64_t *ret_held);

#define BR_LOG_EVERY_MS 60000 /* the usual `every_ms` */

/* Writes a line as br_log_write does when br_log_allow lets it through; the line then ends with the
 * number of those that were held back. Returns true when it was let through. */
bool br_log_limited(const struct br_log *log, enum br_log_level level, struct br_log_limit *limit,
                    uint64_t now_ms, uint64_t every_ms, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));

#define BR_LOG_AT(log, level, ...)                                                                 \
    (br_log_on(level) ? br_log_write((log), (level), __VA_ARGS__) : (void)0)
#define br_error(log, ...) BR_LOG_AT(log, BR_LOG_ERROR, __VA_ARGS__)
#define br_warn(log, ...) BR_LOG_AT(log, BR_LOG_WARN, __VA_ARGS__)
#define br_info(log, ...) BR_LOG_AT(log, BR_LOG_INFO, __VA_ARGS__)
#define br_debug(log, ...) BR_LOG_AT(log, BR_LOG_DEBUG, __VA_ARGS__)
