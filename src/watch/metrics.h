/* SPDX-License-Identifier: Apache-2.0
 * A view as OpenMetrics text. No label has a sample's key, a path or a user's name in it. */
#ifndef PSTI_WATCH_METRICS_H
#define PSTI_WATCH_METRICS_H

#include "watch/text.h"
#include "watch/view.h"

#define PSTI_METRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

void psti_metrics(const psti_view *view, psti_writ *out);

#endif
