/* SPDX-License-Identifier: Apache-2.0 */
/* Tests merging, ${...}, whole services and printing, and makes every allocation fail once.
 * Expectations are from the Collector's confmap (maps are merged, lists replaced, the later
 * source wins; types of ${...}) and from app/config.h. */
#include <unistd.h>

#include "app/config.h"
#include "base/mem.h"
#include "base/str.h"
#include "tests/support/fake_registry.h"
#include "tests/support/test.h"

#define SERVICE                                                                                    \
    "receivers: {fake: }\nexporters: {sink: {endpoint: \"a:1\"}}\n"                                \
    "service:\n  pipelines:\n    traces: {receivers: [fake], exporters: [sink]}\n"

static const char *test_getenv(const char *name, void *arg)
{
    (void)arg;
    static const char *const env[][2] = {
        {"PORT", "4317"},          {"EMPTY", ""},        {"MAP", "{a: 1, b: [x, 'y']}"},
        {"NULLISH", "null"},       {"TILDE", "~"},       {"COMMENT", "# comment"},
        {"TEXT", "plain text"},    {"QUOTED", "'7'"},    {"NAME", "PORT"},
        {"NESTED", "${env:PORT}"}, {"DOLLAR", "a$$b$c"}, {"LOOSE", "pa${ss"},
        {"NOT_YAML", "a: b: c"},   {"PAD", " 5 # five"}, {"BAD_UTF8", "\xff"},
        {"WHOLE", SERVICE},
    };
    for (size_t i = 0; i < BR_COUNT(env); i++)
        if (strcmp(env[i][0], name) == 0)
            return env[i][1];
    return NULL;
}

struct fixture {
    struct br_arena arena;
    struct br_errs errs;
    struct br_yaml *tree;
    int rc;
};

static struct fixture merge(const char *const *uris, size_t n_uris, const char *const *sets,
                            size_t n_sets)
{
    struct fixture f = {0};
    struct br_config_sources s = {
        .uris = uris, .n_uris = n_uris, .sets = sets, .n_sets = n_sets, .getenv = test_getenv};
    br_arena_init(&f.arena, 64u << 20);
    f.rc = br_config_merge(&s, &f.arena, &f.tree, &f.errs);
    return f;
}

static struct fixture merge_yaml(const char *text)
{
    struct br_str uri = {0};
    br_str_printf(&uri, "yaml:%s", text);
    const char *uris[] = {uri.data};
    struct fixture f = merge(uris, 1, NULL, 0);
    br_str_release(&uri);
    return f;
}

static void done(struct fixture *f)
{
    br_errs_release(&f->errs);
    br_arena_release(&f->arena);
}

/* Returns the node at a path such as "a::b::c". */
static const struct br_yaml *at(const struct br_yaml *node, const char *path)
{
    char part[64];
    while (node && *path) {
        const char *end = strstr(path, "::");
        size_t len = end ? (size_t)(end - path) : strlen(path);
        assert_true(len < sizeof part);
        memcpy(part, path, len);
        part[len] = '\0';
        node = br_yaml_get(node, part);
        path += end ? len + 2 : len;
    }
    return node;
}

static void expect(const struct fixture *f, const char *path, const char *text)
{
    const struct br_yaml *node = at(f->tree, path);
    if (!node || node->type != BR_YAML_SCALAR || strcmp(node->text, text) != 0)
        fail_msg("%s: %s", path, node && node->text ? node->text : "not there");
}

static void test_merge(void **state)
{
    (void)state;
    const char *const uris[] = {
        "yaml:{a: {x: 1, y: [1, 2, 3], z: {k: v}}, b: 1}",
        "yaml:{a: {y: [4], z: {l: w}, n: new}, b: {c: 2}}",
        "yaml:a::z::k: third",
    };
    const char *const sets[] = {"a.x=[5]", "a::dots.in::it = \"q\"", "b.c=", "d.e={f: 1}"};
    struct fixture f = merge(uris, 3, sets, 4);
    assert_int_equal(f.rc, 0);
    assert_int_equal(at(f.tree, "a::x")->type, BR_YAML_SEQ);
    assert_int_equal(at(f.tree, "a::y")->count, 1);
    expect(&f, "a::z::k", "third");
    expect(&f, "a::z::l", "w");
    expect(&f, "a::n", "new");
    expect(&f, "a::dots.in::it", "q");
    assert_int_equal(at(f.tree, "b::c")->type, BR_YAML_NULL);
    expect(&f, "d::e::f", "1");
    assert_string_equal(at(f.tree, "a::x")->file, "--set");
    assert_int_equal(at(f.tree, "a::x")->col, 5);
    assert_string_equal(at(f.tree, "a::n")->file, "yaml");
    done(&f);
}

