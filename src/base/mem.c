/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <assert.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/memory.h"
#include "base/sanitize.h"
#include "base/steps.h"

/* Bytes that the C library keeps in front of a block. */
#define BLOCK_HEAD sizeof(size_t)
#define TRIM_MIN (4u << 20)
#define TRIM_MAX (64u << 20)
/* divisor: up to 1/TRIM_SHARE of the memory limit is kept as freed memory */
#define TRIM_SHARE 32u
/* The C library returns the end of a heap only when a block of 64 KiB or more is freed in the heap
 * (FASTBIN_CONSOLIDATION_THRESHOLD). This size remains above that if a part of it is in use. */
#define MARK_BYTES (68u << 10)
/* default of M_TOP_PAD: bytes that the C library leaves at the end of a heap when it trims it */
#define TOP_PAD (128 << 10)

/* A block that stays in the heap of a thread. To trim the end of that heap, br_mem_trim shrinks the
 * block, which frees MARK_BYTES in the heap, and then enlarges it again. malloc_trim alone returns
 * free pages between blocks, but not those at the end of a heap, except for the first heap of the
 * process. Only the first page of a block is ever used. */
struct mem_mark {
    struct mem_mark *next;
};

static pthread_mutex_t marks_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mem_mark *marks;
static _Atomic int kept_bytes = TRIM_MIN;

static const struct br_mem_hooks libc_hooks = {malloc, realloc, free, NULL};
static const struct br_mem_hooks *hooks = &libc_hooks;

/* A thread's memory figures that have not been added to those of the process yet, and its
 * innermost scope. */
static _Thread_local struct {
    int64_t live;
    int64_t held[BR_HOLDERS];
    struct br_mem_scope *scope;
} meter;

static _Atomic int64_t process_live;
static _Atomic int64_t process_held[BR_HOLDERS];

void br_mem_set_hooks(const struct br_mem_hooks *mem_hooks)
{
    hooks = mem_hooks ? mem_hooks : &libc_hooks;
}

/* Setting the thresholds also prevents the C library from raising them when blocks are freed.
 * With higher thresholds, large blocks would stay in the heaps of their threads. */
void br_mem_tune(size_t limit)
{
    size_t keep = limit / TRIM_SHARE;
    if (keep < TRIM_MIN)
        keep = TRIM_MIN;
    if (keep > TRIM_MAX)
        keep = TRIM_MAX;
    (void)mallopt(M_MMAP_THRESHOLD, BR_MEM_MAPPED);
    (void)mallopt(M_TRIM_THRESHOLD, (int)keep);
    atomic_store_explicit(&kept_bytes, (int)keep, memory_order_relaxed);
}

/* --- The meter -------------------------------------------------------------------------------- */

const char *br_holder_name(enum br_holder holder)
{
    static const char *const names[BR_HOLDERS] = {
        [BR_HOLDER_PROCESS] = "process",
        [BR_HOLDER_REQUESTS] = "requests",
        [BR_HOLDER_BATCHES] = "batches",
        [BR_HOLDER_QUEUES] = "queues",
        [BR_HOLDER_HOLDS] = "holds",
        [BR_HOLDER_ITEMS] = "items",
        [BR_HOLDER_DICTIONARIES] = "dictionaries",
        [BR_HOLDER_JOIN] = "join",
        [BR_HOLDER_CONNECTIONS] = "connections",
        [BR_HOLDER_TLS] = "tls",
        [BR_HOLDER_ANSWERS] = "answers",
        [BR_HOLDER_STORE] = "store",
        [BR_HOLDER_POOL] = "pool",
    };
    return names[holder];
}

static void mem_add(_Atomic int64_t *figure, int64_t *change)
{
    if (*change)
        atomic_fetch_add_explicit(figure, *change, memory_order_relaxed);
    *change = 0;
}

void br_mem_flush(void)
{
    mem_add(&process_live, &meter.live);
    for (int i = 0; i < BR_HOLDERS; i++)
        mem_add(&process_held[i], &meter.held[i]);
}

static size_t mem_positive(int64_t figure)
{
    return figure > 0 ? (size_t)figure : 0;
}

size_t br_mem_live(void)
{
    return mem_positive(atomic_load_explicit(&process_live, memory_order_relaxed) + meter.live);
}

size_t br_mem_held(enum br_holder holder)
{
    int64_t held =
        atomic_load_explicit(&process_held[holder], memory_order_relaxed) + meter.held[holder];
    if (holder != BR_HOLDER_PROCESS)
        return mem_positive(held);
    held = (int64_t)br_mem_live();
    for (int i = BR_HOLDER_PROCESS + 1; i < BR_HOLDERS; i++)
        held -= (int64_t)br_mem_held((enum br_holder)i);
    return mem_positive(held);
}

