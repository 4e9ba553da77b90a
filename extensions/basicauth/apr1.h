/* SPDX-License-Identifier: Apache-2.0 */
/* Apache's variant of MD5-crypt, which `htpasswd -m` and `openssl passwd -apr1` write. */
#pragma once

#include <stdbool.h>

/* size in bytes of a hash in text form: "$apr1$", a salt of 8 letters, "$", 22 letters and the
 * terminator */
#define APR1_SIZE 40

/* Hashes a password. Uses the salt in `setting`, which begins with $apr1$. Writes the text
 * $apr1$SALT$HASH to `out`. Returns false if OpenSSL fails, for instance because MD5 is
 * disabled. */
bool basicauth_apr1_hash(const char *password, const char *setting, char out[APR1_SIZE]);
