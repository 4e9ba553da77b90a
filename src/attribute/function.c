/* SPDX-License-Identifier: Apache-2.0 */
/* The converters: functions that compute a value. Each behaves as in pkg/ottl/ottlfuncs 0.165. */
#include <openssl/evp.h>
#include <string.h>

#include "attribute/expression.h"
#include "attribute/value.h"
#include "base/bytes.h"
#include "base/decimal.h"
#include "base/str.h"
#include "otlp/scan.h"

#define BLANK_MAX 3 /* largest number of bytes of a blank in UTF-8 */

static struct br_any function_argument(struct br_conditions *conditions, struct br_expression *call,
                                       unsigned index)
{
    return br_expression_value(conditions, call->items[index]);
}

/* Evaluates an argument that must have the type `type`. */
static bool function_typed(struct br_conditions *conditions, struct br_expression *call,
                           unsigned index, enum br_value_type type, struct br_any *ret)
{
    struct br_any wanted = {.type = type};
    *ret = function_argument(conditions, call, index);
    if (br_conditions_stopped(conditions))
        return false;
    if (ret->type != type)
        return br_conditions_fail(conditions, "%s: %s must be %s but is %s", call->function->name,
                                  call->function->parameters[index].name, br_any_name(&wanted),
                                  br_any_name(ret));
    return type != BR_VALUE_STRING || br_conditions_work(conditions, ret->len);
}

static bool function_string(struct br_conditions *conditions, struct br_expression *call,
                            unsigned index, struct br_any *ret)
{
    return function_typed(conditions, call, index, BR_VALUE_STRING, ret);
}

/* Moves a text to the scratch memory as the result of a function. */
static bool function_result(struct br_conditions *conditions, struct br_str *text,
                            enum br_value_type type, struct br_any *ret)
{
    if (text->failed && !conditions->rc)
        conditions->rc = BR_ENOMEM;
    if (!br_conditions_stopped(conditions))
        *ret = br_any_copy(conditions, type, text->data, text->len);
    br_str_release(text);
    return !br_conditions_stopped(conditions);
}

/* --- Types ------------------------------------------------------------------------------------ */

static bool function_is(struct br_conditions *conditions, struct br_expression *call,
                        enum br_value_type type, struct br_any *ret)
{
    struct br_any any = function_argument(conditions, call, 0);
    *ret = br_any_bool(any.type == type);
    return !br_conditions_stopped(conditions);
}

static bool function_is_string(struct br_conditions *conditions, struct br_expression *call,
                               struct br_any *ret)
{
    return function_is(conditions, call, BR_VALUE_STRING, ret);
}

static bool function_is_bool(struct br_conditions *conditions, struct br_expression *call,
                             struct br_any *ret)
{
    return function_is(conditions, call, BR_VALUE_BOOL, ret);
}

static bool function_is_int(struct br_conditions *conditions, struct br_expression *call,
                            struct br_any *ret)
{
    return function_is(conditions, call, BR_VALUE_INT, ret);
}

static bool function_is_double(struct br_conditions *conditions, struct br_expression *call,
                               struct br_any *ret)
{
    return function_is(conditions, call, BR_VALUE_DOUBLE, ret);
}

static bool function_is_list(struct br_conditions *conditions, struct br_expression *call,
                             struct br_any *ret)
{
    return function_is(conditions, call, BR_VALUE_LIST, ret);
}

static bool function_is_map(struct br_conditions *conditions, struct br_expression *call,
                            struct br_any *ret)
{
    return function_is(conditions, call, BR_VALUE_MAP, ret);
}

static bool function_is_match(struct br_conditions *conditions, struct br_expression *call,
                              struct br_any *ret)
{
    *ret = br_any_bool(br_condition_match(conditions, call));
    return !br_conditions_stopped(conditions);
}

