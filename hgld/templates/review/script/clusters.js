// Going from cluster to cluster.

import { $, $$ } from "./dom.js";
import { hideMessage, showMessage } from "./messages.js";
import { currentRow, nextUndecided, setCurrent, setTicked, ticked } from "./rows.js";
import { state } from "./state.js";
import { apply, positionFields, request } from "./updates.js";

const links = () => $$("#clusters a");

/** Show a cluster with the cursor at its first undecided label. */
export async function showCluster(number) {
  state.cluster = number;
  hideMessage();
  setTicked(ticked(), false);
  const response = await request(`/changes?${positionFields("", -1)}`);
  if (!response?.ok) return;
  const update = await response.json();
  if (update.last < state.last) return showCluster(number);  // something was saved in the meantime
  if (update.cluster !== Number(state.cluster)) state.cluster = String(update.cluster);
  state.label = update.label;
  apply(update);
  $("#labels").scrollTop = 0;
  setCurrent(currentRow());
}

/** Show the cluster that is some places further in the list. */
export function stepCluster(steps) {
  const all = links();
  const link = all[all.findIndex(other => other.dataset.cluster === state.cluster) + steps];
  if (link) showCluster(link.dataset.cluster);
}

/** Go to the next undecided label, in the next cluster that has one if this one has none. */
export function goToNextUndecided() {
  const row = nextUndecided(currentRow());
  if (row) return setCurrent(row);
  const all = links(), here = all.findIndex(link => link.dataset.cluster === state.cluster) + 1;
  const link = [...all.slice(here), ...all.slice(0, here)].find(other => other.dataset.undecided !== "0");
  if (!link) return showMessage("All labels are decided.");
  const done = state.cluster;
  showCluster(link.dataset.cluster);
  if (state.cluster !== done) showMessage(`Cluster ${done} is complete; this is cluster ${state.cluster}.`);
}
