/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/conn.h"

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"

/* Returns true for the HTTP response of a TLS port to plaintext. Go's net/http, nginx and Apache
 * answer plaintext at a TLS port with 400 and one of the texts below. */
static bool guess_is_of_tls_port(const uint8_t *data, size_t len)
{
    static const char *const sentences[] = {"to an HTTPS server", "to HTTPS port",
                                            "to an SSL-enabled server port",
                                            "this port accepts only TLS"};
    if (len < 12 || memcmp(data, "HTTP/1.", 7) != 0 || memcmp(data + 8, " 400", 4) != 0)
        return false;
    for (size_t i = 0; i < BR_COUNT(sentences); i++)
        if (memmem(data, len, sentences[i], strlen(sentences[i])))
            return true;
    return false;
}

enum br_guess br_guess(const uint8_t *data, size_t len)
{
    static const uint8_t stream_0[4] = {0};
    if (len == 0)
        return BR_GUESS_NOTHING;
    /* A TLS record begins with its type (RFC 8446 section 5.1) and the first byte of the
     * version, 3. */
    if (data[0] >= 20 && data[0] <= 23 && (len == 1 || data[1] == 3))
        return BR_GUESS_TLS;
    bool is_text = data[0] >= ' ' && data[0] <= '~';
    if (is_text || data[0] == '\r' || data[0] == '\n')
        return guess_is_of_tls_port(data, len) ? BR_GUESS_TLS : BR_GUESS_HTTP1;
    /* A SETTINGS frame (RFC 9113 sections 4.1 and 6.5) has six bytes per setting, type 4, no
     * flags, and stream 0. */
    if (len < 9 || data[0] != 0 || (data[1] << 8 | data[2]) % 6 != 0)
        return BR_GUESS_OTHER;
    bool settings = data[3] == 4 && data[4] == 0;
    return settings && memcmp(data + 5, stream_0, sizeof stream_0) == 0 ? BR_GUESS_HTTP2
                                                                        : BR_GUESS_OTHER;
}
