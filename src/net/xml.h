/* SPDX-License-Identifier: Apache-2.0
 * The calls of expat that are used here, by a table: linked, or in a wheel looked up when first
 * needed. */
#ifndef PSTI_NET_XML_H
#define PSTI_NET_XML_H

#include <expat.h>

#define XML_CALLS(X)                                                                               \
    X(ParserCreate)                                                                                \
    X(ParserFree)                                                                                  \
    X(StopParser)                                                                                  \
    X(Parse)                                                                                       \
    X(SetUserData)                                                                                 \
    X(SetElementHandler)                                                                           \
    X(SetCharacterDataHandler)                                                                     \
    X(SetStartDoctypeDeclHandler)                                                                  \
    X(GetErrorCode)                                                                                \
    X(GetCurrentLineNumber)                                                                        \
    X(ErrorString)

#define XML_FIELD(name) __typeof__(&XML_##name) name;
typedef struct xml_calls {
    XML_CALLS(XML_FIELD)
} xml_calls;
#undef XML_FIELD

/* NULL where the library is not there. Any thread. */
const xml_calls *xml_calls_get(void);

#endif
