/* SPDX-License-Identifier: Apache-2.0 */
/* Guesses which protocol a peer speaks by the first bytes that it sends, so that an error can name
 * the mistake when another protocol is expected. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum br_guess {
    BR_GUESS_NOTHING, /* it has sent no byte */
    BR_GUESS_OTHER,
    BR_GUESS_HTTP1, /* text: a request line (also that of HTTP/2's preface), a status line, or a
                       page without one, as some servers answer to HTTP/2's preface */
    BR_GUESS_HTTP2, /* SETTINGS, with which servers begin */
    BR_GUESS_TLS,   /* a TLS record, or the HTTP/1.1 answer of a TLS port to plaintext */
    BR_GUESSES,
};

/* Returns the guess for the first bytes that came. */
enum br_guess br_guess(const uint8_t *data, size_t len);
