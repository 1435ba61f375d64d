/* SPDX-License-Identifier: Apache-2.0
 *
 * The filters by name.
 */
#include "text/jinja/filters.h"

static const struct atsi_jbuiltin unsupported[] = {
    {.name = "filesizeformat"}, {.name = "pprint"},    {.name = "random"},
    {.name = "striptags"},      {.name = "urlencode"}, {.name = "urlize"},
    {.name = "wordwrap"},       {.name = "xmlattr"},   {.name = NULL},
};

static const struct atsi_jbuiltin *find(const struct atsi_jstr *name)
{
    static const struct atsi_jbuiltin *const tables[] = {atsi_jfilters_text, atsi_jfilters_number,
                                                         atsi_jfilters_seq,  atsi_jfilters_order,
                                                         atsi_jfilters_map,  unsupported};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        for (const struct atsi_jbuiltin *f = tables[i]; f->name != NULL; f++)
            if (atsi_jstr_is(name, f->name))
                return f;
    return NULL;
}

const struct atsi_jbuiltin *atsi_jfilter_find(const struct atsi_jstr *name)
{
    const struct atsi_jbuiltin *f = find(name);
    return f != NULL && f->fn != NULL ? f : NULL;
}

bool atsi_jfilter_known(const struct atsi_jstr *name)
{
    return find(name) != NULL;
}
