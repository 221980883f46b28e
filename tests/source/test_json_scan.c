/* SPDX-License-Identifier: Apache-2.0
 * The JSON walk: every event, whatever the size of the blocks that are read, and what is refused
 * where. */
#include <math.h>

#include "core/memory.h"
#include "fixture.h"
#include "source/json_scan.h"

static psti_json *j;
static pst_error err;

/* Opens the text as a file that is read `block` bytes at a time. */
static int begin(const void *text, size_t len, size_t block)
{
    put_bytes(at("x.json"), text, len);
    const int fd = open(at("x.json"), O_RDONLY);
    psti_json_begin(j, fd, "x.json");
    j->block = block;
    memset(&err, 0, sizeof err);
    return fd;
}

static const char *const marks[] = {
    "", "{ ", "} ", "[ ", "] ", "k:", "s:", "n:", "true ", "false ", "null "};

/* The events as text; ends in "!" when refused. */
static const char *walk(const char *text, size_t len, size_t block)
{
    static char out[4096];
    size_t used = 0;
    const int fd = begin(text, len, block);
    int event;
    while ((event = psti_json_next(j, &err)) > 0 && used < 3000) {
        used += (size_t)snprintf(out + used, sizeof out - used, "%s", marks[event]);
        if (event == PSTI_JSON_KEY || event == PSTI_JSON_STRING)
            used += (size_t)snprintf(out + used, sizeof out - used, "%s ", j->text);
        if (event == PSTI_JSON_NUMBER)
            used += (size_t)snprintf(out + used, sizeof out - used,
                                     j->is_whole ? "%.17gi " : "%.17g ", j->number);
    }
    snprintf(out + used, sizeof out - used, "%s", event < 0 ? "!" : "");
    close(fd);
    return out;
}

static const char sample[] = " {\"a\" : [1, -2.5,3e2 , 0, -0.0, 12345678901234567890, "
                             "0.1],\n\t\"b\\n\\u00e9\\ud83d\\ude00\": "
                             "{\"\": \"\"}, \"c\":[true,false,null,[],{}] , \"d\": "
                             "9007199254740993, \"e\": 1.7976931348623157e308} \n";
static const char events[] =
    "{ k:a [ n:1i n:-2.5 n:300 n:0i n:-0 n:1.2345678901234567e+19 n:0.10000000000000001 ] "
    "k:b\n\xc3\xa9\xf0\x9f\x98\x80 { k: s: } k:c [ true false null [ ] { } ] k:d "
    "n:9007199254740992i k:e n:1.7976931348623157e+308 } ";

static void events_come_whatever_the_blocks(void)
{
    for (size_t block = 1; block < sizeof sample; block++)
        CHECKF(strcmp(walk(sample, sizeof sample - 1, block), events) == 0, "%zu: %s", block,
               walk(sample, sizeof sample - 1, block));
    CHECK(strcmp(walk("\xef\xbb\xbf[1]", 6, 64), "[ n:1i ] ") == 0);
    CHECK(strcmp(walk("\"x\"", 3, 64), "s:x ") == 0);
}

static void whole_numbers_are_kept_whole(void)
{
    const int fd = begin("[9007199254740993, -9223372036854775808, 1e3, 3.0]", 50, 64);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_ARRAY);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_NUMBER && j->is_whole &&
          j->whole == 9007199254740993);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_NUMBER && j->is_whole && j->whole == INT64_MIN);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_NUMBER && !j->is_whole && j->number == 1000);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_NUMBER && !j->is_whole && j->number == 3);
    close(fd);
}

/* Decimals as annotation tools write them are the doubles that strtod makes of them. */
static void decimals_are_what_they_mean(void)
{
    enum { COUNT = 20000, EACH = 24 };
    static char text[COUNT * EACH + 2];
    memset(text, ' ', sizeof text);
    for (int i = 0; i < COUNT; i++) {
        char *to = text + 1 + i * EACH;
        const int len = snprintf(to, EACH, "%d.%0*d", i * 7919 % 4096, 1 + i % 9,
                                 (int)(i * 104729ll % 1000000));
        to[len] = i < COUNT - 1 ? ',' : ' ';
    }
    text[0] = '[';
    text[sizeof text - 1] = ']';
    const int fd = begin(text, sizeof text, 4096);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_ARRAY);
    for (int i = 0; i < COUNT && !check_in_behaviour; i++) {
        CHECK(psti_json_next(j, &err) == PSTI_JSON_NUMBER);
        CHECKF(j->number == strtod(text + 1 + i * EACH, NULL), "%.20s", text + 1 + i * EACH);
    }
    CHECK(psti_json_next(j, &err) == PSTI_JSON_ARRAY_END);
    close(fd);
}

static void words_of_python_are_numbers(void)
{
    const int fd = begin("[NaN, Infinity, -Infinity, 1e999]", 33, 5);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_ARRAY);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_NUMBER && isnan(j->number) && !j->is_whole);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_NUMBER && j->number > 1e308);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_NUMBER && j->number < -1e308);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_NUMBER && j->number > 1e308);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_ARRAY_END);
    close(fd);
}

