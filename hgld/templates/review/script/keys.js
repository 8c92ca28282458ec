// What each key does. ACTIONS is the only place that knows: handlers by name, with their keys and a description. A button
// with data-action="name" does the same as the keys of that action.

import { $ } from "./dom.js";
import { goToCluster, goToNextUndecided, nextList, stepCluster, toggleQueue } from "./clusters.js";
import { leaveSearch, search, searchKey } from "./groups.js";
import { comment, discardComment } from "./comments.js";
import { showKeys } from "./help.js";
import { closeAll, openMenu, togglePanel } from "./menus.js";
import { showMessage } from "./messages.js";
import { toggleViewer } from "./photographs.js";
import { CANDIDATE, choose, send, undo } from "./queue.js";
import "./reading.js";
import { currentRow, move, rows, rowsBeside, setCurrent, setTicked, ticked, toggleTicked } from "./rows.js";
import { acceptScreen } from "./screen.js";
import { foldSheet, reveal } from "./sheet.js";
import { actionsByKey, keyName } from "./shortcuts.js";

const ADJUDICATING = document.body.classList.contains("adjudicating");
const BLIND = document.body.classList.contains("blind");

/**
 * Actions by name: the `keys` that they have at first, as keyName() returns them, `about` for the annotator, the `section` of
 * the help that lists them, and `run`.
 */
const ACTIONS = {
  "next-label": { section: "Move", keys: ["j", "arrowdown"], about: "next label", run: () => move(1) },
  "previous-label": { section: "Move", keys: ["k", "arrowup"], about: "previous label", run: () => move(-1) },
  "page-down": { section: "Move", keys: ["pagedown"], about: "ten labels down", run: () => move(10) },
  "page-up": { section: "Move", keys: ["pageup"], about: "ten labels up", run: () => move(-10) },
  "first-label": { section: "Move", keys: ["home"], about: "first label", run: () => move(-Infinity) },
  "last-label": { section: "Move", keys: ["end"], about: "last label", run: () => move(Infinity) },
  "next-undecided": {
    section: "Move", keys: ["n"], about: "next undecided label, also in the next cluster",
    run: () => showMessage(goToNextUndecided()),
  },
  "next-cluster": { section: "Move", keys: ["]"], about: "next cluster", run: () => stepCluster(1) },
  "previous-cluster": { section: "Move", keys: ["["], about: "previous cluster", run: () => stepCluster(-1) },
  queue: { section: "Move", keys: ["q"], about: "the queue of undecided labels of all clusters, on and off", run: toggleQueue },
  "next-list": { section: "Move", keys: ["v"], about: "next list across clusters: unsure, commented, …", run: nextList },
  filter: { section: "Move", keys: ["f"], about: "filter and order labels of all clusters", run: () => openMenu("filters") },
  "find-label": {
    section: "Move", keys: ["shift+f"], about: "find labels of all clusters", run: () => focusField($("#find-labels input")),
  },
  "go-to-cluster": { section: "Move", keys: ["w"], about: "the label in its cluster", run: goToCluster },
  "open-example": {
    section: "Move", keys: ["e"], about: "open the first example", run: () => $(".examples a", currentRow())?.click(),
  },
  photographs: { section: "Move", keys: ["p"], about: "enlarge the photographs", run: toggleViewer },

  accept: {
    section: "Decide", keys: ["enter"], run: () => choose("accept"),
    about: ADJUDICATING ? "take the first opinion" : "accept the first suggestion if it is likely",
  },
  "accept-screen": {
    section: "Decide", keys: ["shift+enter"], run: acceptScreen,
    about: "accept the first suggestion of every label on the screen where it has 90 % or more",
  },
  ...Object.fromEntries([1, 2, 3, 4, 5, 6, 7, 8, 9].map(n => [
    `take-${n}`,
    { section: "Decide", keys: [String(n)], about: `take ${CANDIDATE} ${n}`, run: () => choose(`take:${n}`) },
  ])),
  "take-more": { section: "Decide", keys: ["0"], about: "show the other suggestions", run: showMoreSuggestions },
  "find-group": {
    section: "Decide", keys: ["g", "/"], run: () => focusField(search),
    about: "type to find a group; Enter chooses it, Shift Enter marks the label as unsure, perhaps in that group",
  },
  drop: { section: "Decide", keys: ["d"], about: "drop", run: () => choose("drop") },
  unsure: { section: "Decide", keys: ["u"], about: "unsure", run: () => choose("unsure") },
  comment: { section: "Decide", keys: ["c"], about: "comment; Enter saves it", run: () => focusField(comment) },
  clear: { section: "Decide", keys: ["backspace", "delete"], about: "clear the decision", run: () => choose("clear") },
  undo: {
    section: "Decide", keys: ["z", "ctrl+z"], about: "undo; the history can undo any step",
    run: undo,
  },
  redo: {
    section: "Decide", keys: ["y", "shift+z", "ctrl+y", "ctrl+shift+z"], about: "redo",
    run: () => send("/redo", new FormData()),
  },

  "extend-down": {
    section: "Several labels", keys: ["shift+arrowdown", "shift+j"], about: "select a range downwards",
    run: () => move(1, true),
  },
  "extend-up": {
    section: "Several labels", keys: ["shift+arrowup", "shift+k"], about: "select a range upwards",
    run: () => move(-1, true),
  },
  "select-label": {
    section: "Several labels", keys: ["x"], about: "select the label", run: () => toggleTicked([currentRow()].filter(Boolean)),
  },
  "select-subcluster": {
    section: "Several labels", keys: ["b"], about: "select its whole sub-cluster",
    run: () => toggleTicked(rowsBeside(currentRow())),
  },
  "select-cluster": {
    section: "Several labels", keys: ["ctrl+a"], about: "select the whole cluster", run: () => setTicked(rows(), true),
  },
  "select-nothing": {
    section: "Several labels", keys: ["escape"], about: "select nothing", run: () => setTicked(ticked(), false),
  },

  split: { section: "Clusters and groups", keys: ["s"], about: "split off the selected labels", run: () => openMenu("split") },
  "merge-cluster": { section: "Clusters and groups", keys: ["m"], about: "merge the cluster", run: () => openMenu("merge") },
  "rename-cluster": {
    section: "Clusters and groups", keys: ["r"], about: "rename the cluster", run: () => openMenu("rename-cluster"),
  },
  "add-group": { section: "Clusters and groups", keys: ["a"], about: "add a group", run: () => openMenu("propose-group") },
  "rename-group": {
    section: "Clusters and groups", keys: ["shift+r"], about: "rename a group", run: () => openMenu("rename-group"),
  },
  "merge-group": {
    section: "Clusters and groups", keys: ["shift+m"], about: "merge a group into another",
    run: () => openMenu("merge-group"),
  },

  landmarks: {
    section: "Page", keys: ["l"], about: "all that have the label",
    run: () => $("aside:not(.outdated) #card a[data-dialog]")?.click(),
  },
  guideline: { section: "Page", keys: ["i"], about: "the guideline", run: () => $(".bar a[data-dialog]")?.click() },
  history: { section: "Page", keys: ["h"], about: "history", run: () => togglePanel("history-panel") },
  sheet: { section: "Page", keys: ["o"], about: "fold or unfold the current label in a narrow window", run: () => foldSheet() },
  help: { section: "Page", keys: ["?"], about: "this list of keys", run: () => togglePanel("help") },
};

