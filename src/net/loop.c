/* SPDX-License-Identifier: Apache-2.0
 * The net thread: one per process, started by the first get. It waits in epoll for sockets, for its
 * eventfd (something was submitted, cancelled, renewed) and for what is due; curl tells it by
 * callbacks which sockets and timers it wants. A socket stays in epoll while its connection rests,
 * which saves two system calls a get.
 *
 * net.lock guards the queue that other threads put gets into; everything else is the thread's own.
 * It is guarded against fork: the child has no thread, an empty queue, and starts over at its first
 * get; its copies of the parent's sockets are closed without a word on them. */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/futex.h"
#include "core/hash.h"
#include "core/memory.h"
#include "core/status.h"
#include "net/net_priv.h"

enum { WATCH_NS = 100000000 };
enum { DEPTH_DEFAULT = 64, DEPTH_MAX = 1024, EVENTS = 64, PATIENCE_S = 120 };
/* As many requests are in flight as so many a second need, by the time to the first byte: the least
 * of the last ones', which does not grow by requests that stand in each other's way. */
enum { DEPTH_FAR = 512, RATE_AIM = 25600, ANSWERS = 64 };

net_counts net_count;
net_kind net_kinds[2];

typedef struct get_list {
    psti_get *first, *last;
} get_list;

static struct net {
    pthread_mutex_t lock;
    get_list incoming; /* guarded by it, as what follows */
    bool started, stop;
    pthread_t thread;
    psti_fork_guard forks;
    /* Set by those who submit or cancel, read by the thread. */
    atomic_bool asleep, look_cancelled, look_signing;
    atomic_int depth, begun; /* depth: 0 = by the time that answers take */
    int wake_fd, epoll_fd;
    /* The thread's own. */
    CURLM *multi;
    get_list waiting, running;
    psti_transfer *pool, *dropped;
    uint64_t now_ns, curl_due_ns, due_ns, random;
    uint8_t *interest; /* by file descriptor: what epoll was told, and IN_USE */
    int interest_cap;
    bool in_curl;                   /* handles must not be taken away now */
    uint64_t answer_ns, nearest_ns; /* time to the first byte; the least of those counted now */
    int answers;
} net = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake_fd = -1, .epoll_fd = -1};

enum { IN_USE = 1, WANTS_IN = 2, WANTS_OUT = 4, IDLE = 8 };

static _Thread_local bool is_net_thread;
static _Thread_local psti_net_watch watch; /* of a thread that waits */

bool loop_is_mine(void)
{
    return is_net_thread;
}

uint64_t loop_now(void)
{
    return net.now_ns;
}

uint64_t loop_random(void)
{
    net.random += 0x9e3779b97f4a7c15u;
    return psti_mix64(net.random);
}

void loop_due(uint64_t at_ns)
{
    if (at_ns < net.due_ns)
        net.due_ns = at_ns;
}

uint64_t net_patience_ns(void)
{
    static atomic_ullong patience;
    uint64_t ns = atomic_load_explicit(&patience, memory_order_relaxed);
    if (!ns) {
        const char *text = getenv("PENSTOCK_NET_TIMEOUT");
        const double seconds = text && *text ? strtod(text, NULL) : PATIENCE_S;
        ns = (uint64_t)((seconds >= 0.1 && seconds <= 86400 ? seconds : PATIENCE_S) * 1e9);
        atomic_store_explicit(&patience, ns, memory_order_relaxed);
    }
    return ns;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void list_add(get_list *list, psti_get *get)
{
    get->request.next = NULL;
    get->request.prev = list->last;
    if (list->last)
        list->last->request.next = get;
    else
        list->first = get;
    list->last = get;
}

static void list_remove(get_list *list, psti_get *get)
{
    struct psti_request *r = &get->request;
    if (r->prev)
        r->prev->request.next = r->next;
    else
        list->first = r->next;
    if (r->next)
        r->next->request.prev = r->prev;
    else
        list->last = r->prev;
    r->next = r->prev = NULL;
}

/* ---- sockets --------------------------------------------------------------------------------- */

/* Grows with the lock held, since a forked child reads it. */
static bool interest_room(int fd)
{
    if (fd < net.interest_cap)
        return true;
    const int cap = fd + 64;
    pthread_mutex_lock(&net.lock);
    uint8_t *larger = psti_realloc(PSTI_MEM_NET, net.interest, (size_t)cap, 1);
    if (larger) {
        memset(larger + net.interest_cap, 0, (size_t)(cap - net.interest_cap));
        net.interest = larger;
        net.interest_cap = cap;
    }
    pthread_mutex_unlock(&net.lock);
    return larger != NULL;
}

static curl_socket_t open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)user;
    (void)purpose;
    const int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd < 0)
        return CURL_SOCKET_BAD;
    if (!interest_room(fd)) {
        close(fd);
        return CURL_SOCKET_BAD;
    }
    net.interest[fd] = IN_USE;
    count_up(&net_count.connections, 1);
    return fd;
}

