/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory budget: it limits what the process may hold. All workers draw on the one budget, so a
 * request that fits the process fits whichever worker it came to.
 *
 * What is held is what the meter of base/mem.h counts, and the overhead beside it: code, stacks,
 * libraries and what the allocator keeps, which is measured (resident set less what is counted)
 * each time the count has moved by a BR_MEMORY_LOOK-th of the limit.
 *
 * Three marks, from the limit down:
 *
 *     hard    the process holds no more than this
 *     intake  hard less an eighth: from here on no bytes are taken from peers; what is
 *             left above is for sending what is held
 *     soft    from here on no new request is begun (`memory_limiter`: limit less spike)
 *
 * A budget without a limit admits everything. Safe in all threads.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BR_MEMORY_LOOK 64u

struct br_memory {
    _Atomic size_t soft, hard; /* 0: none */
    _Atomic size_t overhead;   /* as last measured */
    _Atomic size_t looked_at;  /* the count at that time */
    _Atomic size_t floor; /* what is never given back, as br_memory_limit and _settle found it */
    _Atomic unsigned n_pools; /* that keep unused buffers */
    _Atomic unsigned trims;   /* how often pools were asked to give those back */
    size_t (*resident)(void); /* the process's resident bytes; NULL: overhead is not measured */
};

/* Gives the memory that the process may use, in bytes: the machine's (MemTotal), or what the
 * control group (v2 or v1) it is in, or one above it, allows where that is less. `root` stands
 * before /proc and /sys; "" but in tests. False when none of the files can be read. */
bool br_memory_total(const char *root, uint64_t *ret);

/* Returns the resident set in bytes (proc(5), statm); 0 where that cannot be read. */
size_t br_memory_resident(void);

/* Sets the marks, where they are lower than those that are set; 0: no limit. Before threads start.
 */
void br_memory_limit(struct br_memory *memory, size_t soft, size_t hard);

/* Returns the marks; SIZE_MAX where there is none. */
size_t br_memory_soft(const struct br_memory *memory);
size_t br_memory_intake(const struct br_memory *memory);
size_t br_memory_hard(const struct br_memory *memory);

/* Returns the bytes held: counted, and overhead. Measures the overhead when that is due. */
size_t br_memory_used(struct br_memory *memory);

/* Returns the overhead as last measured. */
size_t br_memory_overhead(const struct br_memory *memory);

/* Measures the overhead now. */
void br_memory_look(struct br_memory *memory);

/* Returns true when `more` bytes can be taken from a peer now. */
bool br_memory_fits(struct br_memory *memory, size_t more);

/* Returns true when `more` bytes can be taken to send what is held: above the intake mark, too. */
bool br_memory_sends(struct br_memory *memory, size_t more);

/* Returns true when the process holds more than the hard mark: nothing is begun that can be begun
 * later. */
bool br_memory_is_over(struct br_memory *memory);

/* Returns the most that a single request can ever get: what exceeds it is not to be tried again. */
size_t br_memory_largest(const struct br_memory *memory);

/* Makes room after something large was refused, for which `own` bytes are held: gives back what
 * the allocator keeps, asks all workers for their unused buffers (br_memory_trims), and measures.
 * Where nothing else is held for peers, what is left is what is never given back:
 * br_memory_largest follows. Takes milliseconds. */
void br_memory_settle(struct br_memory *memory, size_t own);

/* Counts how often it was asked for unused buffers. */
unsigned br_memory_trims(const struct br_memory *memory);
