/* SPDX-License-Identifier: Apache-2.0
 *
 * From jansson's trees to values.  jansson keeps the order of keys (since 2.8) and gives strings in
 * valid UTF-8.
 */
#include "text/jinja/from_json.h"

static struct atsi_jv list_of(struct atsi_jr *r, const json_t *json)
{
    struct atsi_jitems items = atsi_jitems_of(r);
    for (size_t i = 0; i < json_array_size(json); i++)
        if (!atsi_jitems_add(&items, atsi_jv_from_json(r, json_array_get(json, i))))
            return atsi_jv_fail();
    return atsi_jitems_list(&items);
}

static struct atsi_jv dict_of(struct atsi_jr *r, const json_t *json)
{
    struct atsi_jdict *d = atsi_jdict_new(r, json_object_size(json));
    json_t *o;
    /* Walking through an object writes nothing to it, but jansson asks for one that is not const.
     */
    memcpy(&o, &json, sizeof(json_t *));
    for (void *it = json_object_iter(o); d != NULL && it != NULL;
         it = json_object_iter_next(o, it)) {
        const char *key = json_object_iter_key(it);
        if (!atsi_jdict_set(r, d, atsi_jv_text(r, key, json_object_iter_key_len(it)),
                            atsi_jv_from_json(r, json_object_iter_value(it))))
            return atsi_jv_fail();
    }
    return atsi_jv_dict(d);
}

struct atsi_jv atsi_jv_from_json(struct atsi_jr *r, const json_t *json)
{
    struct atsi_jv v = atsi_jv_none();
    switch (json_typeof(json)) {
    case JSON_TRUE:
    case JSON_FALSE:
        return atsi_jv_bool(json_is_true(json));
    case JSON_INTEGER:
        return atsi_jv_int(json_integer_value(json));
    case JSON_REAL:
        return atsi_jv_float(json_real_value(json));
    case JSON_STRING:
        return atsi_jv_text(r, json_string_value(json), json_string_length(json));
    case JSON_ARRAY:
    case JSON_OBJECT:
        v = atsi_jv_fail();
        if (atsi_jr_enter(r))
            v = json_is_array(json) ? list_of(r, json) : dict_of(r, json);
        r->depth--;
        return v;
    default:
        return v;
    }
}
