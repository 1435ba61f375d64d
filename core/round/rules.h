/* SPDX-License-Identifier: Apache-2.0
 * The user's rules, policy.rule.N = REGEX = DEVICE: constraints to every policy. */
#ifndef ATSI_CORE_ROUND_RULES_H
#define ATSI_CORE_ROUND_RULES_H

#include "core/conf.h"
#include "core/round/items.h"

/* Pins every item whose name (that of its weight, or of its value when it has none) matches a
 * rule's POSIX extended expression somewhere; rules are tried by number, the first that matches
 * holds. DEVICE: cpu or accel.  ATSI_ECONF: a malformed rule, with where it was set. */
int atsi_rules_apply(const struct atsi_conf *c, struct atsi_items *it, struct atsi_err *err);

#endif