/* A path may have as many names as maps may have levels. */
static void test_set_depth(void **state)
{
    (void)state;
    char set[300] = "";
    for (int i = 0; i < 100; i++)
        memcpy(set + 2 * i, "a.", 2);
    memcpy(set + 199, "=1", 2);
    const char *const sets[] = {set};
    struct fixture f = merge(NULL, 0, sets, 1);
    assert_int_equal(f.rc, 0);
    done(&f);
    memcpy(set + 199, ".a=1", 4);
    f = merge(NULL, 0, sets, 1);
    assert_int_equal(f.rc, BR_EINVAL);
    assert_non_null(strstr(f.errs.errors[0].text, "more than 100 names"));
    done(&f);
}

static void test_sources(void **state)
{
    (void)state;
    const char *const uris[] = {"tests/conformance/config/valid.yaml",
                                "file:tests/conformance/config/merged_second.yaml", "env:MAP",
                                "env:UNSET"};
    struct fixture f = merge(uris, 4, NULL, 0);
    assert_int_equal(f.rc, 0);
    expect(&f, "exporters::sink::endpoint", "nowhere");
    assert_string_equal(at(f.tree, "exporters::sink::endpoint")->file,
                        "tests/conformance/config/merged_second.yaml");
    assert_int_equal(at(f.tree, "service::pipelines::traces::receivers")->count, 1);
    expect(&f, "a", "1");
    assert_string_equal(at(f.tree, "a")->file, "env:MAP");
    assert_int_equal(f.errs.n_warnings, 1);
    done(&f);
    const char *const wrong[] = {"env:1X", "tests", "tests/none.yaml", "http://a/b", "env:TEXT"};
    for (size_t i = 0; i < BR_COUNT(wrong); i++) {
        f = merge(&wrong[i], 1, NULL, 0);
        assert_true(f.rc < 0);
        assert_int_equal(f.errs.n_errors, 1);
        assert_string_equal(f.errs.errors[0].file, wrong[i]);
        done(&f);
    }
    f = merge(NULL, 0, NULL, 0);
    assert_int_equal(f.rc, BR_EINVAL);
    done(&f);
}

static void test_expand_types(void **state)
{
    (void)state;
    struct fixture f = merge_yaml("number: ${env:PORT}\nquoted: \"${PORT}\"\nmap: ${env:MAP}\n"
                                  "null: ${env:NULLISH}\nempty: ${env:EMPTY}\ntext: ${TEXT}\n"
                                  "as_is: ${QUOTED}\nnot_yaml: ${NOT_YAML}\npad: ${PAD}\n"
                                  "yaml: ${yaml:[1, 2]}\nlist: [\"${PORT}\"]\n");
    assert_int_equal(f.rc, 0);
    expect(&f, "number", "4317");
    assert_false(at(f.tree, "number")->quoted);
    assert_true(at(f.tree, "number")->expanded);
    expect(&f, "quoted", "4317");
    assert_false(at(f.tree, "quoted")->quoted);
    expect(&f, "map::a", "1");
    assert_int_equal(at(f.tree, "map::b")->count, 2);
    assert_int_equal(at(f.tree, "map::b")->line, 3);
    assert_int_equal(at(f.tree, "map::b")->col, 6);
    assert_int_equal(at(f.tree, "null")->type, BR_YAML_NULL);
    assert_int_equal(at(f.tree, "empty")->type, BR_YAML_NULL);
    expect(&f, "text", "plain text");
    expect(&f, "as_is", "'7'");
    expect(&f, "not_yaml", "a: b: c");
    expect(&f, "pad", "5");
    assert_int_equal(at(f.tree, "yaml")->count, 2);
    assert_string_equal(at(f.tree, "list")->items[0]->text, "4317");
    done(&f);
}

