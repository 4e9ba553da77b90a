/* SPDX-License-Identifier: Apache-2.0 */
/* Uses CPU time for the given number of seconds, in three nested functions. */
#include <stdlib.h>
#include <time.h>

static volatile unsigned long sum;

__attribute__((noinline)) static void leaf(void)
{
    for (unsigned i = 0; i < STEPS; i++)
        sum += i;
}

__attribute__((noinline)) static void middle(void)
{
    leaf();
    sum++;
}

int main(int argc, char **argv)
{
    time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1);
    while (time(NULL) < end)
        for (unsigned i = 0; i < 1000; i++)
            middle();
    return 0;
}