static bool function_is_root_span(struct br_conditions *conditions, struct br_expression *call,
                                  struct br_any *ret)
{
    const struct br_message *span = &conditions->messages[BR_CONDITION_SPAN];
    const uint8_t *p = span->body, *end = span->len ? p + span->len : p;
    struct br_field field;
    bool root = true;
    (void)call;
    while (p < end && (p = br_scan(p, end, &field)))
        if (br_scan_tag(&field) == BR_SCAN_LEN(BR_SPAN_PARENT_SPAN_ID))
            root = field.value == 0;
    *ret = br_any_bool(root);
    return true;
}

/* --- Conversions ------------------------------------------------------------------------------ */

static bool function_to_string(struct br_conditions *conditions, struct br_expression *call,
                               struct br_any *ret)
{
    struct br_str text = {.max = BR_BUF_MAX};
    struct br_any any = function_argument(conditions, call, 0);
    *ret = any;
    if (br_conditions_stopped(conditions) || any.type == BR_VALUE_STRING ||
        any.type == BR_VALUE_EMPTY)
        return !br_conditions_stopped(conditions);
    (void)br_any_text(conditions, &any, &text);
    return function_result(conditions, &text, BR_VALUE_STRING, ret);
}

/* Converts a value to a number of the type `to`. */
static bool function_number(struct br_conditions *conditions, struct br_expression *call,
                            enum br_value_type to, struct br_any *ret)
{
    struct br_any any = function_argument(conditions, call, 0);
    struct br_value value, converted;
    *ret = (struct br_any){.type = BR_VALUE_EMPTY};
    if (br_conditions_stopped(conditions))
        return false;
    if (any.type >= BR_VALUE_LIST)
        return br_conditions_fail(conditions, "%s: unsupported type: %s", call->function->name,
                                  br_any_name(&any));
    if (any.type == BR_VALUE_EMPTY || !br_conditions_work(conditions, any.len))
        return !conditions->rc;
    if (!br_any_write(&any, &conditions->scratch, &value) ||
        !br_value_convert(value, to, &conditions->scratch, &converted)) {
        conditions->rc = br_arena_why(&conditions->scratch);
        return false;
    }
    *ret = br_any_read(converted);
    if (ret->type == BR_VALUE_DOUBLE && to == BR_VALUE_INT)
        *ret = br_any_int(INT64_MIN);
    return ret->type == to ||
           br_conditions_fail(conditions, "%s: the text is not a number", call->function->name);
}

/* A float without a whole number of 64 bits becomes the smallest one, as in a Collector for x86. */
static bool function_int(struct br_conditions *conditions, struct br_expression *call,
                         struct br_any *ret)
{
    return function_number(conditions, call, BR_VALUE_INT, ret);
}

static bool function_double(struct br_conditions *conditions, struct br_expression *call,
                            struct br_any *ret)
{
    return function_number(conditions, call, BR_VALUE_DOUBLE, ret);
}

