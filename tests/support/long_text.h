/* SPDX-License-Identifier: Apache-2.0 */
/* A text for which common patterns take quadratic time, that is, minutes. */
#pragma once

#include <stdlib.h>
#include <string.h>

#define LONG_TEXT_PATTERN "[a-z0-9.]+@[a-z.]+" /* one of these patterns */

/* Returns a megabyte of "abcdabcd..." between two texts, to be freed. Aborts without memory. */
static inline char *long_text_in(const char *head, const char *tail)
{
    enum { N = 1 << 20 };
    size_t n = strlen(head);
    char *text = malloc(n + N + strlen(tail) + 1);
    if (!text)
        abort();
    memcpy(text, head, n);
    for (size_t i = 0; i < N; i++)
        text[n + i] = "abcd"[i % 4];
    memcpy(text + n + N, tail, strlen(tail) + 1);
    return text;
}
