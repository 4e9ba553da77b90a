/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the extension oauth2client with two answers of a token server. A byte 0xff ends the first
 * answer. The first byte of each answer selects its HTTP status. If an answer contains a token, the
 * extension must make a valid header. Any other answer must be an error.
 */
#include "core/authenticator.h"
#include "net/signing.h"
#include "tests/fuzz/auth_fuzz.h"
#include "tests/support/node_rig.h"

#define ANSWER_MAX 65536 /* the client truncates longer answers (bytes) */

extern const struct br_component br_oauth2client_extension;
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct answers {
    const uint8_t *data;
    size_t size;
};

static struct fake_answer next_answer(const struct br_exchange *x, void *arg)
{
    static const unsigned statuses[] = {200, 400, 401, 500, 204, 302};
    struct answers *answers = arg;
    (void)x;
    if (!answers->size)
        return (struct fake_answer){.error = BR_EIO};
    const uint8_t *end = memchr(answers->data, 0xff, answers->size);
    size_t whole = end ? (size_t)(end - answers->data) : answers->size;
    struct fake_answer answer = {.http_status = 200, .type = "application/json"};
    if (whole) {
        answer.http_status = statuses[answers->data[0] % BR_COUNT(statuses)];
        answer.body = answers->data + 1;
        answer.len = whole - 1 < ANSWER_MAX ? whole - 1 : ANSWER_MAX;
    }
    answers->data += whole + (end != NULL);
    answers->size -= whole + (end != NULL);
    return answer;
}

static void check_header(const struct br_signing *signing)
{
    require(signing->n_headers == 1 && !signing->error);
    require(strcmp(signing->headers[0].name, "authorization") == 0);
    const char *value = signing->headers[0].value;
    require(strchr(value, ' ') != NULL);
    for (; *value; value++)
        require(*value >= ' ' && *value <= '~');
}

/* Asks for the credentials until there is a result. */
static void sign(struct node_rig *rig)
{
    struct br_authenticator *authenticator = br_authenticator_find(&rig->h->host, rig->node.id);
    for (int rc = BR_EAGAIN, n = 0; rc == BR_EAGAIN; n++) {
        struct br_signing signing = {0};
        struct br_err err = {0};
        require(n < 3);
        br_arena_init(&signing.arena, 4u << 20);
        rc = authenticator->sign(authenticator, &signing, &err);
        if (rc == 0)
            check_header(&signing);
        require(rc == 0 || rc == BR_EAGAIN || err.text[0]);
        br_arena_release(&signing.arena);
        fake_host_iterate(rig->h);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct node_rig rig;
    struct answers answers = {data, size};
    node_rig_start(&rig, &br_oauth2client_extension,
                   "{client_id: braid, client_secret: s, token_url: http://localhost/token}");
    rig.h->answer = next_answer;
    rig.h->answer_arg = &answers;
    sign(&rig);
    fake_host_advance(rig.h, 60000);
    sign(&rig);
    node_rig_end(&rig);
    return 0;
}
