/* SPDX-License-Identifier: Apache-2.0 */
/* The debug exporter: what comes as text for people, on stdout. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "exporters/debug/output.h"
#include "otlp/fields.h"
#include "otlp/print/print.h"
#include "pipeline/exporter.h"
#include "wire/protobuf.h"

#define TEXT_MAX (1u << 20) /* of one item; what is over it is cut */
#define LOG_EVERY_MS 60000

enum verbosity { BASIC, NORMAL, DETAILED };

struct config {
    int verbosity; /* enum verbosity */
    int64_t sampling_initial, sampling_thereafter;
    struct br_strings output_paths;
    struct br_exporter_config common;
};

struct state {
    struct debug_output **outputs;
    size_t n_outputs;
    struct br_str text;
    uint64_t second[BR_SIGNALS], n_in_second[BR_SIGNALS];
    struct br_log_limit limit;
};

static const char *const verbosities[] = {"basic", "normal", "detailed", NULL};

static const struct br_option options[] = {
    BR_ENUM(struct config, verbosity, "basic", verbosities,
            "a line for each request; one for each span or profile; everything"),
    BR_INT(struct config, sampling_initial, 2, 0, 1e9,
           "requests of a signal printed in each second"),
    BR_INT(struct config, sampling_thereafter, 1, 0, 1e9,
           "of those beyond, print each n-th; 0: none"),
    BR_STRINGS(struct config, output_paths, "stdout, stderr or files; default: stdout"),
    BR_IGNORED("use_internal_logger", "output goes to output_paths, never through the log"),
    BR_IGNORED("loglevel", "verbosity says how much is printed"),
    BR_EXPORTER_OPTIONS_OFF(struct config, common),
    BR_OPT_END,
};

static int check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
                 struct br_errs *errs)
{
    struct config *c = config;
    const struct br_yaml *paths = br_yaml_get(node, "output_paths");
    char at[256];
    int rc = br_exporter_check(&c->common, node, path, errs);
    if (rc || c->output_paths.n)
        return rc;
    (void)snprintf(at, sizeof at, "%s::output_paths", path);
    if (paths && paths->type == BR_YAML_SEQ)
        return br_errs_add(errs, paths, at, "must not be empty");
    c->output_paths.v = br_arena_calloc(arena, 1, sizeof *c->output_paths.v);
    if (!c->output_paths.v)
        return BR_ENOMEM;
    c->output_paths.v[c->output_paths.n++] = "stdout";
    return 0;
}

static int create(struct br_node *node, struct br_err *err)
{
    struct state *s = node->state;
    const struct config *c = node->config;
    s->text.max = TEXT_MAX;
    s->outputs = br_calloc(c->output_paths.n, sizeof(struct debug_output *));
    return s->outputs ? 0 : br_err_set(err, BR_ENOMEM, "out of memory");
}

static int debug_check_outputs(const struct br_strings *paths, struct br_err *err)
{
    for (size_t i = 0; i < paths->n; i++) {
        bool stream = strcmp(paths->v[i], "stdout") == 0 || strcmp(paths->v[i], "stderr") == 0;
        int error = stream ? 0 : br_file_check(paths->v[i]);
        if (error)
            return br_err_set(err, BR_EIO, "output_paths: cannot open %s: %s", paths->v[i],
                              strerror(error));
    }
    return 0;
}

static int start(struct br_node *node, struct br_err *err)
{
    struct state *s = node->state;
    const struct config *c = node->config;
    if (node->host->checking)
        return debug_check_outputs(&c->output_paths, err);
    for (; s->n_outputs < c->output_paths.n; s->n_outputs++) {
        int rc = debug_output_open(node->host, c->output_paths.v[s->n_outputs],
                                   &s->outputs[s->n_outputs], err);
        if (rc)
            return rc;
    }
    return 0;
}

/* The first sampling_initial of a second, and then each sampling_thereafter-th. */
static bool sampled(struct br_node *node, enum br_signal signal)
{
    struct state *s = node->state;
    const struct config *c = node->config;
    uint64_t now = br_host_mono_ms(node->host) / 1000;
    if (s->second[signal] != now) {
        s->second[signal] = now;
        s->n_in_second[signal] = 0;
    }
    uint64_t n = ++s->n_in_second[signal], initial = (uint64_t)c->sampling_initial;
    uint64_t every = (uint64_t)c->sampling_thereafter;
    return n <= initial || (every && (n - initial) % every == 0);
}

/* Messages `depth` levels down, each in field 2 of the one above. */
static uint32_t count(const uint8_t *p, const uint8_t *end, unsigned depth)
{
    struct br_field f;
    uint32_t n = 0;
    while (p < end && (p = br_field_next(p, end, &f)))
        if (f.number == BR_INWARD && f.wire == BR_WIRE_LEN)
            n += depth > 1 ? count(f.data, p, depth - 1) : 1;
    return n;
}

static void print_counts(const struct br_item *item, struct br_str *out)
{
    uint32_t resources = 0, profiles = 0;
    for (uint32_t i = 0; i < item->n_parts; i++) {
        const struct br_part *part = &item->parts[i];
        if (part->kind != BR_PART_RESOURCE)
            continue;
        resources++;
        if (item->signal == BR_PROFILES)
            profiles += count(part->raw + part->body_at, part->raw + part->raw_len, 2);
    }
    if (item->signal == BR_TRACES)
        br_str_printf(out, "Traces: resource spans %u, spans %u\n", resources, item->n_items);
    else
        br_str_printf(out, "Profiles: resource profiles %u, profiles %u, samples %u\n", resources,
                      profiles, item->n_items);
}

static void print(const struct config *c, const struct br_item *item, struct br_str *out)
{
    br_str_clear(out);
    print_counts(item, out);
    size_t counts_len = out->len;
    int rc = 0;
    if (c->verbosity == NORMAL)
        rc = br_print_brief(item, out);
    else if (c->verbosity == DETAILED)
        rc = item->signal == BR_TRACES ? br_print_traces(item, out) : br_print_profiles(item, out);
    if (rc && out->data) {
        out->len = counts_len;
        out->failed = false;
        br_str_puts(out, "... (no memory to print it)\n");
    }
}

/* An output that cannot be written to loses its text, not data: other exporters have that. */
static void write_all(struct br_node *node)
{
    struct state *s = node->state;
    const struct config *c = node->config;
    uint64_t held;
    for (size_t i = 0; i < s->n_outputs; i++) {
        int error = debug_output_write(s->outputs[i], s->text.data, s->text.len);
        if (error && br_log_allow(&s->limit, br_host_mono_ms(node->host), LOG_EVERY_MS, &held))
            br_warn(&node->log, "cannot write to %s: %s", c->output_paths.v[i], strerror(error));
    }
}

static void consume(struct br_node *node, struct br_item *item)
{
    struct state *s = node->state;
    if (sampled(node, item->signal)) {
        print(node->config, item, &s->text);
        if (s->text.data)
            write_all(node);
    }
    br_item_done(item);
}

static void destroy(struct br_node *node)
{
    struct state *s = node->state;
    for (size_t i = 0; i < s->n_outputs; i++)
        debug_output_close(node->host, s->outputs[i]);
    br_free(s->outputs);
    br_str_release(&s->text);
}

extern const struct br_component br_debug_exporter;
const struct br_component br_debug_exporter = {
    .name = "debug",
    .kind = BR_EXPORTER,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "prints what comes, for people",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .exporter_wrapped = true,
    .common_at = offsetof(struct config, common),
    .check = check,
    .create = create,
    .start = start,
    .consume = consume,
    .destroy = destroy,
};
