/* SPDX-License-Identifier: Apache-2.0 */
/* The debug exporter: prints requests as readable text. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "core/shared.h"
#include "core/task.h"
#include "otlp/fields.h"
#include "otlp/print/print.h"
#include "pipeline/exporter.h"
#include "wire/protobuf.h"

#define TEXT_MAX (1u << 20)    /* largest text for one item, in bytes; longer texts are truncated */
#define WAITING_MAX (4u << 20) /* largest size of the text queued in a worker, in bytes */
/* milliseconds that a thread waits until an output can be written to */
#define STUCK_MS 1000

/* --- Outputs ---------------------------------------------------------------------------------- */

/* An output that all workers share. The workers write their texts to the output one at a time. */
struct debug_output {
    pthread_mutex_t lock;
    int fd;
    bool own;
    bool waits; /* the output is not a regular file, so its reader may block a write */
    bool stuck; /* the reader of the output has not read for STUCK_MS */
    int error;  /* errno of the failed attempt to open the file; 0: no attempt failed */
};

static void *debug_output_make(const void *path)
{
    struct debug_output *output = br_calloc(1, sizeof *output);
    if (!output)
        return NULL;
    (void)pthread_mutex_init(&output->lock, NULL);
    if (strcmp(path, "stdout") == 0) {
        output->fd = STDOUT_FILENO;
    } else if (strcmp(path, "stderr") == 0) {
        output->fd = STDERR_FILENO;
    } else {
        output->fd = br_file_open(path, O_APPEND | O_NONBLOCK | O_NOCTTY);
        output->own = true;
        output->error = output->fd < 0 ? errno : 0;
    }
    struct stat st;
    output->waits = fstat(output->fd, &st) == 0 && !S_ISREG(st.st_mode);
    return output;
}

static void debug_output_release(void *thing)
{
    struct debug_output *output = thing;
    if (output->own && output->fd >= 0)
        (void)close(output->fd);
    (void)pthread_mutex_destroy(&output->lock);
    br_free(output);
}

/* Releases a worker's reference to the output. Accepts NULL. */
static void debug_output_close(struct br_host *host, struct debug_output *output)
{
    br_shared_put(host, output, debug_output_release);
}

/* Opens the output "stdout", "stderr" or a file, or shares it if another worker has opened it.
 * If the output is a file, text is appended to it. Returns 0, or BR_EIO or BR_ENOMEM with a
 * message. */
static int debug_output_open(struct br_host *host, const char *path, struct debug_output **ret,
                             struct br_err *err)
{
    char name[512];
    (void)snprintf(name, sizeof name, "debug output %s", path);
    struct debug_output *output = br_shared_get(host, name, debug_output_make, path);
    if (!output)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    if (output->error) {
        int rc = br_err_set(err, BR_EIO, "output_paths: cannot open %s: %s", path,
                            strerror(output->error));
        debug_output_close(host, output);
        return rc;
    }
    *ret = output;
    return 0;
}

/* Waits up to STUCK_MS for the reader of an output. After a timeout, and until the output has
 * room again, later writes do not wait. */
static int debug_output_wait_writable(struct debug_output *output)
{
    struct pollfd p = {.fd = output->fd, .events = POLLOUT};
    int n = poll(&p, 1, output->stuck ? 0 : STUCK_MS);
    if (n < 0 && errno == EINTR)
        return 0;
    output->stuck = n == 0;
    return output->stuck ? EAGAIN : 0;
}

/* Writes a text. An output that may block receives pieces of PIPE_BUF bytes, because a writable
 * pipe accepts PIPE_BUF bytes without blocking. */
