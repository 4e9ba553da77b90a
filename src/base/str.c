/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/steps.h"

#define STR_MAX (64u << 20)

void br_str_release(struct br_str *str)
{
    if (!str->fixed)
        br_free(str->data);
    *str = (struct br_str){.max = str->max};
}

void br_str_clear(struct br_str *str)
{
    str->len = 0;
    str->failed = false;
    if (str->data)
        str->data[0] = '\0';
}

/* Makes room for `len` more bytes and the terminator. Returns how many of the bytes fit. */
static size_t str_room(struct br_str *str, size_t len)
{
    size_t max = str->max ? str->max : STR_MAX;
    if (str->fixed && max > str->cap - 1)
        max = str->cap - 1;
    if (len > max - str->len) {
        str->failed = true;
        return str->fixed ? max - str->len : 0;
    }
    if (str->fixed || str->len + len + 1 <= str->cap)
        return len;
    size_t cap = str->cap ? str->cap * 2 : 64;
    if (cap < str->len + len + 1)
        cap = str->len + len + 1;
    char *p = br_realloc(str->data, cap);
    if (!p) {
        str->failed = true;
        return 0;
    }
    str->data = p;
    str->cap = cap;
    return len;
}

void br_str_add(struct br_str *str, const void *data, size_t len)
{
    size_t n = str_room(str, len);
    if (n == 0 && (len > 0 || !str->data))
        return;
    br_steps_add(n);
    if (n)
        memcpy(str->data + str->len, data, n);
    str->len += n;
    str->data[str->len] = '\0';
}

void br_str_puts(struct br_str *str, const char *text)
{
    br_str_add(str, text, strlen(text));
}

void br_str_putc(struct br_str *str, char letter)
{
    br_str_add(str, &letter, 1);
}

void br_str_printf(struct br_str *str, const char *fmt, ...)
{
    char small[512];
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    if (n < 0) {
        str->failed = true;
    } else if ((size_t)n < sizeof small) {
        br_str_add(str, small, (size_t)n);
    } else {
        char *big = br_malloc((size_t)n + 1);
        if (big) {
            (void)vsnprintf(big, (size_t)n + 1, fmt, again);
            br_str_add(str, big, (size_t)n);
            br_free(big);
        } else {
            str->failed = true;
        }
    }
    va_end(again);
}

/* Appends valid UTF-8 with the escapes of JSON. */
static void str_add_escaped(struct br_str *str, const char *text, size_t len)
{
    size_t done = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        br_str_add(str, text + done, i - done);
        done = i + 1;
        if (c == '"' || c == '\\')
            br_str_printf(str, "\\%c", c);
        else if (c == '\n')
            br_str_puts(str, "\\n");
        else
            br_str_printf(str, "\\u%04x", c);
    }
    br_str_add(str, text + done, len - done);
}

void br_str_json(struct br_str *str, const char *text, size_t len)
{
    br_str_putc(str, '"');
    while (len > 0) {
        size_t valid = br_utf8_valid((const uint8_t *)text, len);
        str_add_escaped(str, text, valid);
        if (valid == len)
            break;
        br_str_puts(str, "\xef\xbf\xbd");
        text += valid + 1;
        len -= valid + 1;
    }
    br_str_putc(str, '"');
}

void br_str_hex(struct br_str *str, const uint8_t *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char pair[2];
        br_hex_encode(&data[i], 1, pair);
        br_str_add(str, pair, 2);
    }
}

void br_str_base64(struct br_str *str, const uint8_t *data, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < len; i += 3) {
        uint32_t v = (uint32_t)data[i] << 16;
        if (i + 1 < len)
            v |= (uint32_t)data[i + 1] << 8;
        if (i + 2 < len)
            v |= data[i + 2];
        char quad[4] = {digits[v >> 18], digits[v >> 12 & 63],
                        i + 1 < len ? digits[v >> 6 & 63] : '=',
                        i + 2 < len ? digits[v & 63] : '='};
        br_str_add(str, quad, 4);
    }
}

