/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of pre-tokenizers: published expressions of each tokenizer family in PCRE2 syntax.
 *
 * White space is written out because PCRE2's \s and Unicode's White_Space differ (U+180E).  Where
 * an expression would search quadratically, an equivalent one is used and says so.
 */
#include "text/pretok.h"

#include <string.h>

/* Unicode White_Space, to be used inside brackets. */
#define WS                                                                                         \
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}"    \
    "\\x{205F}\\x{3000}"
#define SPACE "[" WS "]"
#define NOT_SPACE "[^" WS "]"

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
/* Line ends, then white space: all but the last before a word, a run at the end whole. */
#define SPACES SPACE "*[\\r\\n]+|" SPACE "+(?!" NOT_SPACE ")|" SPACE "+"

/* Llama 3 and GLM 4; Qwen 2 differs in the digits. */
#define CL100K(digits)                                                                             \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" WS                                \
                "\\p{L}\\p{N}]+[\\r\\n]*|" SPACES

/* Qwen 3.5: marks belong to letters. */
#define QWEN35                                                                                     \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS                            \
                "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES

/* o200k: words change at lower to upper case. */
#define O200K_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K                                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?" O200K_UPPER "*" O200K_LOWER "+" CONTRACTION "?|"                      \
    "[^\\r\\n\\p{L}\\p{N}]?" O200K_UPPER "+" O200K_LOWER "*" CONTRACTION "?|"                      \
    "\\p{N}{1,3}| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES

#define GPT2                                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|" SPACE "+(?!" NOT_SPACE \
    ")|" SPACE "+"

#define CJK "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"

/* The cased letters that the DeepSeek LLM tokenizer lists. */
#define DEEPSEEK_LETTERS                                                                           \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"                 \
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}"         \
    "\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}"                  \
    "\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}"                       \
    "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"                 \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"                 \
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}"        \
    "\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}"         \
    "\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}"                 \
    "\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"                  \
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}"                   \
    "\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}"        \
    "\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}"         \
    "\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"                  \
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}"                 \
    "\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}"               \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"         \
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"

static const struct atsi_pretok_kind kinds[] = {
    {"llama-bpe llama3 llama-v3 falcon3 pixtral",
     {CL100K("\\p{N}{1,3}")},
     ATSI_PRE_IGNORE_MERGES | ATSI_PRE_ADD_BOS | ATSI_PRE_CLEAN_UP},
    {"glm4 chatglm-bpe", {CL100K("\\p{N}{1,3}")}, ATSI_PRE_CLEAN_UP},
    {"qwen2", {CL100K("\\p{N}")}, ATSI_PRE_NFC},
    {"deepseek-r1-qwen", {CL100K("\\p{N}")}, 0},
    {"megrez", {CL100K("\\p{N}")}, ATSI_PRE_CLEAN_UP},
    {"qwen35", {QWEN35}, ATSI_PRE_NFC},
    {"gpt-4o llama4", {O200K}, 0},
    {"gpt-2 phi-2 olmo mpt", {GPT2}, ATSI_PRE_CLEAN_UP},
    {"default",
     {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"},
     ATSI_PRE_CLEAN_UP},
    {"deepseek-v3 hunyuan-dense",
     {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}"
      "\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES},
     0},
    {"deepseek-coder", {"[\\r\\n]", SPACE "?\\p{L}+", SPACE "?\\p{P}+", CJK, "\\p{N}"}, 0},
    {"deepseek-llm",
     {"[\\r\\n]", SPACE "?[" DEEPSEEK_LETTERS "]+",
      SPACE
      "?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
      /* published: \s+$ ; anchored to the start of a run, it need not be tried at every space */
      "(?<!" SPACE ")" SPACE "++$", CJK, "\\p{N}+"},
     0},
};

static bool name_in(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = names; *p != '\0';) {
        size_t len = strcspn(p, " ");
        if (len == n && memcmp(p, name, n) == 0)
            return true;
        p += len + (p[len] == ' ');
    }
    return false;
}

const struct atsi_pretok_kind *atsi_pretok_find(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (name_in(kinds[i].names, name))
            return &kinds[i];
    return NULL;
}
