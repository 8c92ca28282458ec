// Deciding many labels at once, all of which the annotator sees.

import { $, $$ } from "./dom.js";
import { showMessage } from "./messages.js";
import { send } from "./queue.js";
import { isUndecided, list, nextUndecided, setCurrent, tickOf } from "./rows.js";

/** Whether a row is on the screen with its suggestion, and nothing covers it. */
function isVisible(row) {
  const { left, top, width, height } = $(".name", row).getBoundingClientRect();
  return row.contains(document.elementFromPoint(left + Math.min(width, 20) / 2, top + height / 2));
}

/** Accept the sure suggestions of all undecided labels on the screen; the cursor goes to the first one that is left. */
export function acceptScreen() {
  const shown = $$(".row", list).filter(isVisible);
  const sure = shown.filter(row => row.dataset.candidates.startsWith("sure") && isUndecided(row));
  if (!sure.length) return showMessage("No undecided label on the screen has a suggestion of 90 % or more.");
  const data = new FormData($("#decide"));
  for (const name of ["label", "comment", "comment_was"]) data.delete(name);
  for (const row of sure) data.append("label", tickOf(row).value);
  data.set("choose", "accept_sure");
  send("/decide", data);
  const next = shown.find(isUndecided) ?? nextUndecided(shown.at(-1));
  if (next) setCurrent(next);
}