void br_mem_hold(enum br_holder holder, int64_t bytes)
{
    meter.held[holder] += bytes;
    if (meter.held[holder] >= BR_MEM_STEP || meter.held[holder] <= -BR_MEM_STEP)
        mem_add(&process_held[holder], &meter.held[holder]);
}

/* Returns the number of bytes with which a block is counted: its size as rounded by the C
 * library, plus its header. */
static size_t mem_block(const void *memory)
{
    if (!memory)
        return 0;
    return BLOCK_HEAD +
           (hooks->size ? hooks->size(memory) : malloc_usable_size((void *)(uintptr_t)memory));
}

static void mem_scope_count(int64_t bytes)
{
    struct br_mem_scope *scope = meter.scope;
    if (!scope)
        return;
    scope->used += bytes;
    if (scope->used > scope->peak)
        scope->peak = scope->used;
}

void br_mem_count(int64_t bytes)
{
    meter.live += bytes;
    if (meter.live >= BR_MEM_STEP || meter.live <= -BR_MEM_STEP)
        mem_add(&process_live, &meter.live);
    mem_scope_count(bytes);
}

/* --- Scopes ----------------------------------------------------------------------------------- */

void br_mem_scope_begin(struct br_mem_scope *scope, size_t max, struct br_memory *memory)
{
    struct br_mem_scope *outer = meter.scope;
    *scope = (struct br_mem_scope){.outer = outer, .memory = memory, .max = max};
    meter.scope = scope;
    if (!outer)
        return;
    size_t used = mem_positive(outer->used), left = used < outer->max ? outer->max - used : 0;
    scope->max = left < max ? left : max;
    scope->memory = memory ? memory : outer->memory;
    scope->sends = outer->sends;
}

void br_mem_scope_end(struct br_mem_scope *scope)
{
    struct br_mem_scope *outer = scope->outer;
    assert(meter.scope == scope);
    meter.scope = outer;
    if (!outer)
        return;
    int64_t peak = outer->used + scope->peak;
    outer->used += scope->used;
    outer->peak = peak > outer->peak ? peak : outer->peak;
    if (scope->full || scope->refused) {
        outer->full = scope->full;
        outer->refused = scope->refused;
    }
    if (scope->refused && mem_positive(outer->used - scope->used) + scope->wanted > outer->wanted)
        outer->wanted = mem_positive(outer->used - scope->used) + scope->wanted;
}

/* Returns true if the innermost scope may allocate `size` more bytes. */
static bool mem_admitted(size_t size)
{
    struct br_mem_scope *scope = meter.scope;
    if (!scope)
        return true;
    if (size > scope->max || mem_positive(scope->used) > scope->max - size) {
        scope->full = true;
        scope->refused = false;
        return false;
    }
    if (!scope->memory ||
        (scope->sends ? br_memory_sends(scope->memory, size) : br_memory_fits(scope->memory, size)))
        return true;
    scope->refused = true;
    scope->full = false;
    if (mem_positive(scope->used) + size > scope->wanted)
        scope->wanted = mem_positive(scope->used) + size;
    return false;
}

bool br_mem_scope_take(size_t bytes)
{
    if (!mem_admitted(bytes))
        return false;
    mem_scope_count((int64_t)bytes);
    return true;
}

void br_mem_scope_give(size_t bytes)
{
    mem_scope_count(-(int64_t)bytes);
}

/* --- The allocator ---------------------------------------------------------------------------- */

void *br_malloc(size_t size)
{
    if (!mem_admitted(size))
        return NULL;
    void *p = hooks->alloc(size ? size : 1);
    if (p)
        br_mem_count((int64_t)mem_block(p));
    return p;
}

void *br_calloc(size_t count, size_t size)
{
    size_t total;
    if (!br_size_mul(count, size, &total))
        return NULL;
    void *p = br_malloc(total);
    if (p)
        memset(p, 0, total ? total : 1);
    return p;
}

void *br_realloc(void *memory, size_t size)
{
    size_t before = mem_block(memory);
    if (size > before && !mem_admitted(size - before))
        return NULL;
    void *moved = hooks->resize(memory, size ? size : 1);
    if (moved)
        br_mem_count((int64_t)mem_block(moved) - (int64_t)before);
    return moved;
}

void br_free(void *memory)
{
    if (!memory)
        return;
    br_mem_count(-(int64_t)mem_block(memory));
    hooks->release(memory);
}

static bool mem_maps(void)
{
    return !BR_SANITIZED && hooks == &libc_hooks;
}

