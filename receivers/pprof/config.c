/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/lexer.h"
#include "base/mem.h"
#include "net/client.h"
#include "net/route.h"
#include "receivers/pprof/pprof.h"

#define TARGETS_MAX 1000
#define NS_PER_S 1000000000ull

static const struct br_option target_options[] = {
    BR_STRING(struct pprof_target_config, endpoint, NULL,
              "URL of the program, such as http://127.0.0.1:6060; its path is put before the paths "
              "of profiles"),
    BR_VALUE(struct pprof_target_config, labels,
             "map of names to texts that become resource attributes of the profiles; service_name "
             "becomes service.name"),
    BR_BOOL(struct pprof_target_config, on_demand, false,
            "scrape only while an override of the control extension requests it"),
    BR_OPT_END,
};

/* An option table for one kind of profile. The tables differ in the defaults, which are part of the
 * table. */
#define PROFILE_TABLE(name, on, where, seconds_help)                                               \
    static const struct br_option name[] = {                                                       \
        BR_BOOL(struct pprof_profile_config, enabled, on,                                          \
                (on) ? "scrape this kind of profile"                                               \
                     : "scrape this kind of profile; default: true if the configuration contains " \
                       "the kind"),                                                                \
        BR_STRING(struct pprof_profile_config, path, where, "URL path of the profile"),            \
        BR_INT(struct pprof_profile_config, seconds, 0, 0, 3600, seconds_help),                    \
        BR_OPT_END,                                                                                \
    }
#define DIFFERENCE                                                                                 \
    "let the program measure the difference over this many seconds; 0: request totals"
PROFILE_TABLE(cpu_options, true, "/debug/pprof/profile",
              "duration of a profile in seconds; 0: scrape_interval minus one second");
PROFILE_TABLE(heap_options, false, "/debug/pprof/heap", DIFFERENCE);
PROFILE_TABLE(allocs_options, true, "/debug/pprof/allocs", DIFFERENCE);
PROFILE_TABLE(goroutine_options, true, "/debug/pprof/goroutine", DIFFERENCE);
PROFILE_TABLE(block_options, true, "/debug/pprof/block", DIFFERENCE);
PROFILE_TABLE(mutex_options, true, "/debug/pprof/mutex", DIFFERENCE);
PROFILE_TABLE(godeltaprof_memory_options, false, "/debug/pprof/delta_heap", DIFFERENCE);
PROFILE_TABLE(godeltaprof_block_options, false, "/debug/pprof/delta_block", DIFFERENCE);
PROFILE_TABLE(godeltaprof_mutex_options, false, "/debug/pprof/delta_mutex", DIFFERENCE);

PROFILE_TABLE(threadcreate_options, false, "/debug/pprof/threadcreate", DIFFERENCE);
PROFILE_TABLE(fgprof_options, false, "/debug/fgprof",
              "duration of a profile in seconds; 0: scrape_interval minus one second");

static const struct br_option custom_options[] = {
    BR_STRING(struct pprof_custom_config, name, NULL,
              "name of the profile in Pyroscope (required)"),
    {.name = "path",
     .kind = BR_OPT_STRING,
     .offset = BR_OPT_FIELD(struct pprof_custom_config, profile.path, const char *),
     .help = "URL path of the profile (required)"},
    {.name = "seconds",
     .kind = BR_OPT_INT,
     .offset = BR_OPT_FIELD(struct pprof_custom_config, profile.seconds, int64_t),
     .min = 0,
     .max = 3600,
     .help = "request a profile over this many seconds; 0: request it without a duration"},
    BR_BOOL(struct pprof_custom_config, cumulative, false,
            "the values of the profile are totals since the program started, as in allocs"),
    BR_OPT_END,
};

static const struct br_option godeltaprof_options[] = {
    BR_BOOL(struct pprof_godeltaprof, enabled, false, "scrape the three godeltaprof_* profiles"),
    BR_OPT_END,
};

