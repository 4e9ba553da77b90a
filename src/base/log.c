/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/str.h"

#define LINE_MAX_BYTES 4096

/* The sink, set once before threads start. */
static struct {
    enum br_log_level level;
    bool json;
    int fd;
} sink = {BR_LOG_INFO, false, 2};

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

void br_log_setup(enum br_log_level level, bool json, int fd)
{
    sink.level = level;
    sink.json = json;
    sink.fd = fd;
}

bool br_log_on(enum br_log_level level)
{
    return level <= sink.level;
}

bool br_log_parse_level(const char *name, enum br_log_level *ret)
{
    static const struct {
        const char *name;
        enum br_log_level level;
    } known[] = {
        {"error", BR_LOG_ERROR}, {"warn", BR_LOG_WARN},   {"warning", BR_LOG_WARN},
        {"info", BR_LOG_INFO},   {"debug", BR_LOG_DEBUG}, {"trace", BR_LOG_TRACE},
        {"fatal", BR_LOG_ERROR}, {"panic", BR_LOG_ERROR},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcasecmp(name, known[i].name) == 0) {
            *ret = known[i].level;
            return true;
        }
    }
    return false;
}

bool br_log_allow(struct br_log_limit *limit, uint64_t now_ms, uint64_t every_ms,
                  uint64_t *ret_held)
{
    if (limit->next_ms && now_ms < limit->next_ms) {
        limit->held++;
        return false;
    }
    *ret_held = limit->held;
    limit->held = 0;
    limit->next_ms = now_ms + every_ms;
    return true;
}

static size_t stamp(char *out, size_t size)
{
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    int n = snprintf(out, size, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ", tm.tm_year + 1900,
                     tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                     now.tv_nsec / 1000000);
    return n < 0 ? 0 : (size_t)n;
}

/* Puts the line together; false when it did not fit. */
static bool make_line(struct br_str *s, const char *when, const char *level, const char *name,
                      const char *text, size_t len)
{
    br_str_clear(s);
    if (sink.json) {
        br_str_printf(s, "{\"ts\":\"%s\",\"level\":\"%s\"", when, level);
        if (name[0]) {
            br_str_puts(s, ",\"component\":");
            br_str_json(s, name, strlen(name));
        }
        br_str_puts(s, ",\"msg\":");
        br_str_json(s, text, len);
        br_str_puts(s, "}\n");
    } else {
        br_str_printf(s, "%s\t%s\t%s%s", when, level, name, name[0] ? "\t" : "");
        br_str_add(s, text, len);
        br_str_putc(s, '\n');
    }
    return !s->failed;
}

void br_log_write(const struct br_log *log, enum br_log_level level, const char *fmt, ...)
{
    char text[LINE_MAX_BYTES], when[64], line[LINE_MAX_BYTES + 1];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    stamp(when, sizeof when);
    const char *name = log && log->name ? log->name : "";
    struct br_str s = {.data = line, .cap = sizeof line, .fixed = true};
    /* One message is one line: what came from outside must not forge another. */
    for (char *c = text; *c && !sink.json; c++)
        if ((unsigned char)*c < 0x20)
            *c = ' ';
    /* Escapes may need six bytes for one: the end of the text goes, never the end of the line. */
    size_t len = strlen(text);
    while (!make_line(&s, when, level_names[level], name, text, len) && len > 0)
        len = len * 3 / 4;
    ssize_t ignored = write(sink.fd, line, s.len);
    (void)ignored;
}
