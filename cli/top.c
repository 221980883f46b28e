/* SPDX-License-Identifier: Apache-2.0
 * penstock top: an engine while it works. One loop waits for keys, signals and the engine's answer;
 * nothing in it blocks, so that a daemon that hangs leaves the keys alone. Main thread. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "cli.h"
#include "commands.h"
#include "control.h"
#include "grid.h"
#include "interrupt.h"
#include "terminal.h"
#include "top_draw.h"
#include "top_find.h"
#include "top_view.h"

typedef struct top_values {
    const char *engine;
    double interval;
    bool once, json;
} top_values;

typedef enum page { PAGE_VIEW, PAGE_HELP, PAGE_ENGINES } page;

static const int64_t second_ns = 1000000000, patience_ns = 5 * 1000000000ll;
static const char url[] = "/v1/watch";

typedef struct top {
    const top_values *v;
    found engines;
    int engine; /* of them: the one that is looked at */
    top_view view;
    top_look look;
    page page;
    int pick; /* PAGE_ENGINES: the line that is chosen */
    control_question question;
    int64_t asked_ns, next_ns; /* when the question was asked; when the next one is due */
    int64_t gone_ns;           /* since when nothing came; 0 = it came */
    char trouble[200];
    bool utf8, colours, stale; /* stale: the screen does not show what is known */
    int ended;                 /* -1 = goes on; else the exit code */
} top;

/* ---- which engine ---------------------------------------------------------------------------- */

static int fail_none(const char *address)
{
    if (address)
        return fail("no engine at %s; start one with: penstock serve --socket DIR, or see which "
                    "there are with: penstock top",
                    address);
    return fail("no engine runs. Start a daemon with: penstock serve; or let a process show its "
                "own engine with PENSTOCK_WATCH=auto in its environment");
}

/* The daemon, or the only one there is; -1: it is for somebody to choose. */
static int usual_engine(const found *engines)
{
    if (engines->count == 1)
        return 0;
    for (int i = 0; i < engines->count; i++)
        if (strcmp(engines->at[i].what, "daemon") == 0)
            return i;
    return -1;
}

static int find(top *t)
{
    if (find_engines(t->v->engine, &t->engines) < 0)
        return fail_usage("--engine: '%s' is no address; it is written unix:DIR", t->v->engine);
    if (t->engines.count == 0)
        return fail_none(NULL);
    t->engine = usual_engine(&t->engines);
    return CLI_OK;
}

static int fail_several(const found *engines)
{
    char dir[400];
    say("there are several engines; choose one with --engine:");
    for (int i = 0; i < engines->count; i++)
        fprintf(stderr, "  --engine unix:%s   %s\n",
                text_plain(dir, sizeof dir, engines->at[i].dir), engines->at[i].what);
    return CLI_USAGE;
}

static const char *dir_of(const top *t)
{
    return t->engines.at[t->engine].dir;
}

/* ---- once ------------------------------------------------------------------------------------ */

static int ask(const top *t, json_t **out)
{
    control_question q;
    int rc = control_begin(dir_of(t), url, &q);
    if (rc < 0)
        return fail_none(dir_of(t));
    while ((rc = control_take(&q, out)) == 1) {
        struct pollfd wait = {.fd = q.fd, .events = POLLIN};
        if (poll(&wait, 1, (int)(patience_ns / 1000000)) == 0 || interrupt_signal() != 0) {
            control_drop(&q);
            rc = -ETIMEDOUT;
            break;
        }
    }
    if (rc == -ENOENT)
        return fail("the engine at %s is of another version and cannot be looked at", dir_of(t));
    return rc < 0 ? fail("the engine at %s does not answer", dir_of(t)) : CLI_OK;
}

static void print_frame(top *t)
{
    enum { ROWS = 1000 };
    int cols, rows;
    size_t bytes = 0;
    grid c;
    terminal_size(&cols, &rows);
    const int stages = t->view.job_count > 0 ? t->view.jobs[0].stage_count : 0;
    rows = t->view.job_count + stages + 60;
    grid_init(&c, rows < ROWS ? rows : ROWS, cols < 40 ? 40 : cols, t->utf8);
    t->look.dir = dir_of(t);
    draw_sort(&t->view, &t->look);
    draw_view(&c, &t->view, &t->look);
    char *text = grid_render(&c, GRID_TEXT, &bytes);
    fwrite(text, 1, bytes, stdout);
    free(text);
    grid_fini(&c);
}

/* One line of ASCII: whatever is in it, a terminal shows it as it is. */
static void print_json(const json_t *answer)
{
    char *text = json_dumps(answer, JSON_COMPACT | JSON_ENSURE_ASCII);
    printf("%s\n", text ? text : "{}");
    free(text);
}

static int print_once(top *t)
{
    json_t *answer = NULL;
    int exit_code = ask(t, &answer);
    if (exit_code == CLI_OK && !view_read(answer, &t->view))
        exit_code = fail("what answers at %s is no engine", dir_of(t));
    if (exit_code == CLI_OK && t->v->json)
        print_json(answer);
    else if (exit_code == CLI_OK)
        print_frame(t);
    json_decref(answer);
    return exit_code;
}

