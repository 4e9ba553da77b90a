/* SPDX-License-Identifier: Apache-2.0 */
/*
 * V8's .cpuprofile (Chrome DevTools Protocol, Profiler.Profile), as Node's --cpu-prof writes it: a
 * tree of nodes, a node for each sample, and how many microseconds lie between them. V8 looks at
 * its thread by the clock on the wall, also while that waits ("(idle)"): so it is wall time, and a
 * sample is for the time until the next one.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/steps.h"
#include "profile/json_parts.h"
#include "profile/timed.h"

#define DEPTH_MAX 64
#define NS_PER_US 1000.0
#define TIME_MAX 9.2e15 /* us */
#define NODES_MAX (1u << 24)
#define IDS_SPARE 1024u

struct node {
    struct br_json_part frame, children;
    uint32_t id, parent;      /* the second: of a node, + 1; 0: none */
    uint32_t location, stack; /* of the builder; the second + 1, 0: not made yet */
};

struct cpuprofile {
    struct br_json_scan scan;
    const struct br_profile_source *source;
    struct br_build *build;
    struct br_err *err;
    struct br_timed timed;
    struct br_json_part node_list, samples, deltas;
    struct br_json_token start, end;
    struct node *nodes;
    uint32_t n, cap;
    uint32_t *of_id; /* node + 1; 0: there is none */
    uint32_t n_ids, current;
    uint32_t *path;
    uint32_t cap_path;
    size_t path_left; /* frames that all stacks together may still have */
    char *text;       /* a string without its escapes */
    uint32_t cap_text;
};

static int cpuprofile_fail(struct cpuprofile *c, const char *what)
{
    return br_err_set(c->err, BR_EINVAL, "not a .cpuprofile: %s", what);
}

static int cpuprofile_no_memory(struct cpuprofile *c)
{
    return br_err_set(c->err, BR_ENOMEM, "out of memory");
}

/* A whole number from 0 to 2^32 - 2. */
static bool cpuprofile_index(const struct br_json_token *token, uint32_t *ret)
{
    double v;
    if (!br_json_part_number(token, &v) || v < 0 || v >= UINT32_MAX || v != floor(v))
        return false;
    *ret = (uint32_t)v;
    return true;
}

/* --- Frames ----------------------------------------------------------------------------------- */

struct call_frame {
    struct br_json_token name, url, line, column;
};

static void cpuprofile_note_call_frame(void *arg, const struct br_json_scan *s,
                                       const struct br_json_token *name,
                                       const struct br_json_token *value)
{
    struct call_frame *f = arg;
    (void)s;
    if (br_json_part_is(name, "functionName"))
        f->name = *value;
    else if (br_json_part_is(name, "url"))
        f->url = *value;
    else if (br_json_part_is(name, "lineNumber"))
        f->line = *value;
    else if (br_json_part_is(name, "columnNumber"))
        f->column = *value;
}

static bool cpuprofile_string(struct cpuprofile *c, const struct br_json_token *token,
                              uint32_t *ret)
{
    const char *text = token->text;
    size_t len = token->len;
    *ret = 0;
    if (token->type != BR_JSON_STRING || len == 0)
        return true;
    if (token->escaped) {
        if (br_grow(&c->text, &c->cap_text, len, 1, UINT32_MAX))
            return false;
        len = br_json_plain(text, len, c->text);
        text = c->text;
    }
    *ret = br_build_string(c->build, text, len);
    return true;
}

/* From 0; what is written by hand counts from 1. */
static int64_t cpuprofile_position(const struct br_json_token *token)
{
    double v;
    return br_json_part_number(token, &v) && v >= 0 && v < 1e9 ? (int64_t)v + 1 : 0;
}

static int cpuprofile_make_frame(struct cpuprofile *c, struct node *n)
{
    struct br_json_scan s = c->scan;
    struct call_frame f = {.name.type = BR_JSON_NULL};
    uint32_t name, file;
    s.at = n->frame.at;
    s.depth = 0;
    int rc = n->frame.at ? br_json_members(&s, cpuprofile_note_call_frame, &f) : 0;
    if (rc)
        return rc;
    if (!cpuprofile_string(c, &f.name, &name) || !cpuprofile_string(c, &f.url, &file))
        return cpuprofile_no_memory(c);
    if (!name)
        name = br_build_string(c->build, "(anonymous)", 11);
    const struct br_build_line line = {
        .function = br_build_function(c->build, name, 0, file, cpuprofile_position(&f.line)),
        .line = cpuprofile_position(&f.line),
        .column = cpuprofile_position(&f.column)};
    const struct br_build_location location = {.lines = &line, .n_lines = 1};
    n->location = br_build_location(c->build, &location);
    return 0;
}

/* --- Nodes ------------------------------------------------------------------------------------ */

struct noted_node {
    struct br_json_token id, parent;
    struct node node;
};

