/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Certificates for the tests of TLS, made in a folder that goes away. <name>.pem and <name>.key are
 * there for each of: ca, other_ca, server, cn.only, other_server, old_server, client, stranger,
 * self_made, expired, early, wrong_use, middle and leaf (whose issuer is middle). chain.pem is leaf
 * before middle, reversed.pem the other way round; empty.pem, text.pem, damaged.pem and
 * encrypted.key are what their names say. Tests may write live.pem, live.key and live_ca.pem.
 */
#pragma once

/* The group's fixtures of cmocka. */
int tls_setup(void **state);
int tls_teardown(void **state);

/* The path of a file (of name and ending), which lives as long as the test. */
const char *tls_path(const char *name);
const char *tls_path2(const char *name, const char *ending);

/* Files of the folder; tls_read returns owned (free). */
void tls_write(const char *name, const char *text);
char *tls_read(const char *name);
void tls_copy(const char *from, const char *to);
