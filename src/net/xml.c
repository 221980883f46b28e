/* SPDX-License-Identifier: Apache-2.0
 * Where expat comes from. Any thread. */
#include "net/xml.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#ifdef PSTI_EXPAT_LATE
#include <dlfcn.h>
#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static xml_calls calls;
static bool there;

static bool look_up(void *library, const char *name, void *pointer)
{
    void *found = dlsym(library, name);
    memcpy(pointer, &found, sizeof found);
    return found != NULL;
}

/* Stays loaded. */
static void look_up_all(void)
{
    void *library = dlopen("libexpat.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return;
    there = true;
#define XML_LOOK_UP(name) there = look_up(library, "XML_" #name, &calls.name) && there;
    XML_CALLS(XML_LOOK_UP)
#undef XML_LOOK_UP
}

const xml_calls *xml_calls_get(void)
{
    pthread_once(&once, look_up_all);
    return there ? &calls : NULL;
}
#else
const xml_calls *xml_calls_get(void)
{
#define XML_LINKED(name) XML_##name,
    static const xml_calls calls = {XML_CALLS(XML_LINKED)};
#undef XML_LINKED
    return &calls;
}
#endif
