/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the parser of Cookie headers of requests to Braid's web page. Line breaks separate the
 * headers of a request. The request must be accepted if and only if, in one of its headers, the
 * first cookie with the name of the session cookie has the id of the session.
 */
#include "base/secret.h"
#include "extensions/query/session.h"
#include "tests/fuzz/auth_fuzz.h"
#include "tests/support/node_rig.h"

#define NAME "braid-session-0"
#define ID "5e55105e55105e55"
#define HEADERS_MAX 16

extern const struct br_component br_basicauth_extension;
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Divides a header that has the form of RFC 6265 section 5.4 into cookies. Modifies the text. */
static bool names_session(char *header)
{
    char *rest = NULL;
    for (char *each = strtok_r(header, ";", &rest); each; each = strtok_r(NULL, ";", &rest)) {
        each += strspn(each, " ");
        if (strncmp(each, NAME "=", sizeof NAME) == 0)
            return strcmp(each + sizeof NAME, ID) == 0;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct node_rig rig;
    struct query_sessions *sessions = calloc(1, sizeof *sessions);
    struct br_header headers[HEADERS_MAX];
    struct br_request request = {.headers = headers};
    char *text = auth_fuzz_text(data, size), *rest = NULL;
    bool expected = false;
    require(sessions != NULL);
    for (char *each = strtok_r(text, "\n", &rest); each && request.n_headers < HEADERS_MAX;
         each = strtok_r(NULL, "\n", &rest))
        headers[request.n_headers++] = (struct br_header){"cookie", each};
    node_rig_begin(&rig, &br_basicauth_extension, "client_auth: {username: u}");
    rig.node.host = &rig.h->host;
    sessions->node = &rig.node;
    sessions->entries[3].credential = br_strdup("Bearer token");
    sessions->entries[3].used_ms = rig.h->now_ms;
    require(br_digest(ID, strlen(ID), sessions->entries[3].digest));
    bool found = query_sessions_credential(sessions, &request) != NULL;
    for (size_t i = 0; i < request.n_headers; i++) {
        char *copy = strdup(headers[i].value);
        require(copy != NULL);
        expected = names_session(copy) || expected;
        free(copy);
    }
    require(found == expected);
    query_sessions_release(sessions);
    node_rig_end(&rig);
    free(sessions);
    free(text);
    return 0;
}
