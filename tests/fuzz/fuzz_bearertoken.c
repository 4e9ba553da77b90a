/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the extension bearertokenauth. The input is the value of a header Authorization, a byte 0,
 * and the file of tokens. If the extension allows the value, its token must be in the file. The
 * token that the extension sends as a client must be allowed.
 */
#include "core/authenticator.h"
#include "net/signing.h"
#include "tests/fuzz/auth_fuzz.h"
#include "tests/support/node_rig.h"

extern const struct br_component br_bearertokenauth_extension;
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_blank(char letter)
{
    return letter == '\0' || strchr(" \t\r\n", letter) != NULL;
}

/* Returns true if the token is the first word of a line in the file. */
static bool is_in_file(const char *tokens, const char *token)
{
    size_t len = strlen(token);
    for (const char *line = tokens; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *word = line + strspn(line, " \t\r");
        if (len && strncmp(word, token, len) == 0 && is_blank(word[len]))
            return true;
    }
    return false;
}

static void check(struct br_authenticator *authenticator, const char *value, const char *tokens)
{
    const char *context = NULL;
    if (authenticator->check(authenticator, value, false, &context) == BR_AUTH_ALLOWED) {
        require(strlen(value) > 7 && value[6] == ' ');
        require(is_in_file(tokens, value + 7 + strspn(value + 7, " ")));
    }
    struct br_signing signing = {0};
    struct br_err err = {0};
    br_arena_init(&signing.arena, 4u << 20);
    if (authenticator->sign(authenticator, &signing, &err) == 0) {
        require(signing.n_headers == 1 && !signing.error);
        require(authenticator->check(authenticator, signing.headers[0].value, false, &context) ==
                BR_AUTH_ALLOWED);
    }
    br_arena_release(&signing.arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct node_rig rig;
    char yaml[128], *tokens, *value = auth_fuzz_divide(data, size, &tokens);
    (void)snprintf(yaml, sizeof yaml, "filename: %s", auth_fuzz_file(tokens, strlen(tokens)));
    if (strlen(value) <= AUTH_FUZZ_HEADER_MAX && strlen(tokens) < 1u << 20) {
        node_rig_start(&rig, &br_bearertokenauth_extension, yaml);
        check(br_authenticator_find(&rig.h->host, rig.node.id), value, tokens);
        node_rig_end(&rig);
    }
    free(value);
    free(tokens);
    return 0;
}