#define PROFILE(name, text) BR_STRUCT(struct pprof_profiles_config, name, name##_options, text)
static const struct br_option profiles_options[] = {
    PROFILE(cpu, "CPU profile, named process_cpu in Pyroscope"),
    PROFILE(heap, "memory profile with the same values as allocs"),
    PROFILE(allocs, "memory profile"),
    PROFILE(goroutine, "goroutine profile"),
    PROFILE(block, "block profile"),
    PROFILE(mutex, "mutex profile"),
    PROFILE(godeltaprof_memory, "memory profile of a program with godeltaprof, instead of allocs"),
    PROFILE(godeltaprof_block, "block profile of a program with godeltaprof, instead of block"),
    PROFILE(godeltaprof_mutex, "mutex profile of a program with godeltaprof, instead of mutex"),
    PROFILE(threadcreate, "profile of thread creation"),
    PROFILE(fgprof, "profile of running and waiting goroutines, of a program with fgprof"),
    PROFILE(godeltaprof,
            "the three godeltaprof_* profiles, instead of heap, allocs, block and mutex"),
    BR_LIST(struct pprof_profiles_config, custom, struct pprof_custom_config, custom_options,
            "further profiles of the program, at most 8"),
    BR_OPT_END,
};

static const struct br_option basic_auth_options[] = {
    BR_STRING(struct pprof_basic_auth, username, NULL, "user name"),
    BR_SECRET(struct pprof_basic_auth, password, "password"),
    BR_OPT_END,
};

static const char *const afters[] = {"delete", "move", "remember", NULL};

static const struct br_option directory_options[] = {
    BR_STRING(struct pprof_directory_config, path, NULL,
              "directory to read, without its subdirectories (required)"),
    BR_DURATION(struct pprof_directory_config, poll_interval, "1s",
                "interval between scans of the directory; a file is read if it has not changed for "
                "this time"),
    BR_ENUM(struct pprof_directory_config, after, "remember", afters,
            "what to do with a file that has been read"),
    BR_STRING(struct pprof_directory_config, move_to, NULL,
              "for `after: move`: destination directory, on the same file system"),
    BR_STRING(struct pprof_directory_config, state, NULL,
              "for `after: remember`: path of the list of files that have been read; default: "
              ".braid-taken in the directory"),
    BR_VALUE(
        struct pprof_directory_config, labels,
        "map of names to texts that become resource attributes of the profiles, as for a target"),
    BR_DOUBLE(struct pprof_directory_config, sample_rate, 0, 0, 1000000,
              "sampling rate in Hz, for formats that contain only numbers of samples; 0: the rate "
              "in a JFR recording, 100 for other formats"),
    BR_OPT_END,
};

static const struct br_option http_options[] = {
    BR_HTTP_ROWS("localhost:4041"),
    BR_OPT_END,
};

const struct br_option pprof_options[] = {
    BR_LIST(struct pprof_config, targets, struct pprof_target_config, target_options,
            "programs to scrape"),
    BR_STRUCT(struct pprof_config, profiles, profiles_options,
              "kinds of profiles to scrape; each kind in the config is enabled unless it has "
              "enabled: false"),
    BR_DURATION(struct pprof_config, scrape_interval, "15s", "interval between scrapes"),
    BR_DURATION(struct pprof_config, scrape_timeout, "10s",
                "timeout of a scrape, in addition to the requested duration of the profile"),
    BR_BOOL(
        struct pprof_config, delta, true,
        "send the difference to the previous scrape instead of totals since the program started"),
    BR_PRESENT(struct pprof_config, basic_auth, struct pprof_basic_auth, basic_auth_options,
               "user name and password that are sent to targets"),
    BR_SECRET(struct pprof_config, bearer_token,
              "token that is sent to targets as Authorization: Bearer"),
    BR_HEADERS(struct pprof_config, headers, "headers to add to every scrape"),
    BR_STRUCT(struct pprof_config, tls, br_tls_client_options, "TLS settings for https targets"),
    BR_SECRET(struct pprof_config, proxy_url, BR_PROXY_HELP),
    BR_INT(struct pprof_config, max_profile_size, 32 << 20, 1024, 128 << 20,
           "largest scraped profile or file in bytes, before and after decompression"),
    BR_PRESENT(
        struct pprof_config, file, struct pprof_directory_config, directory_options,
        "read profiles from a directory: pprof, JFR, speedscope, .cpuprofile, Firefox profiles, "
        "perf script and folded text, detected from the content"),
    BR_PRESENT(struct pprof_config, http, struct br_http_config, http_options,
               "server that accepts profiles in POST requests to /v1/profiles/upload"),
    BR_OPT_END,
};

