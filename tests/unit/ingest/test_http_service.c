/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/http.h"
#include "ingest/http_service.h"
#include "tests/support/node_rig.h"
#include "tests/support/test.h"

struct config {
    const char *endpoint, *transport;
    struct br_tls_config *tls;
    struct br_strings allowed_hosts;
};

struct state {
    struct br_http_service service;
    unsigned n_requests;
};

static const struct br_option options[] = {
    BR_LISTEN_ROWS(struct config, "localhost:1234"),
    BR_STRINGS(struct config, allowed_hosts, "hosts"),
    BR_OPT_END,
};

static void on_begin(struct br_handler *self, struct br_request *request)
{
    struct state *state = br_container_of(self, struct state, service.handler);
    state->n_requests++;
    if (!br_hosts_allow(&state->service.hosts, request))
        br_request_reply_text(request, 403, BR_HOSTS_REFUSAL "\n");
}

static void on_body(struct br_handler *self, struct br_request *request)
{
    (void)self;
    br_request_reply_text(request, 200, "ok\n");
}

static void on_gone(struct br_handler *self, struct br_request *request)
{
    (void)self;
    (void)request;
}

static int create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    (void)err;
    state->service.handler =
        (struct br_handler){.begin = on_begin, .body = on_body, .gone = on_gone};
    return 0;
}

static int start(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    struct br_server_config server = {.endpoint = config->endpoint, .transport = config->transport};
    return br_http_service_listen(&state->service, node, "web", &config->allowed_hosts, &server,
                                  err);
}

static void drain(struct br_node *node)
{
    struct state *state = node->state;
    br_http_service_drain(&state->service, node);
}

static void destroy(struct br_node *node)
{
    struct state *state = node->state;
    br_http_service_release(&state->service);
}

static const struct br_component listening = {.name = "listening",
                                              .kind = BR_EXTENSION,
                                              .options = options,
                                              .config_size = sizeof(struct config),
                                              .state_size = sizeof(struct state),
                                              .create = create,
                                              .start = start,
                                              .drain = drain,
                                              .destroy = destroy};

static unsigned status_for(struct node_rig *rig, const char *host)
{
    struct fake_request *r = fake_request_new(rig->h, "web", "/");
    fake_request_host(r, host);
    fake_request_send(r, "", 0);
    unsigned status = fake_request_reply(r)->status;
    fake_request_free(r);
    return status;
}

static void listeners_have_the_name_of_the_node(void **state)
{
    struct node_rig rig;
    char name[64];
    (void)state;
    node_rig_start(&rig, &listening, "");
    (void)snprintf(name, sizeof name, "extension/%s web", rig.node.id);
    assert_non_null(fake_host_service(rig.h, name));
    assert_int_equal(status_for(&rig, "localhost:1234"), 200);
    assert_int_equal(((struct state *)rig.node.state)->n_requests, 1);
    node_rig_end(&rig);
}

static void hosts_are_those_of_the_endpoint_and_the_setting(void **state)
{
    struct node_rig rig;
    (void)state;
    node_rig_start(&rig, &listening, "{endpoint: 'web.example:80', allowed_hosts: cdn.example}");
    assert_int_equal(status_for(&rig, "web.example"), 200);
    assert_int_equal(status_for(&rig, "cdn.example"), 200);
    assert_int_equal(status_for(&rig, "evil.example"), 403);
    node_rig_end(&rig);
}

static void draining_waits_for_requests(void **state)
{
    struct node_rig rig;
    (void)state;
    node_rig_start(&rig, &listening, "");
    struct fake_request *r = fake_request_new(rig.h, "web", "/");
    fake_request_begin(r);
    fake_host_drain(rig.h, &rig.node);
    assert_false(rig.drained);
    fake_request_fail(r, BR_BODY_TOO_BIG); /* on_body answers it */
    fake_host_iterate(rig.h);
    assert_true(rig.drained);
    fake_request_free(r);
    node_rig_end(&rig);
}

static void services_that_cannot_listen_have_drained(void **state)
{
    struct node_rig rig;
    struct br_err err = {0};
    (void)state;
    node_rig_begin(&rig, &listening, "");
    assert_int_equal(create(&rig.node, &err), 0);
    rig.h->refuse_serve = true;
    assert_int_equal(start(&rig.node, &err), BR_EIO);
    assert_null(((struct state *)rig.node.state)->service.server);
    node_rig_drain(&rig);
    node_rig_end(&rig);
}

SUITE(http_service)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listeners_have_the_name_of_the_node),
        cmocka_unit_test(hosts_are_those_of_the_endpoint_and_the_setting),
        cmocka_unit_test(draining_waits_for_requests),
        cmocka_unit_test(services_that_cannot_listen_have_drained),
    };
    return RUN(tests, NULL, NULL);
}
