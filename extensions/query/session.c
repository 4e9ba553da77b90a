/* SPDX-License-Identifier: Apache-2.0 */
#include "extensions/query/session.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "core/authenticator.h"

#define ID_SIZE 32      /* number of random bytes of a session id */
#define COOKIE_SIZE 256 /* size of a Set-Cookie header, including the terminator, in bytes */

static const char *session_authenticator_id(const struct query_sessions *sessions)
{
    return br_auth_name(sessions->http->auth);
}

static void session_end(struct query_session *session)
{
    if (session->credential)
        OPENSSL_cleanse(session->credential, strlen(session->credential));
    br_free(session->credential);
    session->credential = NULL;
}

/* Writes the name of the session cookie. The name contains the port of the server, because
 * browsers share cookies between the ports of a host. */
static void session_cookie_name(const struct query_sessions *sessions, char out[40])
{
    (void)snprintf(out, 40, "braid-session-%u",
                   sessions->server ? br_server_port(sessions->server) : 0);
}

/* Finds the cookie `name` in a Cookie header (RFC 6265 section 4.2.1). Returns the value of the
 * cookie, and stores the length of the value in `*ret_len`. Returns NULL if the header does not
 * contain the cookie. */
static const char *session_find_cookie(const char *header, const char *name, size_t *ret_len)
{
    size_t name_len = strlen(name);
    while (*header) {
        header += strspn(header, " ;");
        size_t len = strcspn(header, ";");
        if (len > name_len && header[name_len] == '=' && memcmp(header, name, name_len) == 0) {
            *ret_len = len - name_len - 1;
            return header + name_len + 1;
        }
        header += len;
    }
    return NULL;
}

/* Returns the session with this id, or NULL. Ends all sessions that have not been used for
 * QUERY_SESSION_IDLE_MS. */
static struct query_session *session_find_id(struct query_sessions *sessions, const char *id,
                                             size_t len)
{
    uint64_t now_ms = br_host_mono_ms(sessions->node->host);
    uint8_t digest[BR_DIGEST_SIZE];
    struct query_session *found = NULL;
    if (!br_digest(id, len, digest))
        return NULL;
    for (size_t i = 0; i < QUERY_SESSIONS_MAX; i++) {
        struct query_session *session = &sessions->entries[i];
        if (session->credential && now_ms - session->used_ms > QUERY_SESSION_IDLE_MS)
            session_end(session);
        if (session->credential && br_digest_equal(session->digest, digest))
            found = session;
    }
    if (found)
        found->used_ms = now_ms;
    return found;
}

/* Returns the session of a request, or NULL. HTTP/2 clients may split the cookies into several
 * headers (RFC 9113 section 8.2.3). */
static struct query_session *session_of(struct query_sessions *sessions,
                                        const struct br_request *request)
{
    char name[40];
    session_cookie_name(sessions, name);
    for (size_t i = 0; i < request->n_headers; i++) {
        size_t len = 0;
        if (strcmp(request->headers[i].name, "cookie") != 0)
            continue;
        const char *id = session_find_cookie(request->headers[i].value, name, &len);
        struct query_session *session = id ? session_find_id(sessions, id, len) : NULL;
        if (session)
            return session;
    }
    return NULL;
}

const char *query_sessions_credential(struct query_sessions *sessions,
                                      const struct br_request *request)
{
    const struct query_session *session = session_of(sessions, request);
    return session ? session->credential : NULL;
}

bool query_sessions_is_public(const struct br_request *request)
{
    bool reads = strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0;
    if (strcmp(request->path, QUERY_SESSION_PATH) == 0)
        return reads || strcmp(request->method, "DELETE") == 0;
    return reads && (strcmp(request->path, "/") == 0 || br_text_starts(request->path, "/assets/"));
}

/* --- Answers -----------------------------------------------------------------------------------
 */

/* Sends a JSON response or JSON error. Sets a cookie if `cookie` is not NULL. */
static void session_reply(const struct query_sessions *sessions, struct br_request *request,
                          unsigned status, const char *cookie, const struct br_str *json)
{
    const struct br_header headers[] = {{"cache-control", "no-store"}, {"set-cookie", cookie}};
    const struct br_http_answer answer = {.status = status,
                                          .type = "application/json",
                                          .data = json->data,
                                          .len = json->len,
                                          .allow = "GET, HEAD, POST, DELETE",
                                          .headers = headers,
                                          .n_headers = cookie ? 2 : 1,
                                          .apart = true};
    br_http_reply(sessions->http, request, &answer);
}

