/* SPDX-License-Identifier: Apache-2.0
 * The disk tier by itself: what is found again, who makes way, and that no error, no death in the
 * middle of a write and no flipped bit ever brings out bytes that were not put in. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/disk_priv.h"
#include "check.h"
#include "core/clock.h"
#include "core/memory.h"
#include "disk_faults.h"

#define MIB ((uint64_t)1 << 20)
enum { RETRY_MS = 20 };
static uint64_t retry_ns = (uint64_t)RETRY_MS * 1000000;

static int messages;

static void note_message(int level, const char *text, void *user)
{
    (void)level;
    (void)user;
    messages += strstr(text, "disk tier") != NULL;
}

/* ---- a directory and a tier in it ------------------------------------------------------------ */

static char *fresh_dir(void)
{
    char name[64];
    const bool memory =
        access("/dev/shm", R_OK | W_OK | X_OK) == 0; /* many files, all short-lived */
    snprintf(name, sizeof name, "%s/penstock-disk-XXXXXX", memory ? "/dev/shm" : "/tmp");
    CHECK(mkdtemp(name) != NULL);
    return strdup(name);
}

static void remove_tree(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *d;
    while (dir && (d = readdir(dir))) {
        char below[4096];
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        snprintf(below, sizeof below, "%s/%s", path, d->d_name);
        if (unlink(below) < 0)
            remove_tree(below);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

static psti_disk *open_disk(const char *dir, uint64_t bytes)
{
    pst_error err = {0};
    psti_disk *disk = NULL;
    const psti_disk_spec spec = {(char *)dir, bytes, 4 * MIB, retry_ns};
    CHECKF(psti_disk_open(&spec, &disk, &err) == 0, "%s", err.message);
    return disk;
}

/* A tier in a directory of its own. */
typedef struct rig {
    char *dir;
    uint64_t bytes;
    psti_disk *disk;
} rig;

static rig begin(uint64_t bytes)
{
    rig g = {.dir = fresh_dir(), .bytes = bytes};
    g.disk = open_disk(g.dir, bytes);
    messages = 0;
    return g;
}

static void restart(rig *g)
{
    psti_disk_close(g->disk);
    g->disk = open_disk(g->dir, g->bytes);
}

static void remove_dir(char *dir)
{
    remove_tree(dir);
    free(dir);
}

static void end(rig *g)
{
    psti_disk_close(g->disk);
    remove_dir(g->dir);
}

/* ---- entries that tell what they should be --------------------------------------------------- */

static const psti_id128 OWNER = {1, 1}, OTHER = {2, 2};

static psti_cache_key key_of(int number)
{
    return (psti_cache_key){{(uint64_t)number, 77}, {5, 6}};
}

static size_t size_of(int number)
{
    return 3000 + (size_t)(number * 611 % 9000);
}

static void fill(int number, uint8_t *bytes)
{
    uint64_t x = (uint64_t)number;
    for (size_t i = 0; i < size_of(number); i++)
        bytes[i] = (uint8_t)(psti_mix64(x + i / 8) >> i % 8 * 8);
}

static void put(psti_disk *disk, int number, psti_id128 owner)
{
    uint8_t bytes[12000];
    const psti_cache_key key = key_of(number);
    const psti_cache_content content = {.bytes = size_of(number)};
    fill(number, bytes);
    psti_disk_put(disk, &key, owner, &content, bytes);
}

/* As the scheduler does: 1 and the right bytes, or 0 and it is not found any more. */
static int get(psti_disk *disk, int number)
{
    uint8_t packed[16000], bytes[12000];
    psti_disk_place place;
    psti_envelope out;
    const psti_cache_key key = key_of(number);
    if (!psti_disk_find(disk, &key, &place))
        return 0;
    CHECK(place.size <= sizeof packed);
    const int fd = openat(place.dir, place.name, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -errno : read(fd, packed, sizeof packed);
    if (fd >= 0)
        close(fd);
    int rc = n < 0 ? (int)n : (uint64_t)n != place.size ? PST_ECHANGED : 0;
    if (!rc)
        rc = psti_envelope_open(&key, packed, (size_t)n, &out);
    if (rc) {
        psti_disk_failed(disk, &key, rc);
        return 0;
    }
    fill(number, bytes);
    CHECKF(out.size == size_of(number) && !memcmp(out.bytes, bytes, out.size),
           "entry %d has other bytes than were put", number);
    return 1;
}

static int get_range(psti_disk *disk, int from, int to)
{
    int found = 0;
    for (int i = from; i < to; i++)
        found += get(disk, i);
    return found;
}

static int get_all(psti_disk *disk, int count)
{
    return get_range(disk, 0, count);
}

static void put_all(psti_disk *disk, int from, int to, psti_id128 owner)
{
    for (int i = from; i < to; i++)
        put(disk, i, owner);
    psti_disk_flush(disk);
}

static psti_disk_stats stats_of(psti_disk *disk)
{
    psti_disk_stats s;
    psti_disk_stats_get(disk, &s);
    return s;
}

/* What lies in the directory: bytes of entries in whole blocks, files by kind. */
typedef struct lies {
    uint64_t bytes;
    int entries, temporary;
} lies;

static lies look(const char *dir)
{
    lies found = {0};
    DIR *top = opendir(dir);
    struct dirent *d;
    while (top && (d = readdir(top))) {
        found.temporary += strncmp(d->d_name, "new-", 4) == 0;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", dir, d->d_name);
        DIR *folder = strlen(d->d_name) == 2 && d->d_name[0] != '.' ? opendir(path) : NULL;
        struct dirent *f;
        while (folder && (f = readdir(folder))) {
            struct stat st;
            if (f->d_name[0] == '.' || fstatat(dirfd(folder), f->d_name, &st, 0) < 0)
                continue;
            found.bytes += disk_blocks((uint64_t)st.st_size);
            found.entries++;
        }
        if (folder)
            closedir(folder);
    }
    if (top)
        closedir(top);
    return found;
}

static uint64_t books_of(const char *dir)
{
    char path[4096];
    uint64_t book[2] = {0};
    snprintf(path, sizeof path, "%s/books", dir);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && read(fd, book, sizeof book) == sizeof book);
    close(fd);
    return book[1];
}

/* ---- finding again --------------------------------------------------------------------------- */

static void what_is_put_is_found(void)
{
    rig g = begin(64 * MIB);
    put_all(g.disk, 0, 100, OWNER);
    CHECK(get_all(g.disk, 120) == 100);
    const psti_disk_stats s = stats_of(g.disk);
    CHECK(s.entries == 100 && s.written == 100 && !s.errors && !s.dropped && !s.off);
    CHECK(look(g.dir).bytes == s.bytes && books_of(g.dir) == s.bytes);
    put_all(g.disk, 0, 100, OWNER); /* again: nothing is written */
    CHECK(stats_of(g.disk).written == 100);
    end(&g);
}

static void a_restart_finds_everything(void)
{
    rig g = begin(64 * MIB);
    for (int i = 0; i < 100; i++)
        put(g.disk, i, OWNER);
    restart(&g); /* writes what is queued */
    CHECK(stats_of(g.disk).entries == 100);
    CHECK(get_all(g.disk, 100) == 100);
    end(&g);
}

static void names_that_are_not_ours_are_left_alone(void)
{
    rig g = begin(64 * MIB);
    put_all(g.disk, 0, 3, OWNER);
    psti_disk_close(g.disk);
    static const char *const names[] = {"00/x", "00/../../etc",
                                        "00/000000000000000000000000000000.0000.0",
                                        "00/000000000000000000000000000000.0000.00000000010",
                                        "00/00000000000000000000000000000g.0000.10"};
    char path[4096];
    snprintf(path, sizeof path, "%s/00", g.dir);
    mkdir(path, 0700);
    disk_entry parsed;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECKF(!disk_name_parse("00", names[i] + 3, &parsed), "%s", names[i]);
        snprintf(path, sizeof path, "%s/%s", g.dir, names[i]);
        const int fd = strstr(names[i], "..") ? -1 : open(path, O_CREAT | O_WRONLY, 0600);
        if (fd >= 0)
            close(fd);
    }
    g.disk = open_disk(g.dir, g.bytes);
    CHECK(stats_of(g.disk).entries == 3 && get_all(g.disk, 3) == 3);
    end(&g);
}

/* ---- who makes way --------------------------------------------------------------------------- */

static void the_quota_holds_and_equals_stay(void)
{
    rig g = begin(MIB);
    psti_disk_use(g.disk, OWNER, true);
    put_all(g.disk, 0, 400, OWNER);
    const int kept = get_all(g.disk, 400);
    CHECKF(kept > 60 && kept < 200, "%d", kept);
    CHECK(look(g.dir).bytes <= MIB && books_of(g.dir) <= MIB);
    CHECK(stats_of(g.disk).evicted == 0);
    put_all(g.disk, 0, 400, OWNER);
    CHECK(get_all(g.disk, 400) == kept);
    end(&g);
}

static void entries_that_nobody_uses_make_way(void)
{
    rig g = begin(MIB);
    psti_disk_use(g.disk, OTHER, true);
    put_all(g.disk, 0, 400, OTHER);
    restart(&g);
    const int before = (int)stats_of(g.disk).entries;
    int mine = 0;
    for (int round = 0; round < 200 && mine <= before * 8 / 10; round++) {
        psti_disk_use(g.disk, OWNER, true); /* each job looks anew: 32 draws may find none */
        put_all(g.disk, 1000, 1000 + before, OWNER);
        mine = round < 19 ? 0 : get_range(g.disk, 1000, 1000 + before);
    }
    CHECKF(mine > before * 8 / 10, "%d of %d", mine, before);
    CHECK(look(g.dir).bytes <= MIB);
    end(&g);
}

static void entries_that_nobody_asks_for_make_way(void)
{
    rig g = begin(MIB);
    psti_disk_use(g.disk, OWNER, true);
    psti_disk_horizon(g.disk, 200);
    put_all(g.disk, 0, 400, OWNER);
    CHECK(stats_of(g.disk).evicted == 0);
    for (int round = 0; round < 10; round++) { /* other samples, of the same form */
        for (int i = 1000; i < 1100; i++)
            if (!get(g.disk, i))
                put(g.disk, i, OWNER);
        psti_disk_flush(g.disk);
    }
    const int mine = get_range(g.disk, 1000, 1100);
    CHECKF(mine >= 80, "%d of 100", mine);
    CHECK(look(g.dir).bytes <= MIB);
    end(&g);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static bool comes_back(psti_disk *disk)
{
    const uint64_t until = psti_now_ns() + 10000000000u;
    while (stats_of(disk).off && psti_now_ns() < until)
        sched_yield();
    return !stats_of(disk).off;
}

static void one_error(fault_call call, int error, int number, bool persistent)
{
    rig g = begin(MIB / 4 * 5);
    put_all(g.disk, 0, 20, OWNER);
    messages = 0;
    fault_arm(call, number, error, persistent);
    psti_disk_use(g.disk, OTHER, true);
    put_all(g.disk, 20, 60, OTHER);
    put_all(g.disk, 60, 100, OTHER);
    const uint64_t until =
        psti_now_ns() + 3ull * RETRY_MS * 1000000; /* it is tried again meanwhile */
    for (int i = 100; persistent && stats_of(g.disk).errors == 1 && psti_now_ns() < until; i++)
        put_all(g.disk, i % 200, i % 200 + 1, OTHER);
    const psti_disk_stats s = stats_of(g.disk);
    fault_off();
    /* Entries whose folder is there are written in between: then it is told again. */
    CHECKF(messages <= 1 || call == FAULT_MKDIRAT, "%s %d: %d messages", fault_names[call], error,
           messages);
    CHECKF(!s.off || messages >= 1, "%s: off without a word", fault_names[call]);
    if (persistent && call != FAULT_UNLINKAT && call != FAULT_PREAD)
        CHECKF(s.errors || call == FAULT_MKDIRAT, "%s %d", fault_names[call], error);
    CHECK(look(g.dir).bytes <= MIB / 4 * 5);
    get_all(g.disk, 100); /* checks the bytes of those that are there */
    CHECKF(comes_back(g.disk), "%s %d", fault_names[call], error);
    CHECK(get_all(g.disk, 20) > 0);
    restart(&g);
    get_all(g.disk, 100);
    CHECK(look(g.dir).temporary == 0);
    put_all(g.disk, 0, 30, OWNER);
    CHECK(look(g.dir).bytes <= MIB / 4 * 5 && books_of(g.dir) == look(g.dir).bytes);
    end(&g);
}

static void every_error_of_every_call_is_survived(void)
{
    static const int errors[] = {ENOSPC, EIO, EROFS, EDQUOT, EMFILE, EACCES, ENOENT};
    for (int call = 0; call < FAULT_CALLS; call++) {
        for (size_t e = 0; e < sizeof errors / sizeof *errors; e++)
            one_error((fault_call)call, errors[e], 0, true);
        one_error((fault_call)call, EIO, 3, true);
        one_error((fault_call)call, ENOSPC, 0, false);
        one_error((fault_call)call, ENOSPC, 5, false);
    }
}

/* What is there stays, and nothing is tried before it is time; other errors turn the tier off. */
static void a_full_disk_is_read_from_as_before(void)
{
    static const int errors[] = {ENOSPC, EDQUOT, EIO};
    const uint64_t usual_ns = retry_ns;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        const bool full = errors[i] != EIO;
        retry_ns = 3600000000000u;
        rig g = begin(64 * MIB);
        put_all(g.disk, 0, 20, OWNER);
        fault_arm(FAULT_WRITE, 0, errors[i], true);
        put_all(g.disk, 20, 40, OWNER);
        const int tried = fault_count();
        put_all(g.disk, 40, 100, OWNER);
        CHECKF(fault_count() == tried && tried > 0, "%d, %d", fault_count(), tried);
        const psti_cache_key next = key_of(200);
        CHECK(!psti_disk_wants(g.disk, &next, 4000));
        const psti_disk_stats s = stats_of(g.disk);
        CHECKF(s.crowded == full && s.off == !full, "error %d", errors[i]);
        CHECKF(messages == 1, "%d messages", messages);
        CHECKF(get_all(g.disk, 100) == (full ? 20 : 0), "error %d", errors[i]);
        CHECK(look(g.dir).entries == 20 && look(g.dir).temporary == 0);
        fault_off();
        retry_ns = usual_ns;
        restart(&g);
        CHECK(get_all(g.disk, 100) == 20);
        end(&g);
    }
}

/* Puts until something is written again. */
static bool writes_again(psti_disk *disk, int number)
{
    const uint64_t until = psti_now_ns() + 10000000000u, before = stats_of(disk).written;
    while (stats_of(disk).written == before && psti_now_ns() < until)
        put_all(disk, number, number + 1, OWNER);
    return stats_of(disk).written > before;
}

static void a_disk_that_has_room_again_is_written_to(void)
{
    rig g = begin(64 * MIB);
    put_all(g.disk, 0, 20, OWNER);
    fault_arm(FAULT_WRITE, 0, ENOSPC, true);
    const uint64_t until = psti_now_ns() + 10000000000u;
    while (fault_count() < 3 && psti_now_ns() < until) /* is tried again now and then */
        put_all(g.disk, 20, 21, OWNER);
    CHECK(fault_count() >= 3 && stats_of(g.disk).entries == 20);
    fault_off();
    CHECK(writes_again(g.disk, 20));
    put_all(g.disk, 21, 40, OWNER);
    CHECK(get_all(g.disk, 40) == 40 && !stats_of(g.disk).crowded && !stats_of(g.disk).off);
    CHECKF(messages == 1, "%d messages", messages);
    end(&g);
}

/* Reading finds out that it is gone, which is another matter. */
static void a_full_disk_that_is_lost_turns_it_off(void)
{
    rig g = begin(64 * MIB);
    retry_ns = 3600000000000u;
    restart(&g);
    put_all(g.disk, 0, 20, OWNER);
    fault_arm(FAULT_WRITE, 0, ENOSPC, true);
    put_all(g.disk, 20, 40, OWNER);
    CHECK(stats_of(g.disk).crowded && !stats_of(g.disk).off);
    remove_tree(g.dir);
    CHECK(get_all(g.disk, 20) == 0 && stats_of(g.disk).off);
    fault_off();
    retry_ns = (uint64_t)RETRY_MS * 1000000;
    end(&g);
}

static void a_disk_that_is_full_when_it_is_opened_is_read_from(void)
{
    rig g = begin(64 * MIB);
    put_all(g.disk, 0, 20, OWNER);
    messages = 0;
    fault_arm(FAULT_PWRITE, 0, ENOSPC, true);
    restart(&g);
    CHECK(get_all(g.disk, 20) == 20 && !stats_of(g.disk).off && messages == 1);
    fault_off();
    CHECK(writes_again(g.disk, 20) && get_all(g.disk, 21) == 21);
    end(&g);
}

static void errors_while_opening_turn_it_off(void)
{
    static const fault_call calls[] = {FAULT_OPENAT, FAULT_PWRITE};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char *dir = fresh_dir();
        messages = 0;
        fault_arm(calls[i], 0, calls[i] == FAULT_OPENAT ? ENOSPC : EIO, true);
        psti_disk *disk = open_disk(dir, MIB);
        CHECK(stats_of(disk).off && messages == 1);
        put_all(disk, 0, 5, OWNER);
        CHECK(get_all(disk, 5) == 0);
        fault_off();
        CHECK(comes_back(disk));
        put_all(disk, 0, 5, OWNER);
        CHECK(get_all(disk, 5) == 5);
        psti_disk_close(disk);
        remove_dir(dir);
    }
}

