/* SPDX-License-Identifier: Apache-2.0
 * Raw mode, the alternate screen and signals. Plain ANSI sequences, which everything understands
 * that calls itself a terminal today. Main thread; the handlers only write to a pipe, but those of
 * crashes, which put the terminal back by themselves. */
#include "terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "cli.h"

static const int told[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP, SIGCONT};
static const int deadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGQUIT};
enum { TOLD = sizeof told / sizeof *told, DEADLY = sizeof deadly / sizeof *deadly };

/* The page that was there, its cursor, colours. */
static const char enter_text[] = "\033[?1049h\033[?25l\033[?7l\033[H\033[2J";
static const char leave_text[] = "\033[0m\033[?7h\033[?25h\033[?1049l";

static struct termios before;       /* as it was; valid if raw */
static volatile sig_atomic_t taken; /* the screen is ours */
static volatile sig_atomic_t raw;   /* and the keys */
static int wake_pipe[2] = {-1, -1};
static bool keys_gone;

/* ---- what there is --------------------------------------------------------------------------- */

bool terminal_can_draw(void)
{
    const char *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

bool terminal_has_colours(void)
{
    static const char *const without[] = {"vt1", "vt2", "vt3", "vt4", "vt5", "xterm-mono"};
    const char *term = getenv("TERM"), *no = getenv("NO_COLOR");
    if (!term || (no && *no))
        return false;
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (strncmp(term, without[i], strlen(without[i])) == 0)
            return false;
    const size_t length = strlen(term);
    return length < 2 || strcmp(term + length - 2, "-m") != 0;
}

bool terminal_is_utf8(void)
{
    return setlocale(LC_CTYPE, "") && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

void terminal_size(int *cols, int *rows)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    int64_t wanted = 0;
    *cols = known ? size.ws_col : 80;
    *rows = known && size.ws_row > 0 ? size.ws_row : 24;
    if (!known && columns && text_to_i64(columns, &wanted) && wanted >= 20 && wanted <= 1000)
        *cols = (int)wanted;
}

/* ---- taking and giving back ------------------------------------------------------------------ */

/* Only what is safe in a handler. */
static void put_back(void)
{
    if (taken && write(STDOUT_FILENO, leave_text, sizeof leave_text - 1) < 0) {
        /* The terminal is gone, and nobody sees what it looks like. */
    }
    taken = 0;
    if (raw)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
    raw = 0;
}

static void on_told(int number)
{
    const int saved = errno;
    const char byte = (char)number;
    if (write(wake_pipe[1], &byte, 1) < 0) {
        /* Full: there is enough to do. */
    }
    errno = saved;
}

static void on_crash(int number)
{
    put_back();
    signal(number, SIG_DFL);
    raise(number);
}

static void handle(int number, void (*handler)(int))
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler; /* without SA_RESTART: a write that hangs must end */
    sigemptyset(&action.sa_mask);
    struct sigaction old;
    if (sigaction(number, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(number, &action, NULL);
}

static void take(void)
{
    if (isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &before) == 0) {
        struct termios mode = before;
        mode.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        mode.c_iflag &= ~(tcflag_t)(IXON | ICRNL);
        mode.c_cc[VMIN] = 0;
        mode.c_cc[VTIME] = 0;
        raw = 1;
        tcsetattr(STDIN_FILENO, TCSADRAIN, &mode);
    }
    taken = 1;
    terminal_write(enter_text, sizeof enter_text - 1);
}

void terminal_enter(void)
{
    if (pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
        wake_pipe[0] = wake_pipe[1] = -1;
    atexit(put_back);
    for (int i = 0; i < TOLD; i++)
        handle(told[i], on_told);
    for (int i = 0; i < DEADLY; i++)
        handle(deadly[i], on_crash);
    take();
}

void terminal_leave(void)
{
    put_back();
}

void terminal_write(const char *bytes, size_t count)
{
    while (count > 0) {
        const ssize_t n = write(STDOUT_FILENO, bytes, count);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd wait = {.fd = STDOUT_FILENO, .events = POLLOUT};
            poll(&wait, 1, 100);
            continue;
        }
        if (n < 0)
            return; /* a signal came, or nobody is there: the next frame is whole again */
        bytes += n;
        count -= (size_t)n;
    }
}

/* ---- signals --------------------------------------------------------------------------------- */

int terminal_signal_fd(void)
{
    return wake_pipe[0];
}

/* As the shell expects it: the screen as it was, and stopped. What goes on takes it again. */
static void stop(void)
{
    put_back();
    signal(SIGTSTP, SIG_DFL);
    raise(SIGTSTP);
    handle(SIGTSTP, on_told);
}

int terminal_signal(void)
{
    char byte;
    if (read(wake_pipe[0], &byte, 1) != 1)
        return 0;
    if (byte == SIGTSTP)
        stop();
    if (byte != SIGTSTP && byte != SIGCONT)
        return byte;
    /* Who stopped it by SIGSTOP did so in the middle of our page; a shell may have changed modes.
     */
    if (taken)
        put_back();
    take();
    return SIGWINCH;
}

/* ---- keys ------------------------------------------------------------------------------------ */

int terminal_key_fd(void)
{
    return raw && !keys_gone ? STDIN_FILENO : -1;
}

static int next_byte(int wait_ms)
{
    unsigned char byte;
    struct pollfd ready = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&ready, 1, wait_ms) <= 0)
        return 0;
    const ssize_t n = read(STDIN_FILENO, &byte, 1);
    return n == 1 ? byte : n < 0 && (errno == EINTR || errno == EAGAIN) ? 0 : -1;
}

/* Behind ESC [ or ESC O. */
static int sequence(void)
{
    int number = 0, byte = next_byte(50);
    while (byte >= '0' && byte <= ';') {
        number = byte <= '9' ? (10 * number + byte - '0') % 1000 : 0;
        byte = next_byte(50);
    }
    switch (byte) {
    case 'A':
        return KEY_UP;
    case 'B':
        return KEY_DOWN;
    case 'H':
        return KEY_HOME;
    case 'F':
        return KEY_END;
    case '~':
        return number == 5   ? KEY_PAGE_UP
               : number == 6 ? KEY_PAGE_DOWN
               : number == 1 ? KEY_HOME
               : number == 4 ? KEY_END
                             : ' ';
    default:
        return ' ';
    }
}

int terminal_key(void)
{
    if (terminal_key_fd() < 0)
        return 0;
    const int byte = next_byte(0);
    if (byte < 0) {
        keys_gone = true;
        return KEY_GONE;
    }
    if (byte != 27)
        return byte;
    const int after = next_byte(50); /* the escape key alone has nothing behind it */
    return after == '[' || after == 'O' ? sequence() : 27;
}
