/* SPDX-License-Identifier: Apache-2.0 */
#include "app/quickstart.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"

#define QUICKSTART_ARENA (4u << 20)

extern const unsigned char br_quickstart_yaml[]; /* scripts/embed */

/* The endpoint stays a reference: what it holds is text, whatever stands in it. */
static const char quickstart_tempo[] =
    "yaml:exporters: {otlp/tempo: {endpoint: '${env:TEMPO_ENDPOINT}', tls: {insecure: true}}}\n"
    "service: {pipelines: {traces: {exporters: [store, otlp/tempo]}}}\n";
static const char quickstart_pyroscope[] =
    "yaml:exporters: {pyroscope: {endpoint: '${env:PYROSCOPE_ENDPOINT}'}}\n"
    "service: {pipelines: {profiles: {exporters: [store, pyroscope]}}}\n";

static const char *quickstart_variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

int br_quickstart_sources(struct br_config_sources *sources, const char *uris[BR_QUICKSTART_URIS],
                          struct br_arena *arena)
{
    size_t count = 0;
    uris[count++] = br_arena_printf(arena, "yaml:%s", (const char *)br_quickstart_yaml);
    if (!uris[0])
        return BR_ENOMEM;
    if (quickstart_variable("TEMPO_ENDPOINT"))
        uris[count++] = quickstart_tempo;
    if (quickstart_variable("PYROSCOPE_ENDPOINT"))
        uris[count++] = quickstart_pyroscope;
    sources->uris = uris;
    sources->n_uris = count;
    return 0;
}

/* The text at a path of keys, ended by NULL. */
static const char *quickstart_text(const struct br_yaml *tree, const char *const *keys)
{
    for (; tree && *keys; keys++)
        tree = br_yaml_get(tree, *keys);
    return tree && tree->text ? tree->text : "nowhere";
}

static void quickstart_print(const struct br_yaml *tree)
{
    static const char *const page[] = {"extensions", "query", "endpoint", NULL};
    static const char *const grpc[] = {"receivers", "otlp", "protocols", "grpc", "endpoint", NULL};
    static const char *const http[] = {"receivers", "otlp", "protocols", "http", "endpoint", NULL};
    static const char *const push[] = {"receivers", "pyroscope", "protocols",
                                       "http",      "endpoint",  NULL};
    static const char *const age[] = {"exporters", "store", "retention", "max_age", NULL};
    static const char *const size[] = {"exporters", "store", "retention", "max_bytes", NULL};
    (void)printf("Braid " BR_VERSION " keeps traces and profiles for %s, %s at most.\n\n"
                 "  See them           http://%s\n"
                 "  Send OTLP          %s (gRPC), http://%s (HTTP)\n"
                 "  Send profiles      http://%s (Pyroscope's SDKs)\n",
                 quickstart_text(tree, age), quickstart_text(tree, size),
                 quickstart_text(tree, page), quickstart_text(tree, grpc),
                 quickstart_text(tree, http), quickstart_text(tree, push));
}

void br_quickstart_welcome(const struct br_config_sources *sources)
{
    const char *tempo = quickstart_variable("TEMPO_ENDPOINT");
    const char *pyroscope = quickstart_variable("PYROSCOPE_ENDPOINT");
    struct br_arena arena;
    struct br_errs errs = {0};
    struct br_yaml *tree = NULL;
    br_arena_init(&arena, QUICKSTART_ARENA);
    if (br_config_merge(sources, &arena, &tree, &errs) == 0)
        quickstart_print(tree);
    br_errs_release(&errs);
    br_arena_release(&arena);
    if (tempo)
        (void)printf("  Traces go on to    %s\n", tempo);
    if (pyroscope)
        (void)printf("  Profiles go on to  %s\n", pyroscope);
    (void)printf("\nCtrl-C ends it. Another config: braid --config FILE\n");
    (void)fflush(stdout);
}
