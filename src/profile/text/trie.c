/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pyroscope's two binary trees. Both are nodes in order of depth first: varint length and bytes of
 * a name, varint value, varint number of children. In a tree (pkg/og/storage/tree) a node is a
 * frame and the root's name and value mean nothing; in a trie (pkg/og/structs/transporttrie) the
 * names from the root on, put together, are `a;b;c`, and siblings begin with different bytes.
 */
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "profile/text/stacks.h"
#include "wire/protobuf.h"

#define DEPTH_MAX 65536u

struct level {
    uint32_t frame;      /* the last one that is complete */
    size_t text_len;     /* of the names down to here */
    size_t frame_at;     /* where the next frame begins in them */
    uint64_t n_children; /* still to come */
    uint64_t seen[4];    /* first bytes of children's names */
};

struct reader {
    struct br_stacks stacks;
    struct br_text_type type;
    const uint8_t *start, *p, *end;
    bool trie;
    struct br_str text;
    struct level *levels;
    uint32_t depth, cap;
};

struct node {
    const char *name;
    uint64_t name_len, value, n_children;
};

static int fail(struct reader *r, const char *what, struct br_err *err)
{
    return br_err_set(err, BR_EINVAL, "not a %s: %s at byte %zu", r->trie ? "trie" : "tree", what,
                      (size_t)(r->p - r->start));
}

static int read_node(struct reader *r, struct node *ret, struct br_err *err)
{
    const uint8_t *p = br_varint(r->p, r->end, &ret->name_len);
    if (!p || ret->name_len > (uint64_t)(r->end - p))
        return fail(r, "a name that is cut off", err);
    ret->name = (const char *)p;
    p = br_varint(p + ret->name_len, r->end, &ret->value);
    if (p)
        p = br_varint(p, r->end, &ret->n_children);
    if (!p)
        return fail(r, "a number that is cut off", err);
    if (ret->value > INT64_MAX)
        return fail(r, "a value that is too large", err);
    if (ret->n_children > (uint64_t)(r->end - p) / 3) /* the least that a node takes */
        return fail(r, "more children than there are bytes", err);
    r->p = p;
    return 0;
}

static int add_value(struct reader *r, uint32_t frame, uint64_t number, struct br_err *err)
{
    int64_t value;
    int rc = br_text_scale(&r->type, (int64_t)number, &value, err);
    return rc ? rc : br_stacks_add(&r->stacks, frame, value, err);
}

/* No two siblings of a trie share a first byte; so no two paths are equal, and what is hashed stays
 * in proportion to what goes out. */
static int check_sibling(struct reader *r, const struct node *node, struct br_err *err)
{
    if (r->depth == 0)
        return 0;
    if (node->name_len == 0)
        return fail(r, "a node without a name", err);
    unsigned char c = (unsigned char)*node->name;
    uint64_t *seen = &r->levels[r->depth - 1].seen[c / 64], bit = (uint64_t)1 << c % 64;
    if (*seen & bit)
        return fail(r, "siblings that begin with the same byte", err);
    *seen |= bit;
    return 0;
}

static int take_trie(struct reader *r, const struct node *node, struct level *at,
                     struct br_err *err)
{
    int rc = check_sibling(r, node, err);
    if (rc != 0)
        return rc;
    r->text.len = at->text_len;
    br_str_add(&r->text, node->name, node->name_len);
    if (r->text.failed)
        return br_err_set(err, BR_ENOMEM, "no memory for names");
    for (size_t i = at->text_len; i < r->text.len; i++) {
        if (r->text.data[i] != ';')
            continue;
        at->frame =
            br_stacks_frame(&r->stacks, at->frame, r->text.data + at->frame_at, i - at->frame_at);
        at->frame_at = i + 1;
    }
    at->text_len = r->text.len;
    if (node->value == 0)
        return 0;
    uint32_t leaf = at->frame;
    if (at->frame_at < r->text.len)
        leaf = br_stacks_frame(&r->stacks, leaf, r->text.data + at->frame_at,
                               r->text.len - at->frame_at);
    return add_value(r, leaf, node->value, err);
}

static int take_tree(struct reader *r, const struct node *node, struct level *at,
                     struct br_err *err)
{
    if (r->depth == 0)
        return 0;
    /* Pyroscope splits at the `;` that a name may have. */
    at->frame = node->name_len ? br_stacks_path(&r->stacks, at->frame, node->name, node->name_len)
                               : br_stacks_frame(&r->stacks, at->frame, "", 0);
    return node->value ? add_value(r, at->frame, node->value, err) : 0;
}

static int take_node(struct reader *r, struct br_err *err)
{
    struct node node;
    struct level at = {.frame = BR_STACKS_ROOT};
    int rc = read_node(r, &node, err);
    if (rc != 0)
        return rc;
    if (r->depth > 0) {
        struct level *parent = &r->levels[r->depth - 1];
        at = (struct level){parent->frame, parent->text_len, parent->frame_at, 0, {0}};
        parent->n_children--;
    }
    rc = r->trie ? take_trie(r, &node, &at, err) : take_tree(r, &node, &at, err);
    if (rc != 0)
        return rc;
    at.n_children = node.n_children;
    rc = br_grow(&r->levels, &r->cap, (size_t)r->depth + 1, sizeof *r->levels, DEPTH_MAX);
    if (rc != 0)
        return rc == BR_EFULL ? fail(r, "too many levels", err)
                              : br_err_set(err, rc, "no memory for levels");
    r->levels[r->depth++] = at;
    while (r->depth > 0 && r->levels[r->depth - 1].n_children == 0)
        r->depth--;
    return 0;
}

static int read_all(struct reader *r, struct br_err *err)
{
    int rc = 0;
    while (rc == 0 && r->p < r->end && br_stacks_ok(&r->stacks)) {
        rc = take_node(r, err);
        if (r->depth == 0 && !r->trie)
            break; /* what follows a tree is not looked at; a trie may follow a trie */
    }
    if (rc == 0 && r->depth > 0 && br_stacks_ok(&r->stacks))
        rc = fail(r, "the end with children missing", err);
    return rc;
}

static int read_binary(struct br_build *b, const struct br_profile_source *s, bool trie,
                       struct br_arena *scratch, struct br_err *err)
{
    struct reader r = {.trie = trie, .text = {.max = s->len}};
    r.start = r.p = s->len ? s->data : (const uint8_t *)"";
    r.end = r.p + s->len;
    int rc = br_stacks_init(&r.stacks, b, s, err);
    br_text_type_init(&r.type, s);
    if (rc == 0)
        rc = read_all(&r, err);
    if (rc == 0)
        rc = br_stacks_emit(&r.stacks, s, &r.type, scratch, err);
    br_stacks_release(&r.stacks);
    br_str_release(&r.text);
    br_free(r.levels);
    return rc;
}

int br_trie_read(struct br_build *b, const struct br_profile_source *s, struct br_arena *scratch,
                 struct br_err *err)
{
    return read_binary(b, s, true, scratch, err);
}

int br_tree_read(struct br_build *b, const struct br_profile_source *s, struct br_arena *scratch,
                 struct br_err *err)
{
    return read_binary(b, s, false, scratch, err);
}
