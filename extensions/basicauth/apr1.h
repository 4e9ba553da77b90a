/* SPDX-License-Identifier: Apache-2.0 */
/* Apache's variant of MD5-crypt, which `htpasswd -m` and `openssl passwd -apr1` write. */
#pragma once

#include <stdbool.h>

#define APR1_SIZE 40 /* bytes of "$apr1$", a salt of 8, "$", 22 letters and the terminator */

/* Hashes a password with the salt of `setting`, which begins with $apr1$, and writes the text
 * $apr1$SALT$HASH to `out`. Returns false if OpenSSL fails, for instance because MD5 is disabled.
 */
bool basicauth_apr1_hash(const char *password, const char *setting, char out[APR1_SIZE]);