static int close_socket(void *user, curl_socket_t fd)
{
    (void)user;
    if (fd >= 0 && fd < net.interest_cap)
        net.interest[fd] = 0; /* epoll forgets it by itself */
    return close(fd);
}

static int want_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *of_socket)
{
    (void)easy;
    (void)user;
    (void)of_socket;
    if (fd < 0 || !interest_room(fd))
        return 0;
    uint8_t *had = &net.interest[fd];
    if (what == CURL_POLL_REMOVE) {
        if (*had & IN_USE)
            *had |= *had & (WANTS_IN | WANTS_OUT) ? IDLE : 0;
        else if (*had) { /* one of curl's own, whose end nobody tells us */
            epoll_ctl(net.epoll_fd, EPOLL_CTL_DEL, fd, NULL);
            *had = 0;
        }
        return 0;
    }
    const uint8_t wants =
        (uint8_t)((what & CURL_POLL_IN ? WANTS_IN : 0) | (what & CURL_POLL_OUT ? WANTS_OUT : 0));
    const uint8_t known = *had & (WANTS_IN | WANTS_OUT);
    *had = (uint8_t)((*had & IN_USE) | wants);
    if (known == wants)
        return 0;
    struct epoll_event event = {.data.fd = fd};
    event.events = (wants & WANTS_IN ? EPOLLIN : 0u) | (wants & WANTS_OUT ? EPOLLOUT : 0u);
    if (epoll_ctl(net.epoll_fd, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) < 0)
        epoll_ctl(net.epoll_fd, known ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event);
    return 0;
}

static int want_timer(CURLM *multi, long ms, void *user)
{
    (void)multi;
    (void)user;
    net.curl_due_ns = ms < 0 ? UINT64_MAX : psti_now_ns() + (uint64_t)ms * RETRY_MS;
    return 0;
}

static void act(curl_socket_t fd, int bits)
{
    int running;
    net.in_curl = true;
    curl_multi_socket_action(net.multi, fd, bits, &running);
    net.in_curl = false;
}

static void on_socket(int fd, uint32_t events)
{
    if (fd >= net.interest_cap || !net.interest[fd])
        return;
    if (net.interest[fd] & IDLE) { /* a resting connection stirs: its other end closed it */
        net.interest[fd] &= IN_USE;
        epoll_ctl(net.epoll_fd, EPOLL_CTL_DEL, fd, NULL);
        return;
    }
    act(fd, (events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? CURL_CSELECT_IN : 0) |
                (events & (EPOLLOUT | EPOLLERR) ? CURL_CSELECT_OUT : 0));
}

/* ---- transfers ------------------------------------------------------------------------------- */

