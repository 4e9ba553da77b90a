/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Certificates for the tests of TLS, made in a temporary directory. <name>.pem and <name>.key exist
 * for each of: ca, other_ca, server, cn.only, other_server, old_server, client, stranger,
 * self_made, expired, early, wrong_use, middle and leaf (whose issuer is middle). chain.pem
 * contains leaf and then middle, and reversed.pem contains middle and then leaf. The files
 * empty.pem, text.pem, damaged.pem and encrypted.key have the content that their names describe.
 * Tests may write live.pem, live.key and live_ca.pem.
 */
#pragma once

/* Setup and teardown of a group of tests (cmocka). */
int tls_setup(void **state);
int tls_teardown(void **state);

/* Return the path of a file with this name and extension. The text is valid until the end of the
 * test. */
const char *tls_path(const char *name);
const char *tls_path2(const char *name, const char *ending);

/* Write, read and copy files of the directory. The caller frees the result of tls_read with
 * free(). */
void tls_write(const char *name, const char *text);
char *tls_read(const char *name);
void tls_copy(const char *from, const char *to);
