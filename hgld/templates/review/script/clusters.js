// Going from list to list: clusters, the queue, and others. Each is an entry in the browser's history, so that Back returns
// to the one before.

import { $, $$ } from "./dom.js";
import { currentRow, guardDecision, isUndecided, nextUndecided, rows, setCurrent, undecidedBelow } from "./rows.js";
import { on, state } from "./state.js";
import { apply, request, show, Unreachable } from "./updates.js";

const clusters = () => $$("#clusters a[data-cluster]");
let target = null;  // the view that was asked for and is not yet shown

/** Show the list of a view with the cursor at a label, by default its first undecided one. */
export async function showView(view, label = "") {
  target = view;
  let reply;
  try {
    reply = await request(`/changes?${view}&${new URLSearchParams({ label, since: -1 })}`);
  } catch (error) {
    target = null;
    if (error instanceof Unreachable) return;
    throw error;
  }
  if (target !== view) return;  // another list was asked for in the meantime
  if (reply.answer?.last < state.last) return showView(view, label);  // something was saved in the meantime
  target = null;
  if (reply.ok && reply.answer) show(() => {
    apply(reply.answer, { go: true });
    if (!label) $("#labels").scrollTop = 0;
    setCurrent(currentRow());
    if (!currentRow()) $("#labels").focus();
  });
}

/** Show the list that a form of filters describes. */
export function showForm(form) {
  const fields = [...new FormData(form)].filter(([, value]) => value !== "");
  form.closest("details")?.removeAttribute("open");
  form.closest(":popover-open")?.hidePopover();
  return showView(new URLSearchParams(fields).toString());
}

/** Go to what was undone or redone, also in another list; a label that is decided there is guarded. */
export function goToChange(update) {
  const before = state.label;
  if (update.view !== state.view && !("list" in update.parts)) showView(update.view, update.label);
  else apply(update, { go: true });
  if (state.label !== before) guardDecision();
}

/** Show the cluster that is some places further in the list of clusters. */
export function stepCluster(steps) {
  const all = clusters(), here = target ?? state.view;
  const link = all[all.findIndex(other => other.dataset.view === here) + steps];
  if (link) showView(link.dataset.view);
}

/** Return whether a link is that of the list that is shown, or that was asked for. */
const isShown = link => (target === null ? link.hasAttribute("aria-current") : link.dataset.view === target);

/** Show the queue, or, if it is shown, the cluster of the label. */
export function toggleQueue() {
  const queue = $("#clusters a[data-queue]");
  if (isShown(queue)) goToCluster();
  else showView(queue.dataset.view);
}

/** Show the next of the lists that go across clusters. */
export function nextList() {
  const all = $$("#clusters .views a");
  showView(all[(all.findIndex(isShown) + 1) % all.length].dataset.view);
}

/** Show the current label in its cluster. */
export function goToCluster() {
  const link = $("a.cluster", currentRow()) ?? clusters()[0];
  if (!state.view.startsWith("cluster=")) showView(link.dataset.view, state.label);
}

/**
 * Go to the next undecided label below the cursor, else in the next cluster or part of the list that has one, else above the
 * cursor; return what to say about it.
 */
export function goToNextUndecided() {
  const below = undecidedBelow(currentRow());
  if (below) {
    setCurrent(below);
    return "";
  }
  const more = $("#list .part .after");
  if (more) {
    showView(more.dataset.view, more.dataset.label);
    return "";
  }
  const inCluster = state.view.startsWith("cluster=");
  const link = inCluster ? nextCluster() : null;
  if (link) {
    const left = leftCluster();
    showView(link.dataset.view);
    return `${left}${left ? "this" : "This"} is cluster ${link.dataset.cluster}.`;
  }
  const row = nextUndecided(currentRow());
  if (!row) return `${inCluster ? "All labels" : "All labels of this list"} are decided.${stillOpen()}`;
  if (row === currentRow()) return `This is the only undecided label${inCluster ? "" : " of this list"}.`;
  setCurrent(row);
  return "";
}

/** Return the link to the next cluster with an undecided label, beginning again at the first; undefined if no other has one. */
function nextCluster() {
  const all = clusters(), here = all.findIndex(link => link.dataset.view === state.view);
  return [...all.slice(here + 1), ...all.slice(0, Math.max(0, here))].find(other => other.dataset.undecided !== "0");
}

/** Return the beginning of a sentence on a cluster that has no undecided label any more; empty if it has one. */
function leftCluster() {
  const here = clusters().find(link => link.dataset.view === state.view);
  if (!here || rows().some(isUndecided)) return "";
  const { cluster, unsure } = here.dataset;
  if (unsure === "0") return `Cluster ${cluster} is complete; `;
  return `Cluster ${cluster} is decided, but ${unsure} ${unsure === "1" ? "label is" : "labels are"} unsure; `;
}

/** Return what an adjudication leaves open although all labels are decided, as a sentence. */
function stillOpen() {
  const open = $("#status .open")?.textContent;
  return open ? ` Open: ${open}.` : "";
}

// The browser's history.

const SETTLED_MS = 500;  // browsers refuse an address that changes with every key
const visits = new Map();  // where the annotator was at last, by the number of the entry
let visit = history.state?.visit ?? Date.now();
let returning = false;
let timer;

/** The address of the page: a list is made again when it is loaded. */
function address() {
  const fields = new URLSearchParams(state.view);
  fields.delete("as_of");
  fields.set("label", state.label);
  return `/?${fields}`;
}
const saveVisit = () => visits.set(visit, { view: state.view, label: state.label });
function saveAddress() {
  clearTimeout(timer);
  history.replaceState({ visit }, "", address());
}

on("move", () => {
  saveVisit();
  clearTimeout(timer);
  timer = setTimeout(saveAddress, SETTLED_MS);
});
on("view", () => {
  if (!returning) {
    visit = Date.now();
    history.pushState({ visit }, "", address());
  }
  clearTimeout(timer);
  returning = false;
  saveVisit();
});
addEventListener("popstate", async event => {
  clearTimeout(timer);
  const fields = new URLSearchParams(location.search), addressed = fields.get("label") ?? "";
  fields.delete("label");
  visit = event.state?.visit ?? visit;
  const { view, label } = visits.get(visit) ?? { view: fields.toString(), label: addressed };
  if (view === state.view) return setCurrent(currentRow());
  returning = true;
  await showView(view, label);
  returning = false;
});
addEventListener("pagehide", saveAddress);
saveAddress();
saveVisit();
