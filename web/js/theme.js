// SPDX-License-Identifier: Apache-2.0
// Light, dark, or as the system says. The choice is kept where the browser allows it.

import {byId, say} from "./dom.js";

const ORDER = ["auto", "light", "dark"];
const KEY = "penstock-theme";

function stored() {
  try {
    const value = localStorage.getItem(KEY);
    return ORDER.includes(value) ? value : "auto";
  } catch {
    return "auto";
  }
}

function apply(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  say(byId("theme"), "Theme: " + theme);
}

// changed() is called whenever the colours are others.
export function theme(changed) {
  let now = stored();
  apply(now);
  byId("theme").addEventListener("click", () => {
    now = ORDER[(ORDER.indexOf(now) + 1) % ORDER.length];
    try {
      localStorage.setItem(KEY, now);
    } catch {
      // a browser that keeps nothing: the choice holds for this visit
    }
    apply(now);
    changed();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
