/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator that every module uses, and the counters behind it. The counters count the bytes
 * that the process holds, by memory category, and the bytes that one piece of work (a scope) has
 * allocated.
 *
 * A block is counted with the size that the C library reserves for it, not with the requested size.
 * Each thread counts separately. When the counts of a thread have changed by BR_MEM_STEP bytes, the
 * changes are added to the counts of the process. The total of the process is exact up to that
 * amount per thread; br_mem_flush adds a thread's changes at once.
 *
 * The hooks let tests make the n-th allocation fail. Law 10 in docs/contributing/laws.md lists the
 * mutable file-scope variables.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct br_mem_hooks {
    void *(*alloc)(size_t size);
    void *(*resize)(void *p, size_t size);
    void (*release)(void *p);
    /* returns the size of a block in bytes; NULL: malloc_usable_size is used */
    size_t (*size)(const void *p);
};

/* Replaces the allocator for tests; NULL restores the C library's allocator. Call it only while
 * a single thread runs and no block allocated through other hooks exists. `hooks` must stay
 * valid. */
void br_mem_set_hooks(const struct br_mem_hooks *hooks);

/* Size in bytes from which on the C library usually maps a block separately. Such a block returns
 * to the system when it is freed, and is resized without copying. If the heap has free space of
 * that size, the block is allocated in the heap instead. */
#define BR_MEM_MAPPED (512u << 10)

/* Configures the C library's allocator for the whole process. Blocks of BR_MEM_MAPPED bytes and
 * more are mapped. Freed memory is kept, up to 1/32 of `limit` (a number of bytes), but at least 4
 * MiB and at most 64 MiB. Returning pages to the system and getting them again would take about a
 * tenth of the processor time. br_mem_trim returns the kept pages when the process is idle. */
void br_mem_tune(size_t limit);

/* The functions br_malloc to br_strndup work like malloc, calloc, realloc, free, strdup and
 * strndup. All of these functions return NULL if memory runs out; a size of 0 gives a unique
 * pointer. The caller owns the result and frees it with br_free. */
void *br_malloc(size_t size);
void *br_calloc(size_t count, size_t size);
void *br_realloc(void *memory, size_t size);
void br_free(void *memory);
char *br_strdup(const char *text);
char *br_strndup(const char *text, size_t len);

/* br_map, br_remap and br_unmap work like malloc, realloc and free for blocks that are always
 * mapped separately, in whole pages. br_remap never copies a block but moves its pages. `had` is
 * the size with which the block was made or last resized. If hooks are set, or in builds with a
 * sanitizer, the blocks come from the ordinary allocator instead. The caller owns the block and
 * frees it with br_unmap. */
void *br_map(size_t size);
void *br_remap(void *memory, size_t had, size_t size);
void br_unmap(void *memory, size_t had);

/* Returns to the system the freed memory that the C library keeps. Takes milliseconds, during
 * which the heaps are locked. The free end of a heap is returned only if it is the first heap of
 * the process, or if a thread that uses it has called br_mem_enlist. */
void br_mem_trim(void);

/* Enlists the heap of the calling thread for br_mem_trim. The first call of a thread adds a block
 * of 68 KiB to the heap, which is never freed and of which a page is used; later calls do nothing.
 * If memory runs out, the next call tries again. */
void br_mem_enlist(void);

/* --- The meter -------------------------------------------------------------------------------- */

#define BR_MEM_STEP 65536

/* Memory categories: the purpose of the memory. */
enum br_holder {
    /* memory that is not counted in another category, such as config and metrics */
    BR_HOLDER_PROCESS,
    BR_HOLDER_REQUESTS, /* bodies of requests, and their decompressed or converted form */
    BR_HOLDER_BATCHES,  /* payloads that wait in the processor `batch` */
    BR_HOLDER_QUEUES,   /* payloads that wait for an exporter */
    /* payloads that wait in the processors `join` and `tail_sampling` */
    BR_HOLDER_HOLDS,
    BR_HOLDER_ITEMS,        /* data that describes payloads: lists of parts and spans, arenas */
    BR_HOLDER_DICTIONARIES, /* dictionaries for merging profiles */
    BR_HOLDER_JOIN,         /* table of the `join` processor */
    /* sockets, sessions, request heads, replies that the peers have not read yet */
    BR_HOLDER_CONNECTIONS,
    BR_HOLDER_TLS,
    BR_HOLDER_ANSWERS, /* answers to queries, until the clients have read them */
    BR_HOLDER_STORE,   /* index of the store's open partition */
    BR_HOLDER_POOL,    /* unused buffers, kept for the next request */
    BR_HOLDERS,
};

