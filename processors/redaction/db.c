/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/redaction/clean.h"

#include <string.h>

#include "base/bytes.h"
#include "base/decimal.h"
#include "base/mem.h"

#define DEPTH_MAX 256 /* deepest nesting of JSON lists and maps in a statement */

enum redact_db redact_db_find(const uint8_t *name, size_t len, bool *ret_mysql)
{
    static const struct {
        const char *name;
        enum redact_db db;
        bool mysql;
    } systems[] = {
        {"other_sql", REDACT_DB_SQL, false},    {"mysql", REDACT_DB_SQL, true},
        {"postgresql", REDACT_DB_SQL, false},   {"mariadb", REDACT_DB_SQL, true},
        {"sqlite", REDACT_DB_SQL, false},       {"redis", REDACT_DB_REDIS, false},
        {"valkey", REDACT_DB_VALKEY, false},    {"memcached", REDACT_DB_MEMCACHED, false},
        {"mongodb", REDACT_DB_MONGO, false},    {"opensearch", REDACT_DB_OPENSEARCH, false},
        {"elasticsearch", REDACT_DB_ES, false},
    };
    *ret_mysql = false;
    for (size_t i = 0; i < BR_COUNT(systems); i++)
        if (br_bytes_are_nocase(name, len, systems[i].name)) {
            *ret_mysql = systems[i].mysql;
            return systems[i].db;
        }
    return REDACT_DBS;
}

/* Returns three times the length of the statement. A JSON value of one byte is replaced by three
 * bytes: a question mark in quotes. */
size_t redact_db_size_max(size_t len)
{
    return 3 * len;
}

/* --- Letters --------------------------------------------------------------------------------- */

struct scan {
    const uint8_t *p, *end;
    uint8_t *out;
};

static bool db_is_word(uint8_t byte)
{
    const uint8_t lower = byte | 0x20;
    return byte == '_' || byte >= 0x80 || (lower >= 'a' && lower <= 'z');
}

static bool db_is_blank(uint8_t byte)
{
    return memchr(" \t\r\n\f\v", byte, 6) != NULL;
}

static bool db_at(const struct scan *scan, const char *text)
{
    return br_bytes_start(scan->p, (size_t)(scan->end - scan->p), text);
}

static void db_put(struct scan *scan, const void *text, size_t len)
{
    if (len)
        memcpy(scan->out, text, len);
    scan->out += len;
}

static void db_copy_to(struct scan *scan, const uint8_t *to)
{
    db_put(scan, scan->p, (size_t)(to - scan->p));
    scan->p = to;
}

static void db_trim(struct scan *scan)
{
    while (scan->p < scan->end && db_is_blank(*scan->p))
        scan->p++;
    while (scan->p < scan->end && db_is_blank(scan->end[-1]))
        scan->end--;
}

/* --- SQL ------------------------------------------------------------------------------------- */

/* Returns the end of a quoted text, where `quote` is the closing quote. A backslash escapes the
 * next byte. */
static const uint8_t *db_text_end(const struct scan *scan, uint8_t quote)
{
    const uint8_t *p = scan->p + 1;
    while (p < scan->end && *p != quote)
        p += *p == '\\' && p + 1 < scan->end ? 2 : 1;
    return p < scan->end ? p + 1 : p;
}

static const uint8_t *db_number_end(const struct scan *scan)
{
    const uint8_t *p = scan->p;
    if (scan->end - p > 1 && p[0] == '0' && (p[1] | 0x20) == 'x') {
        for (p += 2;
             p < scan->end && (br_is_digit(*p) || ((*p | 0x20) >= 'a' && (*p | 0x20) <= 'f'));)
            p++;
        return p;
    }
    while (p < scan->end && (br_is_digit(*p) || *p == '.' || (*p | 0x20) == 'e')) {
        bool exponent = (*p++ | 0x20) == 'e';
        p += exponent && p < scan->end && (*p == '+' || *p == '-');
    }
    return p;
}

/* Copies the statement up to `to`, with each run of digits replaced by one `?`. */
static void db_put_name(struct scan *scan, const uint8_t *to)
{
    while (scan->p < to) {
        bool digit = br_is_digit(*scan->p);
        db_put(scan, digit ? (const uint8_t *)"?" : scan->p, 1);
        for (scan->p++; digit && scan->p < to && br_is_digit(*scan->p);)
            scan->p++;
    }
}