psti_transfer *loop_transfer(void)
{
    psti_transfer *t = net.pool;
    if (t) {
        net.pool = t->next;
        return t;
    }
    t = transfer_new();
    if (t) {
        curl_easy_setopt(t->easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
        curl_easy_setopt(t->easy, CURLOPT_CLOSESOCKETFUNCTION, close_socket);
    }
    return t;
}

int loop_add(psti_transfer *t)
{
    t->added_ns = net.now_ns;
    return curl_multi_add_handle(net.multi, t->easy) == CURLM_OK ? 0 : -ENOMEM;
}

void loop_keep(psti_transfer *t)
{
    t->get = NULL;
    t->next = net.pool;
    net.pool = t;
}

void loop_drop(psti_transfer *t)
{
    t->get = NULL;
    if (net.in_curl) {
        t->next = net.dropped;
        net.dropped = t;
        return;
    }
    curl_multi_remove_handle(net.multi, t->easy);
    loop_keep(t);
}

static void drop_rest(void)
{
    while (net.dropped) {
        psti_transfer *t = net.dropped;
        net.dropped = t->next;
        curl_multi_remove_handle(net.multi, t->easy);
        loop_keep(t);
    }
}

static void collect_ended(void)
{
    CURLMsg *message;
    int left;
    drop_rest();
    while ((message = curl_multi_info_read(net.multi, &left))) {
        psti_transfer *t = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        const CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        if (t && t->get)
            request_end_transfer(t, code, net.now_ns);
    }
}

/* ---- gets ------------------------------------------------------------------------------------ */

typedef struct waiter {
    atomic_uint word;
    int status;
} waiter;

static void tell(psti_get *get, int status)
{
    waiter *w = get->request.waiter;
    get->request.state = REQUEST_IDLE;
    if (!w) {
        get->done(get, status);
        return;
    }
    w->status = status;
    atomic_store_explicit(&w->word, 1, memory_order_release);
    psti_futex_wake_all(&w->word);
}

void loop_place(psti_get *get, bool takes)
{
    if (get->request.placed == takes)
        return;
    get->request.placed = takes;
    atomic_fetch_add_explicit(&net.begun, takes ? 1 : -1, memory_order_relaxed);
}

void loop_forget(psti_get *get, int status)
{
    list_remove(&net.running, get);
    loop_place(get, false);
    tell(get, status);
}

void loop_release(psti_bucket *bucket, uint64_t now_ns)
{
    for (psti_get *g = net.running.first; g; g = g->request.next) {
        struct psti_request *r = &g->request;
        const uint64_t soon =
            now_ns + (uint64_t)(((unsigned __int128)RETRY_S * loop_random()) >> 64);
        if (g->bucket == bucket && r->state == REQUEST_PAUSED && r->due_ns > soon) {
            r->due_ns = soon;
            loop_due(soon);
        }
    }
}

static void take_incoming(void)
{
    pthread_mutex_lock(&net.lock);
    get_list list = net.incoming;
    net.incoming = (get_list){0};
    pthread_mutex_unlock(&net.lock);
    if (!list.first)
        return;
    list.first->request.prev = net.waiting.last;
    if (net.waiting.last)
        net.waiting.last->request.next = list.first;
    else
        net.waiting.first = list.first;
    net.waiting.last = list.last;
}

void loop_answered(uint64_t after_ns)
{
    if (!net.answers || after_ns < net.nearest_ns)
        net.nearest_ns = after_ns;
    if (++net.answers < ANSWERS)
        return;
    net.answer_ns = net.nearest_ns;
    net.answers = 0;
}

static int depth_now(void)
{
    const int given = atomic_load_explicit(&net.depth, memory_order_relaxed);
    const uint64_t needed = net.answer_ns * RATE_AIM / 1000000000;
    if (given)
        return given;
    return needed < DEPTH_DEFAULT ? DEPTH_DEFAULT : needed > DEPTH_FAR ? DEPTH_FAR : (int)needed;
}

static void begin_waiting(void)
{
    const int depth = depth_now();
    while (net.waiting.first && atomic_load_explicit(&net.begun, memory_order_relaxed) < depth) {
        psti_get *get = net.waiting.first;
        list_remove(&net.waiting, get);
        list_add(&net.running, get);
        loop_place(get, true);
        request_begin(get, net.now_ns);
    }
}

static bool is_cancelled(const psti_get *get)
{
    return atomic_load_explicit(&get->request.cancelled, memory_order_relaxed);
}

static void end_cancelled(void)
{
    psti_get *next;
    for (psti_get *g = net.waiting.first; g; g = next) {
        next = g->request.next;
        if (!is_cancelled(g))
            continue;
        list_remove(&net.waiting, g);
        g->took_ns = net.now_ns - g->request.submitted_ns;
        tell(g, -ECANCELED);
    }
    for (psti_get *g = net.running.first; g; g = next) {
        next = g->request.next;
        if (is_cancelled(g))
            request_due(g, net.now_ns);
    }
}

/* What is due, and for whom credentials came. */
static void run_due(void)
{
    const bool signing = atomic_exchange(&net.look_signing, false);
    if (net.now_ns < net.due_ns && !signing)
        return;
    net.due_ns = UINT64_MAX;
    psti_get *next;
    for (psti_get *g = net.running.first; g; g = next) {
        next = g->request.next;
        if (g->request.due_ns <= net.now_ns || (signing && g->request.state == REQUEST_SIGNING))
            request_due(g, net.now_ns);
        else
            loop_due(g->request.due_ns);
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

static int wait_ms(void)
{
    const uint64_t due = net.due_ns < net.curl_due_ns ? net.due_ns : net.curl_due_ns;
    if (due == UINT64_MAX)
        return -1;
    const uint64_t now = psti_now_ns();
    const uint64_t ms = due <= now ? 0 : (due - now + RETRY_MS - 1) / RETRY_MS;
    return ms > 60000 ? 60000 : (int)ms;
}

/* Goes to sleep unless something came in between; the store and the look pair with wake_up's. */
static int sleep_for_events(struct epoll_event *events)
{
    int ms = wait_ms();
    if (ms != 0) {
        atomic_store(&net.asleep, true);
        pthread_mutex_lock(&net.lock);
        if (net.incoming.first || net.stop)
            ms = 0;
        pthread_mutex_unlock(&net.lock);
        if (atomic_load(&net.look_cancelled) || atomic_load(&net.look_signing))
            ms = 0;
    }
    const int count = epoll_wait(net.epoll_fd, events, EVENTS, ms);
    atomic_store(&net.asleep, false);
    return count;
}

static void run_events(const struct epoll_event *events, int count)
{
    for (int i = 0; i < count; i++) {
        uint64_t drained;
        if (events[i].data.fd != net.wake_fd)
            on_socket(events[i].data.fd, events[i].events);
        else if (read(net.wake_fd, &drained, sizeof drained) < 0 && errno != EAGAIN)
            return;
    }
    if (net.curl_due_ns <= net.now_ns) {
        net.curl_due_ns = UINT64_MAX;
        act(CURL_SOCKET_TIMEOUT, 0);
    }
}

static bool must_stop(void)
{
    pthread_mutex_lock(&net.lock);
    const bool stop = net.stop;
    pthread_mutex_unlock(&net.lock);
    return stop;
}

/* The process ends; whoever waits for a get while it does must not wait for ever. */
static void end_all(void)
{
    psti_get *next;
    take_incoming();
    for (psti_get *g = net.waiting.first; g; g = next) {
        next = g->request.next;
        list_remove(&net.waiting, g);
        tell(g, PST_ECLOSED);
    }
    for (psti_get *g = net.running.first; g; g = next) {
        next = g->request.next;
        request_finish(g, PST_ECLOSED);
    }
}

/* Where workers keep every core busy it waits for the end of a time slice instead of taking a core
 * when it is woken. So more comes with each turn, and workers are not thrown out of their caches
 * some thousand times a second. Where a core is free it changes nothing. */
static void be_modest(void)
{
    const struct sched_param none = {0};
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
}

static void *net_main(void *arg)
{
    struct epoll_event events[EVENTS];
    (void)arg;
    is_net_thread = true;
    be_modest();
    while (!must_stop()) {
        net.now_ns = psti_now_ns();
        /* Asked before what came in is taken: a wish always follows its get. */
        const bool cancelled = atomic_exchange(&net.look_cancelled, false);
        take_incoming();
        if (cancelled)
            end_cancelled();
        begin_waiting();
        run_due();
        if (net.curl_due_ns <= net.now_ns) { /* what was just added begins without a detour */
            net.curl_due_ns = UINT64_MAX;
            act(CURL_SOCKET_TIMEOUT, 0);
            collect_ended();
        }
        const int count = sleep_for_events(events);
        net.now_ns = psti_now_ns();
        run_events(events, count > 0 ? count : 0);
        collect_ended();
    }
    end_all();
    return NULL;
}

/* ---- starting and forking -------------------------------------------------------------------- */

/* With the lock held, in the child: thread, connections and gets are the parent's. */
static void start_over(void *arg)
{
    (void)arg;
    if (!net.started)
        return;
    close(net.epoll_fd);
    close(net.wake_fd);
    for (int fd = 0; fd < net.interest_cap; fd++)
        if (net.interest[fd] & IN_USE) {
            close(fd);
            net.interest[fd] = 0;
        }
    net.incoming = net.waiting = net.running = (get_list){0};
    net.pool = net.dropped = NULL;
    net.multi = NULL; /* never to be touched again: it may have been at work */
    net.started = net.in_curl = false;
    atomic_store(&net.asleep, false);
    atomic_store(&net.begun, 0);
}

/* Before libcrypto is taken down, which is registered earlier. */
static void stop_at_exit(void)
{
    const uint64_t one = 1;
    pthread_mutex_lock(&net.lock);
    const bool join = net.started && !is_net_thread;
    net.stop = true;
    pthread_mutex_unlock(&net.lock);
    if (join && write(net.wake_fd, &one, sizeof one) > 0)
        pthread_join(net.thread, NULL);
}

static void register_once(void)
{
    psti_fork_guard_add(&net.forks, &net.lock, start_over, NULL);
    atexit(stop_at_exit);
}

/* Without the lock: curl's memory has one of its own. */
static CURLM *make_multi(void)
{
    CURLM *multi = curl_multi_init();
    if (!multi)
        return NULL;
    curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, want_socket);
    curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, want_timer);
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)DEPTH_MAX);
    curl_multi_setopt(multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    return multi;
}

