/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/bytes.h"
#include "connectors/routing/routing.h"

static const char *request_skip_blanks(const char *text)
{
    return text + strspn(text, " \t\r\n");
}

/* Reads a quoted text without escapes. Returns the position after the text, or NULL if `text` does
 * not begin with such a text. */
static const char *request_read_quoted(const char *text, struct br_arena *arena, const char **ret)
{
    const char *end = *text == '"' ? strchr(text + 1, '"') : NULL;
    if (!end)
        return NULL;
    *ret = br_arena_strndup(arena, text + 1, (size_t)(end - text - 1));
    return end + 1;
}

/* Parses the condition of a row. Returns false if the condition does not have the supported
 * form. */
static bool request_parse(struct routing_row *row, struct br_arena *arena)
{
    const char *at = request_skip_blanks(row->text);
    if (!br_text_starts(at, "request["))
        return false;
    at = request_read_quoted(at + strlen("request["), arena, &row->key);
    if (!at || *at != ']')
        return false;
    at = request_skip_blanks(at + 1);
    row->differs = br_text_starts(at, "!=");
    if (!row->differs && !br_text_starts(at, "=="))
        return false;
    at = request_read_quoted(request_skip_blanks(at + 2), arena, &row->value);
    return at && !*request_skip_blanks(at);
}

int routing_request_parse(struct routing_row *row, struct br_arena *arena, struct br_err *err)
{
    if (!request_parse(row, arena))
        return br_err_set(err, BR_EINVAL,
                          "must be request[\"KEY\"] == \"VALUE\" or request[\"KEY\"] != \"VALUE\"");
    return row->key && row->value ? 0 : BR_ENOMEM;
}

bool routing_request_matches(const struct routing_row *row, const struct br_item *item)
{
    const char *value = br_item_metadata(item, row->key);
    return value && (strcmp(value, row->value) == 0) != row->differs;
}
