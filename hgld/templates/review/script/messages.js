// Messages to the annotator, in a row of their own: what the last action did, with a button to undo it, or why it failed.

import { $ } from "./dom.js";

const message = $("#message"), error = $("#error"), undoStep = $("#undo-step");

/** Say what an action did; with its `step`, offer to undo it with a button of this `title`. */
export function showMessage(text, step = null, title = "Undo") {
  error.textContent = "";
  message.textContent = text;
  undoStep.hidden = step === null;
  $("[name=step]", undoStep).value = step ?? "";
  $("button", undoStep).textContent = title;
}

/** Say why an action failed. */
export function showError(text) {
  if (error.textContent === text) return;
  showMessage("");
  error.textContent = text;
}
