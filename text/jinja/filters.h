/* SPDX-License-Identifier: Apache-2.0
 * Tables of filters; each ends with a NULL name.  A filter without a function is one of Jinja2 that
 * is not supported. */
#ifndef ATSI_TEXT_JINJA_FILTERS_H
#define ATSI_TEXT_JINJA_FILTERS_H

#include "text/jinja/call.h"
#include "text/jinja/iter.h"

extern const struct atsi_jbuiltin atsi_jfilters_text[], atsi_jfilters_number[], atsi_jfilters_seq[],
    atsi_jfilters_order[], atsi_jfilters_map[];

/* `name is filter`, `name is test`: Jinja2 has one of this name. */
bool atsi_jfilter_known(const struct atsi_jstr *name);
bool atsi_jtest_known(const struct atsi_jstr *name);

#endif
