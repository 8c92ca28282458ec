// Where the page is, and how its modules hear of each other.
//
// Modules import those below them: page > keys > help, groups, menus, photographs > queue > clusters > updates > rows >
// sheet, shortcuts, state, dom. What a lower module has to tell the others is an event:
//   "move" ({ load })  the cursor went to another label; `load` says whether its card should be fetched
//   "part" (id)        the element with this id got new content

import { $ } from "./dom.js";

export const state = {
  /** Id of the last event that the page shows. */
  last: Number(document.body.dataset.last),
  /** Number of the cluster, as text. */
  cluster: $("#decide [name=at_cluster]").value,
  /** Id of the current label. */
  label: $("#decide [name=at_label]").value,
};

const events = new EventTarget();
export const tell = (name, detail) => events.dispatchEvent(new CustomEvent(name, { detail }));
export const on = (name, listener) => events.addEventListener(name, event => listener(event.detail));