/* Returns "process", "requests", ..., the values of the label `holder` of braid_memory_bytes. */
const char *br_holder_name(enum br_holder holder);

/* Adds `bytes`, which may be negative, to this thread's count of a category other than
 * BR_HOLDER_PROCESS. */
void br_mem_hold(enum br_holder holder, int64_t bytes);

/* br_malloc_for, br_calloc_for, br_realloc_for and br_free_for work like br_malloc, br_calloc,
 * br_realloc and br_free, and count the block in a memory category. Pass the same category in
 * all calls for a block. */
void *br_malloc_for(enum br_holder holder, size_t size);
void *br_calloc_for(enum br_holder holder, size_t count, size_t size);
void *br_realloc_for(enum br_holder holder, void *memory, size_t size);
void br_free_for(enum br_holder holder, void *memory);

/* Counts bytes that a library allocated (or freed, if negative) without br_malloc. */
void br_mem_count(int64_t bytes);

/* Adds the changes of this thread's counts to the counts of the process. */
void br_mem_flush(void);

/* Returns the number of bytes that the process holds in total. */
size_t br_mem_live(void);

/* Returns the number of bytes that the process holds in one memory category. */
size_t br_mem_held(enum br_holder holder);

/* --- Scopes ----------------------------------------------------------------------------------- */

struct br_memory;

/*
 * A scope is one piece of work for a client, such as reading, converting or merging, from
 * br_mem_scope_begin to br_mem_scope_end in one thread. All allocations in a scope are counted. An
 * allocation that would exceed `max`, or the budget of the process, fails as if memory had run out;
 * `full` and `refused` indicate the reason. An inner scope can use at most the bytes that the outer
 * scope has left. When the inner scope ends, its bytes count towards the outer scope.
 */
struct br_mem_scope {
    struct br_mem_scope *outer;
    struct br_memory *memory; /* memory budget of the process; NULL: only `max` limits the scope */
    /* the scope sends data that is already held (br_memory_sends); set after br_mem_scope_begin */
    bool sends;
    size_t max; /* largest number of bytes that the scope may hold at the same time */
    /* bytes that the scope holds; negative if blocks from before the scope were freed */
    int64_t used;
    int64_t peak;
    /* The reason for the last refused allocation. The reason matters only if the work failed: work
     * that succeeds in spite of a refusal did not need the memory. */
    bool full; /* the allocation would have exceeded `max`: a retry fails again */
    /* the allocation would have exceeded the budget: a retry can succeed if `wanted` can ever
     * fit into the budget */
    bool refused;
    /* maximum, over all refused allocations, of the bytes that the scope would have held if the
     * allocation had succeeded */
    size_t wanted;
};

/* Begins a scope. `scope` must not move until it has ended. */
void br_mem_scope_begin(struct br_mem_scope *scope, size_t max, struct br_memory *memory);

/* Ends the innermost scope, which is `scope`. The figures of the scope stay readable. */
void br_mem_scope_end(struct br_mem_scope *scope);

/* Counts reused memory towards the innermost scope as if it were allocated. Returns false if the
 * scope's maximum or the budget is reached. br_mem_scope_give reverses this function. */
bool br_mem_scope_take(size_t bytes);
void br_mem_scope_give(size_t bytes);

/* --- Arithmetic and arrays -------------------------------------------------------------------- */

/* br_size_add and br_size_mul set `*ret` to the sum or the product. If the result overflows,
 * both functions return false and leave `*ret` unchanged. */
bool br_size_add(size_t left, size_t right, size_t *ret);
bool br_size_mul(size_t left, size_t right, size_t *ret);

/* Returns the address after `len` bytes. NULL is allowed if `len` is 0, although C17 leaves NULL
 * + 0 undefined (section 6.5.6). */
static inline const void *br_mem_end(const void *bytes, size_t len)
{
    return len ? (const char *)bytes + len : bytes;
}

/* Grows the array `*items` of `*cap` elements of `size` bytes to at least `need` and at most
 * `max` elements. Returns 0, BR_EFULL (`need` is greater than `max`) or BR_ENOMEM; on failure
 * nothing changes. */
int br_grow_more(void *items, uint32_t *cap, size_t need, size_t size, size_t max);

static inline int br_grow(void *items, uint32_t *cap, size_t need, size_t size, size_t max)
{
    return need <= *cap ? 0 : br_grow_more(items, cap, need, size, max);
}

#define br_container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define BR_COUNT(array) (sizeof(array) / sizeof((array)[0]))