static bool function_digest(struct br_conditions *conditions, struct br_expression *call,
                            const EVP_MD *kind, struct br_any *ret)
{
    struct br_any text;
    uint8_t digest[EVP_MAX_MD_SIZE];
    char hex[2 * EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (!function_string(conditions, call, 0, &text))
        return false;
    if (!EVP_Digest(text.data, text.len, digest, &n, kind, NULL)) {
        conditions->rc = BR_ENOMEM;
        return false;
    }
    br_hex_encode(digest, n, hex);
    *ret = br_any_copy(conditions, BR_VALUE_STRING, hex, 2 * n);
    return !conditions->rc;
}

static bool function_sha256(struct br_conditions *conditions, struct br_expression *call,
                            struct br_any *ret)
{
    return function_digest(conditions, call, EVP_sha256(), ret);
}

static bool function_sha1(struct br_conditions *conditions, struct br_expression *call,
                          struct br_any *ret)
{
    return function_digest(conditions, call, EVP_sha1(), ret);
}

static bool function_parse_json(struct br_conditions *conditions, struct br_expression *call,
                                struct br_any *ret)
{
    struct br_any text;
    return function_string(conditions, call, 0, &text) &&
           br_conditions_parse_json(conditions, &text, ret);
}

/* --- Texts ------------------------------------------------------------------------------------ */

static bool function_concat(struct br_conditions *conditions, struct br_expression *call,
                            struct br_any *ret)
{
    const struct br_expression *list = call->items[0];
    struct br_str out = {.max = BR_BUF_MAX};
    struct br_any delimiter;
    if (!function_string(conditions, call, 1, &delimiter))
        return false;
    br_str_add(&out, "", 0);
    for (uint32_t i = 0; i < list->n_items && !br_conditions_stopped(conditions); i++) {
        struct br_any any = br_expression_value(conditions, list->items[i]);
        if (br_conditions_stopped(conditions) ||
            !br_conditions_work(conditions, any.len + delimiter.len))
            break;
        if (i)
            br_str_add(&out, delimiter.data, delimiter.len);
        if (any.type == BR_VALUE_EMPTY)
            br_str_puts(&out, "<nil>");
        else
            (void)br_any_text(conditions, &any, &out);
    }
    return function_result(conditions, &out, BR_VALUE_STRING, ret);
}

/* Returns true if a character of the text begins at the offset. */
static bool function_begins(const struct br_any *text, uint64_t offset)
{
    return (text->data[offset] & 0xc0) != 0x80;
}

static bool function_substring(struct br_conditions *conditions, struct br_expression *call,
                               struct br_any *ret)
{
    struct br_any text, first, length;
    if (!function_typed(conditions, call, 1, BR_VALUE_INT, &first))
        return false;
    if ((int64_t)first.number < 0)
        return br_conditions_fail(conditions, "Substring: start must not be negative");
    if (!function_typed(conditions, call, 2, BR_VALUE_INT, &length))
        return false;
    if ((int64_t)length.number <= 0)
        return br_conditions_fail(conditions, "Substring: length must be positive");
    if (!function_string(conditions, call, 0, &text))
        return false;
    uint64_t start = first.number, end = start + length.number;
    if (start > text.len || end > text.len)
        return br_conditions_fail(conditions,
                                  "Substring: the range goes beyond the end of the text");
    if (call->items[3] && call->items[3]->literal.number) {
        while (start < text.len && !function_begins(&text, start))
            start++;
        while (start < end && end < text.len && !function_begins(&text, end))
            end--;
        end = end < start ? start : end;
    }
    *ret = br_any_string(text.data + start, (size_t)(end - start));
    return true;
}

static void function_add_element(struct br_str *out, const uint8_t *text, size_t len)
{
    uint8_t head[4 * BR_VARINT_MAX],
        *end = br_put_varint(head, BR_TAG(BR_LIST_VALUES, BR_WIRE_LEN));
    end = br_put_varint(end, br_len_size(BR_VALUE_STRING, len));
    end = br_put_varint(end, BR_TAG(BR_VALUE_STRING, BR_WIRE_LEN));
    end = br_put_varint(end, len);
    br_str_add(out, head, (size_t)(end - head));
    br_str_add(out, text, len);
}

/* Returns the length of the part of a text before the next delimiter. An empty delimiter matches
 * after each character. */
static size_t function_part_len(const uint8_t *text, size_t len, const struct br_any *delimiter)
{
    size_t n = 1;
    if (delimiter->len) {
        const uint8_t *found = memmem(text, len, delimiter->data, delimiter->len);
        return found ? (size_t)(found - text) : len;
    }
    while (n < len && (text[n] & 0xc0) == 0x80)
        n++;
    return n < len ? n : len;
}

static bool function_split(struct br_conditions *conditions, struct br_expression *call,
                           struct br_any *ret)
{
    struct br_str out = {.max = BR_BUF_MAX};
    struct br_any text, delimiter;
    if (!function_string(conditions, call, 0, &text) ||
        !function_string(conditions, call, 1, &delimiter))
        return false;
    br_str_add(&out, "", 0);
    const uint8_t *p = text.data, *end = p + text.len;
    /* a text has one more part than delimiters; an empty delimiter matches only between
     * characters */
    for (bool more = delimiter.len || p < end; more && !out.failed;) {
        size_t len = function_part_len(p, (size_t)(end - p), &delimiter);
        function_add_element(&out, p, len);
        p += len;
        more = p < end;
        p += more ? delimiter.len : 0;
        if (!br_conditions_work(conditions, sizeof(struct br_value)))
            break;
    }
    return function_result(conditions, &out, BR_VALUE_LIST, ret);
}

static bool function_len(struct br_conditions *conditions, struct br_expression *call,
                         struct br_any *ret)
{
    struct br_any any = function_argument(conditions, call, 0);
    struct br_value element;
    int64_t n = 0;
    if (br_conditions_stopped(conditions))
        return false;
    bool nested = any.type == BR_VALUE_LIST || any.type == BR_VALUE_MAP;
    if (!nested && any.type != BR_VALUE_STRING && any.type != BR_VALUE_BYTES)
        return br_conditions_fail(conditions, "Len: unsupported type: %s", br_any_name(&any));
    if (nested && !br_conditions_work(conditions, any.len))
        return false;
    const uint8_t *p = any.data, *end = p + any.len;
    while (nested && (p = br_value_next(p, end, &element)))
        n++;
    *ret = br_any_int(nested ? n : (int64_t)any.len);
    return true;
}

static bool function_affix(struct br_conditions *conditions, struct br_expression *call,
                           bool suffix, struct br_any *ret)
{
    struct br_any text, affix;
    if (!function_string(conditions, call, 0, &text) ||
        !function_string(conditions, call, 1, &affix))
        return false;
    bool holds = text.len >= affix.len;
    if (holds && affix.len)
        holds = memcmp(text.data + (suffix ? text.len - affix.len : 0), affix.data, affix.len) == 0;
    *ret = br_any_bool(holds);
    return true;
}

static bool function_has_prefix(struct br_conditions *conditions, struct br_expression *call,
                                struct br_any *ret)
{
    return function_affix(conditions, call, false, ret);
}

static bool function_has_suffix(struct br_conditions *conditions, struct br_expression *call,
                                struct br_any *ret)
{
    return function_affix(conditions, call, true, ret);
}

/* --- Cases ------------------------------------------------------------------------------------ */

enum { CASE_LOWER, CASE_UPPER, CASE_SNAKE, CASE_CAMEL };

/* Converts a letter to upper case if `upper` is set, and otherwise to lower case. Returns
 * characters outside the ranges of the table unchanged. */
static uint32_t function_other_case(uint32_t letter, bool upper)
{
    static const struct {
        uint32_t first, last, distance;
    } ranges[] = {
        {'A', 'Z', 32},     {0xc0, 0xd6, 32},   {0xd8, 0xde, 32},   {0x391, 0x3a1, 32},
        {0x3a3, 0x3ab, 32}, {0x410, 0x42f, 32}, {0x400, 0x40f, 80},
    };
    for (size_t i = 0; i < BR_COUNT(ranges); i++) {
        uint32_t shift = upper ? ranges[i].distance : 0;
        if (letter >= ranges[i].first + shift && letter <= ranges[i].last + shift)
            return upper ? letter - shift : letter + ranges[i].distance;
    }
    return letter;
}

/* Appends a text in lower or upper case. Letters of other scripts than Latin-1, Greek and Cyrillic
 * stay as they are. */
static void function_fold(struct br_str *out, const struct br_any *text, bool upper)
{
    for (size_t i = 0; i < text->len;) {
        uint8_t first = text->data[i];
        size_t left = text->len - i;
        bool two = (first & 0xe0) == 0xc0 && left > 1 && (text->data[i + 1] & 0xc0) == 0x80;
        if (first < 0x80) {
            br_str_putc(out, (char)function_other_case(first, upper));
        } else if (two) {
            char code[BR_UTF8_MAX];
            uint32_t letter = (uint32_t)(first & 0x1f) << 6 | (text->data[i + 1] & 0x3f);
            br_str_add(out, code, br_utf8_encode(function_other_case(letter, upper), code));
        } else {
            br_str_putc(out, (char)first);
        }
        i += 1 + two;
    }
}

static bool function_is_upper(int letter)
{
    return letter >= 'A' && letter <= 'Z';
}

static bool function_is_lower(int letter)
{
    return letter >= 'a' && letter <= 'z';
}

static bool function_is_joint(int letter)
{
    return letter == '_' || letter == ' ' || letter == '-' || letter == '.';
}

/* Returns true if a word ends between the characters `left` and `right`, where the case changes or
 * a number begins or ends. The last of several capitals belongs to the word after it. */
static bool function_word_ends(int left, int right, int after)
{
    bool digit_left = br_is_digit(left), digit_right = br_is_digit(right);
    bool letter_left = function_is_upper(left) || function_is_lower(left);
    bool letter_right = function_is_upper(right) || function_is_lower(right);
    if (function_is_upper(left) && function_is_upper(right))
        return function_is_lower(after);
    if (digit_left != digit_right)
        return (digit_left || letter_left) && (digit_right || letter_right);
    return function_is_lower(left) && function_is_upper(right);
}

static void function_snake(struct br_str *out, const uint8_t *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        int letter = text[i];
        if (i && function_word_ends(text[i - 1], letter, i + 1 < len ? text[i + 1] : 0))
            br_str_putc(out, '_');
        if (function_is_joint(letter))
            letter = '_';
        br_str_putc(out, (char)(function_is_upper(letter) ? letter + 32 : letter));
    }
}

