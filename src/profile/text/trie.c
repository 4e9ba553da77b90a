/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads Pyroscope's two binary formats. Both formats contain nodes in depth-first order: varint
 * length and bytes of a name, varint value, varint number of children. In a tree
 * (pkg/og/storage/tree) each node is a frame, and name and value of the root are ignored. In a trie
 * (pkg/og/structs/transporttrie) the concatenated names from the root are `a;b;c`, and siblings
 * begin with different bytes.
 */
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "profile/text/stacks.h"
#include "wire/protobuf.h"

#define DEPTH_MAX 65536u

struct level {
    uint32_t frame;      /* tree node of the last complete frame */
    size_t text_len;     /* length in bytes of the concatenated names from the root */
    size_t frame_at;     /* offset in the concatenated names at which the next frame begins */
    uint64_t n_children; /* number of children not yet read */
    uint64_t seen[4];    /* for tries: a bit is set for the first byte of each child's name */
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

static int trie_fail(struct reader *reader, const char *what, struct br_err *err)
{
    return br_err_set(err, BR_EINVAL, "not a %s: %s at byte %zu", reader->trie ? "trie" : "tree",
                      what, (size_t)(reader->p - reader->start));
}

static int trie_read_node(struct reader *reader, struct node *ret, struct br_err *err)
{
    const uint8_t *p = br_varint(reader->p, reader->end, &ret->name_len);
    if (!p || ret->name_len > (uint64_t)(reader->end - p))
        return trie_fail(reader, "truncated name", err);
    ret->name = (const char *)p;
    p = br_varint(p + ret->name_len, reader->end, &ret->value);
    if (p)
        p = br_varint(p, reader->end, &ret->n_children);
    if (!p)
        return trie_fail(reader, "truncated number", err);
    if (ret->value > INT64_MAX)
        return trie_fail(reader, "a value is too large", err);
    /* every node takes at least three bytes */
    if (ret->n_children > (uint64_t)(reader->end - p) / 3)
        return trie_fail(reader, "more children than there are bytes", err);
    reader->p = p;
    return 0;
}

static int trie_add_value(struct reader *reader, uint32_t frame, uint64_t number,
                          struct br_err *err)
{
    int64_t value;
    int rc = br_text_scale(&reader->type, (int64_t)number, &value, err);
    return rc ? rc : br_stacks_add(&reader->stacks, frame, value, err);
}

/* Checks that siblings in a trie begin with different bytes. So all paths differ, and the number
 * of hashed bytes is in proportion to the output. */
static int trie_check_sibling(struct reader *reader, const struct node *node, struct br_err *err)
{
    if (reader->depth == 0)
        return 0;
    if (node->name_len == 0)
        return trie_fail(reader, "a node has no name", err);
    unsigned char c = (unsigned char)*node->name;
    uint64_t *seen = &reader->levels[reader->depth - 1].seen[c / 64], bit = (uint64_t)1 << c % 64;
    if (*seen & bit)
        return trie_fail(reader, "siblings begin with the same byte", err);
    *seen |= bit;
    return 0;
}

static int trie_add_trie_node(struct reader *reader, const struct node *node, struct level *at,
                              struct br_err *err)
{
    int rc = trie_check_sibling(reader, node, err);
    if (rc != 0)
        return rc;
    reader->text.len = at->text_len;
    br_str_add(&reader->text, node->name, node->name_len);
    if (reader->text.failed)
        return br_err_set(err, BR_ENOMEM, "no memory for names");
    for (size_t i = at->text_len; i < reader->text.len; i++) {
        if (reader->text.data[i] != ';')
            continue;
        at->frame = br_stacks_frame(&reader->stacks, at->frame, reader->text.data + at->frame_at,
                                    i - at->frame_at);
        at->frame_at = i + 1;
    }
    at->text_len = reader->text.len;
    if (node->value == 0)
        return 0;
    uint32_t leaf = at->frame;
    if (at->frame_at < reader->text.len)
        leaf = br_stacks_frame(&reader->stacks, leaf, reader->text.data + at->frame_at,
                               reader->text.len - at->frame_at);
    return trie_add_value(reader, leaf, node->value, err);
}

static int trie_add_tree_node(struct reader *reader, const struct node *node, struct level *at,
                              struct br_err *err)
{
    if (reader->depth == 0)
        return 0;
    /* a name may contain several frames, because Pyroscope splits names at `;` */
    at->frame = node->name_len
                    ? br_stacks_path(&reader->stacks, at->frame, node->name, node->name_len)
                    : br_stacks_frame(&reader->stacks, at->frame, "", 0);
    return node->value ? trie_add_value(reader, at->frame, node->value, err) : 0;
}

static int trie_read_next(struct reader *reader, struct br_err *err)
{
    struct node node;
    struct level at = {.frame = BR_STACKS_ROOT};
    int rc = trie_read_node(reader, &node, err);
    if (rc != 0)
        return rc;
    if (reader->depth > 0) {
        struct level *parent = &reader->levels[reader->depth - 1];
        at = (struct level){parent->frame, parent->text_len, parent->frame_at, 0, {0}};
        parent->n_children--;
    }
    rc = reader->trie ? trie_add_trie_node(reader, &node, &at, err)
                      : trie_add_tree_node(reader, &node, &at, err);
    if (rc != 0)
        return rc;
    at.n_children = node.n_children;
    rc = br_grow(&reader->levels, &reader->cap, (size_t)reader->depth + 1, sizeof *reader->levels,
                 DEPTH_MAX);
    if (rc != 0)
        return rc == BR_EFULL ? trie_fail(reader, "too many levels", err)
                              : br_err_set(err, rc, "no memory for levels");
    reader->levels[reader->depth++] = at;
    while (reader->depth > 0 && reader->levels[reader->depth - 1].n_children == 0)
        reader->depth--;
    return 0;
}

static int trie_read_all(struct reader *reader, struct br_err *err)
{
    int rc = 0;
    while (rc == 0 && reader->p < reader->end && br_stacks_ok(&reader->stacks)) {
        rc = trie_read_next(reader, err);
        if (reader->depth == 0 && !reader->trie)
            break; /* Data after a tree is ignored. Another trie may follow a trie. */
    }
    if (rc == 0 && reader->depth > 0 && br_stacks_ok(&reader->stacks))
        rc = trie_fail(reader, "truncated: children are missing", err);
    return rc;
}

static int trie_read_binary(struct br_build *build, const struct br_profile_source *source,
                            bool trie, struct br_arena *scratch, struct br_err *err)
{
    struct reader reader = {.trie = trie, .text = {.max = source->len}};
    reader.start = reader.p = source->len ? source->data : (const uint8_t *)"";
    reader.end = reader.p + source->len;
    int rc = br_stacks_init(&reader.stacks, build, source, err);
    br_text_type_init(&reader.type, source);
    if (rc == 0)
        rc = trie_read_all(&reader, err);
    if (rc == 0)
        rc = br_stacks_emit(&reader.stacks, source, &reader.type, scratch, err);
    br_stacks_release(&reader.stacks);
    br_str_release(&reader.text);
    br_free(reader.levels);
    return rc;
}

int br_trie_read(struct br_build *build, const struct br_profile_source *source,
                 struct br_arena *scratch, struct br_err *err)
{
    return trie_read_binary(build, source, true, scratch, err);
}

int br_tree_read(struct br_build *build, const struct br_profile_source *source,
                 struct br_arena *scratch, struct br_err *err)
{
    return trie_read_binary(build, source, false, scratch, err);
}