/* In quotes, the result of ${...} is a text, unless it is a number or a boolean. */
static void test_expand_quoted(void **state)
{
    (void)state;
    struct fixture f = merge_yaml("null: \"${env:NULLISH}\"\ntilde: '${env:TILDE}'\n"
                                  "comment: \"${env:COMMENT}\"\nlist: [\"${NULLISH}\"]\n"
                                  "empty: \"${env:EMPTY}\"\nplain: ${env:TILDE}\n");
    assert_int_equal(f.rc, 0);
    expect(&f, "null", "null");
    assert_true(at(f.tree, "null")->quoted);
    expect(&f, "tilde", "~");
    expect(&f, "comment", "# comment");
    assert_string_equal(at(f.tree, "list")->items[0]->text, "null");
    assert_int_equal(at(f.tree, "empty")->type, BR_YAML_NULL);
    assert_int_equal(at(f.tree, "plain")->type, BR_YAML_NULL);
    done(&f);
}

static void test_expand_text(void **state)
{
    (void)state;
    struct fixture f =
        merge_yaml("inside: h:${env:PORT}/x\ntwo: ${PORT}${PORT}\n"
                   "default: ${env:UNSET:-fall back}\nset: ${env:PORT:-1}\n"
                   "empty: ${env:EMPTY:-1}\nshort: ${UNSET:-8}\n"
                   "no_text: ${env:UNSET:-}\nno_text2: '${UNSET:-}'\n"
                   "no_text3: ${env:EMPTY:-}\nno_text4: x${UNSET:-}y\n"
                   "nested: ${env:${NAME}}\nagain: ${NESTED}\nagain2: x${NESTED}\n"
                   "in_default: ${env:UNSET:-${PORT}}\nesc: $$a$b$\n"
                   "esc_ref: $${PORT}\nthree: $$${PORT}\ndollar: ${DOLLAR}\n"
                   "dollar2: x${DOLLAR}\nloose: ${LOOSE}\nnullish: x${NULLISH}\n"
                   "esc_default: ${env:UNSET:-$${PORT}}\nkey${PORT}: 1\n"
                   "bearer: Bearer ${MAP}\nlist: 'x ${yaml:[1, 2]}'\n"
                   "foobar: ${base64:foobar}\n"
                   "basic: 'Basic ${base64:${env:UNSET:-Aladdin}:open sesame}'\n"
                   "dollars: ${base64:$$x${DOLLAR}}\nnothing: 'x${base64:}'\nalone: ${base64:}\n");
    assert_int_equal(f.rc, 0);
    expect(&f, "foobar", "Zm9vYmFy");                          /* RFC 4648, section 10 */
    expect(&f, "basic", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="); /* RFC 7617, section 2 */
    expect(&f, "dollars", "JHhhJGIkYw==");                     /* $xa$b$c */
    expect(&f, "nothing", "x");
    expect(&f, "alone", "");
    expect(&f, "bearer", "Bearer {a: 1, b: [x, 'y']}");
    expect(&f, "list", "x [1, 2]");
    expect(&f, "inside", "h:4317/x");
    expect(&f, "two", "43174317");
    expect(&f, "default", "fall back");
    expect(&f, "set", "4317");
    /* the variable is set to an empty text */
    assert_int_equal(at(f.tree, "empty")->type, BR_YAML_NULL);
    expect(&f, "no_text", "");
    expect(&f, "no_text2", "");
    assert_int_equal(at(f.tree, "no_text3")->type, BR_YAML_NULL);
    expect(&f, "no_text4", "xy");
    expect(&f, "short", "8");
    expect(&f, "nested", "4317");
    expect(&f, "again", "4317");
    expect(&f, "again2", "x4317");
    expect(&f, "in_default", "4317");
    expect(&f, "esc", "$a$b$");
    assert_false(at(f.tree, "esc")->expanded);
    expect(&f, "esc_ref", "${PORT}");
    expect(&f, "three", "$4317");
    expect(&f, "dollar", "a$b$c");
    expect(&f, "dollar2", "xa$b$c");
    expect(&f, "loose", "pa${ss");
    expect(&f, "nullish", "xnull");
    expect(&f, "esc_default", "${PORT}");
    expect(&f, "key${PORT}", "1");
    assert_int_equal(f.errs.n_warnings, 0);
    done(&f);
}

static void write_file(const char *path, const char *text, size_t len)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static void test_expand_files(void **state)
{
    (void)state;
    char dir[] = "/tmp/braid_configXXXXXX", text[64], map[64], nul[64], self[64], yaml[512];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(text, sizeof text, "%s/text", dir);
    (void)snprintf(map, sizeof map, "%s/map", dir);
    (void)snprintf(nul, sizeof nul, "%s/nul", dir);
    (void)snprintf(self, sizeof self, "%s/self", dir);
    write_file(text, "s3cret\n", 7);
    write_file(map, "a: 1\nb:\n  c: ${PORT}\n", 21);
    write_file(nul, "a\0b", 3);
    (void)snprintf(yaml, sizeof yaml, "x: ${file:%s}${file:%s}", self, self);
    write_file(self, yaml + 3, strlen(yaml + 3));
    (void)snprintf(yaml, sizeof yaml,
                   "text: ${file:%s}\nlonger: Bearer ${file:%s}\nmap: ${file:%s}", text, text, map);
    struct fixture f = merge_yaml(yaml);
    assert_int_equal(f.rc, 0);
    expect(&f, "text", "s3cret");
    expect(&f, "longer", "Bearer s3cret");
    expect(&f, "map::b::c", "4317");
    assert_string_equal(at(f.tree, "map::a")->file, map);
    assert_int_equal(at(f.tree, "map::b::c")->line, 3);
    done(&f);
    const char *const wrong[] = {nul, self, dir};
    for (size_t i = 0; i < BR_COUNT(wrong); i++) {
        (void)snprintf(yaml, sizeof yaml, "x: ${file:%s}", wrong[i]);
        f = merge_yaml(yaml);
        assert_true(f.rc < 0);
        assert_int_equal(f.errs.n_errors, 1);
        done(&f);
    }
    const char *const made[] = {text, map, nul, self};
    for (size_t i = 0; i < BR_COUNT(made); i++)
        assert_int_equal(unlink(made[i]), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void test_expand_refused(void **state)
{
    (void)state;
    const char *const wrong[] = {
        "a: ${",        "a: ${PORT",   "a: x${}",        "a: ${a b}",   "a: ${env:}",
        "a: ${env:-x}", "a: ${ftp:x}", "a: ${BAD_UTF8}", "a: ${file:}", "a: ${env:${UNSET}}"};
    for (size_t i = 0; i < BR_COUNT(wrong); i++) {
        struct fixture f = merge_yaml(wrong[i]);
        assert_int_equal(f.rc, BR_EINVAL);
        assert_int_equal(f.errs.n_errors, 1);
        assert_int_equal(f.errs.errors[0].line, 1);
        assert_int_equal(f.errs.errors[0].col, 4);
        done(&f);
    }
}

static struct br_config *load(const char *text, struct br_errs *errs)
{
    struct br_str uri = {0};
    br_str_printf(&uri, "yaml:%s", text);
    const char *uris[] = {uri.data};
    struct br_config_sources s = {.uris = uris, .n_uris = 1, .getenv = test_getenv};
    struct br_config *config = NULL;
    int rc = br_config_load(&s, fake_registry, &config, errs);
    if (rc) {
        char line[1200];
        fail_msg("%s", br_err_format(&errs->errors[0], line, sizeof line));
    }
    br_str_release(&uri);
    return config;
}

static const char everything[] =
    "receivers:\n  fake / edge:\n    protocols: {grpc: {keepalive: 5s}}\n  fake_in:\n"
    "processors:\n  shape: {size: 7}\n  sampler/x:\n"
    "exporters:\n  sink: {endpoint: \"a:${PORT}\", token: hush}\n  flames:\n"
    "extensions: {probe: , probe/2: }\n"
    "service:\n  extensions: [probe/2, probe]\n  workers: \"${env:WORKERS:-4}\"\n"
    "  telemetry:\n    logs: {level: WARN, encoding: json}\n"
    "    metrics: {readers: [{pull: {exporter: {prometheus: {host: \"::1\", port: 9}}}}]}\n"
    "  pipelines:\n"
    "    traces/a:\n      receivers: [fake/edge, fake_in]\n      processors: [sampler/x, shape]\n"
    "      exporters: [sink]\n"
    "    profiles: {receivers: [fake_in], processors: [shape], exporters: [flames, sink]}\n";

static void test_load(void **state)
{
    (void)state;
    struct br_errs errs = {0};
    struct br_config *c = load(everything, &errs);
    assert_int_equal(errs.n_warnings, 0);
    assert_int_equal(c->n_instances, 8);
    assert_string_equal(c->instances[0].id, "fake/edge");
    assert_string_equal(c->instances[0].component->name, "fake");
    const struct fake_receiver_config *edge = c->instances[0].config;
    assert_int_equal(edge->protocols.grpc->keepalive, 5000000000);
    assert_string_equal(c->instances[1].id, "fake_in");
    assert_string_equal(c->instances[1].component->name, "fake");
    for (size_t i = 0; i < c->n_instances; i++)
        assert_true(c->instances[i].used);
    assert_int_equal(c->n_pipelines, 2);
    const struct br_pipeline *p = &c->pipelines[0];
    assert_string_equal(p->id, "traces/a");
    assert_int_equal(p->signal, BR_TRACES);
    assert_int_equal(p->n_receivers, 2);
    assert_ptr_equal(p->receivers[0], &c->instances[0]);
    assert_int_equal(p->n_processors, 2);
    assert_string_equal(p->processors[0]->id, "sampler/x");
    assert_string_equal(p->processors[1]->id, "shape");
    assert_int_equal(c->pipelines[1].signal, BR_PROFILES);
    assert_string_equal(c->pipelines[1].exporters[0]->id, "flames");
    assert_ptr_equal(c->pipelines[1].exporters[1], p->exporters[0]);
    const struct fake_exporter_config *sink = p->exporters[0]->config;
    assert_string_equal(sink->endpoint, "a:4317");
    assert_int_equal(c->n_extensions, 2);
    assert_string_equal(c->extensions[0]->id, "probe/2");
    assert_int_equal(c->workers, 4);
    assert_int_equal(c->telemetry.log_level, BR_LOG_WARN);
    assert_true(c->telemetry.log_json);
    assert_string_equal(c->telemetry.metrics_endpoint, "[::1]:9");
    br_config_free(c);
    br_errs_release(&errs);
    br_config_free(NULL);
}

static void test_service(void **state)
{
    (void)state;
    static const struct {
        const char *service, *endpoint;
        unsigned workers;
        size_t warnings;
    } cases[] = {
        {"", "localhost:8888", 1, 0},
        {"  workers: auto\n", "localhost:8888", 0, 0},
        {"  workers: 256\n", "localhost:8888", 256, 0},
        {"  telemetry: {metrics: {level: none}}\n", NULL, 1, 0},
        {"  telemetry: {metrics: {address: \"0.0.0.0:1\"}}\n", "0.0.0.0:1", 1, 0},
        {"  telemetry: {metrics: {readers: []}}\n", NULL, 1, 0},
        {"  telemetry: {metrics: {readers: [{periodic: {}}]}}\n", NULL, 1, 1},
        {"  telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: }}}]}}\n",
         "localhost:8888", 1, 0},
        {"  telemetry: {metrics: {address: \"x:1\", readers: [{pull: {exporter: {prometheus: "
         "{host: "
         "h, port: 2}}}}, {pull: {exporter: {prometheus: {port: 3}}}}]}}\n",
         "h:2", 1, 2},
        {"  telemetry: {metrics: {allowed_hosts: [a.example, b]}}\n", "localhost:8888", 1, 0},
        {"  telemetry: {resource: {}, traces: {}}\n", "localhost:8888", 1, 0},
        {"  telemetry: {resource: {a: b}, traces: }\n", "localhost:8888", 1, 0},
        {"  telemetry: {resource: {detection/development: {detectors: [{host: }]}, attributes: "
         "[{name: a, value: b}]}}\n",
         "localhost:8888", 1, 1},
        {"  telemetry: {resource: {detection/development: , detectors: {attributes: {included: "
         "[a]}}, schema_url: x}}\n",
         "localhost:8888", 1, 2},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_errs errs = {0};
        struct br_str text = {0};
        br_str_printf(&text, "%s%s", SERVICE, cases[i].service);
        struct br_config *c = load(text.data, &errs);
        assert_int_equal(c->workers, cases[i].workers);
        assert_int_equal(c->telemetry.log_level, BR_LOG_INFO);
        assert_false(c->telemetry.log_json);
        assert_int_equal(errs.n_warnings, cases[i].warnings);
        if (cases[i].endpoint)
            assert_string_equal(c->telemetry.metrics_endpoint, cases[i].endpoint);
        else
            assert_null(c->telemetry.metrics_endpoint);
        br_config_free(c);
        br_errs_release(&errs);
        br_str_release(&text);
    }
}

static bool same_tree(const struct br_yaml *a, const struct br_yaml *b)
{
    if (a->type != b->type || a->count != b->count)
        return false;
    if (a->type == BR_YAML_SCALAR && (a->len != b->len || memcmp(a->text, b->text, a->len) != 0))
        return false;
    for (size_t i = 0; i < a->count; i++) {
        if (a->keys && strcmp(a->keys[i]->text, b->keys[i]->text) != 0)
            return false;
        if (!same_tree(a->items[i], b->items[i]))
            return false;
    }
    return true;
}

static void print(const struct br_yaml *tree, struct br_str *out)
{
    assert_int_equal(br_config_print(tree, fake_registry, out), 0);
}

static void test_print_round_trip(void **state)
{
    (void)state;
    char long_key[1300];
    memset(long_key, 'k', sizeof long_key);
    memcpy(long_key, "? ", 2);
    (void)snprintf(long_key + 1200, sizeof long_key - 1200, "\n: {a: [1]}\n");
    const char *const texts[] = {
        SERVICE,
        everything,
        "{}",
        "",
        "a: [1, [2, [3, {b: c, d: [e]}]], {f: {g: h}}, [], {}, null]\n",
        "a: ['', ' x', 'x ', 'a: b', 'a #b', 'a:', '#a', '- a', '-', '---', '...', '*a', '&a', "
        "'!a',"
        " '|', '>', '%a', '@a', '`a', '{a', '[a', ']', ',', '?', '? a', '~', 'null', 'a,b', "
        "'<<']\n",
        "a: [\"a\\nb\", \"\\t\", \"\\\\\", \"\\\"\", \"'\", \"\\x01\\x7f\\x80\\u2028\\ufeff\", "
        "\"\\U0001F600\", \"\xc3\xa4\\r\", \"a\\u00a0\"]\n",
        "a: ['5', 5, '0x10', 'true', true, \"yes\", '1e3', '1_000', .inf, 2001-01-01, 12:30]\n",
        "{'5': a, 'true': b, 'null': c, 'a b': d, 'a: b': e, \"a\\nb\": f, '[': g, '$x': h}",
        "a: [$$, $$$$, '$${X}', a$$b, '$$ ', '${yaml:$$}']\n",
        "a: |\n  x\n   y\n\nb: >+\n  z\n\n",
        long_key,
    };
    for (size_t i = 0; i < BR_COUNT(texts); i++) {
        struct fixture f = merge_yaml(texts[i]);
        if (f.rc)
            fail_msg("%s: %s", texts[i], f.errs.errors[0].text);
        struct br_str out = {0}, twice = {0};
        print(f.tree, &out);
        struct fixture g = merge_yaml(out.data);
        if (g.rc)
            fail_msg("%s\n%s", out.data, g.errs.errors[0].text);
        bool secret = strstr(out.data, "REDACTED") != NULL;
        if (!secret && !same_tree(f.tree, g.tree))
            fail_msg("%s\n--\n%s", texts[i], out.data);
        print(g.tree, &twice);
        assert_string_equal(out.data, twice.data);
        br_str_release(&out);
        br_str_release(&twice);
        done(&f);
        done(&g);
    }
}

static void test_print(void **state)
{
    (void)state;
    struct fixture f =
        merge_yaml("exporters:\n  sink: {endpoint: \"a:1\", token: hush, headers: {X: hush, Y: }, "
                   "my_token: hush}\n  sink/l: {headers: [{name: X, value: hush}]}\n"
                   "  none: {password: hush, deep: {API_KEY: [hush], size: \"5\"}}\n"
                   "processors: {shape: {extra: {client_secret: {a: hush}, b: 1.5}}}\n"
                   "service: {workers: 2, telemetry: {Authorization: hush}}\n");
    assert_int_equal(f.rc, 0);
    struct br_str out = {0};
    print(f.tree, &out);
    assert_string_equal(out.data, "exporters:\n"
                                  "  sink:\n"
                                  "    endpoint: a:1\n"
                                  "    token: \"[REDACTED]\"\n"
                                  "    headers:\n"
                                  "      X: \"[REDACTED]\"\n"
                                  "      Y: null\n"
                                  "    my_token: \"[REDACTED]\"\n"
                                  "  sink/l:\n"
                                  "    headers:\n"
                                  "      - name: X\n"
                                  "        value: \"[REDACTED]\"\n"
                                  "  none:\n"
                                  "    password: \"[REDACTED]\"\n"
                                  "    deep:\n"
                                  "      API_KEY:\n"
                                  "        - \"[REDACTED]\"\n"
                                  "      size: \"5\"\n"
                                  "processors:\n"
                                  "  shape:\n"
                                  "    extra:\n"
                                  "      client_secret:\n"
                                  "        a: \"[REDACTED]\"\n"
                                  "      b: 1.5\n"
                                  "service:\n"
                                  "  workers: 2\n"
                                  "  telemetry:\n"
                                  "    Authorization: \"[REDACTED]\"\n");
    br_str_release(&out);
    done(&f);
}

/* `fail_in` is the number of allocations until one fails. `n_alive` is the number of blocks in use.
 */
static long fail_in, n_alive;

static void *failing_alloc(size_t size)
{
    if (fail_in > 0 && --fail_in == 0)
        return NULL;
    void *p = malloc(size);
    n_alive += p != NULL;
    return p;
}

static void *failing_resize(void *p, size_t size)
{
    if (!p)
        return failing_alloc(size);
    if (fail_in > 0 && --fail_in == 0)
        return NULL;
    return realloc(p, size);
}

static void counting_release(void *p)
{
    n_alive -= p != NULL;
    free(p);
}

static const struct br_mem_hooks failing = {failing_alloc, failing_resize, counting_release, NULL};

/* Loads and prints once. Returns true if the n-th allocation was not reached. */
static bool run_with_failure(const char *const *uris, size_t n_uris, int want, long n)
{
    const char *const sets[] = {"service.workers=3", "processors::shape::extra=[1, {a: b}]"};
    struct br_config_sources s = {
        .uris = uris, .n_uris = n_uris, .sets = sets, .n_sets = 2, .getenv = test_getenv};
    struct br_errs errs = {0};
    struct br_config *config = NULL;
    fail_in = n;
    int rc = br_config_load(&s, fake_registry, &config, &errs);
    struct br_str out = {0};
    int printed = rc ? 0 : br_config_print(config->tree, fake_registry, &out);
    bool reached = fail_in == 0;
    fail_in = 0;
    if (!reached) {
        assert_int_equal(rc, want);
    } else {
        assert_true(rc < 0 || want == 0);
        assert_true(rc == 0 || !config);
        assert_true(printed == 0 || printed == BR_ENOMEM);
    }
    br_str_release(&out);
    br_errs_release(&errs);
    br_config_free(config);
    assert_int_equal(n_alive, 0);
    return !reached;
}

static void test_no_memory(void **state)
{
    (void)state;
    struct br_str whole = {0};
    br_str_printf(&whole, "yaml:%s", everything);
    const char *good[] = {whole.data, "tests/conformance/config/valid.yaml",
                          "yaml:processors::shape::legacy: x${PORT}${MAP_UNSET}"};
    const char *bad[] = {"tests/conformance/config/wrong_types.yaml",
                         "tests/conformance/config/alias_bomb.yaml",
                         "tests/conformance/config/undefined_id.yaml",
                         "tests/conformance/config/bad_reference.yaml"};
    br_mem_set_hooks(&failing);
    long n = 1;
    while (!run_with_failure(good, 3, 0, n))
        n++;
    assert_true(n > 10);
    for (n = 1; !run_with_failure(bad, 4, BR_ETOOBIG, n) && n < 1000;)
        n++;
    assert_true(n > 10 && n < 1000);
    br_mem_set_hooks(NULL);
    br_str_release(&whole);
}

SUITE(config)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merge),         cmocka_unit_test(test_sources),
        cmocka_unit_test(test_set_depth),     cmocka_unit_test(test_expand_types),
        cmocka_unit_test(test_expand_quoted), cmocka_unit_test(test_expand_text),
        cmocka_unit_test(test_expand_files),  cmocka_unit_test(test_expand_refused),
        cmocka_unit_test(test_load),          cmocka_unit_test(test_service),
        cmocka_unit_test(test_print),         cmocka_unit_test(test_print_round_trip),
        cmocka_unit_test(test_no_memory),
    };
    return RUN(tests, NULL, NULL);
}
