/* SPDX-License-Identifier: Apache-2.0
 * Built without libmicrohttpd: the daemon serves jobs and shows nothing. */
#include <errno.h>

#include "serve/server.h"

int control_open(pst_server *s, struct control **out, pst_error *err)
{
    (void)s;
    (void)err;
    *out = NULL;
    return 0;
}

void control_close(struct control *control)
{
    (void)control;
}

int control_http(pst_server *s, const pst_server_options *o, pst_error *err)
{
    (void)s;
    (void)o;
    return psti_fail(err, -ENOTSUP, "serve", NULL,
                     "this build was made without libmicrohttpd: there is no --http");
}

void control_http_close(pst_server *s)
{
    (void)s;
}

int pst_server_http_port(const pst_server *server)
{
    (void)server;
    return 0;
}
