/* SPDX-License-Identifier: Apache-2.0 */
/* The detector system: the host, its operating system, CPU and network interfaces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/mem.h"
#include "base/str.h"
#include "net/machine.h"
#include "processors/resource_detection/detectors.h"

#define LINE_SIZE 512
#define INTERFACES_MAX 256 /* largest number of addresses or interfaces in an attribute */

/* Removes blanks and quotes from both ends of a text, in place. Returns the new start of the
 * text. */
static char *system_strip(char *text)
{
    static const char ends[] = " \t\r\n\"'";
    text += strspn(text, ends);
    size_t len = strlen(text);
    while (len && strchr(ends, text[len - 1]))
        text[--len] = '\0';
    return text;
}

/* Reads the first line of a file. Returns false if it is empty or cannot be read. */
static bool system_read_line(const char *path, char ret[LINE_SIZE])
{
    char line[LINE_SIZE] = "";
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool read = fgets(line, sizeof line, file) != NULL;
    (void)fclose(file);
    const char *text = read ? system_strip(line) : "";
    memmove(ret, text, strlen(text) + 1);
    return *ret;
}

/* Finds the first line of the form "key <separator> value" in a file and reads the value. Returns
 * false if there is no such line. */
static bool system_read_key(const char *path, const char *key, char separator, char ret[LINE_SIZE])
{
    char line[LINE_SIZE];
    FILE *file = fopen(path, "re");
    *ret = '\0';
    while (file && !*ret && fgets(line, sizeof line, file)) {
        char *at = strchr(line, separator);
        if (!at)
            continue;
        *at = '\0';
        const char *value = strcmp(system_strip(line), key) == 0 ? system_strip(at + 1) : "";
        memmove(ret, value, strlen(value) + 1);
    }
    if (file)
        (void)fclose(file);
    return *ret;
}

/* --- Names ------------------------------------------------------------------------------------ */

static bool system_host_name(const struct detect_run *run, char ret[BR_MACHINE_NAME_SIZE])
{
    static const char *const preferred[] = {"dns", "os"};
    const struct br_strings *sources = &run->section->hostname_sources;
    size_t count = sources->count ? sources->count : BR_COUNT(preferred);
    char name[BR_MACHINE_NAME_SIZE];
    for (size_t i = 0; i < count && br_machine_name(name); i++) {
        const char *source = sources->count ? sources->items[i] : preferred[i];
        int rc = 0;
        if (strcmp(source, "dns") == 0)
            rc = br_machine_canonical(name, true, ret);
        else if (strcmp(source, "cname") == 0)
            rc = br_machine_canonical(name, false, ret);
        else if (strcmp(source, "lookup") == 0)
            rc = br_machine_reverse(name, ret);
        else
            (void)snprintf(ret, BR_MACHINE_NAME_SIZE, "%s", name);
        if (rc == 0)
            return true;
    }
    return false;
}

/* --- The operating system --------------------------------------------------------------------- */

#define RELEASE "/etc/os-release"

/* Sets the name of the distribution as the Go library gopsutil spells it, which the Collector
 * uses. */
static void system_distribution(struct detect_run *run)
{
    static const char *const others[][2] = {{"rhel", "redhat"}, {"amzn", "amazon"}};
    char id[LINE_SIZE] = "", version[LINE_SIZE] = "";
    (void)system_read_key(RELEASE, "ID", '=', id);
    for (size_t i = 0; i < BR_COUNT(others); i++)
        if (strcmp(id, others[i][0]) == 0)
            (void)snprintf(id, sizeof id, "%s", others[i][1]);
    if (strcmp(id, "debian") != 0 || !system_read_line("/etc/debian_version", version))
        (void)system_read_key(RELEASE, "VERSION_ID", '=', version);
    detect_text(run, "os.name", id);
    detect_text(run, "os.version", version);
}

/* Sets the same description as the OpenTelemetry SDK for Go: the distribution, and the fields of
 * uname in parentheses. */
static void system_description(struct detect_run *run, const struct utsname *kernel)
{
    char name[LINE_SIZE], version[LINE_SIZE], text[4 * LINE_SIZE];
    struct br_str out = {.data = text, .cap = sizeof text, .fixed = true};
    bool named = system_read_key(RELEASE, "NAME", '=', name) &&
                 (system_read_key(RELEASE, "VERSION", '=', version) ||
                  system_read_key(RELEASE, "VERSION_ID", '=', version));
    if (named)
        br_str_printf(&out, "%s %s (", name, version);
    else if (system_read_key(RELEASE, "PRETTY_NAME", '=', name))
        br_str_printf(&out, "%s (", name);
    size_t distribution = out.len;
    br_str_printf(&out, "%s %s %s %s %s%s", kernel->sysname, kernel->nodename, kernel->release,
                  kernel->version, kernel->machine, distribution ? ")" : "");
    detect_text(run, "os.description", text);
}

