// Forms on their way to the server, one after the other. Forms are sent with the same fields as without this script. The
// cursor moves on at once; a decision is shown once it is on disk.

import { $, $$ } from "./dom.js";
import { goToNextUndecided } from "./clusters.js";
import { showMessage } from "./messages.js";
import { currentRow, nameOf, nextUndecided, rowOf, rows, setCurrent, setTicked, takeGuard, ticked } from "./rows.js";
import { state } from "./state.js";
import { apply, positionFields, refresh, request, showStep } from "./updates.js";

export const conflict = $("#conflict");
export const guess = $("#search input[name=guess]");
const otherTabs = new BroadcastChannel("hgld");
let queue = Promise.resolve();

/** Press a button of the form with the labels, e.g. "drop". */
export function choose(value) {
  const data = new FormData($("#decide"));
  data.set("choose", value);
  return send("/decide", data);
}

/** Send the fields of a form; the cursor moves past labels that it decides without waiting for the answer. */
export function send(action, data) {
  const button = String(data.get("choose") ?? "").match(/^take:\d+@\d+:(.*)$/s);
  const labels = button ? [button[1]] : (data.getAll("label").length ? data.getAll("label") : data.getAll("focus"))
    .map(text => text.slice(text.indexOf(":") + 1));
  if (action === "/decide" && !button && data.get("choose") !== "comment" && labels.length === 1 && takeGuard(labels[0])) {
    showMessage(`${nameOf(currentRow())} is decided already; press again to change it.`);
    return queue;
  }
  const decides = action === "/decide" && !["comment", "clear"].includes(data.get("choose"));
  const affected = action === "/decide" || action === "/move" ? labels.map(rowOf).filter(Boolean) : [];
  for (const row of affected) row.classList.add("saving");
  if (!button && affected.length) setTicked(ticked(), false);
  if (decides && (labels.includes(state.label) || affected.length > 1))
    setCurrent(nextUndecided(affected.at(-1)) ?? currentRow(), { load: false });
  guess.checked = false;
  const from = state.cluster;
  queue = queue.then(async () => {
    for (const [name, value] of positionFields(state.label, state.last)) data.set(name, value);
    const response = await request(action, { method: "POST", body: new URLSearchParams(data) });
    for (const row of affected) row.classList.remove("saving");
    if (!response) return;
    if (response.ok) {
      const update = await response.json();
      if (update.message) showStep(update);
      else {
        apply(update);
        if (decides && state.cluster === from && rows().every(row => row.dataset.decision)) goToNextUndecided();
        else if ("list" in update.parts) setCurrent(currentRow());
      }
      for (const menu of $$("details.menu[open]")) menu.open = false;
      otherTabs.postMessage(state.last);
    } else {
      const problem = await response.json();
      if (affected.length) setCurrent(rowOf(labels[0]) ?? currentRow());
      if (problem.conflict) {
        conflict.innerHTML = problem.conflict;
        conflict.showModal();
      } else showMessage(problem.error);
      await refresh();
    }
  });
  return queue;
}

otherTabs.addEventListener("message", refresh);