static void function_camel(struct br_str *out, const uint8_t *text, size_t len)
{
    bool begins = true;
    if (br_bytes_are(text, len, "ID")) /* the only acronym that the Collector's library knows */
        text = (const uint8_t *)"id";
    for (size_t i = 0; i < len; i++) {
        int letter = text[i];
        bool alphabetic = function_is_upper(letter) || function_is_lower(letter);
        if (begins && function_is_lower(letter))
            letter -= 32;
        if (alphabetic || br_is_digit(letter))
            br_str_putc(out, (char)letter);
        begins = br_is_digit(letter) || (!alphabetic && function_is_joint(letter));
    }
}

/* Returns the number of bytes of the blank at `p`, which Unicode defines as white space, or 0. */
static size_t function_blank_len(const uint8_t *p, size_t len)
{
    static const char *const blanks[] = {
        " ",      "\t",     "\n",     "\v",     "\f",     "\r",     "\xc2\x85", "\u00a0", "\u1680",
        "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006",   "\u2007", "\u2008",
        "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000",
    };
    for (size_t i = 0; i < BR_COUNT(blanks); i++) {
        size_t n = strlen(blanks[i]);
        if (n <= len && memcmp(p, blanks[i], n) == 0)
            return n;
    }
    return 0;
}

/* Returns the text without blanks at its beginning and its end. */
static struct br_any function_trim_blanks(struct br_any text)
{
    for (size_t n; (n = function_blank_len(text.data, text.len)) > 0;) {
        text.data += n;
        text.len -= n;
    }
    for (size_t n = 1; n <= BLANK_MAX && n <= text.len; n++)
        if (function_blank_len(text.data + text.len - n, n) == n) {
            text.len -= n;
            n = 0;
        }
    return text;
}

