/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads V8's .cpuprofile (Chrome DevTools Protocol, Profiler.Profile), as written by Node's
 * --cpu-prof. The file contains a tree of nodes, the node of each sample, and the time between
 * samples in microseconds. V8 samples its thread by wall-clock time, even while the thread waits
 * ("(idle)"). So values are wall time, and a sample covers the time until the next sample.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/steps.h"
#include "otlp/json/parts.h"
#include "profile/timed.h"

#define DEPTH_MAX 64
#define NS_PER_US 1000.0
#define TIME_MAX 9.2e15 /* largest valid time, in us */
#define NODES_MAX (1u << 24)
#define IDS_SPARE 1024u

struct node {
    struct br_json_part frame, children;
    uint32_t id, parent; /* `parent`: index of the parent node + 1; 0: the node has no parent */
    /* index of the location in the builder; index of the stack in the builder + 1, 0: not added
     * yet */
    uint32_t location, stack;
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
    uint32_t count, cap;
    uint32_t *of_id; /* for each node ID: index in `nodes` + 1; 0: no node has the ID */
    uint32_t n_ids, current;
    uint32_t *path;
    uint32_t cap_path;
    size_t path_left; /* maximum total number of frames in the stacks that are added from now on */
    char *text;       /* buffer for an unescaped string */
    uint32_t cap_text;
};

static int cpuprofile_fail(struct cpuprofile *cpuprofile, const char *what)
{
    return br_err_set(cpuprofile->err, BR_EINVAL, "not a .cpuprofile: %s", what);
}

static int cpuprofile_no_memory(struct cpuprofile *cpuprofile)
{
    return br_err_set(cpuprofile->err, BR_ENOMEM, "out of memory");
}

/* Parses a non-negative integer that is less than UINT32_MAX. */
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

static void cpuprofile_on_call_frame(void *arg, const struct br_json_scan *scan,
                                     const struct br_json_token *name,
                                     const struct br_json_token *value)
{
    struct call_frame *call_frame = arg;
    (void)scan;
    if (br_json_part_is(name, "functionName"))
        call_frame->name = *value;
    else if (br_json_part_is(name, "url"))
        call_frame->url = *value;
    else if (br_json_part_is(name, "lineNumber"))
        call_frame->line = *value;
    else if (br_json_part_is(name, "columnNumber"))
        call_frame->column = *value;
}

static bool cpuprofile_string(struct cpuprofile *cpuprofile, const struct br_json_token *token,
                              uint32_t *ret)
{
    const char *text = token->text;
    size_t len = token->len;
    *ret = 0;
    if (token->type != BR_JSON_STRING || len == 0)
        return true;
    if (token->escaped) {
        if (br_grow(&cpuprofile->text, &cpuprofile->cap_text, len, 1, UINT32_MAX))
            return false;
        len = br_json_plain(text, len, cpuprofile->text);
        text = cpuprofile->text;
    }
    *ret = br_build_string(cpuprofile->build, text, len);
    return true;
}

/* Converts a line or column number from the file: V8 counts from 0, OTLP from 1. Returns 0 if
 * the position is unknown. */
static int64_t cpuprofile_position(const struct br_json_token *token)
{
    double v;
    return br_json_part_number(token, &v) && v >= 0 && v < 1e9 ? (int64_t)v + 1 : 0;
}

static int cpuprofile_make_frame(struct cpuprofile *cpuprofile, struct node *node)
{
    struct br_json_scan scan = cpuprofile->scan;
    struct call_frame call_frame = {.name.type = BR_JSON_NULL};
    uint32_t name, file;
    scan.at = node->frame.at;
    scan.depth = 0;
    int rc = node->frame.at ? br_json_members(&scan, cpuprofile_on_call_frame, &call_frame) : 0;
    if (rc)
        return rc;
    if (!cpuprofile_string(cpuprofile, &call_frame.name, &name) ||
        !cpuprofile_string(cpuprofile, &call_frame.url, &file))
        return cpuprofile_no_memory(cpuprofile);
    if (!name)
        name = br_build_string(cpuprofile->build, "(anonymous)", 11);
    const struct br_build_line line = {.function =
                                           br_build_function(cpuprofile->build, name, 0, file,
                                                             cpuprofile_position(&call_frame.line)),
                                       .line = cpuprofile_position(&call_frame.line),
                                       .column = cpuprofile_position(&call_frame.column)};
    const struct br_build_location location = {.lines = &line, .n_lines = 1};
    node->location = br_build_location(cpuprofile->build, &location);
    return 0;
}

