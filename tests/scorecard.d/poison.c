/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A preloaded library that ends the process when a text is copied: that of the variable POISON. A
 * request with this text in its metadata therefore ends the process when it is read from a durable
 * queue.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#define LONGEST 4096 /* longest copy that is searched, in bytes */

static const char *poison;
static size_t poison_len;

__attribute__((constructor)) static void begin(void)
{
    poison = getenv("POISON");
    poison_len = poison ? strlen(poison) : 0;
}

static void *copy(void *to, const void *from, size_t n)
{
    volatile char *out = to;
    const char *in = from;
    if (poison_len && n >= poison_len && n <= LONGEST && memmem(from, n, poison, poison_len))
        abort();
    for (size_t i = 0; i < n; i++)
        out[i] = in[i];
    return to;
}

void *memcpy(void *to, const void *from, size_t n)
{
    return copy(to, from, n);
}

void *__memcpy_chk(void *to, const void *from, size_t n, size_t room);
void *__memcpy_chk(void *to, const void *from, size_t n, size_t room)
{
    if (n > room)
        abort();
    return copy(to, from, n);
}