static bool function_to_case(struct br_conditions *conditions, struct br_expression *call,
                             unsigned mode, struct br_any *ret)
{
    struct br_str out = {.max = BR_BUF_MAX};
    struct br_any text;
    if (!function_string(conditions, call, 0, &text))
        return false;
    br_str_add(&out, "", 0);
    if (mode == CASE_LOWER || mode == CASE_UPPER) {
        function_fold(&out, &text, mode == CASE_UPPER);
    } else {
        text = function_trim_blanks(text);
        if (mode == CASE_SNAKE)
            function_snake(&out, text.data, text.len);
        else
            function_camel(&out, text.data, text.len);
    }
    return function_result(conditions, &out, BR_VALUE_STRING, ret);
}

static bool function_convert_case(struct br_conditions *conditions, struct br_expression *call,
                                  struct br_any *ret)
{
    return function_to_case(conditions, call, call->mode, ret);
}

static bool function_to_lower(struct br_conditions *conditions, struct br_expression *call,
                              struct br_any *ret)
{
    return function_to_case(conditions, call, CASE_LOWER, ret);
}

static bool function_to_upper(struct br_conditions *conditions, struct br_expression *call,
                              struct br_any *ret)
{
    return function_to_case(conditions, call, CASE_UPPER, ret);
}