static void cpuprofile_note_node(void *arg, const struct br_json_scan *s,
                                 const struct br_json_token *name,
                                 const struct br_json_token *value)
{
    struct noted_node *n = arg;
    if (br_json_part_is(name, "id"))
        n->id = *value;
    else if (br_json_part_is(name, "callFrame"))
        n->node.frame = br_json_part_of(s, value, BR_JSON_OBJECT);
    else if (br_json_part_is(name, "children"))
        n->node.children = br_json_part_of(s, value, BR_JSON_ARRAY);
}

static int cpuprofile_add_node(void *arg, struct br_json_scan *s)
{
    struct cpuprofile *c = arg;
    struct noted_node n = {.id.type = BR_JSON_NULL};
    int rc = br_json_members(s, cpuprofile_note_node, &n);
    if (rc)
        return rc;
    if (!cpuprofile_index(&n.id, &n.node.id))
        return cpuprofile_fail(c, "a node without an id");
    rc = br_grow(&c->nodes, &c->cap, (size_t)c->n + 1, sizeof *c->nodes, NODES_MAX);
    if (rc)
        return rc == BR_EFULL ? cpuprofile_fail(c, "too many nodes") : cpuprofile_no_memory(c);
    if (n.node.id >= c->n_ids)
        c->n_ids = n.node.id + 1;
    c->nodes[c->n++] = n.node;
    return 0;
}

/* V8 counts its nodes. */
static int cpuprofile_number_nodes(struct cpuprofile *c)
{
    if (c->n_ids > (uint64_t)4 * c->n + IDS_SPARE)
        return cpuprofile_fail(c, "ids of nodes that are no numbering");
    c->of_id = br_calloc(c->n_ids ? c->n_ids : 1, sizeof *c->of_id);
    if (!c->of_id)
        return cpuprofile_no_memory(c);
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->of_id[c->nodes[i].id])
            return cpuprofile_fail(c, "two nodes of one id");
        c->of_id[c->nodes[i].id] = i + 1;
    }
    return 0;
}

static int cpuprofile_node_of(struct cpuprofile *c, const struct br_json_token *token,
                              uint32_t *ret)
{
    uint32_t id;
    if (!cpuprofile_index(token, &id) || id >= c->n_ids || !c->of_id[id])
        return cpuprofile_fail(c, "an id of a node that there is not");
    *ret = c->of_id[id] - 1;
    return 0;
}

static int cpuprofile_add_child(void *arg, struct br_json_scan *s)
{
    struct cpuprofile *c = arg;
    struct br_json_token value;
    uint32_t child = 0;
    int rc = br_json_scan_value(s, &value);
    if (!rc)
        rc = br_json_scan_skip(s, &value);
    if (!rc)
        rc = cpuprofile_node_of(c, &value, &child);
    if (rc)
        return rc;
    if (c->nodes[child].parent)
        return cpuprofile_fail(c, "a node that is the child of two");
    c->nodes[child].parent = c->current + 1;
    return 0;
}

static int cpuprofile_connect_nodes(struct cpuprofile *c)
{
    int rc = 0;
    for (c->current = 0; c->current < c->n && !rc; c->current++)
        rc = br_json_elements(&c->scan, c->nodes[c->current].children, cpuprofile_add_child, c);
    return rc;
}

/* The stack of a node, made when it is wanted first. A ring has no end, and is longer than all
 * nodes. */
static int cpuprofile_stack_of(struct cpuprofile *c, uint32_t node, uint32_t *ret)
{
    uint32_t depth = 0;
    for (uint32_t i = node + 1; i && !c->nodes[node].stack; i = c->nodes[i - 1].parent) {
        struct node *n = &c->nodes[i - 1];
        if (depth == c->n)
            return cpuprofile_fail(c, "a node that is its own parent");
        if (depth >= c->path_left)
            return cpuprofile_fail(c, "stacks that are too large for what was sent");
        if (!n->location) {
            int rc = cpuprofile_make_frame(c, n);
            if (rc)
                return rc;
        }
        if (br_grow(&c->path, &c->cap_path, (size_t)depth + 1, sizeof *c->path, NODES_MAX))
            return cpuprofile_no_memory(c);
        c->path[depth++] = n->location;
    }
    /* The root is no function. */
    if (!c->nodes[node].stack) {
        c->path_left -= depth;
        br_steps_add(depth);
        c->nodes[node].stack = br_build_stack(c->build, c->path, depth > 1 ? depth - 1 : depth) + 1;
    }
    *ret = c->nodes[node].stack - 1;
    return br_build_rc(c->build);
}

/* --- Samples ---------------------------------------------------------------------------------- */

static int64_t cpuprofile_nanoseconds(double us)
{
    return us <= 0 ? 0 : (int64_t)(us * NS_PER_US);
}

struct moment {
    struct br_timed_sample sample;
    double us;
    bool any;
};

/* What was sampled lasts until `us`. */
static int cpuprofile_end_sample(struct cpuprofile *c, struct moment *m, double us)
{
    if (!m->any)
        return 0;
    m->sample.value = cpuprofile_nanoseconds(us - m->us);
    return br_timed_add(&c->timed, &m->sample) ? cpuprofile_no_memory(c) : 0;
}

