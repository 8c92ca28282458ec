// Replacing a part of the page by new HTML without disturbing the annotator: an unchanged part is left alone; focus, open
// menus, typed text and scrolling are kept.

import { $, $$ } from "./dom.js";
import { tell } from "./state.js";

const FOCUSABLE = "a, button, input, select, textarea, summary, [tabindex]";
const FIELDS = "input:not([type=hidden], [type=checkbox]), select, textarea";
const html = new Map();  // what the server sent last, by id of the part

/** Show new HTML in the part with this id. */
export function replacePart(id, text) {
  if (html.get(id) === text) return;
  const part = document.getElementById(id);
  const restore = remember(part);
  part.innerHTML = text;
  restore();
  html.set(id, text);
  tell("part", id);
}

/** The content of a part was changed otherwise, so that even the HTML it had before would be new. */
export const forgetPart = id => html.delete(id);

/** Put an element in the place of another with the same content, with focus at the same place in it. */
export function replaceElement(before, element) {
  const focused = indexOfFocus(before);
  before.replaceWith(element);
  if (focused >= 0) $$(FOCUSABLE, element)[focused]?.focus({ preventScroll: true });
}

const indexOfFocus = element => $$(FOCUSABLE, element).indexOf(document.activeElement);
const defaultValue = field => field.defaultValue
  ?? (field.options && ([...field.options].find(option => option.defaultSelected) ?? field.options[0])?.value);
const isChanged = field => field.value !== defaultValue(field);
const nameOf = field => `${field.closest("details")?.id}/${field.name}`;

/** Return the fields of a menu with what the annotator typed into it. */
export const typedFields = within => $$(FIELDS, within).filter(isChanged);

/** Make fields as they were before anything was typed. */
export function resetFields(within) {
  for (const field of $$(FIELDS, within)) field.value = defaultValue(field) ?? "";
}

function remember(part) {
  const open = $$("details[open]", part).map(opened => opened.id);
  const drawer = $(":popover-open", part)?.id;
  const typed = typedFields(part).map(field => [nameOf(field), field.value]);
  const active = part.contains(document.activeElement) ? document.activeElement : null;
  const row = active?.closest(".row")?.dataset.label;
  const focused = active && (row ? indexOfFocus(active.closest(".row")) : indexOfFocus(part));
  const [name, selection] = [active?.name && nameOf(active), [active?.selectionStart, active?.selectionEnd]];
  const scrolled = $$(".groups", part).map(element => element.scrollTop);  // a part keeps its own
  return () => {
    for (const id of open) if (id) document.getElementById(id)?.setAttribute("open", "");
    if (drawer) document.getElementById(drawer)?.showPopover();
    for (const [name, value] of typed) setField($$(FIELDS, part).find(field => nameOf(field) === name), value);
    $$(".groups", part).forEach((element, n) => { if (scrolled[n]) element.scrollTop = scrolled[n]; });
    if (!active) return;
    const within = row ? $(`.row[data-label="${CSS.escape(row)}"]`, part) : part;
    const field = name && $$(FIELDS, part).find(field => nameOf(field) === name);
    const again = field || (within && $$(FOCUSABLE, within)[focused]);
    again?.focus({ preventScroll: true });
    if (again && selection[0] != null) again.setSelectionRange?.(...selection);
  };
}

function setField(field, value) {
  if (!field) return;
  const key = text => text.replace(/^\d+:/, "");  // the version of a group in front of its key may have changed
  if (!field.options) field.value = value;
  else field.value = [...field.options].find(option => key(option.value) === key(value))?.value ?? field.value;
}