/* JSON, line after line. */
static int print_many(top *t)
{
    int exit_code;
    while ((exit_code = print_once(t)) == CLI_OK && fflush(stdout) == 0) {
        if (!interrupt_sleep(clock_ns() + (int64_t)(t->v->interval * 1e9)))
            return interrupt_exit_code();
    }
    return exit_code;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Nobody answers. An engine that was found by itself may have another successor. */
static void note_gone(top *t, int rc)
{
    char since[TEXT_SHORT];
    const int64_t now = clock_ns();
    if (!t->gone_ns)
        t->gone_ns = now;
    text_duration(since, (double)(now - t->gone_ns) * 1e-9);
    if (rc == -ENOENT && t->question.fd < 0 && control_listens(dir_of(t), false))
        snprintf(t->trouble, sizeof t->trouble,
                 "this engine is of another version and cannot be looked at");
    else
        snprintf(t->trouble, sizeof t->trouble, "engine gone, waiting for it to come back (%s)",
                 since);
    t->look.trouble = t->trouble;
    t->stale = true;
    if (t->v->engine || control_listens(dir_of(t), false))
        return;
    found now_there;
    if (find_engines(NULL, &now_there) == 0 && usual_engine(&now_there) >= 0) {
        t->engines = now_there;
        t->engine = usual_engine(&now_there);
    }
}

static void schedule(top *t)
{
    t->next_ns = clock_ns() + (int64_t)(t->v->interval * 1e9);
}

static void begin_question(top *t)
{
    t->asked_ns = clock_ns();
    const int rc = control_begin(dir_of(t), url, &t->question);
    if (rc < 0) {
        note_gone(t, rc);
        schedule(t);
    }
}

static void take_answer(top *t)
{
    json_t *answer = NULL;
    int rc = control_take(&t->question, &answer);
    if (rc == 1)
        return;
    if (rc == 0 && !view_read(answer, &t->view))
        rc = -EPROTO;
    json_decref(answer);
    schedule(t);
    if (rc < 0) {
        note_gone(t, rc);
        return;
    }
    t->gone_ns = 0;
    t->look.trouble = NULL;
    t->stale = true;
}

static void give_up_question(top *t)
{
    if (t->question.fd < 0 || clock_ns() - t->asked_ns < patience_ns)
        return;
    control_drop(&t->question);
    note_gone(t, -ETIMEDOUT);
    schedule(t);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void move(top *t, int by)
{
    const int count = t->view.job_count;
    int at = draw_chosen(&t->view, &t->look) + by;
    at = at < 0 ? 0 : at >= count ? count - 1 : at;
    if (count > 0)
        t->look.chosen = t->view.jobs[at].id;
}

static void look_for_engines(top *t)
{
    found now_there;
    if (find_engines(NULL, &now_there) == 0 && now_there.count > 0) {
        char dir[FOUND_DIR];
        snprintf(dir, sizeof dir, "%s", t->engine >= 0 ? dir_of(t) : "");
        t->engines = now_there;
        t->engine = -1;
        for (int i = 0; i < now_there.count; i++)
            if (strcmp(now_there.at[i].dir, dir) == 0)
                t->engine = i;
    }
    t->pick = t->engine >= 0 ? t->engine : 0;
    t->page = PAGE_ENGINES;
}

static void key_of_engines(top *t, int key)
{
    const int last = t->engines.count - 1;
    if (key == 'j' || key == KEY_DOWN)
        t->pick = t->pick < last ? t->pick + 1 : last;
    else if (key == 'k' || key == KEY_UP)
        t->pick = t->pick > 0 ? t->pick - 1 : 0;
    else if (key == '\r' || key == '\n' || (t->engine >= 0 && (key == 27 || key == 'e'))) {
        if (key == '\r' || key == '\n')
            t->engine = t->pick;
        control_drop(&t->question);
        view_fini(&t->view);
        t->look.trouble = NULL;
        t->gone_ns = t->next_ns = 0;
        t->page = PAGE_VIEW;
    }
}

static void key_of_view(top *t, int key)
{
    if (key == 'j' || key == KEY_DOWN)
        move(t, 1);
    else if (key == 'k' || key == KEY_UP)
        move(t, -1);
    else if (key == KEY_PAGE_DOWN)
        move(t, 10);
    else if (key == KEY_PAGE_UP)
        move(t, -10);
    else if (key == KEY_HOME)
        move(t, -VIEW_JOBS);
    else if (key == KEY_END)
        move(t, VIEW_JOBS);
    else if (key == 's')
        t->look.sort = (t->look.sort + 1) % SORTS;
    else if (key == 'r')
        t->look.reversed = !t->look.reversed;
    else if (key == 'p')
        t->look.paused = !t->look.paused;
    else if (key == 'h' || key == '?')
        t->page = PAGE_HELP;
    else if (key == 'e')
        look_for_engines(t);
}

static void take_keys(top *t)
{
    for (int key; t->ended < 0 && (key = terminal_key()) != 0;) {
        t->stale = true;
        if (key == 'q' || key == KEY_GONE)
            t->ended = CLI_OK;
        else if (t->page == PAGE_HELP)
            t->page = PAGE_VIEW;
        else if (t->page == PAGE_ENGINES)
            key_of_engines(t, key);
        else
            key_of_view(t, key);
    }
}

static void take_signals(top *t)
{
    for (int number; (number = terminal_signal()) != 0;) {
        t->stale = true;
        if (number == SIGINT)
            t->ended = CLI_OK;
        else if (number != SIGWINCH)
            t->ended = CLI_SIGNAL + number;
    }
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void draw(top *t)
{
    int cols, rows;
    size_t bytes = 0;
    grid c;
    terminal_size(&cols, &rows);
    grid_init(&c, rows, cols, t->utf8);
    if (t->engine >= 0)
        t->look.dir = dir_of(t);
    draw_sort(&t->view, &t->look);
    if (t->page == PAGE_HELP)
        draw_help(&c);
    else if (t->page == PAGE_ENGINES)
        draw_engines(&c, &t->engines, t->pick);
    else
        draw_view(&c, &t->view, &t->look);
    char *text = grid_render(&c, t->colours ? GRID_COLOUR : GRID_MONO, &bytes);
    terminal_write(text, bytes);
    free(text);
    grid_fini(&c);
    t->stale = false;
}

/* Until something is due, a second at most. */
static int wait_ms(const top *t)
{
    const int64_t now = clock_ns();
    int64_t until = now + second_ns;
    if (t->question.fd < 0 && t->next_ns < until && !t->look.paused)
        until = t->next_ns;
    return until > now ? (int)((until - now + 999999) / 1000000) : 0;
}

static void turn(top *t)
{
    if (t->engine >= 0 && t->page != PAGE_ENGINES && !t->look.paused && t->question.fd < 0 &&
        clock_ns() >= t->next_ns)
        begin_question(t);
    if (t->stale)
        draw(t);
    struct pollfd wait[] = {{.fd = terminal_signal_fd(), .events = POLLIN},
                            {.fd = terminal_key_fd(), .events = POLLIN},
                            {.fd = t->question.fd, .events = POLLIN}};
    if (poll(wait, 3, wait_ms(t)) < 0 && errno != EINTR) {
        t->ended = fail("cannot wait: %s", strerror(errno));
        return;
    }
    take_signals(t);
    if (wait[1].revents)
        take_keys(t);
    if (wait[2].revents && t->question.fd >= 0)
        take_answer(t);
    give_up_question(t);
}

static int run_live(top *t)
{
    if (!terminal_can_draw())
        return fail_usage("standard output is no terminal that can be drawn on; --once prints the "
                          "picture once, --json the numbers");
    t->colours = terminal_has_colours();
    t->look.keys = true;
    t->page = t->engine < 0 ? PAGE_ENGINES : PAGE_VIEW;
    t->stale = true;
    t->ended = -1;
    terminal_enter();
    while (t->ended < 0)
        turn(t);
    terminal_leave();
    return t->ended;
}

static int run_top(const void *values)
{
    top *t = cli_alloc(sizeof *t);
    t->v = values;
    t->question.fd = -1;
    t->utf8 = terminal_is_utf8();
    int exit_code = find(t);
    const bool prints = t->v->once || t->v->json;
    if (exit_code == CLI_OK && prints && t->engine < 0)
        exit_code = fail_several(&t->engines);
    else if (exit_code == CLI_OK && t->v->engine && !control_listens(dir_of(t), false))
        exit_code = fail_none(t->v->engine);
    else if (exit_code == CLI_OK)
        exit_code = !prints ? run_live(t) : t->v->once ? print_once(t) : print_many(t);
    control_drop(&t->question);
    view_fini(&t->view);
    free(t);
    return exit_code;
}

#define AT(field) offsetof(top_values, field)
static const arg_option options[] = {
    OPT_TEXT("engine", "ADDRESS", AT(engine), NULL,
             "unix:DIR (default: $PENSTOCK_ENGINE, this user's daemon, or a process that shows its "
             "engine)"),
    OPT_REAL("interval", "S", AT(interval), 0.1, 3600, "1", "seconds between two looks"),
    OPT_FLAG("once", AT(once), "print the picture once, as plain text"),
    OPT_FLAG("json", AT(json), "the numbers as JSON, one object a line; with --once one only"),
    OPT_END,
};
#undef AT

const command command_top = {
    .name = "top",
    .summary = "watch an engine: its jobs, and where their time goes",
    .about = "For a penstock serve, and for processes that show their engine (watch=\"auto\" in "
             "Python, PENSTOCK_WATCH=auto). Keys: j and k select a job, s sorts by another column, "
             "r the other way round, p pauses, e lists engines, ? helps, q ends. Colours are left "
             "out where NO_COLOR is set.",
    .examples = "penstock top\npenstock top --once\npenstock top --json --once",
    .operands = (const arg_operand[]){{NULL, 0, false, NULL}},
    .options = options,
    .values_bytes = sizeof(top_values),
    .run = run_top,
};
