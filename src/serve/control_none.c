/* SPDX-License-Identifier: Apache-2.0
 * Built without libmicrohttpd: the daemon serves jobs and shows nothing. */
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
