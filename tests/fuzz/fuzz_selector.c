/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the parsers of label selectors and of other names in a query. An accepted text must be
 * within the limits and be UTF-8. If it is written and parsed again, the result must be the
 * same. */
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "query/id.h"
#include "query/selector.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void put_quoted(struct br_str *out, const char *text)
{
    br_str_putc(out, '"');
    for (; *text; text++)
        br_str_printf(out, *text == '"' || *text == '\\' || *text == '\n' ? "\\%03o" : "%c", *text);
    br_str_putc(out, '"');
}

static void read_again(struct br_arena *arena, const struct br_selector *selector)
{
    static const char *const operators[] = {"=", "!=", "=~", "!~"};
    struct br_str text = {0};
    struct br_selector again;
    br_str_putc(&text, '{');
    for (size_t i = 0; i < selector->n_matchers; i++) {
        put_quoted(&text, selector->matchers[i].name);
        br_str_puts(&text, operators[selector->matchers[i].type]);
        put_quoted(&text, selector->matchers[i].value);
        br_str_putc(&text, ',');
    }
    br_str_putc(&text, '}');
    if (text.len <= BR_SELECTOR_MAX) {
        require(br_selector_parse(text.data, text.len, arena, &again, NULL) == 0);
        require(again.n_matchers == selector->n_matchers);
        for (size_t i = 0; i < again.n_matchers; i++) {
            require(again.matchers[i].type == selector->matchers[i].type);
            require(!strcmp(again.matchers[i].name, selector->matchers[i].name));
            require(!strcmp(again.matchers[i].value, selector->matchers[i].value));
        }
    }
    br_str_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *service;
    struct br_arena arena = {0};
    struct br_selector selector;
    struct br_profile_type type;
    struct br_err err = {0};
    uint8_t id[16];
    if (br_selector_parse(text, size, &arena, &selector, &err) == 0) {
        require(selector.n_matchers <= BR_SELECTOR_MATCHERS_MAX);
        read_again(&arena, &selector);
    } else {
        require(err.code != BR_EINVAL || size > BR_SELECTOR_MAX || (err.line > 0 && err.col > 0));
    }
    if (br_profile_type_parse(text, size, &arena, &type, &err) == 0)
        require(*type.name && *type.type && strlen(type.id) <= size);
    if (br_profile_type_app(text, size, &arena, &type, &service, &err) == 0)
        require(strlen(service) <= size);
    (void)br_id_parse(text, size, id, 8);
    (void)br_id_parse(text, size, id, 16);
    br_arena_release(&arena);
    return 0;
}
