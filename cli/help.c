/* SPDX-License-Identifier: Apache-2.0
 * Help texts from the commands' tables, to standard output. */
#include <string.h>

#include "args.h"
#include "cli.h"

enum { HELP_COLUMN = 26, HELP_WIDTH = 96 };

/* Prints words from column `at` on, wrapped, later lines indented to `indent`. Ends the line. */
static void print_wrapped(const char *text, int at, int indent)
{
    while (*text != '\0') {
        const int length = (int)strcspn(text, " \n");
        if (at > indent && at + 1 + length > HELP_WIDTH) {
            printf("\n%*s", indent, "");
            at = indent;
        } else if (at > indent) {
            putchar(' ');
            at++;
        }
        printf("%.*s", length, text);
        at += length;
        text += length;
        if (*text == '\n') {
            printf("\n%*s", text[1] ? indent : 0, "");
            at = indent;
        }
        text += *text != '\0';
    }
    putchar('\n');
}

static void print_entry(const char *left, const char *right)
{
    const int width = printf("  %s", left);
    if (width + 2 > HELP_COLUMN)
        printf("\n%*s", HELP_COLUMN, "");
    else
        printf("%*s", HELP_COLUMN - width, "");
    print_wrapped(right, HELP_COLUMN, HELP_COLUMN);
}

static void print_option(const arg_option *o)
{
    char left[96], right[640];
    snprintf(left, sizeof left, o->type == ARG_FLAG ? "--%s" : "--%s %s", o->name,
             o->meta ? o->meta : "");
    const char *tail = o->required ? " (required)" : "";
    if (o->def != NULL)
        snprintf(right, sizeof right, "%s (default %s)", o->help, o->def);
    else
        snprintf(right, sizeof right, "%s%s", o->help, tail);
    print_entry(left, right);
}

static void print_usage(const command *cmd)
{
    printf("usage: penstock %s", cmd->name);
    for (const arg_operand *p = cmd->operands; p != NULL && p->name != NULL; p++)
        printf(p->optional ? " [%s]" : p->many ? " %s..." : " %s", p->name);
    for (const arg_option *o = cmd->options; o->name != NULL; o++) {
        if (o->required)
            printf(" --%s %s", o->name, o->meta);
    }
    printf(" [options]\n\n");
}

static void print_examples(const char *lines)
{
    printf("\nExamples\n");
    while (*lines != '\0') {
        const int length = (int)strcspn(lines, "\n");
        printf("  %.*s\n", length, lines);
        lines += length + (lines[length] == '\n');
    }
}

void help_command(const command *cmd)
{
    printf("penstock %s: %s\n\n", cmd->name, cmd->summary);
    print_usage(cmd);
    for (const arg_operand *p = cmd->operands; p != NULL && p->name != NULL; p++)
        print_entry(p->name, p->help);
    if (cmd->options->type != ARG_HEADING)
        printf("\nOptions\n");
    for (const arg_option *o = cmd->options; o->name != NULL; o++) {
        if (o->type == ARG_HEADING)
            printf("\n%s\n", o->help);
        else
            print_option(o);
    }
    print_entry("--help", "show this text");
    if (cmd->about != NULL) {
        printf("\n");
        print_wrapped(cmd->about, 0, 0);
    }
    if (cmd->examples != NULL)
        print_examples(cmd->examples);
}

void help_all(void)
{
    printf("penstock %s: feeds training samples to GPUs\n\n"
           "usage: penstock COMMAND …, or penstock COMMAND --help\n\n",
           pst_version());
    for (const command *const *c = commands; *c != NULL; c++)
        print_entry((*c)->name, (*c)->summary);
    printf("\n");
    print_entry("--help", "show this text");
    print_entry("--version", "show the version");
    print_examples("penstock synth images photos --count 200\n"
                   "penstock inspect photos\n"
                   "penstock preview photos --pipeline 'decode | random_resized_crop(224) | hflip' "
                   "--out sheet.png\n"
                   "penstock feed photos --pipeline 'decode | random_resized_crop(224) | hflip | "
                   "normalize(imagenet)' "
                   "--batch 32");
    printf("\nExit codes: 0 success, 1 failure, 2 wrong usage, 130 after Ctrl-C.\n");
}
