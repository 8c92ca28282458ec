// Suggestions that were estimated again. A row that the annotator is about to decide, because it is current or selected,
// keeps its suggestions until then.

import { $ } from "./dom.js";
import { showNote } from "./messages.js";
import { forgetPart } from "./parts.js";
import { isUndecided, rowOf, tickOf } from "./rows.js";
import { on, state } from "./state.js";

const waiting = new Map();  // new rows by label

function show() {
  const made = document.createElement("template");
  for (const [label, html] of waiting) {
    const row = rowOf(label);
    if (row && (label === state.label || tickOf(row).checked)) continue;
    waiting.delete(label);
    if (!row || !isUndecided(row)) continue;
    made.innerHTML = html;
    const renewed = $(".row", made.content);
    if (renewed.dataset.version !== row.dataset.version) continue;
    row.replaceWith(renewed);
    forgetPart("list");
  }
}

on("suggestions", ({ estimate, rows, message }) => {
  if (estimate <= state.estimate) return;
  state.estimate = estimate;
  for (const [label, html] of Object.entries(rows)) waiting.set(label, html);
  show();
  if (message) showNote(message);
});
on("move", show);
on("part", id => { if (id === "list") waiting.clear(); });