/* --- Nodes ------------------------------------------------------------------------------------ */

struct node_members {
    struct br_json_token id, parent;
    struct node node;
};

static void cpuprofile_on_node(void *arg, const struct br_json_scan *scan,
                               const struct br_json_token *name, const struct br_json_token *value)
{
    struct node_members *node_members = arg;
    if (br_json_part_is(name, "id"))
        node_members->id = *value;
    else if (br_json_part_is(name, "callFrame"))
        node_members->node.frame = br_json_part_of(scan, value, BR_JSON_OBJECT);
    else if (br_json_part_is(name, "children"))
        node_members->node.children = br_json_part_of(scan, value, BR_JSON_ARRAY);
}

static int cpuprofile_add_node(void *arg, struct br_json_scan *scan)
{
    struct cpuprofile *cpuprofile = arg;
    struct node_members node_members = {.id.type = BR_JSON_NULL};
    int rc = br_json_members(scan, cpuprofile_on_node, &node_members);
    if (rc)
        return rc;
    if (!cpuprofile_index(&node_members.id, &node_members.node.id))
        return cpuprofile_fail(cpuprofile, "a node has no id");
    rc = br_grow(&cpuprofile->nodes, &cpuprofile->cap, (size_t)cpuprofile->count + 1,
                 sizeof *cpuprofile->nodes, NODES_MAX);
    if (rc)
        return rc == BR_EFULL ? cpuprofile_fail(cpuprofile, "too many nodes")
                              : cpuprofile_no_memory(cpuprofile);
    if (node_members.node.id >= cpuprofile->n_ids)
        cpuprofile->n_ids = node_members.node.id + 1;
    cpuprofile->nodes[cpuprofile->count++] = node_members.node;
    return 0;
}

/* Builds the table of node IDs. V8 numbers its nodes consecutively, so numbers with large gaps
 * are rejected. */
static int cpuprofile_number_nodes(struct cpuprofile *cpuprofile)
{
    if (cpuprofile->n_ids > (uint64_t)4 * cpuprofile->count + IDS_SPARE)
        return cpuprofile_fail(cpuprofile, "node ids are not consecutive numbers");
    cpuprofile->of_id =
        br_calloc(cpuprofile->n_ids ? cpuprofile->n_ids : 1, sizeof *cpuprofile->of_id);
    if (!cpuprofile->of_id)
        return cpuprofile_no_memory(cpuprofile);
    for (uint32_t i = 0; i < cpuprofile->count; i++) {
        if (cpuprofile->of_id[cpuprofile->nodes[i].id])
            return cpuprofile_fail(cpuprofile, "two nodes have the same id");
        cpuprofile->of_id[cpuprofile->nodes[i].id] = i + 1;
    }
    return 0;
}

static int cpuprofile_node_of(struct cpuprofile *cpuprofile, const struct br_json_token *token,
                              uint32_t *ret)
{
    uint32_t id;
    if (!cpuprofile_index(token, &id) || id >= cpuprofile->n_ids || !cpuprofile->of_id[id])
        return cpuprofile_fail(cpuprofile, "a reference to an unknown node");
    *ret = cpuprofile->of_id[id] - 1;
    return 0;
}

static int cpuprofile_add_child(void *arg, struct br_json_scan *scan)
{
    struct cpuprofile *cpuprofile = arg;
    struct br_json_token value;
    uint32_t child = 0;
    int rc = br_json_scan_value(scan, &value);
    if (!rc)
        rc = br_json_scan_skip(scan, &value);
    if (!rc)
        rc = cpuprofile_node_of(cpuprofile, &value, &child);
    if (rc)
        return rc;
    if (cpuprofile->nodes[child].parent)
        return cpuprofile_fail(cpuprofile, "a node has two parents");
    cpuprofile->nodes[child].parent = cpuprofile->current + 1;
    return 0;
}

