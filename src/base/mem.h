/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator every module uses, and the meter behind it: how many bytes the process holds, who
 * holds them, and what one piece of work (a scope) has taken.
 *
 * The meter counts what the C library sets aside for a block, not what was asked for. Each thread
 * counts for itself and adds its figures to the process's once they differ by BR_MEM_STEP, so the
 * process's total is exact but for that much a thread; br_mem_flush makes a thread's part exact.
 *
 * The hooks exist for one purpose: tests make the n-th allocation fail. Which mutable file-scope
 * variables there are, law 10 of docs/contributing/laws.md says.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct br_mem_hooks {
    void *(*alloc)(size_t size);
    void *(*resize)(void *p, size_t size);
    void (*release)(void *p);
    size_t (*size)(const void *p); /* of a block; NULL: blocks are the C library's own */
};

/* Replaces the allocator, for tests; NULL brings the C library's back. Only while a single thread
 * runs and nothing allocated through other hooks is alive. Borrows `hooks` for the life of the
 * process. */
void br_mem_set_hooks(const struct br_mem_hooks *hooks);

/* From this size on the C library mostly maps a block on its own: it goes back to the system when
 * it is freed, and is resized without being copied. Mostly: where its heap has room of that size at
 * hand, the block is a part of the heap. */
#define BR_MEM_MAPPED (512u << 10)

/* Sets the C library's allocator to that, and to keep a 32nd of `limit` bytes of what is freed, 4
 * to 64 MiB, for the whole process: giving pages back and taking them again costs a tenth of the
 * time. At rest br_mem_trim gives them back. */
void br_mem_tune(size_t limit);

/* Do as malloc, calloc, realloc, free, strdup, strndup do: NULL when there is no memory (size 0
 * gives a unique pointer). The caller owns the result and gives it back with br_free. */
void *br_malloc(size_t size);
void *br_calloc(size_t count, size_t size);
void *br_realloc(void *memory, size_t size);
void br_free(void *memory);
char *br_strdup(const char *text);
char *br_strndup(const char *text, size_t len);

/* Likewise of blocks that are always mapped on their own, in whole pages: br_remap never copies,
 * but moves a block's pages. `had` is the size that the block was made with or given last. With
 * hooks, and where a sanitizer watches the C library's blocks, they are such blocks. The caller
 * owns the block and gives it back with br_unmap. */
void *br_map(size_t size);
void *br_remap(void *memory, size_t had, size_t size);
void br_unmap(void *memory, size_t had);

/* Gives the system back what the C library keeps of freed memory. Takes milliseconds, and for that
 * time the locks of its heaps. */
void br_mem_trim(void);

/* --- The meter -------------------------------------------------------------------------------- */

#define BR_MEM_STEP 65536

/* What memory is for. */
enum br_holder {
    BR_HOLDER_PROCESS,  /* what no other claims: config, metrics, tables of readers */
    BR_HOLDER_REQUESTS, /* bodies that come in, and what they are decompressed or converted to */
    BR_HOLDER_BATCHES,  /* payloads that wait in `batch` */
    BR_HOLDER_QUEUES,   /* payloads that wait for an exporter */
    BR_HOLDER_HOLDS,    /* payloads that wait in `join` for what belongs to them */
    BR_HOLDER_ITEMS,    /* lists of parts and spans, arenas: what describes payloads */
    BR_HOLDER_DICTIONARIES, /* what profiles are merged with */
    BR_HOLDER_JOIN,         /* the join's table */
    BR_HOLDER_CONNECTIONS,  /* sockets, sessions, heads, replies that are not read yet */
    BR_HOLDER_TLS,
    BR_HOLDER_ANSWERS, /* to queries, until their clients have read them */
    BR_HOLDER_STORE,   /* what the store knows of its open partition */
    BR_HOLDER_POOL,    /* unused buffers, kept for the next request */
    BR_HOLDERS,
};

