// Where the page is, and how its modules hear of each other.
//
// Modules import those below them: page > keys > help, groups, menus, photographs > queue > clusters, requests > updates >
// rows, parts > sheet, shortcuts, messages, storage, state, dom. What a lower module has to tell the others is an event:
//   "move" ({ load })   the cursor went to another label; `load` says whether its card should be fetched
//   "part" (id)         the element with this id got new content
//   "rows"              rows were replaced one by one
//   "shown"             an answer of the server is shown completely
//   "view"              another list is shown, at state.label
//   "connection" (why)  the server cannot be reached, or, if `why` is empty, can be reached again
//   "requests"          something was added to the requests that are not saved, or saved, refused or discarded
//   "saved elsewhere"   another window saved something
//   "saved" (request)   a request was saved; what it changed is not yet shown

import { $ } from "./dom.js";

export const state = {
  /** Name of the store of decisions. */
  store: document.body.dataset.store,
  /** Version of the table of labels that the page knows of. */
  clusters: document.body.dataset.clusters,
  /** Id of the last event that the page shows. */
  last: Number(document.body.dataset.last),
  /** What the list shows, as the query of an address: a cluster, or filters and an order. */
  view: $("#decide [name=at_view]").value,
  /** Id of the current label. */
  label: $("#decide [name=at_label]").value,
  /** Id of the label whose card is shown; it follows the current label. */
  card: $("#decide [name=at_label]").value,
};

const events = new EventTarget();
export const tell = (name, detail) => events.dispatchEvent(new CustomEvent(name, { detail }));
export const on = (name, listener) => events.addEventListener(name, event => listener(event.detail));
