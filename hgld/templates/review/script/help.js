// The list of keys, in which they can be changed, and the keys shown on the buttons.

import { $, $$ } from "./dom.js";
import { ariaKey, changeKey, charactersAreOff, isChanged, keysOf, resetKeys, shownKey, switchCharacters } from "./shortcuts.js";
import { on } from "./state.js";

const panel = $("#keys");

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** Show the keys of the actions in the help and on the buttons, and call `changed` when the annotator changes them. */
export function showKeys(actions, changed) {
  const note = make("p", { role: "status", className: "keys-note" });

  function update(text = "") {
    changed();
    const focused = document.activeElement?.dataset.change;
    panel.replaceChildren(settings(), note, ...tables());
    note.textContent = text;
    $(`[data-change="${focused}"]`, panel)?.focus();
    showHints(document);
  }

  function settings() {
    const off = make("input", { type: "checkbox", checked: charactersAreOff(), onchange: () => {
      switchCharacters(off.checked);
      update(off.checked ? "Keys of one character are off." : "Keys of one character are on.");
      $("input", panel).focus();
    } });
    const reset = make("button", { type: "button", textContent: "Reset", disabled: !isChanged(), onclick: () => {
      resetKeys();
      update("All keys are as they were at first.");
      $("input", panel).focus();
    } });
    return make("div", { className: "keys-settings" }, make("label", {}, off, " Switch off keys of one character"), reset);
  }

  function tables() {
    const sections = Map.groupBy(Object.entries(actions), ([, action]) => action.section);
    return [...sections].map(([section, entries]) => make("table", {},
      make("caption", { textContent: section }), make("tbody", {}, ...entries.map(row))));
  }

  function row([name, action]) {
    const keys = keysOf(name, action).map(key => make("kbd", { textContent: shownKey(key) }));
    const change = make("button", { type: "button", textContent: "Change", onclick: () => listen(name, change) });
    change.dataset.change = name;
    change.setAttribute("aria-label", `Change the key for “${action.about}”`);
    return make("tr", {}, make("th", { scope: "row", textContent: action.about }),
      make("td", {}, ...(keys.length ? keys.flatMap(key => [key, " "]) : [make("small", { textContent: "off" })])),
      make("td", {}, change));
  }

  /** The next key becomes that of the action; Escape or Tab leaves it as it is. */
  function listen(name, button) {
    button.textContent = "Press a key";
    note.textContent = `Press the new key for “${actions[name].about}”, or Escape to keep it.`;
    const stop = text => {
      button.removeEventListener("keydown", press);
      button.removeEventListener("blur", leave);
      update(text);
    };
    const leave = () => stop();
    const press = event => {
      if (/^(Shift|Control|Alt|Meta|AltGraph)$/.test(event.key)) return;
      event.stopPropagation();
      if (event.key === "Tab") return;
      event.preventDefault();
      if (event.key === "Escape") return stop();
      const refused = changeKey(actions, name, event);
      if (refused) note.textContent = refused;
      else stop(`The key for “${actions[name].about}” is ${shownKey(keysOf(name, actions[name])[0] ?? "")}.`);
    };
    button.addEventListener("keydown", press);
    button.addEventListener("blur", leave);
  }

  /** Show the first key of each action on its buttons. */
  function showHints(within) {
    for (const hint of $$("[data-key-of]", within)) {
      const name = hint.dataset.keyOf;
      const keys = actions[name] ? keysOf(name, actions[name]) : [];
      const control = hint.closest("button, summary, a") ?? $("input:not([type=hidden])", hint.parentElement);
      hint.hidden = keys.length === 0;
      if (keys.length) {
        hint.textContent = shownKey(keys[0]);
        control.setAttribute("aria-keyshortcuts", keys.map(ariaKey).join(" "));
      } else control.removeAttribute("aria-keyshortcuts");
    }
  }

  on("part", id => showHints(document.getElementById(id)));
  update();
}
