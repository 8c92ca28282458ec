// The search for groups: the list in the order of what was typed, and its keys.

import { $, $$ } from "./dom.js";
import { guess, send } from "./queue.js";
import { currentRow, setCurrent } from "./rows.js";
import { on } from "./state.js";

export const search = $("#search input[type=search]");
const visibleGroups = () => $$("#groups .groups > li:not([hidden])");

/** The field and the list are a combobox: the arrow keys go through the groups while the focus stays in the field. */
function connect() {
  const list = $("#groups .groups");
  list.role = "listbox";
  list.ariaLabel = "Groups";
  search.role = "combobox";
  search.ariaExpanded = "true";
  search.setAttribute("aria-controls", list.id);
  search.setAttribute("aria-autocomplete", "list");
  for (const item of $$("li", list)) {
    const button = $("button", item);
    item.role = "none";
    button.role = "option";
    button.id = `option-${button.value}`;
    button.tabIndex = -1;
  }
}

const FORGIVING_FROM = 4;  // characters

/** Return an expression for words that begin with a text, but for one letter: another, missing, added or exchanged. */
function withTypo(text) {
  const letters = [...text].map(letter => letter.replace(/[\\^$.*+?()[\]{}|/]/, "\\$&"));
  const variants = letters.map((here, n) => {
    const next = letters[n + 1] ?? "", after = letters.slice(n + 2).join("");
    return `${letters.slice(0, n).join("")}(?:.?${next}|${next}${here}|.${here}${next})${after}`;
  });
  return new RegExp(`(?<![\\p{L}\\p{N}])(?:${variants.join("|")})`, "u");
}

/** Order two ranked items: the better match first, then groups before the names above groups, then as in the tree. */
function compare(a, b) {
  const isInner = item => Number(item.classList.contains("inner"));
  const byMatch = search.value.trim() ? a.rank - b.rank || isInner(a.item) - isInner(b.item) : 0;
  return byMatch || a.item.dataset.place - b.item.dataset.place;
}

/** Show the groups that match the search, those that begin with it first; if none does, those that do but for a typo. */
function filter() {
  const wanted = search.value.trim().toLowerCase();
  const rank = item => {
    const name = item.dataset.name.toLowerCase();
    if (name.startsWith(wanted)) return 0;
    if (name.split(/[^\p{L}\p{N}]+/u).some(word => word.startsWith(wanted))) return 1;
    if (name.includes(wanted)) return 2;
    return item.textContent.toLowerCase().includes(wanted) ? 3 : 4;
  };
  const order = $$("#groups .groups > li")
    .map(item => ({ rank: rank(item), item }))
    .sort(compare);
  const typo = order.every(({ rank }) => rank === 4) && wanted.length >= FORGIVING_FROM ? withTypo(wanted) : null;
  for (const { rank, item } of order) {
    item.hidden = wanted !== "" && rank === 4 && !typo?.test(item.dataset.name.toLowerCase());
    item.parentNode.append(item);
  }
  activate(wanted ? 0 : null);
}

function activate(n) {
  const before = $("#groups .active");
  before?.classList.remove("active");
  if (before) $("button", before).ariaSelected = "false";
  const items = n === null ? [] : visibleGroups();
  const item = items[Math.max(0, Math.min(items.length - 1, n))];
  if (!item) return search.removeAttribute("aria-activedescendant");
  const button = $("button", item);
  item.classList.add("active");
  button.ariaSelected = "true";
  search.setAttribute("aria-activedescendant", button.id);
  button.scrollIntoView({ block: "nearest" });
}

/** Keys in the search field: the arrows go through the matches, Enter chooses one, with Shift as a guess. */
export function searchKey(event) {
  const items = visibleGroups(), at = items.findIndex(item => item.classList.contains("active"));
  if (event.key === "ArrowDown" || event.key === "ArrowUp") activate(at + (event.key === "ArrowDown" ? 1 : -1));
  else if (event.key === "Enter") {
    const button = items[at] && $("button", items[at]);
    if (!button) return;
    if (event.shiftKey) guess.checked = true;
    const data = new FormData($("#decide"), button);
    leaveSearch();
    send("/decide", data);
  } else return;
  event.preventDefault();
}

/** Empty the search field and go back to the list. */
export function leaveSearch() {
  search.value = "";
  filter();
  setCurrent(currentRow());
}

search.addEventListener("input", filter);
on("part", id => {
  if (id !== "groups") return;
  connect();
  filter();
});
$("#groups").addEventListener("click", event => {
  if (event.shiftKey && event.target.closest("button[name=choose]")) guess.checked = true;
}, true);
connect();
if (search.value) filter();