static void a_directory_that_is_removed_comes_back(void)
{
    rig g = begin(MIB);
    put_all(g.disk, 0, 20, OWNER);
    messages = 0;
    remove_tree(g.dir);
    put_all(g.disk, 20, 40, OWNER);
    CHECK(get_all(g.disk, 40) == 0);
    CHECK(messages == 1);
    CHECK(comes_back(g.disk));
    put_all(g.disk, 0, 20, OWNER);
    CHECK(get_all(g.disk, 20) == 20);
    end(&g);
}

enum { PATH_ROOM = 4096 };

/* Where an entry that is there lies, and its bytes. */
static uint64_t file_of(const rig *g, int number, char path[PATH_ROOM])
{
    psti_disk_place place = {0};
    const psti_cache_key key = key_of(number);
    CHECK(psti_disk_find(g->disk, &key, &place));
    snprintf(path, PATH_ROOM, "%s/%s", g->dir, place.name);
    return place.size;
}

/* Only the reads notice. */
static void files_that_are_removed_are_misses(void)
{
    enum { COUNT = 30 };
    char path[PATH_ROOM];
    rig g = begin(MIB);
    put_all(g.disk, 0, COUNT, OWNER);
    for (int i = 0; i < COUNT; i++) {
        file_of(&g, i, path);
        CHECK(unlink(path) == 0);
    }
    CHECK(get_all(g.disk, COUNT) == 0 && !stats_of(g.disk).off && !stats_of(g.disk).errors);
    put_all(g.disk, 0, COUNT, OWNER);
    CHECK(get_all(g.disk, COUNT) == COUNT);
    end(&g);
}

