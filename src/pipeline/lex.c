/* SPDX-License-Identifier: Apache-2.0
 * Pipeline text to tokens. Called by parse.c alone; no state beyond the caller's lexer, any thread.
 */
#include <string.h>

#include "core/status.h"
#include "pipeline/pipeline_priv.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_word(char c)
{
    return is_letter(c) || is_digit(c) || c == '-' || c == '.';
}

/* The byte n after the cursor, 0 past the end. */
static char ahead(const psti_lexer *lex, size_t n)
{
    return lex->at + n < lex->len ? lex->text[lex->at + n] : 0;
}

static int fail_lex(const psti_lexer *lex, pst_error *err, size_t offset, const char *what)
{
    (void)lex;
    return psti_fail_at(err, PST_EPIPELINE, "pipeline", NULL, (int64_t)offset, "%s", what);
}

static size_t digits_from(const psti_lexer *lex, size_t n)
{
    while (is_digit(ahead(lex, n)))
        n++;
    return n;
}

static bool starts_number(const psti_lexer *lex)
{
    const size_t sign = ahead(lex, 0) == '-' || ahead(lex, 0) == '+';
    return is_digit(ahead(lex, sign)) ||
           (ahead(lex, sign) == '.' && is_digit(ahead(lex, sign + 1)));
}

/* Length of the number at the cursor: sign, digits, fraction, exponent. */
static size_t number_length(const psti_lexer *lex)
{
    size_t n = digits_from(lex, ahead(lex, 0) == '-' || ahead(lex, 0) == '+');
    if (ahead(lex, n) == '.')
        n = digits_from(lex, n + 1);
    if (ahead(lex, n) == 'e' || ahead(lex, n) == 'E') {
        const size_t sign = ahead(lex, n + 1) == '-' || ahead(lex, n + 1) == '+';
        if (is_digit(ahead(lex, n + 1 + sign)))
            n = digits_from(lex, n + 1 + sign);
    }
    return n;
}

static int lex_number(psti_lexer *lex, psti_token *out, pst_error *err)
{
    const size_t len = number_length(lex);
    if (is_word(ahead(lex, len)))
        return fail_lex(lex, err, lex->at, "a number runs into letters: words start with a letter");
    if (len > PSTI_TOKEN_BYTES || !psti_number_parse(lex->text + lex->at, len, &out->number))
        return fail_lex(lex, err, lex->at, "the number is too large");
    out->type = PSTI_T_NUMBER;
    out->len = (uint32_t)len;
    lex->at += len;
    return 0;
}

static int lex_word(psti_lexer *lex, psti_token *out, pst_error *err)
{
    size_t len = 1;
    while (is_word(ahead(lex, len)))
        len++;
    if (len > PSTI_TOKEN_BYTES)
        return fail_lex(lex, err, lex->at, "the word is longer than 255 bytes");
    out->type = PSTI_T_WORD;
    out->len = (uint32_t)len;
    lex->at += len;
    return 0;
}

static int lex_string(psti_lexer *lex, psti_token *out, pst_error *err)
{
    const size_t start = lex->at++;
    size_t len = 0;
    for (; ahead(lex, len) != '"'; len++) {
        const unsigned char c = (unsigned char)ahead(lex, len);
        if (lex->at + len >= lex->len)
            return fail_lex(lex, err, start, "the string has no closing quote");
        if (c < 32 || c == 127 || c == '\\')
            return fail_lex(lex, err, lex->at + len,
                            "a string holds no control bytes and no backslash");
    }
    if (len > PSTI_TOKEN_BYTES)
        return fail_lex(lex, err, start, "the string is longer than 255 bytes");
    out->type = PSTI_T_STRING;
    out->offset = (uint32_t)lex->at;
    out->len = (uint32_t)len;
    lex->at += len + 1;
    return 0;
}

static int lex_mark(psti_lexer *lex, psti_token *out, pst_error *err)
{
    static const char marks[] = "(),=:;|";
    static const psti_token_type types[] = {PSTI_T_OPEN,   PSTI_T_CLOSE, PSTI_T_COMMA,
                                            PSTI_T_EQUALS, PSTI_T_COLON, PSTI_T_SEMICOLON,
                                            PSTI_T_BAR};
    const unsigned char c = (unsigned char)ahead(lex, 0);
    const char *mark = c ? strchr(marks, c) : NULL;
    if (!mark) {
        const bool shows = c > 32 && c < 127;
        return psti_fail_at(err, PST_EPIPELINE, "pipeline", NULL, (int64_t)lex->at,
                            shows ? "the character '%c' has no place in a pipeline"
                                  : "the byte 0x%02x has no place in a pipeline",
                            c);
    }
    out->type = types[mark - marks];
    out->len = 1;
    if (out->type == PSTI_T_BAR && ahead(lex, 1) == '|') {
        out->type = PSTI_T_BARS;
        out->len = 2;
    }
    lex->at += out->len;
    return 0;
}

int psti_lex(psti_lexer *lex, psti_token *out, pst_error *err)
{
    while (lex->at < lex->len && is_space(lex->text[lex->at]))
        lex->at++;
    *out = (psti_token){.type = PSTI_T_END, .offset = (uint32_t)lex->at};
    if (lex->at == lex->len)
        return 0;
    if (++lex->count > PSTI_TOKENS_MAX)
        return fail_lex(lex, err, lex->at, "the pipeline has more than 8192 words and marks");
    const char c = ahead(lex, 0);
    if (c == '"')
        return lex_string(lex, out, err);
    if (is_letter(c))
        return lex_word(lex, out, err);
    if (starts_number(lex))
        return lex_number(lex, out, err);
    return lex_mark(lex, out, err);
}
