// The comment field. What is typed into it belongs to the current label, and is kept for it until it is saved, also when
// the cursor moves or the page is closed.

import { $, $$ } from "./dom.js";
import { currentRow, list, rowOf } from "./rows.js";
import { on, state } from "./state.js";
import { keep, kept } from "./storage.js";

export const comment = $(".note input[name=comment]");
const oneLine = text => text.replace(/[\r\n]/g, "");  // what a text field makes of a comment from a sheet
const saved = $(".note input[name=comment_was]"), note = $("#draft");
const drafts = new Map(Object.entries(kept("comments") ?? {}));  // by label

/** Show the comment on the current label, or what was typed for it. */
function showComment() {
  const text = currentRow()?.dataset.comment ?? "";
  const draft = drafts.get(state.label);
  saved.value = text;
  if (comment.value !== (draft ?? oneLine(text))) comment.value = draft ?? text;
  note.hidden = draft === undefined;
}

function setDraft(label, text) {
  if (text === null) drafts.delete(label);
  else drafts.set(label, text);
  keep("comments", drafts.size ? Object.fromEntries(drafts) : null);
  markRows();
}

function markRows() {
  for (const row of $$(".row[data-draft]", list)) delete row.dataset.draft;
  for (const label of drafts.keys()) if (rowOf(label)) rowOf(label).dataset.draft = "";
}

/** Forget what was typed for the current label. */
export function discardComment() {
  setDraft(state.label, null);
  showComment();
}

comment.addEventListener("input", () => {
  setDraft(state.label, comment.value === oneLine(saved.value) ? null : comment.value);
  note.hidden = !drafts.has(state.label);
});
on("move", showComment);
on("shown", showComment);
on("rows", () => { if (drafts.size) markRows(); });
on("part", id => { if (id === "list" && drafts.size) markRows(); });
on("saved", request => {
  const text = request.fields.find(([name]) => name === "comment")?.[1];
  for (const label of request.labels) if (drafts.get(label) === text) setDraft(label, null);
});
markRows();
showComment();