static void system_kernel(struct detect_run *run)
{
    /* machine names of uname, and the corresponding values of host.arch in the semantic
     * conventions */
    static const char *const machines[][2] = {
        {"x86_64", "amd64"}, {"aarch64", "arm64"}, {"i386", "x86"},      {"i686", "x86"},
        {"armv6l", "arm32"}, {"armv7l", "arm32"},  {"ppc64le", "ppc64"}, {"ia64", "ia64"},
    };
    struct utsname kernel;
    char build[LINE_SIZE];
    if (uname(&kernel))
        return;
    const char *architecture = kernel.machine;
    for (size_t i = 0; i < BR_COUNT(machines); i++)
        if (strcmp(kernel.machine, machines[i][0]) == 0)
            architecture = machines[i][1];
    detect_text(run, "host.arch", architecture);
    bool built = system_read_key(RELEASE, "BUILD_ID", '=', build);
    detect_text(run, "os.build_id", built ? build : kernel.release);
    system_description(run, &kernel);
}

/* --- The hardware ----------------------------------------------------------------------------- */

static void system_processor(struct detect_run *run)
{
    static const char *const keys[][2] = {
        {"vendor_id", "host.cpu.vendor.id"}, {"cpu family", "host.cpu.family"},
        {"model", "host.cpu.model.id"},      {"model name", "host.cpu.model.name"},
        {"stepping", "host.cpu.stepping"},
    };
    char value[LINE_SIZE];
    for (size_t i = 0; i < BR_COUNT(keys); i++)
        if (detect_wants(run, keys[i][1]) &&
            system_read_key("/proc/cpuinfo", keys[i][0], ':', value))
            detect_text(run, keys[i][1], value);
    if (system_read_key("/proc/cpuinfo", "cache size", ':', value))
        detect_int(run, "host.cpu.cache.l2.size", strtol(value, NULL, 10));
}

struct interfaces {
    struct br_arena *arena;
    const char *names[INTERFACES_MAX], *addresses[INTERFACES_MAX], *hardware[INTERFACES_MAX];
    size_t n_names, n_addresses, n_hardware;
};

/* Appends a copy of a text, unless the list already contains it. */
static void system_append(struct interfaces *interfaces, const char **list, size_t *count,
                          const char *text)
{
    for (size_t i = 0; i < *count; i++)
        if (strcmp(list[i], text) == 0)
            return;
    char *copy =
        *count < INTERFACES_MAX ? br_arena_strndup(interfaces->arena, text, strlen(text)) : NULL;
    if (copy)
        list[(*count)++] = copy;
}

static void system_on_interface(void *arg, const struct br_interface *interface)
{
    struct interfaces *interfaces = arg;
    system_append(interfaces, interfaces->names, &interfaces->n_names, interface->name);
    if (interface->external && interface->address)
        system_append(interfaces, interfaces->addresses, &interfaces->n_addresses,
                      interface->address);
    if (interface->external && interface->hardware)
        system_append(interfaces, interfaces->hardware, &interfaces->n_hardware,
                      interface->hardware);
}

static void system_interfaces(struct detect_run *run)
{
    struct interfaces interfaces = {.arena = &run->arena};
    if (!detect_wants(run, "host.ip") && !detect_wants(run, "host.mac") &&
        !detect_wants(run, "host.interface"))
        return;
    if (br_machine_interfaces(system_on_interface, &interfaces))
        return;
    detect_texts(run, "host.interface", interfaces.names, interfaces.n_names);
    detect_texts(run, "host.ip", interfaces.addresses, interfaces.n_addresses);
    detect_texts(run, "host.mac", interfaces.hardware, interfaces.n_hardware);
}

static void system_in_thread(struct detect_run *run)
{
    char text[LINE_SIZE];
    if (!system_host_name(run, text)) {
        (void)snprintf(run->why, sizeof run->why,
                       "none of system::hostname_sources has a name of the host; add os");
        return;
    }
    detect_text(run, "host.name", text);
    detect_text(run, "os.type", "linux");
    if (system_read_line("/etc/machine-id", text) ||
        system_read_line("/var/lib/dbus/machine-id", text))
        detect_text(run, "host.id", text);
    system_distribution(run);
    system_kernel(run);
    system_processor(run);
    system_interfaces(run);
}

const struct detector detect_system = {.in_thread = system_in_thread};