/** Keys of suggestions, which a blind review hides. */
const withoutEffect = new Set();
if (BLIND) for (const [name, action] of Object.entries(ACTIONS)) if (/^(accept|take)\b/.test(name)) {
  for (const key of action.keys) withoutEffect.add(key);
  delete ACTIONS[name];
}
if (ADJUDICATING) for (const name of ["accept-screen", "take-more"]) delete ACTIONS[name];

/** Show all suggestions of the current label, and go to the first one that was not shown. */
function showMoreSuggestions() {
  const more = $("aside:not(.outdated) #more-suggestions");
  if (!more) return showMessage("There are no other suggestions.");
  reveal(more);
  more.open = true;
  $("button", more).focus();
}

function focusField(field) {
  reveal(field);
  field.focus();
}

let actions;  // by key
showKeys(ACTIONS, () => { actions = actionsByKey(ACTIONS); });

document.addEventListener("keydown", event => {
  if (event.isComposing || event.altKey) return;
  const action = actions.get(keyName(event));
  const field = event.target.closest("input:not([type=checkbox]), select, .menu input");
  // A key that is held decides one label only, whatever has the focus by the time it is repeated.
  if (event.repeat && (event.key === "Enter" || (action?.section === "Decide" && !field))) return event.preventDefault();
  if ($("dialog[open]") && !(action?.run === toggleViewer && $("#viewer")?.open)) return;
  if (event.key === "Escape") {
    if ($(":popover-open")) return;  // which the browser closes
    const closed = closeAll();
    if (field === comment) discardComment();
    if (field || closed) return field === search ? leaveSearch() : setCurrent(currentRow());
  }
  if (field === search) return searchKey(event);
  if (field) return;
  const pressed = event.key === "Enter" || event.key === " ";
  if (pressed && event.target.closest("button, summary, a:not(.name)")) return;
  if (!action && withoutEffect.has(keyName(event)))
    showMessage("This review is blind: suggestions are hidden. Choose a group.");
  if (!action) return;
  event.preventDefault();
  action.run();
});

document.addEventListener("click", event => {
  const button = event.target.closest("[data-action]");
  if (button) ACTIONS[button.dataset.action].run();
});
