// Going from cluster to cluster. Each is an entry in the browser's history, so that Back returns to the one before.

import { $, $$ } from "./dom.js";
import { currentRow, guardDecision, nextUndecided, setCurrent } from "./rows.js";
import { on, state } from "./state.js";
import { apply, request, show, Unreachable } from "./updates.js";

const links = () => $$("#clusters a");
let target = null;  // the cluster that was asked for and is not yet shown

/** Show a cluster with the cursor at a label, by default its first undecided one. */
export async function showCluster(number, label = "") {
  target = String(number);
  let reply;
  try {
    reply = await request(`/changes?${new URLSearchParams({ at_cluster: number, at_label: label, since: -1 })}`);
  } catch (error) {
    target = null;
    if (error instanceof Unreachable) return;
    throw error;
  }
  if (target !== String(number)) return;  // another cluster was asked for in the meantime
  if (reply.answer?.last < state.last) return showCluster(number, label);  // something was saved in the meantime
  target = null;
  if (reply.ok && reply.answer) show(() => {
    apply(reply.answer, { go: true });
    if (!label) $("#labels").scrollTop = 0;
    setCurrent(currentRow());
  });
}

/** Go to what was undone or redone, also in another cluster; a label that is decided there is guarded. */
export function goToChange(update) {
  const before = state.label;
  if (String(update.cluster) !== state.cluster && !("list" in update.parts)) showCluster(update.cluster, update.label);
  else apply(update, { go: true });
  if (state.label !== before) guardDecision();
}

/** Show the cluster that is some places further in the list. */
export function stepCluster(steps) {
  const all = links(), here = target ?? state.cluster;
  const link = all[all.findIndex(other => other.dataset.cluster === here) + steps];
  if (link) showCluster(link.dataset.cluster);
}

/** Go to the next undecided label, in the next cluster that has one if this one has none; return what to say about it. */
export function goToNextUndecided() {
  const row = nextUndecided(currentRow());
  if (row) {
    setCurrent(row);
    return "";
  }
  const all = links(), here = all.findIndex(link => link.dataset.cluster === state.cluster) + 1;
  const link = [...all.slice(here), ...all.slice(0, here)].find(other => other.dataset.undecided !== "0");
  if (!link) return "All labels are decided.";
  if (link.dataset.cluster === state.cluster) return "";
  showCluster(link.dataset.cluster);
  return `Cluster ${state.cluster} is complete; this is cluster ${link.dataset.cluster}.`;
}

// The browser's history.

const SETTLED_MS = 500;  // browsers refuse an address that changes with every key
const visits = new Map();  // where the annotator was at last, by the number of the entry
let visit = history.state?.visit ?? Date.now();
let returning = false;
let timer;

const address = () => `/?${new URLSearchParams({ cluster: state.cluster, label: state.label })}`;
const saveVisit = () => visits.set(visit, { cluster: state.cluster, label: state.label });
function saveAddress() {
  clearTimeout(timer);
  history.replaceState({ visit }, "", address());
}

on("move", () => {
  saveVisit();
  clearTimeout(timer);
  timer = setTimeout(saveAddress, SETTLED_MS);
});
on("cluster", () => {
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
  const fields = new URLSearchParams(location.search);
  visit = event.state?.visit ?? visit;
  const { cluster, label } = visits.get(visit) ?? { cluster: fields.get("cluster"), label: fields.get("label") };
  if (cluster === state.cluster) return setCurrent(currentRow());
  returning = true;
  await showCluster(cluster, label ?? "");
  returning = false;
});
addEventListener("pagehide", saveAddress);
saveAddress();
saveVisit();
