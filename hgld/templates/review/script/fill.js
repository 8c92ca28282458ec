// Rows far from the current one come in brief. Those that come near the visible part of the list are fetched in full; the
// cursor and the selection work with both.

import { $$ } from "./dom.js";
import { list, rowOf, tickOf } from "./rows.js";
import { on, state } from "./state.js";
import { request } from "./updates.js";

/** Rows that are fetched together, and how near they are by then: as far as the rows of a batch reach. */
const BATCH = 15, NEAR = "900px 0px";

const RETRY_MS = 5000;

const batches = new WeakMap();  // brief rows by the first of them
const observer = new IntersectionObserver(entries => {
  for (const { target, isIntersecting } of entries) if (isIntersecting) fill(target);
}, { rootMargin: NEAR, scrollMargin: NEAR });

const isBrief = row => row.isConnected && row.classList.contains("brief");

/** Fetch the rest of the rows of a batch. */
async function fill(first) {
  observer.unobserve(first);
  const labels = batches.get(first).filter(isBrief).map(row => ["label", row.dataset.label]);
  if (!labels.length) return;
  const fields = new URLSearchParams([["at_view", state.view], ...labels]);
  const reply = await request(`/rows?${fields}`).catch(() => null);
  if (!reply?.answer?.rows) return setTimeout(() => observer.observe(first), RETRY_MS);
  const made = document.createElement("template");
  made.innerHTML = Object.values(reply.answer.rows).join("");
  for (const full of [...made.content.children]) complete(rowOf(full.dataset.label), full);
}

/** Add to a row what it lacks; the row itself, which may have the focus, stays. */
function complete(row, full) {
  if (!row || !isBrief(row) || Number(full.dataset.version) < Number(row.dataset.version)) return;
  row.append(...[...full.children].slice(row.children.length));
  Object.assign(row.dataset, full.dataset);
  tickOf(row).value = tickOf(full).value;
  row.classList.remove("brief");
}

function watch() {
  observer.disconnect();
  const brief = $$(".row.brief", list);
  for (let n = 0; n < brief.length; n += BATCH) {
    batches.set(brief[n], brief.slice(n, n + BATCH));
    observer.observe(brief[n]);
  }
}

on("part", id => { if (id === "list") watch(); });
watch();
