/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/fake_root.h"

#include <sys/stat.h>

#include "tests/support/test.h"

struct fake_root fake_root_new(void)
{
    struct fake_root root = {"/tmp/braid_root.XXXXXX"};
    assert_non_null(mkdtemp(root.path));
    return root;
}

void fake_root_put(const struct fake_root *root, const char *path, const char *text)
{
    char whole[512];
    (void)snprintf(whole, sizeof whole, "%s%s", root->path, path);
    for (char *p = whole + strlen(root->path) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        (void)mkdir(whole, 0700);
        *p = '/';
    }
    FILE *f = fopen(whole, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

void fake_root_free(struct fake_root *root)
{
    char command[64];
    (void)snprintf(command, sizeof command, "rm -r %s", root->path);
    assert_int_equal(system(command), 0);
}
