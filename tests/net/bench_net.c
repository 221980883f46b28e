/* SPDX-License-Identifier: Apache-2.0
 * CPU per get of this process, the server's apart: a child serves an object of 110 KB on loopback.
 *
 *   bench_net [GETS [DEPTH [BYTES]]] */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "rig.h"

static size_t object_size = OBJECT_SIZE;
static uint8_t *object;

static bool answer_object(request *r)
{
    return send_text(r,
                     "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nETag: %s\r\nServer: bench\r\n"
                     "Date: Sat, 31 Jan 2026 12:34:56 GMT\r\nContent-Type: image/jpeg\r\n"
                     "Accept-Ranges: bytes\r\nx-amz-request-id: 0123456789\r\n\r\n",
                     object_size, object_etag) &&
           send_bytes(r, object, object_size);
}

static int serve(int *pid)
{
    int ends[2], port = 0;
    if (pipe(ends) < 0)
        return -1;
    *pid = fork();
    if (*pid == 0) {
        server *s = server_open(answer_object, NULL);
        if (write(ends[1], &s->port, sizeof port) < 0)
            _exit(1);
        for (;;)
            pause();
    }
    return read(ends[0], &port, sizeof port) == sizeof port ? port : -1;
}

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static atomic_int left, failed;
static atomic_uint in_flight;
static psti_get *slots;

static void go_on(psti_get *get, int status)
{
    if (status < 0)
        atomic_fetch_add(&failed, 1);
    if (atomic_fetch_sub(&left, 1) > 0)
        psti_net_submit(get);
    else {
        atomic_fetch_sub(&in_flight, 1);
        psti_futex_wake_all(&in_flight);
    }
}

int main(int argc, char **argv)
{
    const int gets = argc > 1 ? atoi(argv[1]) : 20000, depth = argc > 2 ? atoi(argv[2]) : 32;
    object_size = argc > 3 ? (size_t)atol(argv[3]) : OBJECT_SIZE;
    object = calloc(1, object_size);
    rig_begin();
    int pid = -1;
    const int port = serve(&pid);
    psti_bucket *b = bucket_on(port);
    psti_net_depth(depth);
    slots = calloc((size_t)depth, sizeof *slots);
    for (int round = 0; round < 3; round++) {
        atomic_store(&left, gets - depth);
        atomic_store(&in_flight, (unsigned)depth);
        const uint64_t begin = psti_now_ns();
        const double cpu = cpu_s();
        for (int i = 0; i < depth; i++) {
            slots[i] = (psti_get){.bucket = b, .key = "folder/name.jpg", .etag = object_etag};
            slots[i].size = slots[i].length = object_size;
            slots[i].buf = malloc(object_size);
            slots[i].done = go_on;
            psti_net_submit(&slots[i]);
        }
        unsigned going;
        while ((going = atomic_load(&in_flight)))
            psti_futex_wait(&in_flight, going, NULL);
        printf("%d gets of %zu bytes, %d at once: %.1f us of CPU a get, %.1f us a get, %d failed\n",
               gets, object_size, depth, 1e6 * (cpu_s() - cpu) / gets,
               1e-3 * (double)(psti_now_ns() - begin) / gets, atomic_load(&failed));
        for (int i = 0; i < depth; i++)
            free(slots[i].buf);
    }
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
    return 0;
}
