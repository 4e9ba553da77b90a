/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Certificates for the tests of TLS, made in a temporary directory. <name>.pem and <name>.key exist
 * for each of: ca, other_ca, server, cn.only, other_server, old_server, client, stranger,
 * self_made, expired, early, wrong_use, middle and leaf (whose issuer is middle). chain.pem is leaf
 * before middle, reversed.pem the reverse. The names empty.pem, text.pem, damaged.pem and
 * encrypted.key describe their content. Tests may write live.pem, live.key and live_ca.pem.
 */
#pragma once

/* The group's fixtures of cmocka. */
int tls_setup(void **state);
int tls_teardown(void **state);

/* Returns the path of a file (name and extension), which lives as long as the test. */
const char *tls_path(const char *name);
const char *tls_path2(const char *name, const char *ending);

/* Read and write files of the directory; the caller frees the result of tls_read (free). */
void tls_write(const char *name, const char *text);
char *tls_read(const char *name);
void tls_copy(const char *from, const char *to);
