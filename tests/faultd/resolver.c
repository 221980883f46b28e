/* SPDX-License-Identifier: Apache-2.0
 * Preloaded into a program under test: names below `.test` are resolved as FAULT_RESOLVER says, all
 * others by the system. Nothing leaves the machine.
 *
 *   fail:N     the first N lookups find no name server, the others 127.0.0.1
 *   slow:S     each lookup takes S seconds
 *   stale:N    the first N lookups give 127.0.0.9, where nobody listens
 *
 * Lookups are counted in the file that FAULT_RESOLVER_LOG names, a byte each. */
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);

__attribute__((visibility("default"))) lookup getaddrinfo;

static void note(void)
{
    const char *path = getenv("FAULT_RESOLVER_LOG");
    const int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return;
    if (write(fd, ".", 1) < 0)
        abort();
    close(fd);
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    static atomic_int asked;
    lookup *system_lookup = (lookup *)dlsym(RTLD_NEXT, "getaddrinfo");
    const char *way = getenv("FAULT_RESOLVER");
    const char *end = name ? strrchr(name, '.') : NULL;
    if (!way || !end || strcmp(end, ".test") != 0)
        return system_lookup(name, service, hints, out);
    note();
    const char *number = strchr(way, ':');
    const int n = number ? atoi(number + 1) : 0;
    const int before = atomic_fetch_add(&asked, 1);
    if (way[0] == 'f' && before < n)
        return EAI_AGAIN;
    if (strncmp(way, "slow", 4) == 0)
        poll(NULL, 0, n * 1000);
    return system_lookup(strncmp(way, "stale", 5) == 0 && before < n ? "127.0.0.9" : "127.0.0.1",
                         service, hints, out);
}
