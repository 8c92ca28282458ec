// What the server says: requests, and the changed rows and parts of the page that it answers with.

import { $ } from "./dom.js";
import { hideMessage, showMessage } from "./messages.js";
import { currentRow, guardDecision, list, rowOf, rows, setCurrent, setTicked, showSelected, ticked, tickOf } from "./rows.js";
import { on, state, tell } from "./state.js";

/** Fetch an address; return null, after a message, if the server does not answer or refuses the page. */
export async function request(url, options = {}) {
  let response;
  try {
    response = await fetch(url, { ...options, headers: { accept: "application/json" } });
  } catch {
    document.body.classList.add("offline");
    showMessage("The server does not answer. Everything shown as decided is saved; start the same hgld command again.", true);
    return null;
  }
  if (response.status === 403) {
    showMessage("The server was restarted: open the new address that it printed.", true);
    return null;
  }
  if (document.body.classList.contains("offline")) {
    document.body.classList.remove("offline");
    hideMessage();
  }
  return response;
}

export const positionFields = (label, since) => new URLSearchParams({ at_cluster: state.cluster, at_label: label, since });

/** Show everything that has changed, whoever changed it. */
export async function refresh() {
  const response = await request(`/changes?${positionFields(state.label, state.last)}`);
  if (response?.ok) apply(await response.json());
}

/** Show the rows and parts of an answer. */
export function apply(update) {
  if (update.last < state.last) return;  // a later answer came first
  state.last = update.last;
  const here = String(update.cluster) === state.cluster;
  const inList = list.contains(document.activeElement);
  if (here) replaceRows(Object.values(update.rows));
  for (const [id, html] of Object.entries(update.parts)) {
    if ((id === "card" || id === "photographs") && update.label !== state.label && currentRow()) continue;
    if (id === "photographs" && $("#photographs [data-label]").dataset.label === update.label) continue;
    if ((id === "list" || id === "head") && !here && $(`#clusters a[data-cluster="${state.cluster}"]`)) continue;
    const ticks = id === "list" ? new Set(ticked().map(row => row.dataset.label)) : null;
    $(`#${id}`).innerHTML = html;
    if (ticks) for (const row of rows()) tickOf(row).checked = ticks.has(row.dataset.label);
    if (id === "list") state.cluster = String(update.cluster);
    tell("part", id);
  }
  const gone = !currentRow();
  setCurrent(currentRow() ?? rowOf(update.label), { focus: inList, scroll: false });
  if (gone) guardDecision();
  showSelected();
}

/** Go to what was undone or redone, also in another cluster, and say what it was. */
export function showStep(update) {
  const before = state.label;
  if (String(update.cluster) !== state.cluster) setTicked(ticked(), false);
  state.cluster = String(update.cluster);
  state.label = update.label;
  apply(update);
  setCurrent(currentRow());
  if (state.label !== before) guardDecision();
  showMessage(update.message);
}

function replaceRows(html) {
  const old = new Map((html.length > 9 ? rows() : []).map(row => [row.dataset.label, row]));
  const made = document.createElement("template");
  made.innerHTML = html.join("");
  for (const row of [...made.content.children]) {
    const before = old.get(row.dataset.label) ?? rowOf(row.dataset.label);
    if (before) tickOf(row).checked = tickOf(before).checked;
    before?.replaceWith(row);
  }
}

on("move", ({ load }) => { if (load) refresh(); });