static void db_put_word(struct scan *scan)
{
    static const char *const literals[] = {"true", "false", "null"};
    const uint8_t *p = scan->p;
    while (p < scan->end && (db_is_word(*p) || br_is_digit(*p) || *p == '$'))
        p++;
    for (size_t i = 0; i < BR_COUNT(literals); i++)
        if (br_bytes_are_nocase(scan->p, (size_t)(p - scan->p), literals[i])) {
            db_put(scan, "?", 1);
            scan->p = p;
            return;
        }
    db_put_name(scan, p);
}

/* Returns the end of a text that begins at the current position and has the form $1, $$text$$ or
 * $tag$text$tag$. Returns NULL if no text of this form begins at the current position. */
static const uint8_t *db_dollar_end(const struct scan *scan)
{
    const uint8_t *p = scan->p + 1;
    if (p < scan->end && br_is_digit(*p)) {
        while (p < scan->end && br_is_digit(*p))
            p++;
        return p;
    }
    while (p < scan->end && (db_is_word(*p) || br_is_digit(*p)))
        p++;
    if (p == scan->end || *p != '$')
        return NULL;
    size_t tag = (size_t)(p - scan->p) + 1;
    const uint8_t *close = memmem(p + 1, (size_t)(scan->end - p - 1), scan->p, tag);
    return close ? close + tag : scan->end;
}

/* Returns the end of a comment that begins at the current position; NULL: no comment begins there.
 * Comments are not redacted. */
static const uint8_t *db_comment_end(const struct scan *scan)
{
    const char *close = NULL;
    if (db_at(scan, "--"))
        close = "\n";
    else if (db_at(scan, "/*"))
        close = "*/";
    else
        return NULL;
    size_t len = strlen(close), remaining = (size_t)(scan->end - scan->p) - 2;
    const uint8_t *at = memmem(scan->p + 2, remaining, close, len);
    return at ? at + len : scan->end;
}

/* Returns true if a number begins at the current position. A sign before the digits is part of the
 * number only if an operator precedes it. */
static bool db_is_number(const struct scan *scan, const uint8_t *start)
{
    bool sign = (*scan->p == '-' || *scan->p == '+') &&
                (scan->p == start || !memchr("=<>!+-*/%|&^~", scan->p[-1], 13));
    const uint8_t *p = scan->p + sign;
    if (p >= scan->end)
        return false;
    if (br_is_digit(*p))
        return true;
    bool fraction = *p == '.' && p + 1 < scan->end && br_is_digit(p[1]);
    return fraction && (p == start || !db_is_word(p[-1]));
}

static void db_clean_sql(struct scan *scan, bool mysql)
{
    db_trim(scan);
    for (const uint8_t *start = scan->p, *to; scan->p < scan->end;) {
        if ((to = db_comment_end(scan))) {
            db_copy_to(scan, to);
        } else if (*scan->p == '\'' || (mysql && *scan->p == '"')) {
            scan->p = db_text_end(scan, *scan->p);
            db_put(scan, "?", 1);
        } else if (*scan->p == '"' || *scan->p == '`') {
            db_put_name(scan, db_text_end(scan, *scan->p));
        } else if (*scan->p == '$' && (to = db_dollar_end(scan))) {
            scan->p = to;
            db_put(scan, "?", 1);
        } else if (db_is_number(scan, start)) {
            scan->p += *scan->p == '-' || *scan->p == '+';
            scan->p = db_number_end(scan);
            db_put(scan, "?", 1);
        } else if (db_is_word(*scan->p)) {
            db_put_word(scan);
        } else {
            db_copy_to(scan, scan->p + 1);
        }
    }
}

/* --- Commands -------------------------------------------------------------------------------- */

/* Removes everything except the command at the beginning of each line of a Redis request. */
static void db_clean_redis(struct scan *scan)
{
    db_trim(scan);
    while (scan->p < scan->end) {
        const uint8_t *line = memchr(scan->p, '\n', (size_t)(scan->end - scan->p));
        const uint8_t *end = line ? line : scan->end, *p;
        while (scan->p < end && db_is_blank(*scan->p))
            scan->p++;
        for (p = scan->p; p < end && !db_is_blank(*p);)
            p++;
        db_copy_to(scan, p);
        while (p < end && db_is_blank(*p))
            p++;
        if (p < end)
            db_put(scan, " ?", 2);
        scan->p = end;
        if (line)
            db_copy_to(scan, line + 1);
    }
}