static const struct pprof_custom_config *pprof_config_custom_of(const struct pprof_config *config,
                                                                enum pprof_kind kind)
{
    const struct pprof_custom_config *custom_config = config->profiles.custom.items;
    size_t i = (size_t)kind - PPROF_CUSTOM;
    return i < config->profiles.custom.count ? &custom_config[i] : NULL;
}

const struct pprof_profile_config *pprof_profile_config(const struct pprof_config *config,
                                                        enum pprof_kind kind)
{
    static const struct pprof_profile_config none = {.enabled = false, .path = ""};
    _Static_assert(offsetof(struct pprof_profiles_config, godeltaprof) ==
                       PPROF_CUSTOM * sizeof config->profiles.cpu,
                   "one of each kind");
    if (kind < PPROF_CUSTOM)
        return &(&config->profiles.cpu)[kind];
    const struct pprof_custom_config *custom = pprof_config_custom_of(config, kind);
    return custom ? &custom->profile : &none;
}

static const struct {
    const char *metric;
    bool is_total, has_duration;
} kinds[PPROF_CUSTOM] = {
    [PPROF_CPU] = {"process_cpu", false, true},
    [PPROF_HEAP] = {"memory", true, false},
    [PPROF_ALLOCS] = {"memory", true, false},
    [PPROF_GOROUTINE] = {"goroutine", false, false},
    [PPROF_BLOCK] = {"block", true, false},
    [PPROF_MUTEX] = {"mutex", true, false},
    [PPROF_GODELTAPROF_MEMORY] = {"memory", false, false},
    [PPROF_GODELTAPROF_BLOCK] = {"block", false, false},
    [PPROF_GODELTAPROF_MUTEX] = {"mutex", false, false},
    [PPROF_THREADCREATE] = {"threadcreate", true, false},
    [PPROF_FGPROF] = {"fgprof", false, true},
};

const char *pprof_kind_name(const struct pprof_config *config, enum pprof_kind kind)
{
    if (kind < PPROF_CUSTOM)
        return profiles_options[kind].name;
    const struct pprof_custom_config *custom = pprof_config_custom_of(config, kind);
    return custom && custom->name ? custom->name : "";
}

const char *pprof_kind_metric(const struct pprof_config *config, enum pprof_kind kind)
{
    return kind < PPROF_CUSTOM ? kinds[kind].metric : pprof_kind_name(config, kind);
}

bool pprof_kind_is_total(const struct pprof_config *config, enum pprof_kind kind)
{
    const struct pprof_custom_config *custom =
        kind < PPROF_CUSTOM ? NULL : pprof_config_custom_of(config, kind);
    return kind < PPROF_CUSTOM ? kinds[kind].is_total : custom && custom->cumulative;
}

bool pprof_kind_has_duration(enum pprof_kind kind)
{
    return kind < PPROF_CUSTOM && kinds[kind].has_duration;
}

/* --- Labels ----------------------------------------------------------------------------------- */

int pprof_resource(const struct br_yaml *labels, const struct br_label *more, size_t n_more,
                   struct br_arena *arena, struct br_addition *ret, struct br_err *err)
{
    struct br_label v[BR_LABELS_MAX];
    size_t n = 0;
    if (n_more + (labels ? labels->count : 0) > BR_LABELS_MAX)
        return br_err_set(err, BR_EINVAL, "more than %d labels", BR_LABELS_MAX);
    for (size_t i = 0; i < n_more; i++)
        v[n++] = more[i];
    for (size_t i = 0; labels && i < labels->count; i++)
        v[n++] = (struct br_label){labels->keys[i]->text, labels->keys[i]->len,
                                   labels->items[i]->text, labels->items[i]->len};
    int rc = br_labels_resource(arena, v, n, ret);
    return rc ? br_err_set(err, rc, "the labels are too long, or memory is short") : 0;
}