static int cpuprofile_add_sample(struct cpuprofile *c, struct moment *m,
                                 const struct br_json_token *sample,
                                 const struct br_json_token *delta)
{
    double us;
    uint32_t node;
    if (!br_json_part_number(delta, &us) || !(fabs(us) < TIME_MAX) || m->us + us > TIME_MAX)
        return cpuprofile_fail(c, "a time that is no number of microseconds");
    us += m->us;
    int rc = cpuprofile_node_of(c, sample, &node);
    if (!rc)
        rc = cpuprofile_end_sample(c, m, us);
    if (rc)
        return rc;
    m->us = us;
    m->any = true;
    m->sample = (struct br_timed_sample){.time_ns = (uint64_t)cpuprofile_nanoseconds(us)};
    return cpuprofile_stack_of(c, node, &m->sample.stack);
}

static int cpuprofile_read_samples(struct cpuprofile *c)
{
    struct br_json_list samples, deltas;
    struct br_json_token sample, delta;
    struct moment m = {.any = false};
    bool more = true, too = true;
    double end;
    if (!br_json_part_number(&c->start, &m.us) || m.us < 0 || m.us > TIME_MAX)
        return cpuprofile_fail(c, "no startTime");
    int rc = br_json_list_open(&samples, &c->scan, c->samples);
    if (!rc)
        rc = br_json_list_open(&deltas, &c->scan, c->deltas);
    while (!rc) {
        rc = br_json_list_next(&samples, &sample, &more);
        if (!rc)
            rc = br_json_list_next(&deltas, &delta, &too);
        if (!rc && more != too)
            rc = cpuprofile_fail(c, "samples and timeDeltas of unequal number");
        if (rc || !more)
            break;
        rc = cpuprofile_add_sample(c, &m, &sample, &delta);
    }
    if (!rc && !(br_json_part_number(&c->end, &end) && end < TIME_MAX))
        end = m.us;
    return rc ? rc : cpuprofile_end_sample(c, &m, end);
}

/* --- The file --------------------------------------------------------------------------------- */

static void cpuprofile_note_root(void *arg, const struct br_json_scan *s,
                                 const struct br_json_token *name,
                                 const struct br_json_token *value)
{
    struct cpuprofile *c = arg;
    if (br_json_part_is(name, "nodes"))
        c->node_list = br_json_part_of(s, value, BR_JSON_ARRAY);
    else if (br_json_part_is(name, "samples"))
        c->samples = br_json_part_of(s, value, BR_JSON_ARRAY);
    else if (br_json_part_is(name, "timeDeltas"))
        c->deltas = br_json_part_of(s, value, BR_JSON_ARRAY);
    else if (br_json_part_is(name, "startTime"))
        c->start = *value;
    else if (br_json_part_is(name, "endTime"))
        c->end = *value;
}

static int cpuprofile_read_file(struct cpuprofile *c)
{
    struct br_json_scan s = c->scan;
    int rc = br_json_members(&s, cpuprofile_note_root, c);
    if (!rc)
        rc = br_json_scan_end(&s);
    if (!rc && !c->node_list.at)
        rc = cpuprofile_fail(c, "no nodes");
    if (!rc)
        rc = br_json_elements(&c->scan, c->node_list, cpuprofile_add_node, c);
    if (!rc)
        rc = cpuprofile_number_nodes(c);
    if (!rc)
        rc = cpuprofile_connect_nodes(c);
    return rc ? rc : cpuprofile_read_samples(c);
}

static void cpuprofile_set_type(struct cpuprofile *c)
{
    uint64_t lasted = c->timed.last_ns - c->timed.first_ns;
    c->timed.n_types = 1;
    c->timed.types[0].metric = c->timed.types[0].type = "wall";
    c->timed.types[0].period_type = "wall";
    c->timed.types[0].unit = c->timed.types[0].period_unit = "nanoseconds";
    c->timed.types[0].period = c->timed.n > 1 ? (int64_t)(lasted / (c->timed.n - 1)) : 0;
}

int br_cpuprofile_read(struct br_build *b, const struct br_profile_source *s,
                       struct br_arena *scratch, struct br_err *err)
{
    struct br_err nobody = {0};
    struct cpuprofile c = {.source = s,
                           .build = b,
                           .err = err ? err : &nobody,
                           .timed.build = b,
                           .timed.n_types = 1,
                           .path_left = br_profile_text_max(s)};
    int rc =
        br_json_scan_init(&c.scan, s->len ? (const char *)s->data : "", s->len, DEPTH_MAX, c.err);
    if (!rc)
        rc = cpuprofile_read_file(&c);
    br_free(c.nodes);
    br_free(c.of_id);
    br_free(c.path);
    br_free(c.text);
    if (rc) {
        br_timed_release(&c.timed);
        if (!c.err->code)
            (void)br_err_set(c.err, rc, "it cannot be converted: %s", br_strerror(rc));
        return rc == BR_ETOOBIG ? BR_EINVAL : rc;
    }
    cpuprofile_set_type(&c);
    return br_timed_emit(&c.timed, s, scratch, c.err);
}
