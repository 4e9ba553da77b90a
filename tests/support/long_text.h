/* SPDX-License-Identifier: Apache-2.0 */
/* A text that makes common regular expressions take quadratic time, which means minutes here. */
#pragma once

#include <stdlib.h>
#include <string.h>

/* a regular expression that takes quadratic time for this text */
#define LONG_TEXT_PATTERN "[a-z0-9.]+@[a-z.]+"

/* Returns a text that consists of `head`, a megabyte of "abcdabcd...", and `tail`. The caller frees
 * it. Aborts if memory is exhausted. */
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