static int cpuprofile_connect_nodes(struct cpuprofile *cpuprofile)
{
    int rc = 0;
    for (cpuprofile->current = 0; cpuprofile->current < cpuprofile->count && !rc;
         cpuprofile->current++)
        rc = br_json_elements(&cpuprofile->scan, cpuprofile->nodes[cpuprofile->current].children,
                              cpuprofile_add_child, cpuprofile);
    return rc;
}

/* Returns in `ret` the stack of a node, which is added at its first use. A cycle of parents is
 * detected because the path becomes longer than the number of nodes. */
static int cpuprofile_stack_of(struct cpuprofile *cpuprofile, uint32_t node, uint32_t *ret)
{
    uint32_t depth = 0;
    for (uint32_t i = node + 1; i && !cpuprofile->nodes[node].stack;
         i = cpuprofile->nodes[i - 1].parent) {
        struct node *ancestor = &cpuprofile->nodes[i - 1];
        if (depth == cpuprofile->count)
            return cpuprofile_fail(cpuprofile, "a node is its own ancestor");
        if (depth >= cpuprofile->path_left)
            return cpuprofile_fail(cpuprofile, "stacks are too large for the size of the upload");
        if (!ancestor->location) {
            int rc = cpuprofile_make_frame(cpuprofile, ancestor);
            if (rc)
                return rc;
        }
        if (br_grow(&cpuprofile->path, &cpuprofile->cap_path, (size_t)depth + 1,
                    sizeof *cpuprofile->path, NODES_MAX))
            return cpuprofile_no_memory(cpuprofile);
        cpuprofile->path[depth++] = ancestor->location;
    }
    /* The root node is not a function, so it is left out of the stack. */
    if (!cpuprofile->nodes[node].stack) {
        cpuprofile->path_left -= depth;
        br_steps_add(depth);
        cpuprofile->nodes[node].stack =
            br_build_stack(cpuprofile->build, cpuprofile->path, depth > 1 ? depth - 1 : depth) + 1;
    }
    *ret = cpuprofile->nodes[node].stack - 1;
    return br_build_rc(cpuprofile->build);
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

/* Ends the current sample at time `us`. */
static int cpuprofile_end_sample(struct cpuprofile *cpuprofile, struct moment *moment, double us)
{
    if (!moment->any)
        return 0;
    moment->sample.value = cpuprofile_nanoseconds(us - moment->us);
    return br_timed_add(&cpuprofile->timed, &moment->sample) ? cpuprofile_no_memory(cpuprofile) : 0;
}

static int cpuprofile_add_sample(struct cpuprofile *cpuprofile, struct moment *moment,
                                 const struct br_json_token *sample,
                                 const struct br_json_token *delta)
{
    double us;
    uint32_t node;
    if (!br_json_part_number(delta, &us) || !(fabs(us) < TIME_MAX) || moment->us + us > TIME_MAX)
        return cpuprofile_fail(cpuprofile, "a time is not a number of microseconds");
    us += moment->us;
    int rc = cpuprofile_node_of(cpuprofile, sample, &node);
    if (!rc)
        rc = cpuprofile_end_sample(cpuprofile, moment, us);
    if (rc)
        return rc;
    moment->us = us;
    moment->any = true;
    moment->sample = (struct br_timed_sample){.time_ns = (uint64_t)cpuprofile_nanoseconds(us)};
    return cpuprofile_stack_of(cpuprofile, node, &moment->sample.stack);
}

static int cpuprofile_read_samples(struct cpuprofile *cpuprofile)
{
    struct br_json_list samples, deltas;
    struct br_json_token sample, delta;
    struct moment moment = {.any = false};
    bool more = true, has_delta = true;
    double end;
    if (!br_json_part_number(&cpuprofile->start, &moment.us) || moment.us < 0 ||
        moment.us > TIME_MAX)
        return cpuprofile_fail(cpuprofile, "startTime is missing");
    int rc = br_json_list_open(&samples, &cpuprofile->scan, cpuprofile->samples);
    if (!rc)
        rc = br_json_list_open(&deltas, &cpuprofile->scan, cpuprofile->deltas);
    while (!rc) {
        rc = br_json_list_next(&samples, &sample, &more);
        if (!rc)
            rc = br_json_list_next(&deltas, &delta, &has_delta);
        if (!rc && more != has_delta)
            rc = cpuprofile_fail(cpuprofile, "samples and timeDeltas differ in length");
        if (rc || !more)
            break;
        rc = cpuprofile_add_sample(cpuprofile, &moment, &sample, &delta);
    }
    if (!rc && !(br_json_part_number(&cpuprofile->end, &end) && end < TIME_MAX))
        end = moment.us;
    return rc ? rc : cpuprofile_end_sample(cpuprofile, &moment, end);
}

/* --- File ------------------------------------------------------------------------------------- */

static void cpuprofile_on_root(void *arg, const struct br_json_scan *scan,
                               const struct br_json_token *name, const struct br_json_token *value)
{
    struct cpuprofile *cpuprofile = arg;
    if (br_json_part_is(name, "nodes"))
        cpuprofile->node_list = br_json_part_of(scan, value, BR_JSON_ARRAY);
    else if (br_json_part_is(name, "samples"))
        cpuprofile->samples = br_json_part_of(scan, value, BR_JSON_ARRAY);
    else if (br_json_part_is(name, "timeDeltas"))
        cpuprofile->deltas = br_json_part_of(scan, value, BR_JSON_ARRAY);
    else if (br_json_part_is(name, "startTime"))
        cpuprofile->start = *value;
    else if (br_json_part_is(name, "endTime"))
        cpuprofile->end = *value;
}

static int cpuprofile_read_file(struct cpuprofile *cpuprofile)
{
    struct br_json_scan scan = cpuprofile->scan;
    int rc = br_json_members(&scan, cpuprofile_on_root, cpuprofile);
    if (!rc)
        rc = br_json_scan_end(&scan);
    if (!rc && !cpuprofile->node_list.at)
        rc = cpuprofile_fail(cpuprofile, "nodes is missing");
    if (!rc)
        rc = br_json_elements(&cpuprofile->scan, cpuprofile->node_list, cpuprofile_add_node,
                              cpuprofile);
    if (!rc)
        rc = cpuprofile_number_nodes(cpuprofile);
    if (!rc)
        rc = cpuprofile_connect_nodes(cpuprofile);
    return rc ? rc : cpuprofile_read_samples(cpuprofile);
}

static void cpuprofile_set_type(struct cpuprofile *cpuprofile)
{
    uint64_t lasted = cpuprofile->timed.last_ns - cpuprofile->timed.first_ns;
    cpuprofile->timed.n_types = 1;
    cpuprofile->timed.types[0].metric = cpuprofile->timed.types[0].type = "wall";
    cpuprofile->timed.types[0].period_type = "wall";
    cpuprofile->timed.types[0].unit = cpuprofile->timed.types[0].period_unit = "nanoseconds";
    cpuprofile->timed.types[0].period =
        cpuprofile->timed.count > 1 ? (int64_t)(lasted / (cpuprofile->timed.count - 1)) : 0;
}

int br_cpuprofile_read(struct br_build *build, const struct br_profile_source *source,
                       struct br_arena *scratch, struct br_err *err)
{
    struct br_err ignored = {0};
    struct cpuprofile cpuprofile = {.source = source,
                                    .build = build,
                                    .err = err ? err : &ignored,
                                    .timed.build = build,
                                    .timed.n_types = 1,
                                    .path_left = br_profile_text_max(source)};
    int rc = br_json_scan_init(&cpuprofile.scan, source->len ? (const char *)source->data : "",
                               source->len, DEPTH_MAX, cpuprofile.err);
    if (!rc)
        rc = cpuprofile_read_file(&cpuprofile);
    br_free(cpuprofile.nodes);
    br_free(cpuprofile.of_id);
    br_free(cpuprofile.path);
    br_free(cpuprofile.text);
    if (rc) {
        br_timed_release(&cpuprofile.timed);
        if (!cpuprofile.err->code)
            (void)br_err_set(cpuprofile.err, rc, "cannot be converted: %s", br_strerror(rc));
        return rc == BR_ETOOBIG ? BR_EINVAL : rc;
    }
    cpuprofile_set_type(&cpuprofile);
    return br_timed_emit(&cpuprofile.timed, source, scratch, cpuprofile.err);
}
