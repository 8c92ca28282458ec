// Pages to read, in a dialog in front of the labels: links with data-dialog, which lead to the same pages without script.

import { $ } from "./dom.js";
import { showMessage } from "./messages.js";

const dialog = document.createElement("dialog");
dialog.className = "reading";
dialog.innerHTML = '<form method="dialog" class="close" data-plain><button>Close <kbd>Esc</kbd></button></form><div class="text" tabindex="0"></div>';
document.body.append(dialog);
const text = $(".text", dialog);

/** Show the main part of a page in the dialog. */
export async function read(address) {
  let page;
  try {
    const response = await fetch(address);
    if (!response.ok) throw new Error(response.status);
    page = new DOMParser().parseFromString(await response.text(), "text/html");
  } catch {
    return showMessage("The server does not show this page.");
  }
  text.replaceChildren(...$("main", page).childNodes);
  text.scrollTop = 0;
  dialog.setAttribute("aria-label", page.title);
  if (!dialog.open) dialog.showModal();
  text.focus();
}

document.addEventListener("click", event => {
  const link = event.target.closest("a[data-dialog]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  read(link.href);
});
dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });
