/* SPDX-License-Identifier: Apache-2.0
 *
 * One turn: the conversation becomes tokens, the session goes back to what it has of them, the rest
 * is evaluated, and what the model then writes is shown and becomes the answer.
 */
#include "cli/chat_turn.h"

#include "cli/chat_fit.h"
#include "cli/options.h"
#include "cli/sampling.h"

#include <stdlib.h>
#include <string.h>

static int no_memory(void)
{
    return cli_fail(CLI_RUN_ERROR, "out of memory");
}

/* ---------------------------------------------------------------- life */
int chat_open(struct chat *c)
{
    const char *mark;
    c->info.struct_size = sizeof c->info;
    atsi_session_info(c->session, &c->info);
    atsi_tokenizer_info(c->tok, &c->vocab);
    chat_past_open(&c->past, c->session, CHAT_MAX_CHECKPOINT_BYTES);
    for (size_t i = 0; (mark = chat_style_mark(&c->style, i)) != NULL; i++) {
        struct atsi_err err = ATSI_ERR_INIT;
        int32_t *ids = NULL;
        size_t n = 0;
        int rc = atsi_tokenize(c->tok, mark, strlen(mark), ATSI_TOK_PARSE_SPECIAL, &ids, &n, &err);
        bool ok = rc != ATSI_OK || n != 1 || atsi_ids_add(&c->shown, ids[0]);
        free(ids);
        if (rc != ATSI_OK)
            return cli_fail_status(rc, &err);
        if (!ok)
            return no_memory();
    }
    return CLI_OK;
}

void chat_close(struct chat *c)
{
    chat_past_forget(&c->past);
    chat_talk_close(&c->talk);
    free(c->shown.p);
    free(c->text.p);
}

int chat_note_text(struct chat *c, struct chat_prompt *prompt, uint32_t prompt_tokens)
{
    const int32_t *ids = atsi_session_tokens(c->session);
    uint32_t past = atsi_session_n_past(c->session);
    struct atsi_bytes text = {prompt->text, prompt->len, prompt->len};
    c->text_tokens = 0;
    prompt->text = NULL;
    for (uint32_t i = prompt_tokens; i < past; i++) {
        size_t n = atsi_token_bytes(c->tok, ids[i], true, NULL, 0);
        if (!atsi_bytes_reserve(&text, n + 1)) {
            free(text.p);
            return no_memory();
        }
        text.n += atsi_token_bytes(c->tok, ids[i], true, text.p + text.n, n);
    }
    free(c->text.p);
    c->text = text;
    c->text_tokens = past;
    c->prompt_tokens = prompt_tokens;
    c->prompt_len = prompt->len;
    return CLI_OK;
}

/* ---------------------------------------------------------------- prompt */
/* A prompt for chat_fit(); the one measured last is kept. */
struct candidate {
    struct chat *c;
    struct chat_prompt prompt;
    size_t drop;
};

static int measure(void *ctx, size_t drop, size_t *n_tokens)
{
    struct candidate *k = ctx;
    int code;
    chat_prompt_free(&k->prompt);
    k->drop = drop;
    code = chat_prompt_make(k->c, drop, &k->prompt);
    *n_tokens = k->prompt.ids.n;
    return code;
}

static void say_dropped(const struct chat *c, size_t n)
{
    cli_warn("the context of %u tokens is full: the %zu oldest %s of the conversation %s dropped",
             c->info.n_ctx, n, n == 1 ? "turn" : "turns", n == 1 ? "was" : "were");
}

/* The prompt that fits, after turns were dropped for it if need be. */
static int fitting_prompt(struct chat *c, struct chat_prompt *out)
{
    struct candidate k = {.c = c};
    struct chat_fit fit = {.n_ctx = c->info.n_ctx,
                           .reserve = chat_reserve(c->info.n_ctx, cli_sampling.n_predict),
                           .n_turns = chat_talk_turns(&c->talk),
                           .measure = measure,
                           .ctx = &k};
    size_t n;
    int code = chat_fit(&fit);
    if (code == CHAT_FIT_TOO_LONG)
        code = cli_fail(CLI_NO_FIT,
                        "the message needs %zu tokens (system prompt and template included); the "
                        "context has %u, of which %u are kept for the answer. -c sets a longer one",
                        fit.n_tokens, fit.n_ctx, fit.reserve);
    else if (code == CLI_OK && k.drop != fit.drop)
        code = measure(&k, fit.drop, &n);
    if (code != CLI_OK) {
        chat_prompt_free(&k.prompt);
        return code;
    }
    if (fit.drop > 0) {
        chat_talk_drop(&c->talk, fit.drop);
        say_dropped(c, fit.drop);
    }
    *out = k.prompt;
    return CLI_OK;
}

