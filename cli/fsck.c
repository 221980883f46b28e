/* SPDX-License-Identifier: Apache-2.0
 * penstock fsck: has a running daemon look at its own books. Main thread. */
#include "args.h"
#include "cli.h"
#include "commands.h"
#include "control.h"

typedef struct fsck_values {
    const char *socket;
    bool json;
} fsck_values;

static void print_lines(const json_t *answer)
{
    const json_t *lines = json_object_get(answer, "lines");
    for (size_t i = 0; i < json_array_size(lines); i++)
        printf("%s\n", json_string_value(json_array_get(lines, i)));
}

static int run_fsck(const void *values)
{
    const fsck_values *v = values;
    json_t *answer = NULL;
    const int exit_code = control_ask(v->socket, "/v1/check", &answer);
    if (exit_code != CLI_OK)
        return exit_code;
    const json_t *count = json_object_get(answer, "wrong");
    const long long wrong = json_integer_value(count);
    const bool understood = json_is_integer(count);
    if (v->json)
        control_print(answer);
    else
        print_lines(answer);
    json_decref(answer);
    if (!understood)
        return fail("the daemon's answer is not understood; is it of another version?");
    if (wrong == 0 && !v->json)
        printf("clean\n");
    return wrong == 0 ? CLI_OK
                      : fail("%lld things do not agree; end the daemon: its jobs go on "
                             "by themselves, exactly where they are",
                             wrong);
}

#define AT(field) offsetof(fsck_values, field)
static const arg_option options[] = {
    OPT_TEXT("socket", "DIR", AT(socket), NULL, "of the daemon (default: this user's)"),
    OPT_FLAG("json", AT(json), "the count and the lines as JSON"),
    OPT_END,
};
#undef AT

const command command_fsck = {
    .name = "fsck",
    .summary = "check the books of a running penstock serve",
    .about = "Looks at every entry, block and count of its cache, and at what jobs share, while it "
             "runs. Exit code 1 when something does not agree, each thing in a line.",
    .examples = "penstock fsck\npenstock fsck --json",
    .operands = (const arg_operand[]){{NULL, 0, false, NULL}},
    .options = options,
    .values_bytes = sizeof(fsck_values),
    .run = run_fsck,
};