/* Responds with a description of the login, and whether the request belongs to a session. */
static void session_describe(struct query_sessions *sessions, struct br_request *request,
                             unsigned status, const char *cookie, bool is_in)
{
    const char *id = session_authenticator_id(sessions);
    const struct br_authenticator *authenticator =
        id ? br_authenticator_find(sessions->node->host, id) : NULL;
    struct br_str json = {.max = 1024};
    br_str_printf(&json, "{\"required\":%s,\"session\":%s", id ? "true" : "false",
                  is_in ? "true" : "false");
    if (authenticator) {
        br_str_printf(&json, ",\"credentials\":\"%s\",\"header\":",
                      authenticator->has_names ? "password" : "token");
        br_str_json(&json, authenticator->header, strlen(authenticator->header));
        br_str_puts(&json, ",\"scheme\":");
        br_str_json(&json, authenticator->scheme, strlen(authenticator->scheme));
    }
    br_str_putc(&json, '}');
    session_reply(sessions, request, json.failed ? 503 : status, cookie, &json);
    br_str_release(&json);
}

static void session_write_cookie(const struct query_sessions *sessions, const char *id,
                                 char out[COOKIE_SIZE])
{
    char name[40];
    session_cookie_name(sessions, name);
    (void)snprintf(out, COOKIE_SIZE, "%s=%s; Path=/; HttpOnly; SameSite=Strict%s%s", name, id,
                   sessions->http->tls ? "; Secure" : "", *id ? "" : "; Max-Age=0");
}

/* Returns an entry for a new session. If no entry is free, ends the session that was used least
 * recently. */
static struct query_session *session_take(struct query_sessions *sessions)
{
    struct query_session *oldest = &sessions->entries[0];
    for (size_t i = 0; i < QUERY_SESSIONS_MAX; i++) {
        struct query_session *session = &sessions->entries[i];
        if (!session->credential)
            return session;
        if (session->used_ms < oldest->used_ms)
            oldest = session;
    }
    session_end(oldest);
    return oldest;
}

/* Begins a session with the credentials in the request's header. */
static void session_begin(struct query_sessions *sessions, struct br_request *request)
{
    const struct br_authenticator *authenticator =
        br_authenticator_find(sessions->node->host, session_authenticator_id(sessions));
    const char *value = authenticator ? br_request_header(request, authenticator->header) : NULL;
    char id[2 * ID_SIZE + 1], cookie[COOKIE_SIZE];
    uint8_t random[ID_SIZE];
    if (!value) { /* a session cookie has authorized the request, which contains no credentials */
        session_describe(sessions, request, 200, NULL, session_of(sessions, request) != NULL);
        return;
    }
    br_random_bytes(random, sizeof random);
    for (size_t i = 0; i < ID_SIZE; i++)
        (void)snprintf(id + 2 * i, 3, "%02x", random[i]);
    struct query_session *session = session_take(sessions);
    session->credential = br_strdup(value);
    session->used_ms = br_host_mono_ms(sessions->node->host);
    if (!br_digest(id, strlen(id), session->digest))
        session_end(session);
    session_write_cookie(sessions, id, cookie);
    bool begun = session->credential != NULL;
    session_describe(sessions, request, begun ? 200 : 503, begun ? cookie : NULL, begun);
    OPENSSL_cleanse(id, sizeof id);
    OPENSSL_cleanse(cookie, sizeof cookie);
}

bool query_sessions_answer(struct query_sessions *sessions, struct br_request *request)
{
    static const char unsupported[] = "{\"error\":\"this path does not support the method\"}";
    const struct br_str text = {.data = (char *)(uintptr_t)unsupported,
                                .len = sizeof unsupported - 1};
    struct query_session *session;
    char cookie[COOKIE_SIZE];
    if (strcmp(request->path, QUERY_SESSION_PATH) != 0)
        return false;
    if (strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0) {
        session_describe(sessions, request, 200, NULL, session_of(sessions, request) != NULL);
    } else if (strcmp(request->method, "DELETE") == 0) {
        if ((session = session_of(sessions, request)))
            session_end(session);
        session_write_cookie(sessions, "", cookie);
        session_describe(sessions, request, 200, cookie, false);
    } else if (strcmp(request->method, "POST") == 0 && session_authenticator_id(sessions)) {
        session_begin(sessions, request);
    } else {
        session_reply(sessions, request, 405, NULL, &text);
    }
    return true;
}

void query_sessions_release(struct query_sessions *sessions)
{
    for (size_t i = 0; i < QUERY_SESSIONS_MAX; i++)
        session_end(&sessions->entries[i]);
}
