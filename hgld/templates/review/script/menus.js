// The menus with a form, and the panels of the header.

import { $, $$ } from "./dom.js";
import { reveal } from "./sheet.js";

/** Open a menu, and close the others. */
export function openMenu(id) {
  for (const menu of $$("details.menu[open]")) menu.open = false;
  const menu = document.getElementById(id);
  if (!menu) return;
  reveal(menu);
  menu.open = true;
  const field = $("input:not([type=hidden]), select", menu);
  field.focus();
  field.select?.();
}

export function togglePanel(id) {
  const panel = document.getElementById(id);
  if (!panel.open) reveal(panel);
  panel.open = !panel.open;
}

/** Close all menus and panels; return whether one was open. */
export function closeAll() {
  const open = $$("details[open]");
  for (const opened of open) opened.open = false;
  return open.length > 0;
}

document.addEventListener("click", event => {
  for (const panel of $$("details.panel[open]")) if (!event.composedPath().includes(panel)) panel.open = false;
});
