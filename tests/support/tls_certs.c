/* SPDX-License-Identifier: Apache-2.0 */
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include "base/mem.h"
#include "tests/support/test.h"
#include "tests/support/tls_ends.h"

#define DAY 86400L

static char dir[64];
struct br_pool *tls_pool;

struct cert_spec {
    const char *name, *issuer; /* stored as <name>.pem and <name>.key; issuer NULL: self-signed */
    const char *san, *eku;     /* NULL: none */
    bool ca;
    /* validity of the certificate, in seconds from now; both 0: from yesterday to tomorrow */
    long from, to;
};

const char *tls_path(const char *name)
{
    static char paths[64][128];
    char wanted[128];
    (void)snprintf(wanted, sizeof wanted, "%s/%s", dir, name);
    for (size_t i = 0; i < BR_COUNT(paths); i++) {
        if (!paths[i][0])
            memcpy(paths[i], wanted, sizeof wanted);
        if (strcmp(paths[i], wanted) == 0)
            return paths[i];
    }
    fail_msg("too many paths");
    return NULL;
}

const char *tls_path2(const char *name, const char *ending)
{
    char file[64];
    (void)snprintf(file, sizeof file, "%s%s", name, ending);
    return tls_path(file);
}

void tls_write(const char *name, const char *text)
{
    FILE *f = fopen(tls_path(name), "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

char *tls_read(const char *name)
{
    FILE *f = fopen(tls_path(name), "r");
    assert_non_null(f);
    char *text = calloc(1, 65536);
    assert_true(fread(text, 1, 65535, f) > 0);
    fclose(f);
    return text;
}

void tls_copy(const char *from, const char *to)
{
    char *text = tls_read(from);
    tls_write(to, text);
    free(text);
}

static void add_ext(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX v3;
    X509V3_set_ctx(&v3, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *ext = X509V3_EXT_conf_nid(NULL, &v3, nid, value);
    assert_non_null(ext);
    assert_int_equal(X509_add_ext(cert, ext, -1), 1);
    X509_EXTENSION_free(ext);
}

static X509 *read_cert(const char *name)
{
    FILE *f = fopen(tls_path2(name, ".pem"), "r");
    assert_non_null(f);
    X509 *cert = PEM_read_X509(f, NULL, NULL, NULL);
    assert_non_null(cert);
    fclose(f);
    return cert;
}

static EVP_PKEY *read_pkey(const char *name)
{
    FILE *f = fopen(tls_path2(name, ".key"), "r");
    assert_non_null(f);
    EVP_PKEY *key = PEM_read_PrivateKey(f, NULL, NULL, NULL);
    assert_non_null(key);
    fclose(f);
    return key;
}

static void write_pair(const char *name, X509 *cert, EVP_PKEY *key)
{
    FILE *f = fopen(tls_path2(name, ".pem"), "w");
    assert_int_equal(PEM_write_X509(f, cert), 1);
    fclose(f);
    f = fopen(tls_path2(name, ".key"), "w");
    assert_int_equal(PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(f);
}

static void make_cert(const struct cert_spec *spec)
{
    static long serial = 1;
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    X509 *issuer = spec->issuer ? read_cert(spec->issuer) : NULL;
    EVP_PKEY *issuer_key = spec->issuer ? read_pkey(spec->issuer) : NULL;
    X509_set_version(cert, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), serial++);
    bool dated = spec->from || spec->to;
    X509_gmtime_adj(X509_getm_notBefore(cert), dated ? spec->from : -DAY);
    X509_gmtime_adj(X509_getm_notAfter(cert), dated ? spec->to : DAY);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                               (const unsigned char *)spec->name, -1, -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(issuer ? issuer : cert));
    X509_set_pubkey(cert, key);
    add_ext(cert, issuer ? issuer : cert, NID_basic_constraints,
            spec->ca ? "critical,CA:TRUE" : "CA:FALSE");
    if (spec->san)
        add_ext(cert, issuer, NID_subject_alt_name, spec->san);
    if (spec->eku)
        add_ext(cert, issuer, NID_ext_key_usage, spec->eku);
    assert_true(X509_sign(cert, issuer_key ? issuer_key : key, EVP_sha256()) > 0);
    write_pair(spec->name, cert, key);
    X509_free(cert);
    X509_free(issuer);
    EVP_PKEY_free(key);
    EVP_PKEY_free(issuer_key);
}

static const struct cert_spec specs[] = {
    {.name = "ca", .ca = true},
    {.name = "other_ca", .ca = true},
    {.name = "server",
     .issuer = "ca",
     .san = "DNS:localhost,DNS:*.example.org,IP:127.0.0.1",
     .eku = "serverAuth"},
    {.name = "cn.only", .issuer = "ca", .eku = "serverAuth"},
    {.name = "other_server", .issuer = "other_ca", .san = "DNS:localhost", .eku = "serverAuth"},
    {.name = "old_server", .issuer = "ca", .san = "DNS:localhost", .from = -2 * DAY, .to = -DAY},
    {.name = "client", .issuer = "ca", .eku = "clientAuth"},
    {.name = "stranger", .issuer = "other_ca", .eku = "clientAuth"},
    {.name = "self_made", .eku = "clientAuth"},
    {.name = "expired", .issuer = "ca", .eku = "clientAuth", .from = -2 * DAY, .to = -DAY},
    {.name = "early", .issuer = "ca", .eku = "clientAuth", .from = DAY, .to = 2 * DAY},
    {.name = "wrong_use", .issuer = "ca", .eku = "serverAuth"},
    {.name = "middle", .issuer = "ca", .ca = true},
    {.name = "leaf", .issuer = "middle", .san = "DNS:localhost", .eku = "serverAuth"},
};

/* Writes chain.pem, with the leaf before its issuer, as servers need it, and reversed.pem, with the
 * opposite order. */
static void make_chains(void)
{
    char *leaf = tls_read("leaf.pem"), *middle = tls_read("middle.pem");
    char both[8192];
    (void)snprintf(both, sizeof both, "%s%s", leaf, middle);
    tls_write("chain.pem", both);
    (void)snprintf(both, sizeof both, "%s%s", middle, leaf);
    tls_write("reversed.pem", both);
    free(leaf);
    free(middle);
}

static void make_bad_files(void)
{
    tls_write("empty.pem", "");
    tls_write("text.pem", "this is not PEM\n");
    tls_write("damaged.pem", "-----BEGIN CERTIFICATE-----\nAAAAAAAA\n-----END CERTIFICATE-----\n");
    EVP_PKEY *key = read_pkey("server");
    FILE *f = fopen(tls_path("encrypted.key"), "w");
    assert_int_equal(
        PEM_write_PrivateKey(f, key, EVP_aes_128_cbc(), (const unsigned char *)"x", 1, NULL, NULL),
        1);
    fclose(f);
    EVP_PKEY_free(key);
}

int tls_setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(dir, sizeof dir, "%.40s/braid-tls-XXXXXX",
                   tmp && strlen(tmp) < 40 ? tmp : "/tmp");
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < BR_COUNT(specs); i++)
        make_cert(&specs[i]);
    make_chains();
    make_bad_files();
    tls_pool = br_pool_new(1 << 20);
    return tls_pool ? 0 : -1;
}

int tls_teardown(void **state)
{
    (void)state;
    static const char *files[] = {"chain.pem", "reversed.pem", "empty.pem",
                                  "text.pem",  "damaged.pem",  "encrypted.key",
                                  "live.pem",  "live.key",     "live_ca.pem"};
    for (size_t i = 0; i < BR_COUNT(specs); i++) {
        unlink(tls_path2(specs[i].name, ".pem"));
        unlink(tls_path2(specs[i].name, ".key"));
    }
    for (size_t i = 0; i < BR_COUNT(files); i++)
        unlink(tls_path(files[i]));
    br_pool_free(tls_pool); /* fails if a buffer was not freed */
    return rmdir(dir);
}
