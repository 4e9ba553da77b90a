/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/mem.h"
#include "base/str.h"
#include "base/time.h"

/* Settings of the log, configured once before threads start. */
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

static uint64_t log_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Returns true for characters that move a cursor, hide text or change the direction of text: C0,
 * DEL, C1, and the marks of line and direction (Unicode 3.1 general categories Cc, Zl, Zp and
 * the Bidi_Control property). */
static bool log_is_control(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {{0, 0x1f},        {0x7f, 0x9f},     {0x61c, 0x61c},
                  {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069}};
    for (size_t i = 0; i < BR_COUNT(ranges); i++)
        if (code >= ranges[i].first && code <= ranges[i].last)
            return true;
    return false;
}

/* Returns the first character of valid UTF-8 text if it has up to three bytes, or 0xffff for a
 * character of four bytes. */
static uint32_t log_code_of(const unsigned char *letter, size_t *ret_len)
{
    if (letter[0] < 0x80) {
        *ret_len = 1;
        return letter[0];
    }
    if (letter[0] < 0xe0) {
        *ret_len = 2;
        return (letter[0] & 0x1fu) << 6 | (letter[1] & 0x3fu);
    }
    *ret_len = letter[0] < 0xf0 ? 3 : 4;
    if (*ret_len == 4)
        return 0xffff;
    return (letter[0] & 0x0fu) << 12 | (letter[1] & 0x3fu) << 6 | (letter[2] & 0x3fu);
}

static void log_add_valid(struct br_str *str, const char *text, size_t len)
{
    size_t n, done = 0;
    for (size_t i = 0; i < len; i += n) {
        uint32_t code = log_code_of((const unsigned char *)text + i, &n);
        bool quoted = sink.json && (code == '"' || code == '\\');
        if (!quoted && !log_is_control(code))
            continue;
        br_str_add(str, text + done, i - done);
        done = i + n;
        if (quoted)
            br_str_printf(str, "\\%c", (char)code);
        else if (sink.json)
            br_str_printf(str, "\\u%04x", code);
        else
            br_str_putc(str, ' ');
    }
    br_str_add(str, text + done, len - done);
}

/* Appends text from outside, which must not forge another line or send commands to a terminal. */
static void log_add_text(struct br_str *str, const char *text, size_t len)
{
    for (;;) {
        size_t valid = br_utf8_valid((const uint8_t *)text, len);
        log_add_valid(str, text, valid);
        if (valid == len)
            return;
        br_str_puts(str, "\xef\xbf\xbd");
        text += valid + 1;
        len -= valid + 1;
    }
}

/* Assembles a line. Returns false if the line does not fit. */
static bool log_make_line(struct br_str *str, const char *when, const char *level, const char *name,
                          const char *text, size_t len)
{
    br_str_clear(str);
    if (sink.json) {
        br_str_printf(str, "{\"ts\":\"%s\",\"level\":\"%s\"", when, level);
        br_str_puts(str, name[0] ? ",\"component\":\"" : "");
        log_add_text(str, name, strlen(name));
        br_str_puts(str, name[0] ? "\",\"msg\":\"" : ",\"msg\":\"");
        log_add_text(str, text, len);
        br_str_puts(str, "\"}\n");
    } else {
        br_str_printf(str, "%s\t%s\t", when, level);
        log_add_text(str, name, strlen(name));
        br_str_puts(str, name[0] ? "\t" : "");
        log_add_text(str, text, len);
        br_str_putc(str, '\n');
    }
    return !str->failed;
}

/* Composes a line in `line` and returns its length. If the line is too long, shortens `text`
 * until the line fits: escaping can make `text` six times as long. */
static size_t log_make(char line[BR_LOG_LINE_MAX + 1], const struct br_log *log,
                       enum br_log_level level, const char *text)
{
    char when[BR_RFC3339_SIZE];
    const char *name = log && log->name ? log->name : "";
    struct br_str str = {.data = line, .cap = BR_LOG_LINE_MAX + 1, .fixed = true};
    size_t len = strlen(text);
    br_rfc3339(log_now_ns(), 3, when);
    while (!log_make_line(&str, when, level_names[level], name, text, len) && len > 0)
        len = len * 3 / 4;
    return str.len;
}

static size_t log_notice(uint64_t count, char line[BR_LOG_LINE_MAX + 1])
{
    char text[128];
    (void)snprintf(text, sizeof text,
                   "%llu line%s of the log dropped: nobody read them in time, or they could not be "
                   "written",
                   (unsigned long long)count, count == 1 ? " was" : "s were");
    return log_make(line, NULL, BR_LOG_WARN, text);
}

void br_log_write(const struct br_log *log, enum br_log_level level, const char *fmt, ...)
{
    char text[BR_LOG_LINE_MAX], line[BR_LOG_LINE_MAX + 1];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    br_log_sink_put(sink.fd, line, log_make(line, log, level, text));
}

bool br_log_start(void)
{
    return br_log_sink_start(sink.fd, log_notice);
}

bool br_log_stop(uint64_t wait_ms)
{
    return br_log_sink_stop(wait_ms);
}

uint64_t br_log_dropped(void)
{
    return br_log_sink_dropped();
}

bool br_log_limited(const struct br_log *log, enum br_log_level level, struct br_log_limit *limit,
                    uint64_t now_ms, uint64_t every_ms, const char *fmt, ...)
{
    char text[BR_LOG_LINE_MAX], more[64] = "";
    uint64_t n_held;
    va_list ap;
    if (!br_log_allow(limit, now_ms, every_ms, &n_held))
        return false;
    if (n_held)
        (void)snprintf(more, sizeof more, " (%" PRIu64 " more since the last such line)", n_held);
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    BR_LOG_AT(log, level, "%s%s", text, more);
    return true;
}