/* --- The table -------------------------------------------------------------------------------- */

#define BIT(type) (1u << BR_VALUE_##type)
#define VALUE(name_)                                                                               \
    {                                                                                              \
        .name = (name_), .kind = BR_PARAMETER_VALUE                                                \
    }
#define TYPED(name_, types)                                                                        \
    {                                                                                              \
        .name = (name_), .kind = BR_PARAMETER_VALUE, .literals = (types)                           \
    }
#define TEXT(name_) TYPED(name_, BIT(STRING))
/* A function with one argument. */
#define ONE(name_, function, parameter)                                                            \
    {                                                                                              \
        .name = (name_), .run = (function), .parameters = { parameter }                            \
    }
#define NUMBERS (BIT(EMPTY) | BIT(STRING) | BIT(BOOL) | BIT(INT) | BIT(DOUBLE))

const struct br_function br_converters[] = {
    {"Concat",
     function_concat,
     false,
     {{.name = "vals", .kind = BR_PARAMETER_LIST}, TEXT("delimiter")}},
    {"ConvertCase",
     function_convert_case,
     false,
     {TEXT("target"),
      {.name = "to_case",
       .kind = BR_PARAMETER_MODE,
       .choices = {[CASE_LOWER] = "lower",
                   [CASE_UPPER] = "upper",
                   [CASE_SNAKE] = "snake",
                   [CASE_CAMEL] = "camel"}}}},
    ONE("Double", function_double, TYPED("target", NUMBERS)),
    {"HasPrefix", function_has_prefix, false, {TEXT("target"), TEXT("prefix")}},
    {"HasSuffix", function_has_suffix, false, {TEXT("target"), TEXT("suffix")}},
    ONE("Int", function_int, TYPED("target", NUMBERS)),
    ONE("IsBool", function_is_bool, TYPED("target", BIT(BOOL))),
    ONE("IsDouble", function_is_double, TYPED("target", BIT(DOUBLE))),
    ONE("IsInt", function_is_int, TYPED("target", BIT(INT))),
    ONE("IsList", function_is_list, VALUE("target")),
    ONE("IsMap", function_is_map, TYPED("target", BIT(MAP))),
    {"IsMatch",
     function_is_match,
     false,
     {VALUE("target"), {.name = "pattern", .kind = BR_PARAMETER_PATTERN}}},
    {"IsRootSpan", function_is_root_span, true, {{.kind = BR_PARAMETER_END}}},
    ONE("IsString", function_is_string, TEXT("target")),
    ONE("Len", function_len, VALUE("target")),
    ONE("ParseJSON", function_parse_json, TEXT("target")),
    ONE("SHA1", function_sha1, TEXT("target")),
    ONE("SHA256", function_sha256, TEXT("target")),
    {"Split", function_split, false, {TEXT("target"), TEXT("delimiter")}},
    ONE("String", function_to_string, VALUE("target")),
    {"Substring",
     function_substring,
     false,
     {TEXT("target"),
      TYPED("start", BIT(INT)),
      TYPED("length", BIT(INT)),
      {.name = "utf8_safe", .kind = BR_PARAMETER_BOOL, .optional = true}}},
    ONE("ToLowerCase", function_to_lower, TEXT("target")),
    ONE("ToUpperCase", function_to_upper, TEXT("target")),
    {.name = NULL},
};
