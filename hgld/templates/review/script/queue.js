// Forms on their way to the server, one after the other. Forms are sent with the same fields as without this script. The
// cursor moves on at once; a decision is shown once it is on disk. A form that cannot be sent waits until the server
// answers again; one that is refused is set aside, and those after it are sent.

import { $, $$ } from "./dom.js";
import { goToChange, goToNextUndecided } from "./clusters.js";
import { showError, showMessage } from "./messages.js";
import { typedFields, resetFields } from "./parts.js";
import { addRequest, allRequests, nextRequest, refuse, removeRequest, settle } from "./requests.js";
import { currentRow, nameOf, nextUndecided, rowOf, rows, setCurrent, setTicked, takeGuard, ticked } from "./rows.js";
import { on, state } from "./state.js";
import { apply, isConnected, positionFields, refresh, refreshAll, request, show, Unreachable } from "./updates.js";

export const conflict = $("#conflict");
export const guess = $("#search input[name=guess]");
export const CANDIDATE = document.body.classList.contains("adjudicating") ? "opinion" : "suggestion";
const UNREADABLE_TRIES = 2;

/** Press a button of the form with the labels, e.g. "drop". */
export function choose(value) {
  const data = new FormData($("#decide"));
  data.set("choose", value);
  send("/decide", data);
}

/** Undo the last step; a request that could not be sent is withdrawn. */
export function undo() {
  const waiting = allRequests().filter(other => !other.problem).at(-1);
  if (isConnected() || !waiting) return send("/undo", new FormData());
  removeRequest(waiting);
  setCurrent(rowOf(waiting.labels[0]) ?? currentRow());
  showMessage(`Withdrawn: ${waiting.about}.`);
}

/** Send the fields of a form; the cursor moves past labels that it decides without waiting for the answer. */
export function send(action, data, form = null) {
  const choice = String(data.get("choose") ?? "");
  const button = choice.match(/^take:\d+@[\d.a-f]+:(.*)$/s);
  const labels = labelsOf(action, data, button);
  const about = describe(action, choice, labels, form);
  const affected = labels.map(rowOf).filter(Boolean);
  if (["/decide", "/move"].includes(action) && !labels.length) return showMessage("No label is selected.");
  const nothing = button ? "" : nothingToTake(choice, affected);
  if (nothing) return showMessage(nothing);
  if (action === "/decide" && !button && choice !== "comment" && labels.length === 1 && takeGuard(labels[0]))
    return showMessage(`${nameOf(currentRow())} is decided already; press again to change it.`);
  const menu = form?.closest("details.menu")?.id ?? null;
  if (menu && allRequests().some(other => other.menu === menu && !other.problem)) return showMessage(`Being saved: ${about}.`);
  if (button && button[1] !== state.label) for (const name of ["comment", "comment_was"]) data.delete(name);
  const decides = action === "/decide" && !["comment", "clear"].includes(choice);
  addRequest({ action, fields: [...data], labels, about, menu, decides, view: state.view });
  if (!button && affected.length) setTicked(ticked(), false);
  if (decides && (labels.includes(state.label) || affected.length > 1))
    setCurrent(nextUndecided(affected.at(-1)) ?? currentRow(), { load: false });
  guess.checked = false;
}

function labelsOf(action, data, button) {
  if (action !== "/decide" && action !== "/move") return [];
  if (button) return [button[1]];
  const texts = data.getAll("label").length ? data.getAll("label") : data.getAll("focus");
  return texts.filter(Boolean).map(text => text.slice(text.indexOf(":") + 1));
}

/** Return why "accept" or "take:1" would do nothing to any of these rows; empty if it does, or for other choices. */
function nothingToTake(choice, affected) {
  const [, kind, digits = 1] = choice.match(/^(accept|take):?(\d+)?$/) ?? [];
  const certaintyOf = row => row.dataset.candidates.split(" ")[digits - 1];
  const offered = affected.map(certaintyOf).filter(Boolean);
  const folded = affected.find(row => certaintyOf(row) === "folded");
  if (kind === "take" && folded && affected.length > 1)
    return `Suggestion ${digits} of “${nameOf(folded)}” is not shown yet; decide that label alone, or deselect it.`;
  if (kind === "take" && folded && !showsMore(affected[0]))
    return `Suggestion ${digits} is not shown yet; open “more suggestions” first.`;
  if (!kind || offered.some(certainty => kind === "take" || certainty !== "unlikely")) return "";
  const who = affected.length === 1 ? `${nameOf(affected[0])} has` : "The selected labels have";
  if (kind === "take") return `${who} no ${CANDIDATE} ${digits}.`;
  return `${who} no ${CANDIDATE}${offered.length ? " of 50 % or more; take the first by its number" : ""}.`;
}

/** Return whether the card shows all suggestions of the label in a row. */
const showsMore = row => row.dataset.label === state.card && $("#more-suggestions[open]") !== null;

