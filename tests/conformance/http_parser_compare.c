/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the messages that must be rejected (tests/support/http1_cases.h) through another parser,
 * Debian's libhttp-parser 2.9.4, and prints which of them it accepts. The results are in
 * docs/decisions/http1.md. It is not part of the build:
 *
 *     gcc -Itests tests/conformance/http_parser_compare.c -lhttp_parser_strict -o /tmp/compare
 *     gcc -Itests tests/conformance/http_parser_compare.c -lhttp_parser -o /tmp/compare
 *
 * A case counts as rejected if the parser reports an error at any byte, if it stops (which it does
 * for Upgrade and CONNECT, and a caller must then do as well), or if the message is never complete.
 * Input is passed as a whole and in single bytes, and both must be rejected.
 */
#include <http_parser.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/http1_cases.h"

static int on_complete(http_parser *p)
{
    ++*(unsigned *)p->data;
    return 0;
}

/* Returns the number of messages that the parser accepted as complete, or 0 if it failed later. */
static unsigned accepted(const struct http1_case *c, size_t step)
{
    unsigned n = 0;
    http_parser p;
    http_parser_settings s;
    http_parser_init(&p, c->kind == 'q' ? HTTP_REQUEST : HTTP_RESPONSE);
    http_parser_settings_init(&s);
    s.on_message_complete = on_complete;
    p.data = &n;
    for (size_t at = 0; at < c->len;) {
        size_t len = step < c->len - at ? step : c->len - at;
        size_t used = http_parser_execute(&p, &s, c->bytes + at, len);
        if (HTTP_PARSER_ERRNO(&p) != HPE_OK || p.upgrade || used != len)
            return 0;
        at += len;
    }
    http_parser_execute(&p, &s, c->bytes + c->len, 0);
    return HTTP_PARSER_ERRNO(&p) == HPE_OK ? n : 0;
}

int main(void)
{
    size_t total = sizeof http1_invalid / sizeof http1_invalid[0], wrong = 0;
    for (size_t i = 0; i < total; i++) {
        const struct http1_case *c = &http1_invalid[i];
        unsigned whole = accepted(c, c->len), bytes = accepted(c, 1);
        if (whole || bytes) {
            printf("| %s | %s | %s |\n", c->kind == 'q' ? "request" : "response", c->section,
                   c->what);
            wrong++;
        }
    }
    printf("\naccepted %zu of %zu\n", wrong, total);
    return 0;
}