/* --- Checks ----------------------------------------------------------------------------------- */

/* Enables the kinds of profiles that the config names. The defaults in the option tables apply
 * to kinds that the config does not name. */
static void pprof_config_enable_named(struct pprof_config *config, const struct br_yaml *profiles)
{
    struct pprof_custom_config *custom = config->profiles.custom.items;
    for (size_t i = 0; i < config->profiles.custom.count; i++)
        custom[i].profile.enabled = true;
    for (int i = 0; i < PPROF_CUSTOM; i++) {
        const struct br_yaml *named = br_yaml_get(profiles, profiles_options[i].name);
        const struct br_yaml *enabled = br_yaml_get(named, "enabled");
        if (named && (!enabled || enabled->type == BR_YAML_NULL))
            (&config->profiles.cpu)[i].enabled = true;
    }
}

struct checker {
    const struct br_yaml *node; /* node of the config that is checked */
    const char *path;           /* path of the checked value in the config, for error messages */
    struct br_errs *errs;
};

static void pprof_config_error(const struct checker *checker, const struct br_yaml *at,
                               const char *key, const char *what)
{
    char path[320];
    (void)snprintf(path, sizeof path, "%s::%s", checker->path, key);
    br_errs_add(checker->errs, at ? at : checker->node, path, "%s", what);
}

static void pprof_config_check_labels(const struct checker *checker, const struct br_yaml *labels)
{
    struct br_arena arena = {0};
    struct br_addition addition;
    struct br_err err = {0};
    bool ok = !labels || labels->type == BR_YAML_NULL || labels->type == BR_YAML_MAP;
    for (size_t i = 0; ok && labels && i < labels->count; i++)
        ok = labels->items[i]->type == BR_YAML_SCALAR;
    if (!ok)
        pprof_config_error(checker, labels, "labels", "must be a map of strings");
    else if (pprof_resource(labels, NULL, 0, &arena, &addition, &err) != 0)
        pprof_config_error(checker, labels, "labels", err.text);
    br_arena_release(&arena);
}

static void pprof_config_check_target(const struct checker *checker,
                                      const struct pprof_target_config *target)
{
    struct br_endpoint endpoint;
    struct br_err err = {0};
    const struct br_yaml *at = br_yaml_get(checker->node, "endpoint");
    if (!target->endpoint || !target->endpoint[0])
        pprof_config_error(checker, at, "endpoint", "is required");
    else if (br_endpoint_read(target->endpoint, false, &endpoint, &err) != 0)
        pprof_config_error(checker, at, "endpoint", err.text);
    pprof_config_check_labels(checker, target->labels);
}

static void pprof_config_check_targets(const struct checker *checker,
                                       const struct pprof_config *config)
{
    const struct pprof_target_config *targets = config->targets.items;
    const struct br_yaml *list = br_yaml_get(checker->node, "targets");
    if (config->targets.count > TARGETS_MAX)
        pprof_config_error(checker, list, "targets", "must have at most 1000 elements");
    for (size_t i = 0; i < config->targets.count; i++) {
        char path[256];
        (void)snprintf(path, sizeof path, "%s::targets[%zu]", checker->path, i);
        const struct checker target = {list->items[i], path, checker->errs};
        pprof_config_check_target(&target, &targets[i]);
    }
}

/* Returns true if the name of a custom profile is a valid `__name__` in Pyroscope and no other
 * kind of profile has the same name. */
static bool pprof_config_is_free_name(const struct pprof_config *config, size_t at)
{
    const struct pprof_custom_config *custom = config->profiles.custom.items;
    const char *name = custom[at].name;
    if (!br_is_identifier(name, strlen(name)))
        return false;
    for (size_t i = 0; i < PPROF_CUSTOM + at; i++)
        if (strcmp(pprof_kind_name(config, (enum pprof_kind)i), name) == 0)
            return false;
    return true;
}

