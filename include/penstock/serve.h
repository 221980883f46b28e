/* SPDX-License-Identifier: Apache-2.0
 * Serving: one engine for the processes of a machine. Part of penstock.h, which includes it. */
#ifndef PENSTOCK_SERVE_H
#define PENSTOCK_SERVE_H

#ifndef PENSTOCK_H
#error "include penstock.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* One engine for the processes of a machine: they make engines with the address unix:DIR. A client
 * passes the directory of its dataset as an open descriptor; no path of a client is ever opened. */
typedef struct pst_server pst_server;
typedef struct pst_server_options {
    size_t size;                /* sizeof(pst_server_options) */
    const char *dir;            /* where the sockets are (NULL = this user's default) */
    pst_engine_options engine;  /* of the engine behind it; address is ignored */
    const uint32_t *allow_uids; /* other users who may come in; each is given the files that he may
                                   read himself; copied (NULL = none) */
    int allow_count;
    int allow_any;   /* 1 = everybody may come in, and only the daemon's own user and root to the
                        control socket (0..1; 0) */
    int idle_exit_s; /* ends by itself when nobody was connected for so long (0 = never) */
    uint64_t client_cap; /* bytes beyond its ring that one client may hold (0 = a sixteenth of the
                            budget, at most 256 MiB) */
    int lifeline; /* a descriptor, of a pipe or socket: pst_server_run returns when whoever has the
                     other end closes it or is gone; stays the caller's (-1 = none) */
    const char *datasets; /* what lies in buckets and may be asked for, as
                             "NAME=s3://BUCKET/PREFIX,NAME=…": read with this process's credentials
                             for every user who may come in; copied (NULL = none) */
    const char *depot; /* where pulled datasets are kept. Whoever passes on the open folder of one
                          of them, DIR/NAME, may read all of it, whoever he is; copied (NULL = the
                          default of penstock/datasets.h, and no such right) */
    const char *http; /* also to be looked at over TCP: "PORT" (of 127.0.0.1), "ADDRESS:PORT" or
                         "[ADDRESS]:PORT"; port 0 = a free one (NULL = not at all) */
    const char *http_token; /* a file that only its owner can read, whose first line, of 16 bytes or
                               more, whoever looks must have; needed where the address is not of
                               this machine alone (NULL = none) */
    const char *http_hosts; /* names that browsers may know the address by, "NAME,NAME" (NULL = its
                               digits and localhost) */
} pst_server_options;

PST_API void pst_server_options_init(pst_server_options *opts);
/* Takes the directory, starts the engine and listens. -EADDRINUSE when another daemon has the
 * directory. */
PST_API int pst_server_open(const pst_server_options *opts, pst_server **out, pst_error *err);
/* Serves until pst_server_stop, or until it was idle for long enough. 0 or negative. */
PST_API int pst_server_run(pst_server *server, pst_error *err);
/* Makes pst_server_run return. Does not block; safe in a signal handler. */
PST_API void pst_server_stop(pst_server *server);
/* Ends all connections, the engine and the sockets; not while it runs. NULL is fine. */
PST_API void pst_server_close(pst_server *server);
/* The directory that is served. */
PST_API const char *pst_server_dir(const pst_server *server);
/* The port that is looked at over TCP; 0 = there is none. */
PST_API int pst_server_http_port(const pst_server *server);
/* The directory of an address as in pst_engine_options, or the default (NULL). 0 or -EINVAL. */
PST_API int pst_server_find(const char *address, char *dir, size_t cap);

#ifdef __cplusplus
}
#endif
#endif