static int make_fds_locked(void)
{
    net.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    net.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = net.wake_fd};
    if (net.epoll_fd < 0 || net.wake_fd < 0 ||
        epoll_ctl(net.epoll_fd, EPOLL_CTL_ADD, net.wake_fd, &event) < 0)
        return -errno;
    return 0;
}

static int start_locked(CURLM *multi)
{
    sigset_t all, before;
    int rc = make_fds_locked();
    if (rc == 0) {
        net.multi = multi;
        net.curl_due_ns = net.due_ns = UINT64_MAX;
        if (getrandom(&net.random, sizeof net.random, GRND_NONBLOCK) < 0)
            net.random = psti_now_ns() ^ (uint64_t)getpid() << 32;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        rc = -pthread_create(&net.thread, NULL, net_main, NULL);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    net.started = rc == 0;
    if (rc == 0) {
        pthread_setname_np(net.thread, "pst-net");
        return 0;
    }
    if (net.epoll_fd >= 0)
        close(net.epoll_fd);
    if (net.wake_fd >= 0)
        close(net.wake_fd);
    net.multi = NULL;
    net.epoll_fd = net.wake_fd = -1;
    return rc;
}

static int start(void)
{
    CURLM *multi = make_multi();
    if (!multi)
        return -ENOMEM;
    pthread_mutex_lock(&net.lock);
    const int rc = net.stop ? PST_ECLOSED : net.started ? 0 : start_locked(multi);
    const bool used = net.multi == multi;
    pthread_mutex_unlock(&net.lock);
    if (!used)
        curl_multi_cleanup(multi);
    return rc;
}

/* ---- what other threads call ----------------------------------------------------------------- */

static void wake_up(void)
{
    const uint64_t one = 1;
    if (atomic_exchange(&net.asleep, false) && write(net.wake_fd, &one, sizeof one) < 0)
        return; /* full: it is awake */
}

void loop_wake(void)
{
    atomic_store(&net.look_signing, true);
    wake_up();
}

/* False: there is no thread. */
static bool enqueue(psti_get *get)
{
    pthread_mutex_lock(&net.lock);
    const bool started = net.started && !net.stop;
    if (started)
        list_add(&net.incoming, get);
    pthread_mutex_unlock(&net.lock);
    return started;
}

static void submit(psti_get *get, uint8_t kind, const char *query, waiter *w)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct psti_request *r = &get->request;
    pthread_once(&once, register_once);
    memset(r, 0, sizeof *r);
    r->kind = kind;
    r->query = query;
    r->waiter = w;
    r->state = REQUEST_QUEUED;
    r->submitted_ns = psti_now_ns();
    r->due_ns = UINT64_MAX;
    atomic_init(&r->cancelled, false);
    get->seen_size = UINT64_MAX;
    get->seen_etag[0] = 0;
    int rc = 0;
    bool queued = enqueue(get);
    if (!queued) {
        rc = start();
        queued = rc == 0 && enqueue(get);
    }
    if (queued) {
        wake_up();
        return;
    }
    rc = rc ? rc : PST_ECLOSED;
    psti_fail(get->err, rc, "bucket", get->key, "the thread for requests cannot be started: %s",
              pst_strerror(rc));
    tell(get, rc);
}

