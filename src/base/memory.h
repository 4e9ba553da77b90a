/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory budget limits the memory that the process holds. All workers share one budget, so
 * whether a request fits does not depend on the worker that receives it.
 *
 * The memory held is the total counted by base/mem.h plus overhead: code, stacks, libraries and
 * memory that the allocator keeps. The overhead is the resident set less the counted total. The
 * overhead is measured whenever the counted total has changed by 1/BR_MEMORY_LOOK of the limit.
 *
 * There are three limits:
 *
 *     hard    the process holds at most this much
 *     intake  seven eighths of the hard limit: above it, no bytes are read from clients; the
 *             last eighth is reserved for sending held data
 *     soft    above it, no new request is begun (`memory_limiter`: limit less spike)
 *
 * A budget without limits admits everything. All functions are thread-safe.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BR_MEMORY_LOOK 64u

struct br_memory {
    _Atomic size_t soft, hard; /* the limits in bytes; 0: no limit */
    _Atomic size_t overhead;   /* overhead in bytes, as last measured */
    _Atomic size_t looked_at;  /* counted total in bytes when the overhead was last measured */
    /* bytes that are never freed, as measured by br_memory_limit and br_memory_settle */
    _Atomic size_t floor;
    _Atomic unsigned n_pools; /* number of pools that keep unused buffers */
    /* number of times that the pools were asked to free their unused buffers */
    _Atomic unsigned trims;
    /* returns the resident set of the process in bytes; NULL: overhead is not measured */
    size_t (*resident)(void);
};

/* Returns in `*ret` the bytes that the process may use: the machine's memory (MemTotal), or the
 * lowest limit of the process's control groups (v1 or v2) if that limit is lower. `root` is put
 * before /proc and /sys in tests, and is otherwise "". Returns false if none of the files can be
 * read. */
bool br_memory_total(const char *root, uint64_t *ret);

/* Returns the resident set in bytes (proc(5), statm), or 0 if it cannot be read. */
size_t br_memory_resident(void);

/* Lowers the limits to these values, in bytes; a value of 0 leaves the limit unchanged. Call it
 * before threads start. */
void br_memory_limit(struct br_memory *memory, size_t soft, size_t hard);

/* Returns the soft limit in bytes; SIZE_MAX: no limit. */
size_t br_memory_soft(const struct br_memory *memory);

/* Returns the intake limit in bytes, which is below the hard limit; SIZE_MAX: no limit. */
size_t br_memory_intake(const struct br_memory *memory);

/* Returns the hard limit in bytes; SIZE_MAX: no limit. */
size_t br_memory_hard(const struct br_memory *memory);

/* Returns the number of bytes that the process holds: counted total and overhead. Measures the
 * overhead again if the counted total has changed enough. */
size_t br_memory_used(struct br_memory *memory);

/* Returns the overhead in bytes, as last measured. */
size_t br_memory_overhead(const struct br_memory *memory);

/* Measures the overhead now. */
void br_memory_look(struct br_memory *memory);

/* Returns true if the memory budget has room for `more` bytes from a client. */
bool br_memory_fits(struct br_memory *memory, size_t more);

/* Returns true if `more` bytes can be allocated to send held data. These bytes may exceed the
 * intake limit, but not the hard limit. */
bool br_memory_sends(struct br_memory *memory, size_t more);

/* Returns true if the process holds more than the hard limit. The caller should then not begin
 * work that can wait. */
bool br_memory_is_over(struct br_memory *memory);

/* Returns the largest number of bytes that a single request can get when no other work holds
 * memory. A request that needs more must not be retried. */
size_t br_memory_largest(const struct br_memory *memory);

/* Makes room after a large allocation was refused. `own` is the number of bytes that the refused
 * work already holds. Frees the memory that the allocator keeps, asks all workers to free their
 * unused buffers (br_memory_trims), and measures the overhead. If no other request uses memory, the
 * bytes that are still counted, apart from `own`, are treated as never freed: br_memory_largest
 * subtracts them. Takes milliseconds. */
void br_memory_settle(struct br_memory *memory, size_t own);

/* Returns how often the workers were asked to free their unused buffers. */
unsigned br_memory_trims(const struct br_memory *memory);
