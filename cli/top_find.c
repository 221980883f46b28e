/* SPDX-License-Identifier: Apache-2.0
 * Finding engines: a daemon has its directory, an engine inside a process one named by the
 * process's number below the user's own. Only directories of this user are looked into by
 * themselves: anybody may make one in /tmp. */
#include "top_find.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "control.h"

static void add(found *out, const char *dir, const char *what)
{
    for (int i = 0; i < out->count; i++)
        if (strcmp(out->at[i].dir, dir) == 0)
            return;
    if (out->count == FOUND_MOST)
        return;
    found_engine *e = &out->at[out->count++];
    snprintf(e->dir, sizeof e->dir, "%s", dir);
    snprintf(e->what, sizeof e->what, "%s", what);
}

static void process_name(const char *folder, char *out, size_t cap)
{
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/%ld/comm", strtol(folder, NULL, 10));
    FILE *file = fopen(path, "re");
    if (file) {
        const size_t n = fread(name, 1, sizeof name - 1, file);
        name[n] = '\0';
        name[strcspn(name, "\n")] = '\0';
        fclose(file);
    }
    text_plain(out, cap, name);
}

/* A process's number; where it has several engines, "-2" and so on behind it. */
static bool is_process(const char *name)
{
    const size_t digits = strspn(name, "0123456789");
    const char *rest = name + digits;
    const size_t more = *rest == '-' ? strspn(rest + 1, "0123456789") : 0;
    return digits > 0 && digits < 11 && more < 6 && (*rest == '\0' || (more && !rest[1 + more]));
}

static int by_number(const struct dirent **a, const struct dirent **b)
{
    const long one = strtol((*a)->d_name, NULL, 10), other = strtol((*b)->d_name, NULL, 10);
    return one != other ? (one < other ? -1 : 1) : strcmp((*a)->d_name, (*b)->d_name);
}

static int keeps(const struct dirent *e)
{
    return is_process(e->d_name);
}

static void look_below(found *out, const char *base)
{
    struct dirent **names = NULL;
    const int count = scandir(base, &names, keeps, by_number);
    for (int i = 0; i < count; i++) {
        char dir[FOUND_DIR], what[96], name[40];
        const int len = snprintf(dir, sizeof dir, "%s/%s", base, names[i]->d_name);
        if (len < (int)sizeof dir && control_listens(dir, true)) {
            process_name(names[i]->d_name, name, sizeof name);
            snprintf(what, sizeof what, "process %.20s (%s)", names[i]->d_name, name);
            add(out, dir, what);
        }
        free(names[i]);
    }
    free(names);
}

static bool names_place(const char *text)
{
    return text && *text && strcmp(text, "auto") != 0 && strcmp(text, "embedded") != 0;
}

int find_engines(const char *address, found *out)
{
    char dir[FOUND_DIR];
    const char *usual = getenv("PENSTOCK_ENGINE"), *watch = getenv("PENSTOCK_WATCH");
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    out->count = 0;
    if (address) {
        if (pst_server_find(address, dir, sizeof dir) < 0)
            return -EINVAL;
        add(out, dir, "as named");
        return 0;
    }
    if (names_place(usual) && pst_server_find(usual, dir, sizeof dir) == 0 &&
        control_listens(dir, false))
        add(out, dir, "daemon");
    const bool known = pst_server_find(NULL, dir, sizeof dir) == 0;
    if (known && control_listens(dir, true))
        add(out, dir, "daemon");
    if (names_place(watch) && control_listens(watch, true))
        add(out, watch, "process that shows itself there");
    if (known)
        look_below(out, dir);
    if (runtime && *runtime == '/') {
        snprintf(dir, sizeof dir, "%s/penstock", runtime);
        look_below(out, dir);
    }
    snprintf(dir, sizeof dir, "%s/penstock-%u", P_tmpdir, (unsigned)geteuid());
    look_below(out, dir);
    return 0;
}