static size_t mem_pages(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (size + page - 1) & ~(page - 1);
}

void *br_map(size_t size)
{
    if (!mem_maps())
        return br_malloc(size);
    if (!mem_admitted(size))
        return NULL;
    size_t len = mem_pages(size);
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    br_mem_count((int64_t)len);
    return p;
}

void *br_remap(void *memory, size_t had, size_t size)
{
    if (!mem_maps())
        return br_realloc(memory, size);
    size_t before = mem_pages(had), len = mem_pages(size);
    if (len > before && !mem_admitted(len - before))
        return NULL;
    void *moved = mremap(memory, before, len, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED)
        return NULL;
    br_mem_count((int64_t)len - (int64_t)before);
    return moved;
}

void br_unmap(void *memory, size_t had)
{
    if (!mem_maps()) {
        br_free(memory);
        return;
    }
    br_mem_count(-(int64_t)mem_pages(had));
    (void)munmap(memory, mem_pages(had));
}

void br_mem_enlist(void)
{
    static _Thread_local bool enlisted;
    struct mem_mark *mark = enlisted ? NULL : malloc(sizeof *mark + MARK_BYTES);
    if (!mark)
        return;
    enlisted = true;
    pthread_mutex_lock(&marks_lock);
    mark->next = marks;
    marks = mark;
    pthread_mutex_unlock(&marks_lock);
}

/* realloc takes the memory from the heap in which the block is, whichever thread calls it. */
static void mem_resize_mark(struct mem_mark **mark, size_t size)
{
    struct mem_mark *moved = realloc(*mark, size);
    if (moved)
        *mark = moved;
}

void br_mem_trim(void)
{
    pthread_mutex_lock(&marks_lock);
    (void)mallopt(M_TRIM_THRESHOLD, 0);
    (void)mallopt(M_TOP_PAD, 0);
    for (struct mem_mark **mark = &marks; *mark; mark = &(*mark)->next) {
        mem_resize_mark(mark, sizeof **mark);
        mem_resize_mark(mark, sizeof **mark + MARK_BYTES);
    }
    (void)malloc_trim(0);
    (void)mallopt(M_TOP_PAD, TOP_PAD);
    (void)mallopt(M_TRIM_THRESHOLD, atomic_load_explicit(&kept_bytes, memory_order_relaxed));
    pthread_mutex_unlock(&marks_lock);
}

void *br_malloc_for(enum br_holder holder, size_t size)
{
    void *p = br_malloc(size);
    br_mem_hold(holder, (int64_t)mem_block(p));
    return p;
}

void *br_calloc_for(enum br_holder holder, size_t count, size_t size)
{
    void *p = br_calloc(count, size);
    br_mem_hold(holder, (int64_t)mem_block(p));
    return p;
}

void *br_realloc_for(enum br_holder holder, void *memory, size_t size)
{
    int64_t before = (int64_t)mem_block(memory);
    void *moved = br_realloc(memory, size);
    if (moved)
        br_mem_hold(holder, (int64_t)mem_block(moved) - before);
    return moved;
}

void br_free_for(enum br_holder holder, void *memory)
{
    br_mem_hold(holder, -(int64_t)mem_block(memory));
    br_free(memory);
}

char *br_strndup(const char *text, size_t len)
{
    char *copy = br_malloc(len + 1);
    if (!copy)
        return NULL;
    br_steps_add(len);
    if (len)
        memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

char *br_strdup(const char *text)
{
    return br_strndup(text, strlen(text));
}

bool br_size_add(size_t left, size_t right, size_t *ret)
{
    size_t sum;
    if (__builtin_add_overflow(left, right, &sum))
        return false;
    *ret = sum;
    return true;
}

bool br_size_mul(size_t left, size_t right, size_t *ret)
{
    size_t product;
    if (__builtin_mul_overflow(left, right, &product))
        return false;
    *ret = product;
    return true;
}

int br_grow_more(void *items, uint32_t *cap, size_t need, size_t size, size_t max)
{
    if (need > max || need > UINT32_MAX)
        return BR_EFULL;
    size_t want = *cap ? (size_t)*cap + *cap / 2 : 8;
    if (want < need)
        want = need;
    if (want > max)
        want = max;
    size_t bytes;
    if (want > UINT32_MAX || !br_size_mul(want, size, &bytes))
        return BR_ENOMEM;
    void *old;
    memcpy(&old, items, sizeof old);
    void *p = br_realloc(old, bytes);
    if (!p)
        return BR_ENOMEM;
    memcpy(items, &p, sizeof p);
    *cap = (uint32_t)want;
    return 0;
}
