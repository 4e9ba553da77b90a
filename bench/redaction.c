/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the redaction processor's search of a text: values of about 40 bytes that need no
 * masking, against four patterns and four words. The first row is for new texts, the second for a
 * thousand repeated ones. Prints the best round's nanoseconds.
 *
 *     redaction [ROUNDS]
 */
#include "base/mem.h"
#include "bench/bench.h"
#include "core/item.h"
#include "processors/redaction/rules.h"

#define TEXTS 500000u
#define KNOWN 1000u

struct text {
    int len;
    char data[60];
};

/* Returns the nanoseconds per text for applying the rules to the first `n` texts repeatedly. */
static double round_of(struct redact_rules *r, const struct text *texts, uint32_t n)
{
    double start = cpu_ns();
    for (uint32_t i = 0; i < TEXTS; i++)
        if (redact_text(r, REDACT_VALUE, texts[i % n].data, (size_t)texts[i % n].len) != 0)
            return 1e30;
    return (cpu_ns() - start) / TEXTS;
}

int main(int argc, char **argv)
{
    static const char *patterns[] = {"4[0-9]{12}(?:[0-9]{3})?", "[\\w.+-]+@[\\w-]+\\.[\\w.]+",
                                     "\\b[0-9]{3}-[0-9]{2}-[0-9]{4}\\b", "(?i)bearer [\\w.-]+"};
    static const char *words[] = {"password", "secret", "credential", "acme corp"};
    unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 5;
    const struct redact_config config = {.allow_all_keys = true,
                                         .blocked_values = {patterns, BR_COUNT(patterns)},
                                         .blocked_value_words = {words, BR_COUNT(words)}};
    /* the size is so large that the time limit of matching, which depends on it, is never
     * reached */
    const struct br_item item = {.size = SIZE_MAX >> 16};
    struct redact_rules r = {0};
    struct br_err err;
    double best_new = 1e30, best_known = 1e30;
    struct text *texts = calloc(TEXTS, sizeof *texts);
    if (!texts || redact_rules_compile(&r, &config, &err)) {
        free(texts);
        return 1;
    }
    for (uint64_t i = 0; i < TEXTS; i++)
        texts[i].len =
            snprintf(texts[i].data, sizeof texts[i].data, "com.example.shop.Handler%llu.process",
                     (unsigned long long)(i * 0x9e3779b97f4a7c15u >> 24));
    for (unsigned i = 0; i < rounds; i++) {
        redact_rules_begin(&r, &item);
        double fresh = round_of(&r, texts, TEXTS), known = round_of(&r, texts, KNOWN);
        best_new = fresh < best_new ? fresh : best_new;
        best_known = known < best_known ? known : best_known;
    }
    printf("%.0f ns for a new text, %.0f ns for a known one\n", best_new, best_known);
    free(texts);
    redact_rules_release(&r);
    return 0;
}