static void a_disk_that_hangs_holds_nobody_up_for_long(void)
{
    rig g = begin(64 * MIB);
    const uint64_t since = psti_now_ns();
    fault_hang();
    for (int i = 0; i < 2000; i++)
        put(g.disk, i, OWNER);
    const double seconds = 1e-9 * (double)(psti_now_ns() - since);
    CHECKF(seconds < 5, "%.1f s", seconds);
    CHECK(stats_of(g.disk).dropped > 500);
    fault_off();
    psti_disk_flush(g.disk);
    CHECK(get_all(g.disk, 2000) > 100);
    end(&g);
}

/* ---- death and rot --------------------------------------------------------------------------- */

static void write_until_killed(const char *dir, int number)
{
    psti_disk *disk = open_disk(dir, MIB / 4);
    psti_disk_use(disk, OTHER, true);
    fault_kill_at(number);
    put_all(disk, 0, 12, OWNER);
    put_all(disk, 12, 40, OTHER);
    psti_disk_close(disk);
    _exit(0);
}

static void death_at_any_write_leaves_nothing_wrong(void)
{
    int number = 0;
    for (bool ended = false; !ended && number < 1000; number++) {
        char *dir = fresh_dir();
        const pid_t child = fork();
        if (child == 0)
            write_until_killed(dir, number);
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        ended = WIFEXITED(status);
        CHECK(ended || WTERMSIG(status) == SIGKILL);
        psti_disk *disk = open_disk(dir, MIB / 4);
        const lies found = look(dir);
        CHECKF(found.temporary == 0, "killed at call %d: %d left", number, found.temporary);
        CHECKF(books_of(dir) == found.bytes && found.bytes <= MIB / 4, "killed at call %d", number);
        CHECK(get_all(disk, 40) == found.entries && stats_of(disk).damaged == 0);
        psti_disk_close(disk);
        remove_dir(dir);
    }
    CHECKF(number > 60 && number < 1000, "%d calls", number);
}