/* Returns "process", "requests", ..., as in braid_memory_bytes{holder}. */
const char *br_holder_name(enum br_holder holder);

/* Says that `holder`, which is not BR_HOLDER_PROCESS, holds `bytes` more (or less, when negative)
 * of what this thread allocated. */
void br_mem_hold(enum br_holder holder, int64_t bytes);

/* Do as br_malloc and its neighbours do, for memory of one holder from its beginning to its end. */
void *br_malloc_for(enum br_holder holder, size_t size);
void *br_calloc_for(enum br_holder holder, size_t count, size_t size);
void *br_realloc_for(enum br_holder holder, void *memory, size_t size);
void br_free_for(enum br_holder holder, void *memory);

/* Counts bytes that were allocated (or freed, when negative) past br_malloc, by a library. */
void br_mem_count(int64_t bytes);

/* Adds this thread's figures to the process's. */
void br_mem_flush(void);

/* Returns the bytes that the process holds, and of these a holder's. */
size_t br_mem_live(void);
size_t br_mem_held(enum br_holder holder);

/* --- Scopes ----------------------------------------------------------------------------------- */

struct br_memory;

/*
 * One piece of work for a peer, from br_mem_scope_begin to br_mem_scope_end in one thread: reading,
 * converting, merging. What it holds is counted, and an allocation that would take it over `max`,
 * or the process over its budget, fails as if there were no memory; `full` and `refused` tell
 * which. A scope inside another has at most what that has left, and counts for it when it ends.
 */
struct br_mem_scope {
    struct br_mem_scope *outer;
    struct br_memory *memory; /* NULL: only `max` counts */
    bool sends;   /* set after the beginning: it is for sending what is held (br_memory_sends) */
    size_t max;   /* bytes that the work may hold at a time */
    int64_t used; /* that it holds; blocks from before may make it negative */
    int64_t peak;
    /* Why something was refused last: what went on after a refusal did not need it. */
    bool full;     /* for `max`: it can never succeed */
    bool refused;  /* for the budget: it can succeed later, where the budget ... */
    size_t wanted; /* ... ever has so much: what was held and refused then, at the most */
};

/* Begins a scope. The caller keeps `scope` where it is until it has ended. */
void br_mem_scope_begin(struct br_mem_scope *scope, size_t max, struct br_memory *memory);

/* Ends the innermost scope, which is `scope`. Its figures stay readable. */
void br_mem_scope_end(struct br_mem_scope *scope);

/* Counts memory that is used again instead of being allocated for the innermost scope, as an
 * allocation would be. Returns false when the scope's maximum or budget is reached.
 * br_mem_scope_give is the way back. */
bool br_mem_scope_take(size_t bytes);
void br_mem_scope_give(size_t bytes);

/* --- Arithmetic and arrays -------------------------------------------------------------------- */

/* Sets `*ret` to a + b, or a * b; false (and `*ret` untouched) when that overflows. */
bool br_size_add(size_t left, size_t right, size_t *ret);
bool br_size_mul(size_t left, size_t right, size_t *ret);

/* Returns the end of so many bytes, also of none at NULL, where the language has no NULL + 0
 * (C17 section 6.5.6). */
static inline const void *br_mem_end(const void *bytes, size_t len)
{
    return len ? (const char *)bytes + len : bytes;
}

/* Grows the array `*items` of `*cap` elements of `size` bytes so that it holds at least `need`,
 * but never more than `max`. Returns 0, BR_EFULL (need > max) or BR_ENOMEM; on failure nothing
 * changed. */
int br_grow_more(void *items, uint32_t *cap, size_t need, size_t size, size_t max);

static inline int br_grow(void *items, uint32_t *cap, size_t need, size_t size, size_t max)
{
    return need <= *cap ? 0 : br_grow_more(items, cap, need, size, max);
}

#define br_container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define BR_COUNT(array) (sizeof(array) / sizeof((array)[0]))
