/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OWNER_ONLY 0600

int br_file_open(const char *path, int flags)
{
    flags |= O_WRONLY | O_CLOEXEC;
    int fd = open(path, flags | O_CREAT | O_EXCL, OWNER_ONLY);
    if (fd >= 0) {
        (void)fchmod(fd, OWNER_ONLY); /* the umask may have removed bits from the mode */
        return fd;
    }
    if (errno != EEXIST)
        return -1;
    fd = open(path, flags);
    /* ENOENT: the path is a symbolic link to a file that does not exist yet. */
    return fd < 0 && errno == ENOENT ? open(path, flags | O_CREAT, OWNER_ONLY) : fd;
}

int br_file_check(const char *path)
{
    struct stat st;
    char folder[4096];
    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            return EISDIR;
        return access(path, W_OK) ? errno : 0;
    }
    if (errno != ENOENT)
        return errno;
    if (strlen(path) >= sizeof folder)
        return ENAMETOOLONG;
    (void)snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    return access(slash ? folder : ".", W_OK | X_OK) ? errno : 0;
}

int br_folder_make(const char *path, mode_t mode)
{
    if (mkdir(path, mode))
        return errno == EEXIST ? 0 : errno;
    return chmod(path, mode) ? errno : 0;
}
