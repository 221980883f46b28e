/* SPDX-License-Identifier: Apache-2.0
 * The subcommands; each is defined in the file of its name, ops and settings in about.c, evict in
 * datasets.c, report in compare.c. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "args.h"

extern const command command_synth, command_inspect, command_run, command_preview, command_feed,
    command_bench, command_plan, command_ops, command_settings, command_serve, command_jobs,
    command_top, command_fsck, command_pull, command_datasets, command_evict, command_trace,
    command_report;

#endif