/* For each character, the value of the hex digit plus 1; 0: not a digit. */
static const uint8_t str_hex_digits[256] = {
    ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
    ['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
    ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16,
};

long br_hex_decode(const char *text, size_t len, uint8_t *out, size_t size)
{
    if (len % 2 || len / 2 > size)
        return -1;
    br_steps_add(len);
    for (size_t i = 0; i < len / 2; i++) {
        unsigned hi = str_hex_digits[(uint8_t)text[2 * i]],
                 lo = str_hex_digits[(uint8_t)text[2 * i + 1]];
        if (!hi || !lo)
            return -1;
        out[i] = (uint8_t)((hi - 1) << 4 | (lo - 1));
    }
    return (long)(len / 2);
}

static bool str_white(char letter)
{
    return letter == ' ' || letter == '\t' || letter == '\r' || letter == '\n';
}

bool br_hex_id(const char *text, size_t len, uint8_t *out, size_t size)
{
    char digits[32];
    uint8_t any = 0;
    br_steps_add(len);
    while (len && str_white(text[len - 1]))
        len--;
    for (; len && str_white(*text); len--)
        text++;
    for (; len > 2 * size && *text == '0'; len--)
        text++;
    if (len == 0 || len > 2 * size)
        return false;
    memset(digits, '0', 2 * size);
    memcpy(digits + 2 * size - len, text, len);
    if (br_hex_decode(digits, 2 * size, out, size) != (long)size)
        return false;
    for (size_t i = 0; i < size; i++)
        any |= out[i];
    return any != 0;
}

static int str_base64_digit(char letter)
{
    if (letter >= 'A' && letter <= 'Z')
        return letter - 'A';
    if (letter >= 'a' && letter <= 'z')
        return letter - 'a' + 26;
    if (letter >= '0' && letter <= '9')
        return letter - '0' + 52;
    if (letter == '+' || letter == '-')
        return 62;
    if (letter == '/' || letter == '_')
        return 63;
    return -1;
}

long br_base64_decode(const char *text, size_t len, uint8_t *out)
{
    while (len > 0 && text[len - 1] == '=')
        len--;
    if (len % 4 == 1)
        return -1;
    long n = 0;
    uint32_t bits = 0;
    unsigned have = 0;
    br_steps_add(len);
    for (size_t i = 0; i < len; i++) {
        int d = str_base64_digit(text[i]);
        if (d < 0)
            return -1;
        bits = bits << 6 | (uint32_t)d;
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[n++] = (uint8_t)(bits >> have);
        }
    }
    return n;
}

/* Returns the length of the valid UTF-8 sequence that starts at `p`, or 0. */
static size_t str_utf8_sequence(const uint8_t *p, size_t left)
{
    uint8_t c = p[0];
    if (c < 0x80)
        return 1;
    if (c >= 0xc2 && c <= 0xdf)
        return left >= 2 && (p[1] & 0xc0) == 0x80 ? 2 : 0;
    if (c >= 0xe0 && c <= 0xef) {
        if (left < 3 || (p[1] & 0xc0) != 0x80 || (p[2] & 0xc0) != 0x80)
            return 0;
        if ((c == 0xe0 && p[1] < 0xa0) || (c == 0xed && p[1] > 0x9f))
            return 0;
        return 3;
    }
    if (c >= 0xf0 && c <= 0xf4) {
        if (left < 4 || (p[1] & 0xc0) != 0x80 || (p[2] & 0xc0) != 0x80 || (p[3] & 0xc0) != 0x80)
            return 0;
        if ((c == 0xf0 && p[1] < 0x90) || (c == 0xf4 && p[1] > 0x8f))
            return 0;
        return 4;
    }
    return 0;
}

/* Returns true if all bytes are ASCII. Reads words that overlap at the end, so that no byte is
 * read separately. */