/* ---------------------------------------------------------------- evaluation */
/* Each answer has random numbers of its own, the same ones in every run with the same seed. */
static int make_sampler(struct chat *c, const struct chat_prompt *p)
{
    int code;
    cli_sampling.seed = c->seed >= 0 ? c->seed + (int64_t)c->talk.draws : -1;
    code = cli_sampler(c->model, c->tok, c->info.n_vocab, &c->sampler);
    for (size_t i = 0; code == CLI_OK && i < p->ids.n; i++)
        atsi_sampler_accept(c->sampler, p->ids.p[i]);
    return code;
}

/* Evaluates up to token `to` of the prompt; the sampler has accepted all of it. */
static int eval_to(struct chat *c, const struct chat_prompt *p, size_t to)
{
    uint32_t past = atsi_session_n_past(c->session);
    if (to <= past)
        return CLI_OK;
    return cli_eval(c->session, p->ids.p + past, to - past, atsi_sampler_top(c->sampler),
                    c->cancel);
}

/* A checkpoint that cannot be had costs time later, no more. */
static void mark(struct chat *c)
{
    struct atsi_err err = ATSI_ERR_INIT;
    if (chat_past_mark(&c->past, &err) != ATSI_OK && c->verbose)
        cli_warn("%s", err.msg);
}

/* Positions at which later prompts will leave this one: a model that cannot be cut back gets a
 * checkpoint there.  The beginning that the system prompt makes is worth one when it is long. */
static int eval_marked(struct chat *c, const struct chat_prompt *p, uint32_t kept)
{
    enum { LONG_SYSTEM = 32 };
    uint32_t system = 0, stable = 0;
    int code = CLI_OK;
    mark(c);
    if (kept < LONG_SYSTEM)
        code = chat_prompt_system(c, p, &system);
    if (code == CLI_OK && system >= LONG_SYSTEM && system > kept) {
        code = eval_to(c, p, system);
        if (code == CLI_OK)
            mark(c);
    }
    if (code == CLI_OK)
        code = chat_prompt_stable(c, p, &stable);
    if (code == CLI_OK && stable > kept) {
        code = eval_to(c, p, stable);
        if (code == CLI_OK)
            mark(c);
    }
    return code;
}

static int feed(struct chat *c, const struct chat_prompt *p)
{
    struct atsi_err err = ATSI_ERR_INIT;
    uint32_t kept = 0;
    int code, rc = chat_past_rewind(&c->past, p->ids.p, p->ids.n, &kept, &err);
    if (rc != ATSI_OK)
        return cli_fail_status(rc, &err);
    c->cost.kept = kept;
    c->cost.evaluated = (uint32_t)p->ids.n - kept;
    code = c->past.can_rewind ? CLI_OK : eval_marked(c, p, kept);
    return code == CLI_OK ? eval_to(c, p, p->ids.n) : code;
}

/* ---------------------------------------------------------------- answer */
/* An answer on its way: shown, and taken apart for the conversation. */
struct answer {
    struct chat *c;
    struct chat_splitter splitter;
    struct atsi_bytes text, reasoning;
};

static int take_part(void *ctx, enum chat_kind kind, const char *text, size_t len)
{
    struct answer *a = ctx;
    if (!atsi_bytes_add(kind == CHAT_ANSWER ? &a->text : &a->reasoning, text, len))
        return no_memory();
    return chat_screen_put(&a->c->screen, kind, text, len);
}

static int split_code(int rc)
{
    return rc == CHAT_SPLIT_NOMEM ? no_memory() : rc;
}

static int take_text(void *ctx, const char *piece, size_t len)
{
    struct answer *a = ctx;
    return split_code(chat_splitter_push(&a->splitter, piece, len));
}

static int store(const struct answer *a, enum cli_ending ending)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct chat_reply r = {.text = a->text.n > 0 ? a->text.p : "",
                           .reasoning = a->reasoning.n > 0 ? a->reasoning.p : "",
                           .len = a->text.n,
                           .reasoning_len = a->reasoning.n,
                           .field = a->c->style.field,
                           .cut = ending != CLI_END_EOG && ending != CLI_END_STOP};
    int rc = chat_talk_answer(&a->c->talk, &r, &err);
    return rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
}

