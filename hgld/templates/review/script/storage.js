// What the browser keeps for this store of decisions, beyond a reload or a crash: nothing here is needed, but text that
// was not saved survives in it.

import { state } from "./state.js";

const PREFIX = `hgld:${state.store}:`;

/** Keep a value under a name; null removes it. */
export function keep(name, value) {
  try {
    if (value === null) localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // The browser allows no storage, or it is full.
  }
}

/** Return the value that was kept under a name, or null. */
export function kept(name) {
  try {
    return JSON.parse(localStorage.getItem(PREFIX + name));
  } catch {
    return null;
  }
}

/** Return all names that begin so. */
export function keptNames(start) {
  try {
    return Object.keys(localStorage).filter(key => key.startsWith(PREFIX + start)).map(key => key.slice(PREFIX.length));
  } catch {
    return [];
  }
}
