/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions of the web page. A browser logs in once, by a POST to QUERY_SESSION_PATH with the
 * credentials in the header that the authenticator reads. The browser then receives a cookie with a
 * random id. Later requests are checked with the credentials of their session, so a changed
 * password ends the session. The cookie is HttpOnly and SameSite=Strict and does not contain the
 * credentials.
 */
#pragma once

#include "base/secret.h"
#include "ingest/http.h"
#include "pipeline/component.h"

#define QUERY_SESSION_PATH "/api/braid/session"
/* maximum number of sessions; if there are more, the least recently used one is ended */
#define QUERY_SESSIONS_MAX 64
/* milliseconds without a request after which a session ends */
#define QUERY_SESSION_IDLE_MS 43200000u

struct query_session {
    uint8_t digest[BR_DIGEST_SIZE]; /* SHA-256 digest of the session id */
    /* value of the credentials header; NULL: the entry of `entries` is unused */
    char *credential;
    /* time of the session's last request, in milliseconds of the monotonic clock */
    uint64_t used_ms;
};

struct query_sessions {
    struct br_node *node;
    const struct br_http_config *http;
    struct br_server *server; /* server whose port is part of the cookie's name */
    struct query_session entries[QUERY_SESSIONS_MAX];
};

/* Returns the credentials of the session that the request's cookie names, or NULL. */
const char *query_sessions_credential(struct query_sessions *sessions,
                                      const struct br_request *request);

/* Returns true if a request needs no credentials, because it is for the page, its assets, or the
 * state of the session. */
bool query_sessions_is_public(const struct br_request *request);

/* Answers a request to QUERY_SESSION_PATH: GET describes the login, POST logs in, DELETE logs out.
 * Returns false for other paths. The credentials of a POST must have been checked. */
bool query_sessions_answer(struct query_sessions *sessions, struct br_request *request);

/* Ends all sessions. A zeroed struct is allowed. */
void query_sessions_release(struct query_sessions *sessions);
