// The list of labels: its rows, the cursor, and the selection by ticks.

import { $, $$ } from "./dom.js";
import { on, state, tell } from "./state.js";

export const list = $("#list");

let anchor = null;  // where a range of selected rows began
let unseen = null;  // a decided label to which the page moved the cursor by itself

export const rows = () => $$(".row", list);
export const rowOf = label => $(`.row[data-label="${CSS.escape(label)}"]`, list);
export const currentRow = () => rowOf(state.label);
export const tickOf = row => $(".tick input", row);
export const nameOf = row => $(".name", row).textContent;
export const ticked = () => $$(".row .tick input:checked", list).map(tick => tick.closest(".row"));
export const isUndecided = row => !row.dataset.decision && !row.classList.contains("saving");

// The cursor.

/** Make a row the current one: `focus` and `scroll` to it, and `load` its card if it was not current before. */
export function setCurrent(row, { focus = true, load = true, scroll = true } = {}) {
  const before = $(".row.current", list);
  before?.classList.remove("current");
  if (before) setTabStop(before, false);
  if (!row) return;
  const moved = row.dataset.label !== state.label;
  if (moved) unseen = null;
  state.label = row.dataset.label;
  row.classList.add("current");
  setTabStop(row, true);
  if (focus) $(".name", row).focus({ preventScroll: true });
  if (scroll) {
    row.scrollIntoView({ block: "nearest" });
    // Again once rows that were never drawn have their height.
    requestAnimationFrame(() => row.scrollIntoView({ block: "nearest" }));
  }
  $("#card [name=focus]").value = tickOf(row).value;
  if (moved) tell("move", { load });
}

// The Tab key goes to the current row and on to its card; the arrow keys go to other rows.
function setTabStop(row, stops) {
  for (const element of [tickOf(row), $(".name", row)]) element.tabIndex = stops ? 0 : -1;
}

/** Take rows out of the order of the Tab key. */
export function skipWithTab(all) {
  for (const row of all) setTabStop(row, false);
}

/** Move the cursor by some rows; with `range`, select all rows since the first such move. */
export function move(steps, range = false) {
  const all = rows(), from = all.findIndex(row => row.dataset.label === state.label);
  const row = all[Math.max(0, Math.min(all.length - 1, from + steps))];
  if (range) selectTo(row);
  else endRange();
  setCurrent(row);
}

/** Return the next undecided row after `from`, beginning again at the top. */
export function nextUndecided(from) {
  const all = rows(), start = all.indexOf(from) + 1;
  return [...all.slice(start), ...all.slice(0, start)].find(isUndecided);
}

/** Return the next undecided row after `from`; undefined if there is none. */
export function undecidedBelow(from) {
  const all = rows();
  return all.slice(all.indexOf(from) + 1).find(isUndecided);
}

/** The cursor was not moved by the annotator: the next key must not overwrite a decision that nobody looked at. */
export function guardDecision() {
  unseen = currentRow()?.dataset.decision ? state.label : null;
}

/** Return whether the next decision on this label must be confirmed, and forget it. */
export function takeGuard(label) {
  if (label !== unseen) return false;
  unseen = null;
  return true;
}

// The selection.

export function selectTo(row) {
  const all = rows();
  anchor ??= state.label;
  const ends = [all.findIndex(other => other.dataset.label === anchor), all.indexOf(row)].sort((a, b) => a - b);
  all.forEach((other, n) => { tickOf(other).checked = n >= ends[0] && n <= ends[1]; });
  showSelected();
}

export function endRange() {
  anchor = null;
}

export function setTicked(selection, on) {
  for (const row of selection) tickOf(row).checked = on;
  endRange();
  showSelected();
}

export const toggleTicked = selection => setTicked(selection, !selection.every(row => tickOf(row).checked));
/** Return the rows of the same section, such as a sub-cluster; a section without a title is none. */
export const rowsBeside = row => {
  const section = row?.closest("section:has(h3)");
  return section ? $$(".row", section) : [row].filter(Boolean);
};

export function showSelected() {
  const n = ticked().length, shown = $("#selected");
  shown.hidden = n === 0;
  shown.textContent = `${n.toLocaleString("en")} selected`;
}

on("part", id => { if (id === "list") skipWithTab(rows()); });
skipWithTab(rows());
