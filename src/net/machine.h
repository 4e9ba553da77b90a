/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the names and the network interfaces of this machine. The functions that resolve names can
 * block for seconds, so they must be called in a thread of the pool.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define BR_MACHINE_NAME_SIZE 256 /* size of a name with its terminator, in bytes */

/* Writes the host name that is set in the kernel. Returns false if the host name is empty or too
 * long. */
bool br_machine_name(char ret[BR_MACHINE_NAME_SIZE]);

/* Writes the canonical name of `name`, which is the name in /etc/hosts or the end of a chain of
 * CNAME records. If `qualified` is true, the canonical name must contain a dot. A dot at the end is
 * removed. Returns 0, or -1 if there is no canonical name. May block. */
int br_machine_canonical(const char *name, bool qualified, char ret[BR_MACHINE_NAME_SIZE]);

/* Writes the name to which the first address of `name` that has a name resolves (a reverse
 * lookup). A dot at the end is removed. Returns 0, or -1 if no address has a name. May block. */
int br_machine_reverse(const char *name, char ret[BR_MACHINE_NAME_SIZE]);

struct br_interface {
    const char *name;
    /* an IP address as text, or NULL; for a zone, the text has no suffix */
    const char *address;
    /* the hardware address, such as "00-00-5E-00-53-01", or NULL */
    const char *hardware;
    /* true if the interface is up and is not a loopback interface */
    bool external;
};

/* Calls `fn` for each address of each network interface: once with the hardware address, or with
 * neither address, and once for each IP address except loopback addresses. The texts are valid
 * during the call. Returns 0, or -1 with errno. */
int br_machine_interfaces(void (*fn)(void *arg, const struct br_interface *interface), void *arg);