static void every_flipped_byte_is_found(void)
{
    enum { COUNT = 40 };
    char path[PATH_ROOM];
    rig g = begin(MIB);
    put_all(g.disk, 0, COUNT, OWNER);
    for (int i = 0; i < COUNT; i++) {
        const uint64_t size = file_of(&g, i, path);
        const int fd = open(path, O_RDWR | O_CLOEXEC);
        const off_t at = (off_t)(psti_mix64((uint64_t)i) % size);
        uint8_t byte = 0;
        CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
        byte ^= (uint8_t)(1 << i % 8);
        CHECK(pwrite(fd, &byte, 1, at) == 1);
        close(fd);
    }
    for (int i = 0; i < COUNT / 2; i++) /* made anew at once, and again when all are removed */
        if (!get(g.disk, i))
            put(g.disk, i, OWNER);
    psti_disk_flush(g.disk);
    CHECK(get_all(g.disk, COUNT / 2) == COUNT / 2);
    CHECK(get_all(g.disk, COUNT) == COUNT / 2);
    psti_disk_flush(g.disk);
    CHECK(stats_of(g.disk).damaged == COUNT && !stats_of(g.disk).off);
    CHECK(look(g.dir).entries == COUNT / 2 && books_of(g.dir) == look(g.dir).bytes);
    put_all(g.disk, 0, COUNT, OWNER);
    CHECK(get_all(g.disk, COUNT) == COUNT);
    end(&g);
}

/* ---- several processes ----------------------------------------------------------------------- */

static int work_in(const char *dir, unsigned seed, int rounds)
{
    psti_disk *disk = open_disk(dir, MIB);
    const psti_id128 mine = seed % 2 ? OWNER : OTHER;
    psti_disk_use(disk, mine, true);
    psti_disk_horizon(disk, 200);
    for (int i = 0; i < rounds; i++) {
        seed = seed * 1664525u + 1013904223u;
        const int number = (int)(seed >> 8) % 300;
        if (!get(disk, number))
            put(disk, number, mine);
    }
    psti_disk_flush(disk);
    const psti_disk_stats s = stats_of(disk);
    CHECK(s.damaged == 0);
    psti_disk_close(disk);
    return check_in_behaviour ? 1 : s.errors ? 2 : 0;
}

static void several_processes_share_a_directory(void)
{
    enum { PROCESSES = 4 };
    char *dir = fresh_dir();
    const char *longer = getenv("PENSTOCK_TEST_ROUNDS");
    const int rounds = longer ? atoi(longer) : 3000;
    pid_t child[PROCESSES];
    for (int p = 0; p < PROCESSES; p++)
        if ((child[p] = fork()) == 0)
            _exit(work_in(dir, (unsigned)p * 977 + 1, rounds));
    for (int p = 0; p < PROCESSES; p++) {
        int status;
        CHECK(waitpid(child[p], &status, 0) == child[p]);
        CHECKF(WIFEXITED(status) && WEXITSTATUS(status) == 0, "process %d: %d", p, status);
    }
    /* One that began before the others had filled it may have found and written nothing. */
    CHECKF(look(dir).bytes <= MIB, "%llu", (unsigned long long)look(dir).bytes);
    CHECK(look(dir).entries > 0);
    psti_disk *disk = open_disk(dir, MIB);
    CHECK(books_of(dir) == look(dir).bytes);
    get_all(disk, 300);
    psti_disk_close(disk);
    remove_dir(dir);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static int refusal(const char *dir)
{
    pst_error err = {0};
    psti_disk *disk = NULL;
    const psti_disk_spec spec = {(char *)dir, MIB, MIB, 0};
    const int rc = psti_disk_open(&spec, &disk, &err);
    CHECK(rc == 0 || strstr(err.message, dir));
    psti_disk_close(disk);
    return rc;
}

static void directories_of_others_are_refused(void)
{
    char *dir = fresh_dir(), path[4096];
    CHECK(chmod(dir, 0777) == 0 && refusal(dir) == -EPERM);
    CHECK(chmod(dir, 0755) == 0 && refusal(dir) == 0);
    if (geteuid() == 0) {
        CHECK(chown(dir, 12345, 12345) == 0 && refusal(dir) == -EPERM);
        CHECK(chown(dir, 0, 0) == 0);
    } else {
        CHECK(refusal("/usr") == -EPERM);
    }
    snprintf(path, sizeof path, "%s/books", dir);
    CHECK(refusal(path) == -ENOTDIR);
    snprintf(path, sizeof path, "%s/no/where", dir);
    CHECK(refusal(path) == -ENOENT);
    snprintf(path, sizeof path, "%s/below", dir);
    struct stat st;
    CHECK(refusal(path) == 0 && stat(path, &st) == 0 && (st.st_mode & 0777) == 0700);
    remove_dir(dir);
}

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0);
    if (file)
        fclose(file);
}

static bool has_text(const char *dir, const char *name, const char *text)
{
    char path[4096], line[100] = "";
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "r");
    const bool same = file && fgets(line, sizeof line, file) && strcmp(line, text) == 0;
    if (file)
        fclose(file);
    return same;
}

static void files_of_others_are_never_touched(void)
{
    static const char *const names[] = {"new-york.txt", "books", "letter.txt"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *dir = fresh_dir();
        write_text(dir, names[i], "something of mine");
        CHECKF(refusal(dir) == -EEXIST, "%s", names[i]);
        CHECK(has_text(dir, names[i], "something of mine"));
        remove_dir(dir);
    }
    rig g = begin(MIB);
    put_all(g.disk, 0, 3, OWNER);
    psti_disk_close(g.disk);
    write_text(g.dir, "new-york.txt", "came later");
    write_text(g.dir, "new-0123456789abcdef", "left by one that was killed");
    g.disk = open_disk(g.dir, g.bytes);
    CHECK(get_all(g.disk, 3) == 3 && has_text(g.dir, "new-york.txt", "came later"));
    CHECK(!has_text(g.dir, "new-0123456789abcdef", "left by one that was killed"));
    end(&g);
}

static void the_text_of_a_tier(void)
{
    static const struct {
        const char *text, *dir;
        uint64_t bytes;
    } good[] = {{"/a/b:1M", "/a/b", MIB},
                {"a:b:2g", "a:b", 2048 * MIB},
                {"/x:3GiB", "/x", 3072 * MIB},
                {"/x:1048576", "/x", MIB},
                {"./d:1TB", "./d", MIB * MIB}};
    static const char *const bad[] = {
        "",       "/a",      "/a:",    ":1G",    "/a:1X",
        "/a:-1G", "/a:1.5G", "/a:10K", "/a:1GG", "/a:99999999999999999999"};
    psti_disk_spec spec;
    pst_error err = {0};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECKF(psti_disk_parse(good[i].text, &spec, &err) == 0, "%s", good[i].text);
        CHECK(strcmp(spec.dir, good[i].dir) == 0 && spec.bytes == good[i].bytes);
        psti_free(spec.dir);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECKF(psti_disk_parse(bad[i], &spec, &err) == -EINVAL && err.message[0], "%s", bad[i]);
}

