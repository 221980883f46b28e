/* SPDX-License-Identifier: Apache-2.0
 * Writing ledgers. Consumer's thread. Lines are buffered for a second, or until the next batch, so
 * that a ledger can be watched; all are on disk when the command ends, also by Ctrl-C. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "ledger.h"
#include "slots.h"

/* Tab, newline, return and backslash would break the lines apart; they are written \t \n \r \\. */
static void put_key(FILE *file, const char *key, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        switch (key[i]) {
        case '\t':
            fputs("\\t", file);
            break;
        case '\n':
            fputs("\\n", file);
            break;
        case '\r':
            fputs("\\r", file);
            break;
        case '\\':
            fputs("\\\\", file);
            break;
        default:
            putc_unlocked(key[i], file);
        }
    }
}

int ledger_open(ledger *l, const char *path, uint64_t seed, const char *pipeline, bool numbered)
{
    enum { BUFFER = 1 << 18 };
    *l = (ledger){.path = path};
    if (path == NULL)
        return CLI_OK;
    l->file = fopen(path, "we");
    if (l->file == NULL)
        return fail_errno(errno, "write", path);
    l->buffer = cli_alloc(BUFFER);
    setvbuf(l->file, l->buffer, _IOFBF, BUFFER);
    fprintf(l->file, "# penstock ledger 1\n# seed\t%" PRIu64 "\n# pipeline\t", seed);
    put_key(l->file, pipeline, strlen(pipeline));
    fprintf(l->file, "\n# epoch\tstep\trank\tslot\tid\tkey\tcrc32c%s\n",
            numbered ? "\tpreparation" : "");
    return CLI_OK;
}

/* Between batches, so that whoever watches mostly sees whole lines. */
static void flush_now_and_then(ledger *l)
{
    const int64_t now = clock_ns();
    if (now - l->flushed_ns < 1000000000)
        return;
    l->flushed_ns = now;
    fflush(l->file);
}

/* What went wrong is told once. */
static int check(ledger *l)
{
    if (!ferror(l->file))
        return CLI_OK;
    if (!l->told)
        fail_errno(errno ? errno : EIO, "write", l->path);
    l->told = true;
    return CLI_FAIL;
}

int ledger_batch(ledger *l, const pst_batch_desc *desc)
{
    if (l->file == NULL)
        return CLI_OK;
    errno = 0;
    for (uint32_t slot = 0; slot < desc->slots; slot++) {
        size_t length = 0;
        const char *key = slot_key(desc, slot, &length);
        fprintf(l->file, "%s%" PRIu64 "\t%" PRIu64 "\t%u\t%u\t%" PRId64 "\t",
                slot_valid(desc, slot) ? "" : "# pad\t", desc->epoch, desc->step, desc->rank, slot,
                slot_id(desc, slot));
        put_key(l->file, key, length);
        fprintf(l->file, "\t%08x", slot_crc(desc, slot));
        const int64_t number = slot_preparation(desc, slot);
        if (number >= 0)
            fprintf(l->file, "\t%" PRId64, number);
        fputc('\n', l->file);
    }
    flush_now_and_then(l);
    return check(l);
}

void ledger_bad(ledger *l, const pst_error *bad)
{
    if (l->file == NULL)
        return;
    fprintf(l->file, "# bad\t%" PRId64 "\t", bad->id);
    put_key(l->file, bad->key, strlen(bad->key));
    fprintf(l->file, "\t%s\t", bad->stage);
    put_key(l->file, bad->message, strlen(bad->message));
    fputc('\n', l->file);
}

int ledger_close(ledger *l)
{
    int exit_code = CLI_OK;
    if (l->file != NULL) {
        errno = 0;
        fflush(l->file);
        exit_code = check(l);
        if (fclose(l->file) != 0 && exit_code == CLI_OK)
            exit_code = fail_errno(errno, "write", l->path);
    }
    free(l->buffer);
    *l = (ledger){0};
    return exit_code;
}
