/* SPDX-License-Identifier: Apache-2.0
 * The penstock command: finds the subcommand, has its arguments parsed and runs it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "cli.h"
#include "commands.h"
#include "interrupt.h"
#include "progress.h"

const command *const commands[] = {&command_synth,
                                   &command_inspect,
                                   &command_run,
                                   &command_preview,
                                   &command_feed,
                                   &command_pull,
                                   &command_datasets,
                                   &command_evict,
                                   &command_serve,
                                   &command_jobs,
                                   &command_top,
                                   &command_fsck,
                                   &command_bench,
                                   &command_plan,
                                   &command_trace,
                                   &command_report,
                                   &command_ops,
                                   &command_settings,
                                   NULL};

static const command *find_command(const char *name)
{
    for (const command *const *c = commands; *c != NULL; c++) {
        if (strcmp((*c)->name, name) == 0)
            return *c;
    }
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *names[sizeof commands / sizeof commands[0] + 2];
    size_t count = 0;
    for (const command *const *c = commands; *c != NULL; c++)
        names[count++] = (*c)->name;
    names[count++] = "help";
    names[count] = NULL;
    const char *nearest = text_nearest(name, names);
    if (nearest != NULL)
        return fail_usage("there is no command '%s'; did you mean %s?", name, nearest);
    return fail_usage("there is no command '%s'", name);
}

static int run_command(const command *cmd, int argc, char **argv)
{
    void *values = cli_alloc(cmd->values_bytes);
    say_command(cmd->name);
    int exit_code = args_parse(cmd, argc, argv, values);
    if (exit_code == CLI_OK)
        exit_code = cmd->run(values);
    else if (exit_code == ARGS_DONE)
        exit_code = CLI_OK;
    free(values);
    return exit_code;
}

static int help_for(int argc, char **argv)
{
    const command *cmd = argc > 0 ? find_command(argv[0]) : NULL;
    if (argc > 0 && cmd == NULL)
        return unknown_command(argv[0]);
    if (cmd != NULL)
        help_command(cmd);
    else
        help_all();
    return CLI_OK;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        help_all();
        return CLI_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0) {
        printf("penstock %s\n", pst_version());
        return CLI_OK;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)
        return help_for(argc - 2, argv + 2);
    if (word[0] == '-')
        return fail_usage("unknown option %s before the command", word);
    const command *cmd = find_command(word);
    return cmd == NULL ? unknown_command(word) : run_command(cmd, argc - 2, argv + 2);
}

/* Whoever closed the pipe has seen enough and wants no message. */
static int flush_output(void)
{
    const bool written = fflush(stdout) == 0 && !ferror(stdout);
    if (written)
        return CLI_OK;
    return errno == EPIPE ? CLI_FAIL : fail("cannot write to standard output: %s", strerror(errno));
}

/* What the library has to say goes over the progress line as everything else does. */
static void on_log(int level, const char *text, void *user)
{
    enum { WARNING = 1 };
    (void)user;
    if (level <= WARNING)
        say("%s", text);
}

int main(int argc, char **argv)
{
    clock_begin();
    interrupt_setup();
    pst_log_set(on_log, NULL);
    int exit_code = dispatch(argc, argv);
    progress_clear();
    if (exit_code == CLI_OK)
        exit_code = flush_output();
    return interrupt_signal() != 0 ? interrupt_exit_code() : exit_code;
}