int main(void)
{
    pst_log_set(note_message, NULL);
    RUN(what_is_put_is_found);
    RUN(a_restart_finds_everything);
    RUN(names_that_are_not_ours_are_left_alone);
    RUN(the_quota_holds_and_equals_stay);
    RUN(entries_that_nobody_uses_make_way);
    RUN(entries_that_nobody_asks_for_make_way);
    RUN(every_error_of_every_call_is_survived);
    RUN(a_full_disk_is_read_from_as_before);
    RUN(a_disk_that_has_room_again_is_written_to);
    RUN(a_full_disk_that_is_lost_turns_it_off);
    RUN(a_disk_that_is_full_when_it_is_opened_is_read_from);
    RUN(errors_while_opening_turn_it_off);
    RUN(a_directory_that_is_removed_comes_back);
    RUN(files_that_are_removed_are_misses);
    RUN(a_disk_that_hangs_holds_nobody_up_for_long);
    RUN(death_at_any_write_leaves_nothing_wrong);
    RUN(every_flipped_byte_is_found);
    RUN(several_processes_share_a_directory);
    RUN(directories_of_others_are_refused);
    RUN(files_of_others_are_never_touched);
    RUN(the_text_of_a_tier);
    psti_mem_stats total;
    psti_mem_stats_total(&total);
    if (total.live) {
        printf("FAIL %llu blocks are left\n", (unsigned long long)total.live);
        return 1;
    }
    return check_report();
}