static void say_ending(const struct chat *c, enum cli_ending ending)
{
    if (ending == CLI_END_CONTEXT)
        cli_warn("the answer was cut: the context of %u tokens is full (-c sets a longer one)",
                 c->info.n_ctx);
    else if (ending == CLI_END_INTERRUPTED)
        chat_note("[stopped]");
    else if (ending == CLI_END_LENGTH && c->screen.terminal)
        chat_note("[cut after %lld tokens]", (long long)cli_sampling.n_predict);
}

/* What the model writes; the session holds the prompt. */
static int write_answer(struct chat *c, struct answer *a, struct cli_generation *g)
{
    int code = cli_generate(c->host, g), end = CLI_OK;
    if (code == CLI_OK)
        code = split_code(chat_splitter_flush(&a->splitter));
    if (ferror(stdout) == 0) /* else it was said already */
        end = chat_screen_end(&c->screen);
    if (code == CLI_OK)
        code = end;
    if (code != CLI_OK)
        return code;
    c->cost.generated = (uint32_t)g->ids.n;
    c->cost.first_token_ns = g->first_token_ns;
    if (g->ending == CLI_END_INTERRUPTED && g->ids.n == 0)
        return CLI_INTERRUPTED;
    say_ending(c, g->ending);
    return store(a, g->ending);
}

static int generate(struct chat *c, struct chat_prompt *p)
{
    struct answer a = {.c = c};
    struct cli_generation g = {.session = c->session,
                               .tok = c->tok,
                               .sampler = c->sampler,
                               .stops = c->stops,
                               .n_predict = cli_sampling.n_predict,
                               .ignore_eos = cli_sampling.ignore_eos,
                               .shown = c->shown.p,
                               .n_shown = c->shown.n,
                               .text = take_text,
                               .ctx = &a,
                               .cancel = c->cancel};
    int code;
    chat_splitter_open(&a.splitter, &c->style, chat_style_inside(&c->style, p->text, p->len),
                       take_part, &a);
    code = write_answer(c, &a, &g);
    if (code == CLI_OK) {
        c->talk.draws++;
        code = chat_note_text(c, p, (uint32_t)p->ids.n);
    }
    chat_splitter_close(&a.splitter);
    free(a.text.p);
    free(a.reasoning.p);
    free(g.ids.p);
    return code;
}

/* ---------------------------------------------------------------- turns */
static void count_times(struct chat *c, const struct atsi_session_times *before)
{
    struct atsi_session_times t = {.struct_size = sizeof t};
    const struct chat_cost *k = &c->cost;
    atsi_session_times(c->session, &t);
    c->cost.prefill_ns = t.prefill_ns - before->prefill_ns;
    c->cost.decode_ns = t.decode_ns - before->decode_ns;
    if (!c->verbose)
        return;
    (void)fprintf(stderr,
                  "[%u tokens re-used, %u evaluated in %.1f ms, %u generated in %.1f ms: %.1f "
                  "tokens/s]\n",
                  k->kept, k->evaluated, (double)k->prefill_ns / 1e6, k->generated,
                  (double)k->decode_ns / 1e6,
                  (double)(t.n_decode - before->n_decode) * 1e9 / (double)(k->decode_ns | 1));
}

int chat_answer(struct chat *c)
{
    struct atsi_session_times before = {.struct_size = sizeof before};
    struct chat_prompt p = {.text = NULL};
    int code = fitting_prompt(c, &p);
    c->cost = (struct chat_cost){.kept = 0};
    atsi_session_times(c->session, &before);
    if (code == CLI_OK)
        code = make_sampler(c, &p);
    if (code == CLI_OK)
        code = feed(c, &p);
    if (code == CLI_OK)
        code = generate(c, &p);
    atsi_sampler_close(c->sampler);
    c->sampler = NULL;
    chat_prompt_free(&p);
    if (code == CLI_OK)
        count_times(c, &before);
    return code;
}

int chat_say(struct chat *c, const char *text, size_t len)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int code, rc = chat_talk_user(&c->talk, text, len, &err);
    if (rc != ATSI_OK)
        return cli_fail(CLI_USAGE, "%s", err.msg);
    code = chat_answer(c);
    if (chat_talk_waiting(&c->talk))
        chat_talk_undo(&c->talk);
    return code;
}

int chat_regen(struct chat *c)
{
    json_t *list = c->talk.messages, *old;
    size_t n = json_array_size(list);
    int code;
    if (n == 0)
        return cli_fail(CLI_USAGE, "/regen: there is no answer yet");
    old = json_incref(json_array_get(list, n - 1));
    (void)chat_talk_unanswer(&c->talk);
    code = chat_answer(c);
    if (chat_talk_waiting(&c->talk))
        (void)json_array_append(list, old);
    json_decref(old);
    return code;
}
