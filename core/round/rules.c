/* SPDX-License-Identifier: Apache-2.0
 * The user's placement rules. */
#include "core/round/rules.h"

#include "core/round/problem.h"

#include <errno.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "policy.rule."
#define MAX_RULES 256u
#define MAX_TEXT 512u

struct rule {
    unsigned long number;
    const char *value, *origin; /* [borrowed from the configuration] */
};

struct rules {
    struct rule list[MAX_RULES];
    size_t n;
    struct atsi_err *err;
};

static int collect(void *ctx, const struct atsi_conf_entry *e)
{
    struct rules *r = ctx;
    const char *digits = e->key + sizeof PREFIX - 1;
    char *end;
    if (strncmp(e->key, PREFIX, sizeof PREFIX - 1) != 0 || e->value[0] == '\0')
        return ATSI_OK;
    errno = 0;
    if (digits[0] == '*') /* the key that stands for all of them */
        return ATSI_OK;
    if (r->n == MAX_RULES)
        return atsi_fail(r->err, ATSI_ECONF, "%s: %s: more than %u rules", e->origin, e->key,
                         MAX_RULES);
    r->list[r->n] = (struct rule){strtoul(digits, &end, 10), e->value, e->origin};
    if (end == digits || *end != '\0' || errno != 0)
        return atsi_fail(r->err, ATSI_ECONF, "%s: %s: rules are numbered, as policy.rule.1",
                         e->origin, e->key);
    r->n++;
    return ATSI_OK;
}

static int by_number(const void *a, const void *b)
{
    const struct rule *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

/* "REGEX = DEVICE": the last '=' divides, since an expression may hold one. */
static int parse(const struct rule *r, char regex[MAX_TEXT], int32_t *device, struct atsi_err *err)
{
    const char *divide = strrchr(r->value, '='), *name;
    size_t n = divide != NULL ? (size_t)(divide - r->value) : 0;
    while (n > 0 && (r->value[n - 1] == ' ' || r->value[n - 1] == '\t'))
        n--;
    if (n == 0 || n >= MAX_TEXT)
        return atsi_fail(err, ATSI_ECONF, "%s: policy.rule.%lu = %.60s: expected REGEX = DEVICE",
                         r->origin, r->number, r->value);
    memcpy(regex, r->value, n);
    regex[n] = '\0';
    name = divide + 1 + strspn(divide + 1, " \t");
    if (strcmp(name, "cpu") == 0)
        *device = ATSI_DEVICE_HOST;
    else if (strcmp(name, "accel") == 0)
        *device = ATSI_DEVICE_ACCEL;
    else
        return atsi_fail(err, ATSI_ECONF,
                         "%s: policy.rule.%lu: device \"%.20s\": expected cpu or accel", r->origin,
                         r->number, name);
    return ATSI_OK;
}

static int apply(const struct rule *r, struct atsi_items *it, unsigned char *decided,
                 struct atsi_err *err)
{
    char text[MAX_TEXT], why[128];
    int32_t device = -1;
    regex_t re;
    int rc = parse(r, text, &device, err), bad;
    if (rc != ATSI_OK)
        return rc;
    bad = regcomp(&re, text, REG_EXTENDED | REG_NOSUB);
    if (bad != 0) {
        (void)regerror(bad, &re, why, sizeof why);
        return atsi_fail(err, ATSI_ECONF, "%s: policy.rule.%lu: \"%.60s\": %s", r->origin,
                         r->number, text, why);
    }
    for (uint32_t i = 0; i < it->n; i++)
        if (decided[i] == 0 && regexec(&re, it->items[i].name, 0, NULL, 0) == 0) {
            decided[i] = 1;
            if (it->work[i].kind != ATSI_WORK_LOOKUP) /* the embedding stays on the host */
                it->items[i].pinned = device;
        }
    regfree(&re);
    return ATSI_OK;
}

int atsi_rules_apply(const struct atsi_conf *c, struct atsi_items *it, struct atsi_err *err)
{
    struct rules r = {.n = 0, .err = err};
    unsigned char *decided;
    int rc = atsi_conf_each(c, collect, &r);
    if (rc != ATSI_OK || r.n == 0)
        return rc;
    decided = calloc((size_t)it->n + 1, 1);
    if (decided == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for rules about %u items", it->n);
    qsort(r.list, r.n, sizeof r.list[0], by_number);
    for (size_t k = 0; k < r.n && rc == ATSI_OK; k++)
        rc = apply(&r.list[k], it, decided, err);
    free(decided);
    return rc;
}