/* Removes everything after the first line of a memcached request, because the values follow it. */
static void db_clean_memcached(struct scan *scan)
{
    const uint8_t *line = memmem(scan->p, (size_t)(scan->end - scan->p), "\r\n", 2);
    if (line)
        scan->end = line;
    db_trim(scan);
    db_copy_to(scan, scan->end);
}

/* --- JSON ------------------------------------------------------------------------------------ */

static void db_skip_blanks(struct scan *scan)
{
    while (scan->p < scan->end && memchr(" \t\r\n", *scan->p, 4))
        scan->p++;
}

static bool db_take(struct scan *scan, uint8_t byte)
{
    db_skip_blanks(scan);
    if (scan->p == scan->end || *scan->p != byte)
        return false;
    scan->p++;
    return true;
}

static bool db_skip_text(struct scan *scan)
{
    const uint8_t *to = db_text_end(scan, '"');
    bool closed = to - scan->p > 1 && to[-1] == '"';
    for (const uint8_t *p = scan->p; closed && p < to; p++)
        closed = *p >= 0x20;
    scan->p = to;
    return closed;
}

static bool db_skip_number(struct scan *scan)
{
    scan->p += *scan->p == '-';
    const uint8_t *start = scan->p;
    scan->p = db_number_end(scan);
    return scan->p > start;
}

/* Replaces a JSON text, number or word by the JSON text "?". */
static bool db_json_plain(struct scan *scan)
{
    static const char *const words[] = {"true", "false", "null"};
    bool ok = false;
    for (size_t i = 0; i < BR_COUNT(words) && !ok; i++)
        if (db_at(scan, words[i])) {
            scan->p += strlen(words[i]);
            ok = true;
        }
    if (!ok)
        ok = *scan->p == '"' ? db_skip_text(scan)
                             : (*scan->p == '-' || br_is_digit(*scan->p)) && db_skip_number(scan);
    db_put(scan, "\"?\"", 3);
    return ok;
}

static bool db_json_value(struct scan *scan, unsigned depth);

static bool db_json_pair(struct scan *scan, unsigned depth)
{
    db_skip_blanks(scan);
    const uint8_t *key = scan->p;
    if (key == scan->end || *key != '"' || !db_skip_text(scan))
        return false;
    db_put(scan, key, (size_t)(scan->p - key));
    if (!db_take(scan, ':'))
        return false;
    db_put(scan, ":", 1);
    return db_json_value(scan, depth);
}

/* Cleans a JSON list or map. The scan must be directly after the opening bracket `open`. */
static bool db_json_list(struct scan *scan, uint8_t open, unsigned depth)
{
    bool map = open == '{';
    const uint8_t close = map ? '}' : ']';
    db_put(scan, &open, 1);
    for (bool first = true; !db_take(scan, close); first = false) {
        if (!first && !db_take(scan, ','))
            return false;
        if (!first)
            db_put(scan, ",", 1);
        if (!(map ? db_json_pair(scan, depth) : db_json_value(scan, depth)))
            return false;
    }
    db_put(scan, &close, 1);
    return true;
}

static bool db_json_value(struct scan *scan, unsigned depth)
{
    db_skip_blanks(scan);
    if (scan->p == scan->end || depth == DEPTH_MAX)
        return false;
    if (*scan->p == '{' || *scan->p == '[')
        return db_json_list(scan, *scan->p++, depth + 1);
    return db_json_plain(scan);
}

static bool db_clean_json(struct scan *scan)
{
    if (!db_json_value(scan, 0))
        return false;
    db_skip_blanks(scan);
    return scan->p == scan->end;
}

size_t redact_db_clean(enum redact_db db, bool mysql, const uint8_t *text, size_t len, uint8_t *out)
{
    struct scan scan = {text, text + len, out};
    bool ok = true;
    if (db == REDACT_DB_SQL)
        db_clean_sql(&scan, mysql);
    else if (db == REDACT_DB_REDIS || db == REDACT_DB_VALKEY)
        db_clean_redis(&scan);
    else if (db == REDACT_DB_MEMCACHED)
        db_clean_memcached(&scan);
    else
        ok = db_clean_json(&scan);
    return ok ? (size_t)(scan.out - out) : SIZE_MAX;
}
