/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/scrape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

double scrape_metric(const struct br_host *h, const char *name, const char *labels)
{
    struct br_str text = {0};
    char line[1024];
    double value = -1;
    br_metrics_print(h->metrics, BR_METRICS_TEXT, NULL, NULL, &text);
    (void)snprintf(line, sizeof line, labels[0] ? "\n%s{%s} " : "\n%s%s ", name, labels);
    const char *at = text.data ? strstr(text.data, line) : NULL;
    if (!at) { /* a counter */
        (void)snprintf(line, sizeof line, labels[0] ? "\n%s_total{%s} " : "\n%s_total%s ", name,
                       labels);
        at = text.data ? strstr(text.data, line) : NULL;
    }
    if (at)
        value = strtod(at + strlen(line), NULL);
    br_str_release(&text);
    return value;
}

double scrape_dropped(const struct br_host *h, enum br_signal signal, const char *reason)
{
    struct br_str text = {0};
    char prefix[128];
    double sum = 0;
    br_metrics_print(h->metrics, BR_METRICS_TEXT, NULL, NULL, &text);
    (void)snprintf(prefix, sizeof prefix, "braid_ledger_dropped_total{signal=\"%s\",reason=\"%s",
                   br_signal_name(signal), reason ? reason : "");
    for (const char *at = text.data; at && (at = strstr(at, prefix)); at++) {
        const char *after = at + strlen(prefix);
        if (!reason || *after == '"')
            sum += strtod(strchr(after, ' ') + 1, NULL);
    }
    br_str_release(&text);
    return sum;
}

double scrape_sum(const struct br_host *h, const char *name, const char *part)
{
    struct br_str text = {0};
    double sum = 0;
    size_t len = strlen(name);
    br_metrics_print(h->metrics, BR_METRICS_PLAIN, NULL, NULL, &text);
    for (char *line = text.data; line && *line; line += strcspn(line, "\n"), line += *line != 0) {
        char *end = line + strcspn(line, "\n"), *labels = line + len;
        if (strncmp(line, name, len) != 0 || *labels != '{')
            continue;
        const char *found = strstr(labels, part);
        if (found && found < end)
            sum += strtod(strstr(labels, "} ") + 2, NULL);
    }
    br_str_release(&text);
    return sum;
}
