/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the log: one line of text or JSON per message, to stderr. Each component of a pipeline has
 * a logger, whose name is the position of the component (`traces/exporter/otlp/tempo`). All
 * functions are thread-safe. Each line is written with one call of write() and contains no control
 * characters (C0, DEL, C1, and Unicode's line separators and direction marks). Control characters
 * are replaced: by \uXXXX in JSON, and by blanks in text. Invalid UTF-8 becomes U+FFFD.
 *
 * Between br_log_start and br_log_stop, logging never blocks: lines are queued in order in a ring
 * of 256 KiB, and a separate thread writes them. When the ring is full, lines are dropped and
 * counted. Once the ring is empty again, a line reports how many lines were dropped. Before
 * br_log_start and after br_log_stop, the calling thread writes the line.
 *
 * Library layers log only at the levels debug and trace; the component that handles an error logs
 * it once. Messages about single items are logged only at the level trace. Repeated messages are
 * limited with br_log_limited.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum br_log_level { BR_LOG_ERROR, BR_LOG_WARN, BR_LOG_INFO, BR_LOG_DEBUG, BR_LOG_TRACE };

struct br_log {
    const char *name; /* name in each line, borrowed; NULL: no name */
};

/* Limits how often a message is logged, and counts the messages that were not logged. */
struct br_log_limit {
    uint64_t next_ms;
    uint64_t held;
};

/* Configures the log for the whole process: the highest level that is written, JSON instead of
 * text, and the file descriptor (2 by default). Call it before any other thread runs. */
void br_log_setup(enum br_log_level level, bool json, int fd);

/* Starts the thread that writes the log. If the process crashes (SIGSEGV, SIGABRT and similar
 * signals), a handler writes the lines that are left in the ring, unless this would block. Returns
 * false if the thread cannot be created; the calling threads then still write their lines. Call it
 * once, before any other thread runs. */
bool br_log_start(void);

/* Ends the thread as soon as it has written all lines, and returns true. Returns false if the
 * thread needs more than `wait_ms` milliseconds for this. The remaining and all later lines then
 * count as dropped, and nothing waits for the thread any more. Call it after all other threads
 * have ended. */
bool br_log_stop(uint64_t wait_ms);

/* Returns the number of lines dropped since the process started. Any thread may call this
 * function. */
uint64_t br_log_dropped(void);

/* Returns true if a message of this level would be written. */
bool br_log_on(enum br_log_level level);

/* Writes one printf-style line. `log` may be NULL. Lines of more than 4 KiB are truncated. */
void br_log_write(const struct br_log *log, enum br_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Parses "error", "warn", "info", "debug" or "trace" in any case ("warning", "fatal" and "panic"
 * are accepted, too). Returns false for other names. */
bool br_log_parse_level(const char *name, enum br_log_level *ret);

/* Returns true if the message may be logged now: at most once per `every_ms` milliseconds.
 * `*ret_held` is the number of messages that were suppressed since the last logged message.
 * `now_ms` is the time of the monotonic clock in milliseconds. */
bool br_log_allow(struct br_log_limit *limit, uint64_t now_ms, uint64_t every_ms,
                  uint64_t *ret_held);

#define BR_LOG_EVERY_MS 60000 /* usual interval of repeated warnings, in milliseconds */

/* Writes a line as br_log_write does if br_log_allow permits it, and appends the number of
 * messages that were not logged since the last line. Returns true if the line was written. */
bool br_log_limited(const struct br_log *log, enum br_log_level level, struct br_log_limit *limit,
                    uint64_t now_ms, uint64_t every_ms, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));

#define BR_LOG_AT(log, level, ...)                                                                 \
    (br_log_on(level) ? br_log_write((log), (level), __VA_ARGS__) : (void)0)
#define br_error(log, ...) BR_LOG_AT(log, BR_LOG_ERROR, __VA_ARGS__)
#define br_warn(log, ...) BR_LOG_AT(log, BR_LOG_WARN, __VA_ARGS__)
#define br_info(log, ...) BR_LOG_AT(log, BR_LOG_INFO, __VA_ARGS__)
#define br_debug(log, ...) BR_LOG_AT(log, BR_LOG_DEBUG, __VA_ARGS__)

/* --- Functions for log.c only (log_sink.c) ---------------------------------------------------- */

/*
 * The sink queues the lines of the log in a ring of bytes, from which a thread writes them.
 *
 * The descriptor is not made non-blocking, because O_NONBLOCK applies to the open file. The shell
 * and other processes share the open file of stderr, and would be affected.
 */

/* Maximum length of a line in bytes, with its line feed. The value is PIPE_BUF: writes of at most
 * PIPE_BUF bytes to a pipe do not mix with those of other writers. */
#define BR_LOG_LINE_MAX 4096

/* Takes a line, whose last character is its only line feed. Without the thread, writes the line
 * at once. With the thread, queues the line in the ring, or counts it as dropped if the ring is
 * full. */
void br_log_sink_put(int fd, const char *line, size_t len);

/* Starts the thread that writes. `notice` writes to `line` a line which reports that `n` lines were
 * dropped, and returns the length of that line. */
bool br_log_sink_start(int fd, size_t (*notice)(uint64_t n, char line[BR_LOG_LINE_MAX + 1]));
bool br_log_sink_stop(uint64_t wait_ms);
uint64_t br_log_sink_dropped(void);