static void pprof_config_check_custom(const struct checker *checker,
                                      const struct pprof_config *config, uint64_t interval_s)
{
    const struct pprof_custom_config *custom = config->profiles.custom.items;
    const struct br_yaml *list = br_yaml_get(br_yaml_get(checker->node, "profiles"), "custom");
    if (config->profiles.custom.count > PPROF_CUSTOM_MAX)
        pprof_config_error(checker, list, "profiles::custom", "must have at most 8 elements");
    for (size_t i = 0; i < config->profiles.custom.count && i < PPROF_CUSTOM_MAX; i++) {
        char path[256];
        (void)snprintf(path, sizeof path, "%s::profiles::custom[%zu]", checker->path, i);
        const struct checker one = {list->items[i], path, checker->errs};
        if (!custom[i].name || !pprof_config_is_free_name(config, i))
            pprof_config_error(
                &one, br_yaml_get(one.node, "name"), "name",
                "must consist of letters, digits and _, and differ from all other kinds");
        if (!custom[i].profile.path || custom[i].profile.path[0] != '/')
            pprof_config_error(&one, br_yaml_get(one.node, "path"), "path",
                               "must start with a slash");
        if (custom[i].profile.seconds > 0 && (uint64_t)custom[i].profile.seconds >= interval_s)
            pprof_config_error(&one, br_yaml_get(one.node, "seconds"), "seconds",
                               "must be less than scrape_interval");
    }
}

static void pprof_config_check_profiles(const struct checker *checker,
                                        const struct pprof_config *config)
{
    const struct br_yaml *profiles = br_yaml_get(checker->node, "profiles");
    uint64_t interval_s = config->scrape_interval / NS_PER_S;
    pprof_config_check_custom(checker, config, interval_s);
    for (int i = 0; i < PPROF_CUSTOM; i++) {
        const struct pprof_profile_config *p = pprof_profile_config(config, (enum pprof_kind)i);
        const struct br_yaml *at = br_yaml_get(profiles, profiles_options[i].name);
        char path[256];
        (void)snprintf(path, sizeof path, "%s::profiles::%s", checker->path,
                       profiles_options[i].name);
        const struct checker kind = {at ? at : checker->node, path, checker->errs};
        if (p->enabled && p->path[0] != '/')
            pprof_config_error(&kind, br_yaml_get(at, "path"), "path", "must start with a slash");
        if (p->enabled && p->seconds > 0 && (uint64_t)p->seconds >= interval_s)
            pprof_config_error(&kind, br_yaml_get(at, "seconds"), "seconds",
                               "must be less than scrape_interval");
    }
    bool has_duration = config->profiles.cpu.enabled || config->profiles.fgprof.enabled;
    if (config->targets.count > 0 && has_duration && interval_s < 2)
        pprof_config_error(checker, br_yaml_get(checker->node, "scrape_interval"),
                           "scrape_interval",
                           "must be at least 2s if cpu or fgprof profiles are scraped");
}

/* Warns if the config enables several kinds of profiles that contain the same values under the
 * same name. A backend would add up the values of these kinds. */
static void pprof_config_warn_of_duplicates(const struct checker *checker,
                                            const struct pprof_config *config)
{
    static const enum pprof_kind duplicates[][2] = {
        {PPROF_HEAP, PPROF_ALLOCS},
        {PPROF_HEAP, PPROF_GODELTAPROF_MEMORY},
        {PPROF_ALLOCS, PPROF_GODELTAPROF_MEMORY},
        {PPROF_BLOCK, PPROF_GODELTAPROF_BLOCK},
        {PPROF_MUTEX, PPROF_GODELTAPROF_MUTEX},
    };
    for (size_t i = 0; config->targets.count > 0 && i < BR_COUNT(duplicates); i++) {
        const enum pprof_kind *two = duplicates[i];
        if (!pprof_profile_config(config, two[0])->enabled ||
            !pprof_profile_config(config, two[1])->enabled)
            continue;
        char path[256];
        (void)snprintf(path, sizeof path, "%s::profiles::%s", checker->path,
                       profiles_options[two[1]].name);
        br_errs_warn(
            checker->errs, br_yaml_get(checker->node, "profiles"), path,
            "contains the same values as %s, which is also enabled, so they are sent twice",
            profiles_options[two[0]].name);
    }
}