static void wrong_text_is_refused_where_it_is_wrong(void)
{
    static const struct {
        const char *text, *word;
        int64_t offset;
        int line;
    } bad[] = {
        {"", "cut off", 0, 1},
        {"[1,\n 2", "',' or ']'", 6, 2},
        {"{\"a\":1", "',' or '}'", 6, 1},
        {"{\"a\"", "':'", 4, 1},
        {"\"abc", "the end of a text", 4, 1},
        {"[1,]", "a value", 3, 1},
        {"{\"a\":1,}", "a key in quotes", 7, 1},
        {"{a:1}", "a key in quotes", 1, 1},
        {"[1 2]", "',' or ']'", 3, 1},
        {"[1}", "',' or ']'", 2, 1},
        {"{\"a\":1]", "',' or '}'", 6, 1},
        {"]", "a value", 0, 1},
        {"[01]", "begins with 0", 1, 1},
        {"[-]", "a value", 2, 1},
        {"[1.]", "a digit", 3, 1},
        {"[.5]", "a value", 1, 1},
        {"[1e]", "a digit", 3, 1},
        {"[+1]", "a value", 1, 1},
        {"[tru]", "true", 4, 1},
        {"[nul", "null", 4, 1},
        {"[1] 2", "the end", 4, 1},
        {"[\"a\nb\"]", "the end of a text", 3, 1},
        {"[\"\\x\"]", "one of", 3, 1},
        {"[\"\\u12g4\"]", "hexadecimal", 6, 1},
        {"[\"\\u0000\"]", "character 0", 1, 1},
        {"[\"\\ud800\"]", "half a character", 1, 1},
        {"[\"\\udc00\\ud800\"]", "half a character", 1, 1},
        {"[\"\xff\"]", "UTF-8", 1, 1},
        {"[\"\xed\xa0\x80\"]", "UTF-8", 1, 1},
        {"'a'", "a value", 0, 1},
        {"// no", "a value", 0, 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (size_t block = 1; block < 8; block += 3) {
            const char *got = walk(bad[i].text, strlen(bad[i].text), block);
            char line[16];
            snprintf(line, sizeof line, "line %d:", bad[i].line);
            CHECKF(got[strlen(got) - 1] == '!', "%s: accepted", bad[i].text);
            CHECKF(err.code == PST_EDATASET && strstr(err.message, bad[i].word) &&
                       strncmp(err.message, line, strlen(line)) == 0,
                   "%s: %d %s", bad[i].text, err.code, err.message);
            CHECKF(err.offset == bad[i].offset, "%s: at %lld", bad[i].text, (long long)err.offset);
        }
    CHECK(walk("[1\0]", 4, 64)[0] == '[' && err.code == PST_EDATASET);
}

static void depth_and_lengths_have_limits(void)
{
    static char deep[80], number[120], text[PSTI_JSON_TEXT + 100];
    memset(deep, '[', 33);
    memset(deep + 33, ']', 33);
    walk(deep, 66, 64);
    CHECK(err.code == PST_ELIMIT && err.offset == 32);
    CHECK(strchr(walk(deep + 1, 64, 64), '!') == NULL);
    memset(number, '1', sizeof number);
    walk(number, sizeof number, 64);
    CHECK(err.code == PST_ELIMIT);
    memset(text, 'x', sizeof text);
    text[0] = '"';
    text[PSTI_JSON_TEXT + 2] = '"';
    const int fd = begin(text, PSTI_JSON_TEXT + 3, PSTI_JSON_BLOCK);
    CHECK(psti_json_next(j, &err) == PST_ELIMIT);
    close(fd);
    text[PSTI_JSON_TEXT + 1] = '"';
    const int exact = begin(text, PSTI_JSON_TEXT + 2, PSTI_JSON_BLOCK);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_STRING && j->len == PSTI_JSON_TEXT);
    close(exact);
}

/* Long texts and nested things go by; what comes behind them is read as ever. */
static void values_can_be_skipped(void)
{
    static char text[2 * PSTI_JSON_TEXT];
    size_t len = (size_t)snprintf(text, sizeof text, "{\"a\": {\"x\": [[], {\"y\": \"");
    memset(text + len, 'x', PSTI_JSON_TEXT + 1000);
    len += PSTI_JSON_TEXT + 1000;
    len +=
        (size_t)snprintf(text + len, sizeof text - len, "\"}]}, \"b\": 5, \"c\": \"t\", \"d\": 6}");
    const int fd = begin(text, len, PSTI_JSON_BLOCK);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_OBJECT);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_KEY && strcmp(j->text, "a") == 0);
    CHECK(psti_json_skip(j, &err) == 0);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_KEY && strcmp(j->text, "b") == 0);
    CHECK(psti_json_skip(j, &err) == 0);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_KEY && strcmp(j->text, "c") == 0);
    CHECK(psti_json_skip(j, &err) == 0);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_KEY && strcmp(j->text, "d") == 0);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_NUMBER && j->whole == 6);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_OBJECT_END);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_END);
    close(fd);
    const int cut = begin("{\"a\": [1, {\"b\": ", 16, 64);
    CHECK(psti_json_next(j, &err) == PSTI_JSON_OBJECT && psti_json_next(j, &err) == PSTI_JSON_KEY);
    CHECK(psti_json_skip(j, &err) == PST_EDATASET);
    close(cut);
}

static void a_read_that_fails_is_told(void)
{
    const int fd = open(scratch, O_RDONLY | O_DIRECTORY);
    psti_json_begin(j, fd, "x.json");
    CHECK(psti_json_next(j, &err) == -EISDIR && strstr(err.message, "cannot be read"));
    close(fd);
}

int main(void)
{
    scratch_open();
    j = malloc(sizeof *j);
    RUN(events_come_whatever_the_blocks);
    RUN(whole_numbers_are_kept_whole);
    RUN(decimals_are_what_they_mean);
    RUN(words_of_python_are_numbers);
    RUN(wrong_text_is_refused_where_it_is_wrong);
    RUN(depth_and_lengths_have_limits);
    RUN(values_can_be_skipped);
    RUN(a_read_that_fails_is_told);
    free(j);
    remove_tree(scratch);
    return check_report();
}
