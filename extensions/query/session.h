/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions of the page. A browser logs in once, by a POST to QUERY_SESSION_PATH with the
 * credentials in the header that the authenticator reads, and receives a cookie with a random id.
 * Its later requests are checked with the credentials of that session, so that a changed password
 * ends it. The cookie is HttpOnly and SameSite=Strict and does not contain the credentials.
 */
#pragma once

#include "base/secret.h"
#include "ingest/http.h"
#include "pipeline/component.h"

#define QUERY_SESSION_PATH "/api/braid/session"
#define QUERY_SESSIONS_MAX 64           /* most sessions; the least recently used one is ended */
#define QUERY_SESSION_IDLE_MS 43200000u /* time without a request after which a session ends */

struct query_session {
    uint8_t digest[BR_DIGEST_SIZE]; /* SHA-256 digest of the id */
    char *credential;               /* value of the credentials header; NULL: the entry is unused */
    uint64_t used_ms;               /* time of the last request */
};

struct query_sessions {
    struct br_node *node;
    const struct br_http_config *http;
    struct br_server *server; /* the server whose port is part of the cookie's name */
    struct query_session entries[QUERY_SESSIONS_MAX];
};

/* Returns the credentials of the session that the request's cookie names, or NULL. */
const char *query_sessions_credential(struct query_sessions *sessions,
                                      const struct br_request *request);

/* Returns true if a request needs no credentials: the page, its assets, and the state of the
 * session. */
bool query_sessions_is_public(const struct br_request *request);

/* Answers a request to QUERY_SESSION_PATH: GET describes the login, POST logs in, DELETE logs out.
 * Returns false for other paths. The credentials of a POST must have been checked. */
bool query_sessions_answer(struct query_sessions *sessions, struct br_request *request);

/* Ends all sessions. Accepts a zeroed struct. */
void query_sessions_release(struct query_sessions *sessions);