/** Return what a request is about, e.g. "lake and 2 more: drop". */
function describe(action, choice, labels, form) {
  const row = labels.length ? rowOf(labels[0]) : null;
  const names = `${row ? nameOf(row) : labels[0] ?? ""}${labels.length > 1 ? ` and ${labels.length - 1} more` : ""}`;
  const [kind, value] = [choice.split(":", 1)[0], choice.slice(choice.indexOf(":") + 1)];
  if (action === "/move") return `${names}: move to another cluster`;
  if (action === "/undo" || action === "/redo") return action.slice(1);
  if (action !== "/decide") {
    const title = form?.closest("details")?.querySelector("summary")?.firstChild.textContent.trim() ?? action.slice(1);
    return [title.toLowerCase(), $("[name=name]", form ?? document.createElement("form"))?.value].filter(Boolean).join(": ");
  }
  if (kind === "group" || kind === "above") return `${names}: ${$(`#groups button[value="${CSS.escape(choice)}"] span`)?.textContent ?? value}`;
  const number = kind.startsWith("accept") ? 1 : kind === "take" ? parseInt(value, 10) : 0;
  if (number && labels.length > 1) return `${names}: suggestion ${number}`;
  if (!number) return `${names}: ${choice}`;
  const taken = row && $(`button[value^="take:${number}@"] :is(.decision, span)`, row);
  return `${names}: ${taken?.textContent.trim() ?? `suggestion ${number}`}`;
}

let sending = false;

/** Send what waits, until nothing does or the server cannot be reached. */
async function sendAll() {
  if (sending) return;
  sending = true;
  try {
    for (let next = nextRequest(); next; next = nextRequest()) await sendOne(next);
  } catch (error) {
    if (!(error instanceof Unreachable)) throw error;
  } finally {
    sending = false;
  }
}

async function sendOne(entry) {
  const body = new URLSearchParams(entry.fields);
  for (const [name, value] of positionFields(state.label, state.last)) body.set(name, value);
  body.set("request", entry.id);
  body.set("store", state.store);
  if (entry.tries++) body.set("again", "1");
  const { status, ok, answer } = await request(entry.action, { method: "POST", body });
  if (!allRequests().includes(entry)) return withdrawn(answer);
  if (ok && answer) return saved(entry, answer);
  if (answer?.conflict) return resolve(entry, answer.conflict);
  if (answer) return refused(entry, answer.error);
  if (entry.tries >= UNREADABLE_TRIES) setAside(entry, `the server's answer cannot be read (status ${status})`);
}

/** The annotator withdrew a request while it was on its way. */
function withdrawn(answer) {
  if (answer?.step) send("/undo", new URLSearchParams({ step: answer.step }));
  else refresh();
}

function saved(entry, answer) {
  closeMenu(entry);
  settle(entry, answer.versions ?? {});
  let note = "";
  show(() => {
    if (answer.goes_there) goToChange(answer);
    else {
      apply(answer);
      if (entry.decides && state.view === entry.view && isFree() && rows().every(row => row.dataset.decision))
        note = goToNextUndecided();
      else if ("list" in answer.parts && isFree()) setCurrent(currentRow());
    }
  });
  showMessage([answer.message, note].filter(Boolean).join(" "), answer.step, answer.undo);
  if (state.card !== state.label && !nextRequest()) refresh();  // the cursor has moved on while this was being saved
}

/** Return whether the annotator types nowhere and has no menu open, so that the page may move on. */
const isFree = () => !document.activeElement.matches("input:not([type=checkbox]), select") && !$("details.menu[open]");

function refused(entry, problem) {
  const isOpen = entry.menu && document.getElementById(entry.menu)?.open;
  const isStep = ["/undo", "/redo"].includes(entry.action);
  if (!isOpen && !isStep) return setAside(entry, problem);
  removeRequest(entry);  // its text is still in the form
  showError(problem);
  refresh();
}

/** Set a request aside. The answer to it would have brought the card of the label to which the cursor has moved on. */
function setAside(entry, problem) {
  refuse(entry, problem);
  refresh();
}

/** Close the menu with the form that was saved, unless something else was typed into it since. */
function closeMenu({ menu, fields }) {
  const details = menu && document.getElementById(menu);
  if (!details) return;
  const sent = new URLSearchParams(fields);
  if (typedFields(details).some(field => field.value !== sent.get(field.name))) return;
  const hadFocus = details.contains(document.activeElement);
  resetFields(details);
  details.open = false;
  if (hadFocus) setCurrent(currentRow());
}

/** Ask the annotator which of two decisions counts; the others wait. */
async function resolve(entry, html) {
  conflict.innerHTML = html;
  $("p", conflict).append(` Not saved: ${entry.about}.`);
  conflict.showModal();
  conflict.focus();  // on no button: the annotator may be about to press Enter for the next label
  const fields = await new Promise(answered => {
    let chosen = null;
    conflict.onsubmit = event => {
      event.preventDefault();
      event.stopPropagation();
      chosen = event.target.method === "get" ? [] : [...new FormData(event.target)];
      conflict.close();
    };
    conflict.onclose = () => answered(chosen);
  });
  if (fields === null) return setAside(entry, "it was changed in the meantime");
  if (!fields.length) removeRequest(entry);
  else Object.assign(entry, { fields, tries: 0 });
  await refreshAll();
}

on("connection", why => { if (!why) sendAll(); });
on("requests", () => queueMicrotask(sendAll));  // once the cursor has moved on
on("saved elsewhere", refresh);
