// The requests that are not yet saved, in the order in which they were made. They are kept in the browser's storage, from
// which a page that is opened later takes over those of a window that was closed.
//
// A request has an `id` by which the server knows it again, `action` and `fields` of its form, the `labels` that it is
// about, a description (`about`), whether it `decides` them, the id of its `menu`, if any, the number of `tries`, and a
// `problem` once it was refused.

import { keep, kept, keptNames } from "./storage.js";
import { state, tell } from "./state.js";

const NAME = "unsaved:";
const ASK_MS = 500;
const random = () => [...crypto.getRandomValues(new Uint32Array(4))].map(number => number.toString(36)).join("");
const page = random();
const otherPages = new BroadcastChannel(`hgld:${state.store}`);

let requests = [];
export const allRequests = () => requests;
export const nextRequest = () => requests.find(request => !request.problem);

function changed() {
  keep(NAME + page, requests.length ? requests : null);
  tell("requests");
}

export function addRequest(fields) {
  const request = { id: random(), tries: 0, problem: "", ...fields };
  requests.push(request);
  changed();
  return request;
}

export function removeRequest(request) {
  requests = requests.filter(other => other !== request);
  changed();
}

/** Set a request aside until the annotator has it tried again. */
export function refuse(request, problem) {
  request.problem = problem;
  changed();
}

/** Have requests sent again that were set aside. */
export function retry(selection) {
  for (const request of selection) request.problem = "";
  changed();
}

/**
 * Return a field with the present version of its label, e.g. "take:1@5.ab:Q1" for "take:1@4.ab:Q1": a request stays about the
 * candidates that the annotator saw.
 */
function renewed(name, value, versions) {
  if (!["label", "focus", "choose"].includes(name)) return value;
  return value.replace(/^(take:\d+@)?(\d+)(\.[\da-f]+)?:(.*)$/s, (_, button = "", version, candidates = "", label) =>
    `${button}${Math.max(version, versions[label] ?? 0)}${candidates}:${label}`);
}

/** A request was saved: later ones are about the versions of labels that it made, and refused decisions are replaced. */
export function settle(request, versions) {
  const earlier = requests.slice(0, requests.indexOf(request));
  const isReplaced = other => earlier.includes(other) && other.problem && other.decides && request.decides
    && other.labels.every(label => request.labels.includes(label));
  requests = requests.filter(other => other !== request && !isReplaced(other));
  for (const other of requests) other.fields = other.fields.map(([name, value]) => [name, renewed(name, value, versions)]);
  changed();
  tell("saved", request);
  otherPages.postMessage({ saved: true });
}

// Other windows. Those that are open answer when a new one asks; what the others left behind is offered in the new one.

otherPages.addEventListener("message", ({ data }) => {
  if (data.ask) otherPages.postMessage({ here: page });
  if (data.here) open.add(data.here);
  if (data.saved) tell("saved elsewhere");
});
const open = new Set([page]);
otherPages.postMessage({ ask: true });
setTimeout(() => {
  for (const name of keptNames(NAME)) {
    if (open.has(name.slice(NAME.length))) continue;
    const left = (kept(name) ?? []).map(request => ({ ...request, tries: 1, menu: null, problem: "it was made in a window that was closed" }));
    requests = [...left, ...requests];
    keep(name, null);
  }
  if (requests.length) changed();
}, ASK_MS);

addEventListener("beforeunload", event => { if (requests.length) event.preventDefault(); });