static void pprof_config_choose_godeltaprof(struct pprof_profiles_config *config)
{
    if (!config->godeltaprof.enabled)
        return;
    config->heap.enabled = config->allocs.enabled = config->block.enabled = config->mutex.enabled =
        false;
    config->godeltaprof_memory.enabled = config->godeltaprof_block.enabled = true;
    config->godeltaprof_mutex.enabled = true;
}

static void pprof_config_check_directory(const struct checker *checker,
                                         const struct pprof_directory_config *config)
{
    if (!config->path || !config->path[0])
        pprof_config_error(checker, br_yaml_get(checker->node, "path"), "path", "is required");
    if (config->poll_interval < NS_PER_S / 100)
        pprof_config_error(checker, br_yaml_get(checker->node, "poll_interval"), "poll_interval",
                           "must be at least 10ms");
    if (config->after == PPROF_MOVE && (!config->move_to || !config->move_to[0]))
        pprof_config_error(checker, br_yaml_get(checker->node, "move_to"), "move_to",
                           "is required with after: move");
    else if (config->after == PPROF_MOVE && config->path &&
             strcmp(config->move_to, config->path) == 0)
        pprof_config_error(checker, br_yaml_get(checker->node, "move_to"), "move_to",
                           "must be a directory other than path");
    pprof_config_check_labels(checker, config->labels);
}

static bool pprof_config_is_header_text(const char *text)
{
    for (; text && *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            return false;
    return true;
}

static void pprof_config_check_auth(const struct checker *checker,
                                    const struct pprof_config *config)
{
    const struct br_yaml *basic = br_yaml_get(checker->node, "basic_auth");
    if (config->basic_auth && config->bearer_token.text)
        pprof_config_error(checker, basic, "basic_auth", "cannot be combined with bearer_token");
    if (config->basic_auth && !config->basic_auth->username)
        pprof_config_error(checker, basic, "basic_auth::username", "is required");
    else if (config->basic_auth && strchr(config->basic_auth->username, ':'))
        pprof_config_error(checker, br_yaml_get(basic, "username"), "basic_auth::username",
                           "must not contain a colon");
    if (!pprof_config_is_header_text(config->bearer_token.text))
        pprof_config_error(checker, br_yaml_get(checker->node, "bearer_token"), "bearer_token",
                           "contains a character that is not allowed in a header");
}

int pprof_check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
                struct br_errs *errs)
{
    struct pprof_config *p = config;
    const struct checker checker = {node, path, errs};
    size_t before = errs->n_errors;
    (void)arena;
    pprof_config_enable_named(p, br_yaml_get(node, "profiles"));
    if (p->targets.count == 0 && !p->file && !p->http)
        br_errs_add(errs, node, path, "targets, file or http is required");
    pprof_config_check_targets(&checker, p);
    br_proxies_check(p->proxy_url.text, node, path, errs);
    if (p->scrape_interval < NS_PER_S / 10)
        pprof_config_error(&checker, br_yaml_get(node, "scrape_interval"), "scrape_interval",
                           "must be at least 100ms");
    if (p->scrape_timeout == 0)
        pprof_config_error(&checker, br_yaml_get(node, "scrape_timeout"), "scrape_timeout",
                           "must be more than 0");
    pprof_config_choose_godeltaprof(&p->profiles);
    pprof_config_check_profiles(&checker, p);
    pprof_config_warn_of_duplicates(&checker, p);
    pprof_config_check_auth(&checker, p);
    char at[256];
    if (p->file) {
        (void)snprintf(at, sizeof at, "%s::file", path);
        const struct checker directory = {br_yaml_get(node, "file"), at, errs};
        pprof_config_check_directory(&directory, p->file);
    }
    if (p->http) {
        (void)snprintf(at, sizeof at, "%s::http", path);
        br_endpoint_check(p->http->endpoint, p->http->transport, br_yaml_get(node, "http"), at,
                          errs);
    }
    return errs->n_errors > before ? BR_EINVAL : 0;
}