psti_net_watch psti_net_watch_set(psti_net_watch now)
{
    const psti_net_watch before = watch;
    watch = now;
    return before;
}

/* Waits for a tenth of a second if somebody is to be asked then, else for the end. */
static void wait_for(waiter *w, bool ask)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WATCH_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    psti_futex_wait(&w->word, 0, ask ? &until : NULL);
}

int loop_ask(psti_get *get, uint8_t kind, const char *query)
{
    waiter w = {.status = 0};
    bool stopped = false;
    if (is_net_thread)
        return psti_fail(get->err, -EDEADLK, "bucket", get->key, "asked for on the net thread");
    submit(get, kind, query, &w);
    while (!atomic_load_explicit(&w.word, memory_order_acquire)) {
        wait_for(&w, watch.stop && !stopped);
        if (atomic_load_explicit(&w.word, memory_order_acquire) || stopped || !watch.stop ||
            !watch.stop(watch.user))
            continue;
        stopped = true;
        psti_net_cancel(get); /* w is ours: the get is still there even if it has just ended */
    }
    if (stopped && w.status == -ECANCELED)
        psti_fail(get->err, -ECANCELED, "bucket", get->key, "stopped by the caller");
    return w.status;
}

void psti_net_submit(psti_get *get)
{
    submit(get, REQUEST_GET, NULL, NULL);
}

