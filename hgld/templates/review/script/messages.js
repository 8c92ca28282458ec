// Messages to the annotator.

import { $ } from "./dom.js";

const SHOWN_MS = 6000;
const message = $("#message");
let timer;

/** Show a message for a while, or until it is hidden if it `stays`. */
export function showMessage(text, stays = false) {
  message.textContent = text;
  message.hidden = false;
  clearTimeout(timer);
  if (!stays) timer = setTimeout(hideMessage, SHOWN_MS);
}

export function hideMessage() {
  message.hidden = true;
}