static inline bool str_is_ascii(const uint8_t *data, size_t len)
{
    uint64_t word, all = 0;
    if (len < sizeof word) {
        for (size_t i = 0; i < len; i++)
            all |= data[i];
        return !(all & 0x80);
    }
    for (size_t i = 0; i < len - sizeof word; i += sizeof word) {
        memcpy(&word, data + i, sizeof word);
        if (word & 0x8080808080808080u)
            return false;
    }
    memcpy(&word, data + len - sizeof word, sizeof word);
    return !(word & 0x8080808080808080u);
}

static size_t str_utf8_prefix(const uint8_t *data, size_t len)
{
    size_t i = 0;
    if (__builtin_expect(str_is_ascii(data, len), 1))
        return len;
    while (i < len) {
        uint64_t word;
        while (len - i >= sizeof word) {
            memcpy(&word, data + i, sizeof word);
            if (word & 0x8080808080808080u)
                break;
            i += sizeof word;
        }
        if (i == len)
            break;
        size_t n = str_utf8_sequence(data + i, len - i);
        if (n == 0)
            return i;
        i += n;
    }
    return i;
}

size_t br_utf8_valid(const uint8_t *data, size_t len)
{
    size_t valid = str_utf8_prefix(data, len);
    br_steps_add(valid);
    return valid;
}

size_t br_utf8_replace(const uint8_t *data, size_t len, uint8_t *out)
{
    size_t n = 0;
    br_steps_add(len);
    while (len > 0) {
        size_t valid = str_utf8_prefix(data, len);
        if (out)
            memcpy(out + n, data, valid);
        n += valid;
        if (valid == len)
            break;
        if (out)
            memcpy(out + n, "\xef\xbf\xbd", 3);
        n += 3;
        data += valid + 1;
        len -= valid + 1;
    }
    return n;
}

static int str_lower(char letter)
{
    return tolower((unsigned char)letter);
}

unsigned br_str_distance(const char *left, const char *right)
{
    enum { MAX = 64 };
    size_t la = strlen(left), lb = strlen(right);
    if (la > MAX || lb > MAX)
        return MAX;
    unsigned rows[3][MAX + 1];
    unsigned *two_ago = rows[0], *ago = rows[1], *now = rows[2];
    for (size_t j = 0; j <= lb; j++)
        ago[j] = (unsigned)j;
    for (size_t i = 1; i <= la; i++) {
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= lb; j++) {
            int ca = str_lower(left[i - 1]), cb = str_lower(right[j - 1]);
            unsigned best = ago[j - 1] + (ca != cb);
            if (ago[j] + 1 < best)
                best = ago[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && ca == str_lower(right[j - 2]) && cb == str_lower(left[i - 2]) &&
                two_ago[j - 2] + 1 < best)
                best = two_ago[j - 2] + 1;
            now[j] = best;
        }
        unsigned *free_row = two_ago;
        two_ago = ago;
        ago = now;
        now = free_row;
    }
    return ago[lb];
}

const char *br_str_nearest(const char *name, const char *const *names, size_t count)
{
    const char *best = NULL;
    unsigned best_distance = (unsigned)strlen(name) / 3 + 2;
    for (size_t i = 0; i < count; i++) {
        unsigned d = br_str_distance(name, names[i]);
        if (d < best_distance) {
            best_distance = d;
            best = names[i];
        }
    }
    return best;
}

bool br_parse_int(const char *digits, unsigned base, bool negative, int64_t *ret)
{
    uint64_t v = 0;
    if (!*digits)
        return false;
    for (const char *s = digits; *s; s++) {
        int digit = br_hex_value(*s);
        if (digit < 0 || (unsigned)digit >= base || __builtin_mul_overflow(v, base, &v) ||
            __builtin_add_overflow(v, (uint64_t)digit, &v))
            return false;
    }
    if (v > (uint64_t)INT64_MAX + negative)
        return false;
    *ret = negative ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}
