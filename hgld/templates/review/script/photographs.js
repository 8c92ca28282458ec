// Photographs of the current label: enlarged under the pointer or the focus, all of them in a dialog, and those of the
// next label fetched ahead.

import { $, $$ } from "./dom.js";
import { currentRow, nextUndecided, rows } from "./rows.js";
import { on } from "./state.js";

const HOVER_MS = 120, LEAVE_MS = 200, IDLE_MS = 400;
const FETCHED_AHEAD = 6, NEAR_END = 10;
const beside = $("#photographs"), preview = $("#preview"), viewer = $("#viewer");

const addressOfList = (label, from, count) => `/photographs?${new URLSearchParams({ label, from, count })}`;

/** Fetch photographs of a label as list items; return null if the server does not answer, which other requests report. */
async function fetchItems(label, from, count) {
  try {
    const response = await fetch(addressOfList(label, from, count), { headers: { accept: "application/json" } });
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}

/** Load an image; return it once it is loaded or cannot be. */
function load(source) {
  const image = new Image();
  image.src = source;
  return image.decode().catch(() => {}).then(() => image);
}

/** Wait until the browser has nothing to do; Safari does not tell. */
const idle = () => new Promise(resolve =>
  (window.requestIdleCallback ?? setTimeout)(resolve, window.requestIdleCallback ? { timeout: IDLE_MS } : IDLE_MS));

// Enlarged under the pointer or the focus.

let previewTimer, previewed = null;

function showPreview(link, delay) {
  clearTimeout(previewTimer);
  previewed = link;
  previewTimer = setTimeout(async () => {
    const large = await load(link.href);
    if (previewed !== link || viewer.open) return;
    $("img", preview).src = large.src;
    $("p", preview).textContent = $("img", link).alt;
    preview.hidden = false;
  }, delay);
}

function hidePreview(delay = 0) {
  clearTimeout(previewTimer);
  previewed = null;
  previewTimer = setTimeout(() => { preview.hidden = true; }, delay);
}

function connectPreview() {
  const linkOf = event => event.target.closest?.(".enlarge");
  beside.addEventListener("pointerover", event => {
    if (event.pointerType !== "mouse") return;
    const link = linkOf(event);
    if (link) showPreview(link, HOVER_MS);
    else hidePreview(LEAVE_MS);
  });
  beside.addEventListener("pointerleave", () => hidePreview(LEAVE_MS));
  preview.addEventListener("pointerenter", () => clearTimeout(previewTimer));
  preview.addEventListener("pointerleave", () => hidePreview(LEAVE_MS));
  beside.addEventListener("focusin", event => { if (linkOf(event)?.matches(":focus-visible")) showPreview(linkOf(event), 0); });
  beside.addEventListener("focusout", () => hidePreview());
  document.addEventListener("keydown", event => {
    if (event.key !== "Escape" || preview.hidden) return;
    hidePreview();
    event.stopImmediatePropagation();
  }, true);
}

// The dialog with all photographs of a label.

let shown = 0, nextStart = null, isFetching = false, label = "";
const strip = () => $(".photographs", viewer);
const items = () => $$("li", strip());

/** Show the photographs of the current label, or close them. */
export function toggleViewer() {
  if (viewer?.open) viewer.close();
  else openViewer();
}

/** Show the photographs of the current label, beginning with one of those beside the card. */
function openViewer(first = 0) {
  const list = $("aside:not(.outdated) #photographs .photographs");
  if (!list) return;
  hidePreview();
  label = list.dataset.label;
  $("h2", viewer).textContent = list.dataset.name;
  strip().innerHTML = list.innerHTML;
  strip().dataset.total = list.dataset.total;
  nextStart = items().length < Number(list.dataset.total) ? items().length : null;
  if (!viewer.open) viewer.showModal();
  show(first);
  fetchMore();
}

function show(number) {
  const all = items(), total = Number(strip().dataset.total);
  shown = Math.max(0, Math.min(all.length - 1, number));
  const link = $(".enlarge", all[shown]), place = $(".place", all[shown]);
  const picture = $("figure img", viewer), caption = $("figcaption", viewer);
  picture.src = link.href;
  picture.alt = $("img", link).alt;
  caption.replaceChildren(place.cloneNode(true));
  $("output", viewer).textContent = `${(shown + 1).toLocaleString("en")} of ${total.toLocaleString("en")}`;
  $("[data-step='-1']", viewer).disabled = shown === 0;
  $("[data-step='1']", viewer).disabled = shown === all.length - 1;
  $("[aria-current]", strip())?.removeAttribute("aria-current");
  link.setAttribute("aria-current", "true");
  all[shown].scrollIntoView({ block: "nearest", inline: "nearest" });
  if (all[shown + 1]) load($(".enlarge", all[shown + 1]).href);
  if (shown > all.length - NEAR_END) fetchMore();
}

async function fetchMore() {
  if (nextStart === null || isFetching) return;
  isFetching = true;
  const wanted = label, more = await fetchItems(label, nextStart, 60);
  isFetching = false;
  if (!more || wanted !== label) return;
  strip().insertAdjacentHTML("beforeend", more.html);
  nextStart = more.next;
  $("[data-step='1']", viewer).disabled = shown === items().length - 1;
}

function connectViewer() {
  viewer.addEventListener("click", event => {
    const link = event.target.closest(".enlarge"), step = event.target.closest("[data-step]");
    if (event.target === viewer || event.target.closest("[data-close]")) viewer.close();
    else if (step) show(shown + Number(step.dataset.step));
    else if (link) {
      event.preventDefault();
      show(items().indexOf(link.closest("li")));
    }
  });
  viewer.addEventListener("keydown", event => {
    const steps = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (!steps) return;
    event.preventDefault();
    show(shown + steps);
  });
  $(".photographs", viewer).addEventListener("scroll", event => {
    const list = event.target;
    if (list.scrollLeft + 2 * list.clientWidth > list.scrollWidth) fetchMore();
  });
  beside.addEventListener("click", event => {
    const link = event.target.closest(".enlarge, .all");
    if (!link || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    openViewer(Math.max(0, $$(".enlarge", beside).indexOf(link)));
  });
}

// Those of the next label, fetched one after the other so that decisions never wait for them.

let turn = 0;
const ahead = new Map();  // images by label, which keeps them decoded

async function fetchAhead() {
  const mine = ++turn;
  await Promise.all($$("img", beside).map(image => image.decode().catch(() => {})));
  await idle();
  const all = rows(), here = currentRow();
  const labels = new Set([all[all.indexOf(here) + 1], here && nextUndecided(here)].map(row => row?.dataset.label));
  for (const next of labels) {
    if (!next || ahead.has(next)) continue;
    if (mine !== turn) return;
    const fetched = await fetchItems(next, 0, FETCHED_AHEAD);
    if (!fetched) return;
    const made = document.createElement("template");
    made.innerHTML = fetched.html;
    const images = [];
    for (const image of $$("img", made.content)) {
      if (mine !== turn) return;
      images.push(await load(image.getAttribute("src")));
    }
    ahead.set(next, images);
    if (ahead.size > 4) ahead.delete(ahead.keys().next().value);
  }
}

if (beside) {
  connectPreview();
  connectViewer();
  on("part", id => {
    if (id !== "photographs") return;
    hidePreview();
    fetchAhead();
  });
  fetchAhead();
}
