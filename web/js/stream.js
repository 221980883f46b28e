// SPDX-License-Identifier: Apache-2.0
// The connection to the daemon. EventSource comes back by itself after a cut, but not after an answer that is no
// stream (503 while the daemon is full or starting, 401 without a token), so that is done here. A hidden page lets
// go: the first view after it is looked at again brings the history along.

const AGAIN = 2000;
const SILENT = 6000;

let source = null;
let again = 0;
let silence = 0;
let handlers = null;

function lost(why) {
  handlers.lost(why);
}

function heard() {
  clearTimeout(silence);
  silence = setTimeout(() => {
    lost("the daemon is silent");
    open();
  }, SILENT);
}

async function refused() {
  let status = 0;
  try {
    status = (await fetch("/v1/watch", {cache: "no-store"})).status;
  } catch {
    // nobody there: said below
  }
  if (status === 401 || status === 403) lost("the daemon wants its token: open this page once as /?token=…");
  else if (status === 200 || status === 503) lost("the daemon has as many viewers as it takes; trying again");
  else lost("reconnecting…");
}

function close() {
  clearTimeout(again);
  clearTimeout(silence);
  source?.close();
  source = null;
}

function open() {
  close();
  const mine = (source = new EventSource("/v1/stream"));
  mine.addEventListener("view", (event) => {
    if (mine !== source) return;
    heard();
    let view;
    try {
      view = JSON.parse(event.data);
    } catch {
      return lost("the daemon sent something else than a view");
    }
    handlers.view(view);
  });
  mine.addEventListener("error", () => {
    if (mine !== source) return;
    clearTimeout(silence);
    if (mine.readyState !== EventSource.CLOSED) return lost("reconnecting…");
    refused();
    again = setTimeout(open, AGAIN);
  });
  heard();
}

// view(object) for each view, lost(why) when there is no connection.
export function follow(those) {
  handlers = those;
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  if (!document.hidden) open();
}
