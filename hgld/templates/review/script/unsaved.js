// What is not saved: a list above the actions, with the reason and the ways to go on, and marks at the labels.

import { $, $$ } from "./dom.js";
import { forgetPart } from "./parts.js";
import { allRequests, removeRequest, retry } from "./requests.js";
import { currentRow, nameOf, rowOf } from "./rows.js";
import { on, state } from "./state.js";
import { isConnected, refresh } from "./updates.js";

const panel = $("#unsaved"), reason = $("#unsaved p"), entries = $("#unsaved ul");
let why = "";
let marked = [];  // labels with a mark

function showPanel() {
  const shown = allRequests().filter(request => request.problem || !isConnected());
  const count = shown.length ? `${shown.length} ${shown.length === 1 ? "change is" : "changes are"} not saved. ` : "";
  panel.hidden = !why && !shown.length;
  const text = why && !count ? `${why} Everything shown as decided is saved.` : count + why;
  if (reason.textContent !== text) reason.textContent = text;
  $("#unsaved > div").hidden = !shown.length && !why;
  const old = new Map($$("li", entries).map(item => [item.dataset.request, item]));
  for (const request of shown) {
    const item = old.get(request.id) ?? entries.appendChild(newItem(request));
    old.delete(request.id);
    $("small", item).textContent = request.problem;
    $("[data-again]", item).hidden = !request.problem;
  }
  for (const item of old.values()) item.remove();
}

function newItem(request) {
  const item = $("#unsaved template").content.firstElementChild.cloneNode(true);
  item.dataset.request = request.id;
  $("span", item).textContent = request.about;
  for (const button of $$("button", item)) button.setAttribute("aria-label", `${button.textContent}: ${request.about}`);
  return item;
}

/** Mark the rows of labels with a request: those being saved, and those that could not be. */
function markRows() {
  for (const label of marked) setMark(label, false, "");
  marked = [];
  for (const { labels, about, problem } of allRequests()) {
    const unsaved = problem || !isConnected();
    for (const label of labels) setMark(label, !problem, unsaved ? `not saved: ${about.split(": ").at(-1)}` : "");
    marked.push(...labels);
  }
}

function setMark(label, saving, unsaved) {
  const row = rowOf(label);
  if (!row) return;
  row.classList.toggle("saving", saving);
  if (unsaved) row.dataset.unsaved = unsaved;
  else delete row.dataset.unsaved;
}

/** Show no facts of another label under the current one until the server has sent its card. */
function showCard() {
  const row = currentRow(), outdated = row !== null && state.card !== state.label;
  // Not on the body: the styles of thousands of rows would be computed anew with every key.
  $("aside").classList.toggle("outdated", outdated);
  if (!outdated) return;
  $("#card h2").textContent = nameOf(row);
  forgetPart("card");
}

entries.addEventListener("click", event => {
  const id = event.target.closest("li")?.dataset.request;
  const request = allRequests().find(other => other.id === id);
  if (!request) return;
  if (event.target.closest("[data-again]")) retry([request]);
  else if (event.target.closest("[data-discard]")) removeRequest(request);
});
$("#unsaved [data-all]").addEventListener("click", () => {
  retry(allRequests());
  refresh();
});

on("connection", text => { why = text; showPanel(); markRows(); });
on("move", showCard);
on("shown", showCard);
on("requests", () => { showPanel(); markRows(); });
on("rows", markRows);
on("part", id => { if (id === "list") markRows(); });