static int debug_output_put(struct debug_output *output, const char *text, size_t len)
{
    while (len) {
        int error = output->waits ? debug_output_wait_writable(output) : 0;
        if (error)
            return error;
        ssize_t n = write(output->fd, text, output->waits && len > PIPE_BUF ? PIPE_BUF : len);
        if (n >= 0) {
            text += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) {
            output->waits = true;
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

/* Writes the whole text. Returns 0 or an errno. */
static int debug_output_write(struct debug_output *output, const char *text, size_t len)
{
    (void)pthread_mutex_lock(&output->lock);
    int error = debug_output_put(output, text, len);
    (void)pthread_mutex_unlock(&output->lock);
    return error;
}

/* --- Config ----------------------------------------------------------------------------------- */

enum verbosity { BASIC, NORMAL, DETAILED };

struct config {
    int verbosity; /* level of detail of the text, a value of enum verbosity */
    int64_t sampling_initial, sampling_thereafter;
    struct br_strings output_paths;
    struct br_exporter_config common;
};

/* Text that a thread writes. The task's `done` callback frees the struct, possibly after the
 * node is destroyed. */
struct writing {
    struct br_task task;
    struct state *state; /* state of the node; it may already be freed if the task was cancelled */
    struct br_str text;
    struct debug_output *const *outputs;
    size_t n_outputs;
    /* index of the first output to which the text could not be written, if `error` is not 0 */
    size_t failed;
    int error; /* errno of output `failed`; 0: the text was written to all outputs */
};

struct state {
    struct br_node *node;
    struct debug_output **outputs;
    size_t n_outputs;
    struct br_str text;    /* text of one item */
    struct br_str waiting; /* text that is queued for the next write */
    bool busy;             /* a thread is writing text */
    struct writing *writing;
    uint64_t second[BR_SIGNALS], n_in_second[BR_SIGNALS];
    struct br_log_limit limit;
};

static const char *const verbosities[] = {"basic", "normal", "detailed", NULL};

static const struct br_option options[] = {
    BR_ENUM(struct config, verbosity, "basic", verbosities,
            "basic: print one line per request; normal: also one line per span or profile; "
            "detailed: print all data"),
    BR_INT(struct config, sampling_initial, 2, 0, 1e9,
           "number of requests of each signal that are printed at the beginning of each second"),
    BR_INT(
        struct config, sampling_thereafter, 1, 0, 1e9,
        "after sampling_initial requests in a second, print every n-th request; 0: print no more"),
    BR_STRINGS(struct config, output_paths,
               "where to print: stdout, stderr or paths of files; default: stdout"),
    BR_IGNORED("use_internal_logger", "output is written to output_paths, not to the log"),
    BR_IGNORED("loglevel", "set verbosity instead"),
    BR_IGNORED("logLevel", "set verbosity instead"),
    BR_EXPORTER_OPTIONS_OFF(struct config, common),
    BR_OPT_END,
};

static int debug_check(void *config, const struct br_yaml *node, const char *path,
                       struct br_arena *arena, struct br_errs *errs)
{
    struct config *settings = config;
    const struct br_yaml *paths = br_yaml_get(node, "output_paths");
    int rc = br_exporter_check(&settings->common, node, path, errs);
    if (rc || settings->output_paths.count)
        return rc;
    if (paths && paths->type == BR_YAML_SEQ)
        return br_errs_add_key(errs, node, path, "output_paths", "must not be empty");
    settings->output_paths.items = br_arena_calloc(arena, 1, sizeof *settings->output_paths.items);
    if (!settings->output_paths.items)
        return BR_ENOMEM;
    settings->output_paths.items[settings->output_paths.count++] = "stdout";
    return 0;
}

static br_task_fn debug_on_run, debug_on_done;

static int debug_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    state->node = node;
    state->text.max = TEXT_MAX;
    state->waiting.max = WAITING_MAX;
    state->writing = br_calloc(1, sizeof *state->writing);
    state->outputs = br_calloc(config->output_paths.count, sizeof(struct debug_output *));
    if (!state->outputs || !state->writing)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    state->writing->state = state;
    br_task_init(&state->writing->task, node->host, debug_on_run, debug_on_done);
    state->writing->task.work.kind = BR_WORK_DISK;
    return 0;
}

static int debug_check_outputs(const struct br_strings *paths, struct br_err *err)
{
    for (size_t i = 0; i < paths->count; i++) {
        bool stream =
            strcmp(paths->items[i], "stdout") == 0 || strcmp(paths->items[i], "stderr") == 0;
        int error = stream ? 0 : br_file_check(paths->items[i]);
        if (error)
            return br_err_set(err, BR_EIO, "output_paths: cannot open %s: %s", paths->items[i],
                              strerror(error));
    }
    return 0;
}

static int debug_start(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    if (node->host->checking)
        return debug_check_outputs(&config->output_paths, err);
    for (; state->n_outputs < config->output_paths.count; state->n_outputs++) {
        int rc = debug_output_open(node->host, config->output_paths.items[state->n_outputs],
                                   &state->outputs[state->n_outputs], err);
        if (rc)
            return rc;
    }
    return 0;
}

/* Returns true if a request is to be printed. These are the first sampling_initial requests of
 * each second, and then one of every sampling_thereafter requests. */
static bool debug_sampled(struct br_node *node, enum br_signal signal)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    uint64_t now = br_host_mono_ms(node->host) / 1000;
    if (state->second[signal] != now) {
        state->second[signal] = now;
        state->n_in_second[signal] = 0;
    }
    uint64_t n = ++state->n_in_second[signal], initial = (uint64_t)config->sampling_initial;
    uint64_t every = (uint64_t)config->sampling_thereafter;
    return n <= initial || (every && (n - initial) % every == 0);
}

/* Counts the nested messages that are `depth` levels below the message at `p`. On each level,
 * the counted messages are field 2 of the message that contains them. */
static uint32_t debug_count(const uint8_t *p, const uint8_t *end, unsigned depth)
{
    struct br_field field;
    uint32_t n = 0;
    while (p < end && (p = br_field_next(p, end, &field)))
        if (field.number == BR_INWARD && field.wire == BR_WIRE_LEN)
            n += depth > 1 ? debug_count(field.data, p, depth - 1) : 1;
    return n;
}

static void debug_print_counts(const struct br_item *item, struct br_str *out)
{
    uint32_t resources = 0, profiles = 0;
    for (uint32_t i = 0; i < item->n_parts; i++) {
        const struct br_part *part = &item->parts[i];
        if (part->kind != BR_PART_RESOURCE)
            continue;
        resources++;
        if (item->signal == BR_PROFILES)
            profiles += debug_count(part->raw + part->body_at, part->raw + part->raw_len, 2);
    }
    if (item->signal == BR_TRACES)
        br_str_printf(out, "Traces: resource spans %u, spans %u\n", resources, item->n_records);
    else
        br_str_printf(out, "Profiles: resource profiles %u, profiles %u, samples %u\n", resources,
                      profiles, item->n_records);
}

static void debug_print(const struct config *config, const struct br_item *item, struct br_str *out)
{
    br_str_clear(out);
    debug_print_counts(item, out);
    size_t counts_len = out->len;
    int rc = 0;
    if (config->verbosity == NORMAL)
        rc = br_print_brief(item, out);
    else if (config->verbosity == DETAILED)
        rc = item->signal == BR_TRACES ? br_print_traces(item, out) : br_print_profiles(item, out);
    if (rc && out->data) {
        out->len = counts_len;
        out->failed = false;
        br_str_puts(out, rc == BR_EFULL ? "... (too many entries in its dictionary to print it)\n"
                                        : "... (no memory to print it)\n");
    }
}

static void debug_on_run(struct br_task *task)
{
    struct writing *writing = br_container_of(task, struct writing, task);
    writing->error = 0;
    for (size_t i = 0; i < writing->n_outputs; i++) {
        int error = debug_output_write(writing->outputs[i], writing->text.data, writing->text.len);
        if (!error || writing->error)
            continue;
        writing->error = error;
        writing->failed = i;
    }
}

static void debug_write(struct state *state);

/* Logs that an output failed. Only the text for the failed output is lost; other exporters
 * deliver the data. */
static void debug_log_failure(struct state *state, size_t output, const char *why)
{
    const struct config *config = state->node->config;
    br_node_warn(state->node, &state->limit, "cannot write to %s: %s",
                 config->output_paths.items[output], why);
}

static void debug_free_writing(struct writing *writing)
{
    br_str_release(&writing->text);
    br_free(writing);
}

static void debug_on_done(struct br_task *task)
{
    struct writing *writing = br_container_of(task, struct writing, task);
    struct state *state = writing->state;
    if (br_task_is_cancelled(task)) {
        debug_free_writing(writing);
        return;
    }
    state->busy = false;
    if (writing->error)
        debug_log_failure(state, writing->failed, strerror(writing->error));
    if (state->waiting.len)
        debug_write(state);
    else if (state->node->draining && !state->node->drained)
        br_node_drained(state->node);
}

/* Starts writing the queued text. */
static void debug_write(struct state *state)
{
    struct writing *writing = state->writing;
    struct br_str text = writing->text;
    writing->text = state->waiting;
    state->waiting = text;
    br_str_clear(&state->waiting);
    state->waiting.max = WAITING_MAX;
    writing->outputs = state->outputs;
    writing->n_outputs = state->n_outputs;
    state->busy = true;
    br_task_start(&writing->task);
}

static void debug_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    if (debug_sampled(node, item->signal)) {
        debug_print(node->config, item, &state->text);
        size_t before = state->waiting.len;
        br_str_add(&state->waiting, state->text.data ? state->text.data : "", state->text.len);
        if (state->waiting.failed) {
            state->waiting.len = before;
            state->waiting.failed = false;
            debug_log_failure(state, 0, "too much text is queued for it");
        }
        if (!state->busy && state->waiting.len)
            debug_write(state);
    }
    br_item_done(item);
}

static void debug_drain(struct br_node *node)
{
    const struct state *state = node->state;
    if (!state->busy)
        br_node_drained(node);
}

static void debug_destroy(struct br_node *node)
{
    struct state *state = node->state;
    if (state->busy)
        br_task_stop(&state->writing->task);
    else if (state->writing)
        debug_free_writing(state->writing);
    for (size_t i = 0; i < state->n_outputs; i++)
        debug_output_close(node->host, state->outputs[i]);
    br_free(state->outputs);
    br_str_release(&state->text);
    br_str_release(&state->waiting);
}

extern const struct br_component br_debug_exporter;
const struct br_component br_debug_exporter = {
    .name = "debug",
    .kind = BR_EXPORTER,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "prints data in a readable form",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .exporter_wrapped = true,
    .common_at = offsetof(struct config, common),
    .check = debug_check,
    .create = debug_create,
    .start = debug_start,
    .consume = debug_consume,
    .drain = debug_drain,
    .destroy = debug_destroy,
};