int psti_net_now(psti_get *get)
{
    return loop_ask(get, REQUEST_GET, NULL);
}

void psti_net_cancel(psti_get *get)
{
    atomic_store(&get->request.cancelled, true);
    atomic_store(&net.look_cancelled, true);
    wake_up();
}

int psti_net_depth(int connections)
{
    const int most = connections > DEPTH_MAX ? DEPTH_MAX : connections;
    return most < 0 ? atomic_load(&net.depth) : atomic_exchange(&net.depth, most);
}

void psti_net_stats_get(psti_net_stats *out)
{
    *out = (psti_net_stats){
        .requests = atomic_load(&net_count.requests),
        .lists = atomic_load(&net_count.lists),
        .retries = atomic_load(&net_count.retries),
        .resumed = atomic_load(&net_count.resumed),
        .hedges = atomic_load(&net_count.hedges),
        .throttled = atomic_load(&net_count.throttled),
        .errors = atomic_load(&net_count.errors),
        .bytes = atomic_load(&net_count.bytes),
        .connections = atomic_load(&net_count.connections),
        .in_flight = (uint64_t)atomic_load(&net.begun),
    };
}

void psti_net_traffic_get(bool s3, psti_net_traffic *out)
{
    const net_kind *kind = &net_kinds[s3];
    *out = (psti_net_traffic){
        .requests = atomic_load_explicit(&kind->requests, memory_order_relaxed),
        .retries = atomic_load_explicit(&kind->retries, memory_order_relaxed),
        .errors = atomic_load_explicit(&kind->errors, memory_order_relaxed),
        .bytes = atomic_load_explicit(&kind->bytes, memory_order_relaxed),
    };
}
