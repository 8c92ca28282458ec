// What the server says: requests, and the changed rows and parts of the page that it answers with.

import { $ } from "./dom.js";
import { showError } from "./messages.js";
import { forgetPart, replaceElement, replacePart } from "./parts.js";
import { currentRow, guardDecision, list, rowOf, rows, setCurrent, setTicked, showSelected, skipWithTab, ticked, tickOf } from "./rows.js";
import { on, state, tell } from "./state.js";

const TIMEOUT_MS = 30_000;
const NO_ANSWER = "The server does not answer; start the same hgld command again.";
const REFUSED = "The server was started again. Open the address that it printed, in this browser.";

/** The server cannot be reached or refuses this page. */
export class Unreachable extends Error {}

let connection = "";  // why the server cannot be reached; empty if it can
function setConnection(why) {
  if (why === connection) return;
  connection = why;
  tell("connection", why);
}
export const isConnected = () => connection === "";

/**
 * Send a request; return the status and the `answer`, null if it cannot be read.
 * Throws Unreachable if nobody answers who could.
 */
export async function request(url, options = {}) {
  let response, text, answer = null, why = "";
  try {
    response = await fetch(url, { signal: AbortSignal.timeout(TIMEOUT_MS), ...options, headers: { accept: "application/json" } });
    text = await response.text();
  } catch {
    why = NO_ANSWER;
  }
  try {
    answer = JSON.parse(text);
  } catch {
    // Not what hgld answers: the caller decides.
  }
  if (response?.status === 403) why = REFUSED;
  setConnection(why);
  if (why) throw new Unreachable(why);
  return { status: response.status, ok: response.ok, answer };
}

/** Fields that say what the page shows: the place, and the last event. */
export const positionFields = (label, since) => new URLSearchParams({ at_view: state.view, at_label: label, since });

// Refreshing: one request at a time, and another one if something happened in the meantime.

let refreshing = null, again = false;
let incomplete = false;  // an answer could not be shown: the next one must hold everything

/** Show everything that has changed, whoever changed it. */
export function refresh() {
  again = refreshing !== null;
  refreshing ??= refreshOnce().finally(() => {
    refreshing = null;
    if (again) refresh();
  });
  return refreshing;
}

/** Show everything anew, also what has changed without an event: hgld was started again with other files. */
export function refreshAll() {
  incomplete = true;
  return refresh();
}

async function refreshOnce() {
  try {
    const fields = positionFields(state.label, incomplete ? -1 : state.last);
    fields.set("clusters", state.clusters);
    const { ok, answer } = await request(`/changes?${fields}&shown=${encodeURIComponent(state.card)}`);
    state.clusters = answer?.clusters ?? state.clusters;
    if (ok && answer) show(() => apply(answer));
  } catch (error) {
    if (!(error instanceof Unreachable)) throw error;
  }
}

/** Show changes as the function does; if it fails, fetch the whole content of the page. */
export function show(changes) {
  try {
    changes();
    incomplete = false;
  } catch (error) {
    console.error(error);
    if (incomplete) return showError("The page cannot show what has changed. Reload it; nothing is lost.");
    incomplete = true;
    refresh();
  }
}

/** Show the rows and parts of an answer, and with `go`, its list and label. */
export function apply(update, { go = false } = {}) {
  if (update.last < state.last) return;  // a later answer came first
  const before = { ...state };
  if (go) {
    if (update.view !== state.view) setTicked(ticked(), false);
    state.view = update.view;
    state.label = update.label;
  }
  const here = update.view === state.view;
  const inList = list.contains(document.activeElement);
  if (here) replaceRows(Object.values(update.rows));
  for (const [id, html] of Object.entries(update.parts)) {
    if ((id === "card" || id === "photographs") && update.label !== state.label && currentRow()) continue;
    if (id === "photographs" && $("#photographs [data-label]").dataset.label === update.label) continue;
    if ((id === "list" || id === "head") && !here && isPossible(state.view)) continue;
    const ticks = id === "list" ? new Set(ticked().map(row => row.dataset.label)) : null;
    replacePart(id, html);
    if (ticks) for (const row of rows()) tickOf(row).checked = ticks.has(row.dataset.label);
    if (id === "list") state.view = update.view;
    if (id === "card") state.card = update.label;
  }
  const gone = !currentRow();
  const lost = inList && document.activeElement === document.body;
  setCurrent(currentRow() ?? rowOf(update.label), { focus: go || lost, scroll: go });
  if (gone) guardDecision();
  showSelected();
  state.last = update.last;
  if (state.view !== before.view) tell("view");
  if (go && state.label !== before.label) tell("move", { load: false });
  tell("shown");
}

/** Return whether a view can be shown: whether it is no cluster, or one that exists. */
const isPossible = view => !view.startsWith("cluster=") || $(`#clusters a[data-view="${CSS.escape(view)}"]`) !== null;

function replaceRows(html) {
  if (!html.length) return;
  const old = new Map((html.length > 9 ? rows() : []).map(row => [row.dataset.label, row]));
  const made = document.createElement("template");
  made.innerHTML = html.join("");
  skipWithTab(made.content.children);
  for (const row of [...made.content.children]) {
    const before = old.get(row.dataset.label) ?? rowOf(row.dataset.label);
    if (!before) continue;
    tickOf(row).checked = tickOf(before).checked;
    replaceElement(before, row);
  }
  forgetPart("list");
  tell("rows");
}

on("move", ({ load }) => { if (load) refresh(); });
