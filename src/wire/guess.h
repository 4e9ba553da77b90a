/* SPDX-License-Identifier: Apache-2.0 */
/* Guesses the protocol of a peer from its first bytes, so that an error can explain that another
 * protocol was expected. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum br_guess {
    BR_GUESS_NOTHING, /* the peer has not sent a byte */
    BR_GUESS_OTHER,
    /* text: a request line, the HTTP/2 preface, a status line, or a page without one, which some
     * servers send in response to the preface */
    BR_GUESS_HTTP1,
    BR_GUESS_HTTP2, /* SETTINGS, the first frame of a server */
    BR_GUESS_TLS,   /* a TLS record, or the HTTP/1.1 response of a TLS port to plaintext */
    BR_GUESSES,
};

/* Returns the guessed protocol of a peer that has sent these first bytes. */
enum br_guess br_guess(const uint8_t *data, size_t len);
