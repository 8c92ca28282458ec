"use strict";
// Keyboard control and partial updates of a page whose forms also work without this script. Forms are sent with the same
// fields as without it, and the changed parts come back as HTML. A decision is shown once it is on disk; the cursor moves on
// at once.

const $ = (selector, within = document) => within.querySelector(selector);
const body = document.body, list = $("#list"), search = $("#search input[type=search]");
const comment = $(".note input[name=comment]"), commentWas = $(".note input[name=comment_was]");
const guess = $("#search input[name=guess]"), message = $("#message"), conflict = $("#conflict");
const tabs = new BroadcastChannel("hgld");
const POLL_MS = 2000;

let last = Number(body.dataset.last);
let cluster = $("#decide [name=at_cluster]").value;
let current = $("#decide [name=at_label]").value;
let anchor = null;
let unseen = null;  // a decided label to which the page moved the cursor by itself
let queue = Promise.resolve();

// Rows.

const rows = () => [...list.querySelectorAll(".row")];
const rowOf = label => $(`.row[data-label="${CSS.escape(label)}"]`, list);
const tickOf = row => $(".tick input", row);
const ticked = () => [...list.querySelectorAll(".row .tick input:checked")].map(tick => tick.closest(".row"));
const isUndecided = row => !row.dataset.decision && !row.classList.contains("saving");

function setCurrent(row, { focus = true, load = true, scroll = true } = {}) {
  $(".row.current", list)?.classList.remove("current");
  if (!row) return;
  const moved = row.dataset.label !== current;
  if (moved) unseen = null;
  current = row.dataset.label;
  row.classList.add("current");
  if (focus) $(".name", row).focus({ preventScroll: true });
  if (scroll) {
    row.scrollIntoView({ block: "nearest" });
    // Again once rows that were never drawn have their height.
    requestAnimationFrame(() => row.scrollIntoView({ block: "nearest" }));
  }
  $("#card [name=focus]").value = tickOf(row).value;
  if (moved || !comment.matches(":focus")) comment.value = commentWas.value = row.dataset.comment;
  if (moved && load) refresh();
}

function move(steps, range) {
  const all = rows(), from = all.findIndex(row => row.dataset.label === current);
  const row = all[Math.max(0, Math.min(all.length - 1, from + steps))];
  if (range) selectTo(row);
  else anchor = null;
  setCurrent(row);
}

function selectTo(row) {
  const all = rows();
  anchor ??= current;
  const ends = [all.findIndex(other => other.dataset.label === anchor), all.indexOf(row)].sort((a, b) => a - b);
  all.forEach((other, n) => { tickOf(other).checked = n >= ends[0] && n <= ends[1]; });
  showSelected();
}

function setTicked(selection, on) {
  for (const row of selection) tickOf(row).checked = on;
  anchor = null;
  showSelected();
}

function showSelected() {
  const n = ticked().length, shown = $("#selected");
  shown.hidden = n === 0;
  shown.textContent = `${n.toLocaleString("en")} selected`;
}

function nextUndecided(from) {
  const all = rows(), start = all.indexOf(from) + 1;
  return [...all.slice(start), ...all.slice(0, start)].find(isUndecided);
}

function goToNextUndecided() {
  const row = nextUndecided(rowOf(current));
  if (row) return setCurrent(row);
  const links = [...document.querySelectorAll("#clusters a")];
  const here = links.findIndex(link => link.dataset.cluster === cluster) + 1;
  const link = [...links.slice(here), ...links.slice(0, here)].find(other => other.dataset.undecided !== "0");
  if (!link) return showMessage("All labels are decided.");
  const done = cluster;
  showCluster(link.dataset.cluster);
  if (cluster !== done) showMessage(`Cluster ${done} is complete; this is cluster ${cluster}.`);
}

// Requests to the server.

async function request(url, options = {}) {
  let response;
  try {
    response = await fetch(url, { ...options, headers: { accept: "application/json" } });
  } catch {
    body.classList.add("offline");
    showMessage("The server does not answer. Everything shown as decided is saved; start the same hgld command again.", true);
    return null;
  }
  if (response.status === 403) {
    showMessage("The server was restarted: open the new address that it printed.", true);
    return null;
  }
  if (body.classList.contains("offline")) {
    body.classList.remove("offline");
    message.hidden = true;
  }
  return response;
}

const positionFields = (label, since) => new URLSearchParams({ at_cluster: cluster, at_label: label, since });

async function refresh() {
  const response = await request(`/changes?${positionFields(current, last)}`);
  if (response?.ok) apply(await response.json());
}

async function showCluster(number) {
  cluster = number;
  message.hidden = true;
  setTicked(ticked(), false);
  const response = await request(`/changes?${positionFields("", -1)}`);
  if (!response?.ok) return;
  const update = await response.json();
  if (update.last < last) return showCluster(number);  // something was saved in the meantime
  if (update.cluster !== Number(cluster)) cluster = String(update.cluster);
  current = update.label;
  apply(update);
  $("#labels").scrollTop = 0;
  setCurrent(rowOf(current));
}

function apply(update) {
  if (update.last < last) return;  // a later answer came first
  last = update.last;
  const here = String(update.cluster) === cluster;
  const inList = list.contains(document.activeElement);
  if (here) replaceRows(Object.values(update.rows));
  for (const [id, html] of Object.entries(update.parts)) {
    if (id === "card" && update.label !== current && rowOf(current)) continue;
    if ((id === "list" || id === "head") && !here && $(`#clusters a[data-cluster="${cluster}"]`)) continue;
    const ticks = id === "list" ? new Set(ticked().map(row => row.dataset.label)) : null;
    $(`#${id}`).innerHTML = html;
    if (ticks) for (const row of rows()) tickOf(row).checked = ticks.has(row.dataset.label);
    if (id === "groups") filter();
    if (id === "list") cluster = String(update.cluster);
  }
  const gone = !rowOf(current);
  setCurrent(rowOf(current) ?? rowOf(update.label), { focus: inList, scroll: false });
  if (gone) guardDecision();
  showSelected();
}

/** Go to what was undone or redone, also in another cluster, and say what it was. */
function showStep(update) {
  const before = current;
  if (String(update.cluster) !== cluster) setTicked(ticked(), false);
  cluster = String(update.cluster);
  current = update.label;
  apply(update);
  setCurrent(rowOf(current));
  if (current !== before) guardDecision();
  showMessage(update.message);
}

/** The cursor was not moved by the annotator: the next key must not overwrite a decision that nobody looked at. */
function guardDecision() {
  unseen = rowOf(current)?.dataset.decision ? current : null;
}

function replaceRows(html) {
  const old = new Map((html.length > 9 ? rows() : []).map(row => [row.dataset.label, row]));
  const made = document.createElement("template");
  made.innerHTML = html.join("");
  for (const row of [...made.content.children]) {
    const before = old.get(row.dataset.label) ?? rowOf(row.dataset.label);
    if (before) tickOf(row).checked = tickOf(before).checked;
    before?.replaceWith(row);
  }
}

/** Send the fields of a form; the cursor moves past labels that it decides without waiting for the answer. */
function send(action, data) {
  const button = String(data.get("choose") ?? "").match(/^take:\d+@\d+:(.*)$/s);
  const labels = button ? [button[1]] : (data.getAll("label").length ? data.getAll("label") : data.getAll("focus"))
    .map(text => text.slice(text.indexOf(":") + 1));
  if (action === "/decide" && !button && data.get("choose") !== "comment" && labels.length === 1 && labels[0] === unseen) {
    unseen = null;
    showMessage(`${$(".name", rowOf(current)).textContent} is decided already; press again to change it.`);
    return queue;
  }
  const decides = action === "/decide" && !["comment", "clear"].includes(data.get("choose"));
  const affected = action === "/decide" || action === "/move" ? labels.map(rowOf).filter(Boolean) : [];
  for (const row of affected) row.classList.add("saving");
  if (!button && affected.length) setTicked(ticked(), false);
  if (decides && (labels.includes(current) || affected.length > 1))
    setCurrent(nextUndecided(affected.at(-1)) ?? rowOf(current), { load: false });
  guess.checked = false;
  const from = cluster;
  queue = queue.then(async () => {
    for (const [name, value] of positionFields(current, last)) data.set(name, value);
    const response = await request(action, { method: "POST", body: new URLSearchParams(data) });
    for (const row of affected) row.classList.remove("saving");
    if (!response) return;
    if (response.ok) {
      const update = await response.json();
      if (update.message) showStep(update);
      else {
        apply(update);
        if (decides && cluster === from && rows().every(row => row.dataset.decision)) goToNextUndecided();
        else if ("list" in update.parts) setCurrent(rowOf(current));
      }
      for (const menu of document.querySelectorAll("details.menu[open]")) menu.open = false;
      tabs.postMessage(last);
    } else {
      const problem = await response.json();
      if (affected.length) setCurrent(rowOf(labels[0]) ?? rowOf(current));
      if (problem.conflict) {
        conflict.innerHTML = problem.conflict;
        conflict.showModal();
      } else showMessage(problem.error);
      await refresh();
    }
  });
  return queue;
}

function choose(value) {
  const data = new FormData($("#decide"));
  data.set("choose", value);
  return send("/decide", data);
}

let messageTimer;
function showMessage(text, stays = false) {
  message.textContent = text;
  message.hidden = false;
  clearTimeout(messageTimer);
  if (!stays) messageTimer = setTimeout(() => { message.hidden = true; }, 6000);
}

// Groups.

function filter() {
  const wanted = search.value.trim().toLowerCase();
  const rank = item => {
    const name = item.dataset.name.toLowerCase();
    if (name.startsWith(wanted)) return 0;
    if (name.split(/[^\p{L}\p{N}]+/u).some(word => word.startsWith(wanted))) return 1;
    if (name.includes(wanted)) return 2;
    return item.textContent.toLowerCase().includes(wanted) ? 3 : 4;
  };
  const order = [...document.querySelectorAll("#groups .groups > li")]
    .map(item => [rank(item), item.dataset.name, item])
    .sort((a, b) => (wanted ? a[0] - b[0] : 0) || a[1].localeCompare(b[1]));
  for (const [rank, , item] of order) {
    item.hidden = wanted !== "" && rank === 4;
    item.parentNode.append(item);
  }
  activate(wanted ? 0 : null);
}

const visibleGroups = () => [...document.querySelectorAll("#groups .groups > li:not([hidden])")];

function activate(n) {
  $("#groups .active")?.classList.remove("active");
  if (n === null) return;
  const items = visibleGroups();
  const item = items[Math.max(0, Math.min(items.length - 1, n))];
  item?.classList.add("active");
  item?.scrollIntoView({ block: "nearest" });
}

function searchKey(event) {
  const items = visibleGroups(), at = items.findIndex(item => item.classList.contains("active"));
  if (event.key === "ArrowDown" || event.key === "ArrowUp") activate(at + (event.key === "ArrowDown" ? 1 : -1));
  else if (event.key === "Enter") {
    const button = $("button", items[at] ?? document.createElement("li"));
    if (!button) return;
    if (event.shiftKey) guess.checked = true;
    const data = new FormData($("#decide"), button);
    leaveSearch();
    send("/decide", data);
  } else return;
  event.preventDefault();
}

function leaveSearch() {
  search.value = "";
  filter();
  setCurrent(rowOf(current));
}

// Keys.

function openMenu(id) {
  for (const menu of document.querySelectorAll("details.menu[open]")) menu.open = false;
  const menu = document.getElementById(id);
  if (!menu) return;
  menu.open = true;
  const field = $("input:not([type=hidden]), select", menu);
  field.focus();
  field.select?.();
}

const toggle = id => { const panel = document.getElementById(id); panel.open = !panel.open; };
const stepCluster = step => {
  const links = [...document.querySelectorAll("#clusters a")];
  const link = links[links.findIndex(other => other.dataset.cluster === cluster) + step];
  if (link) showCluster(link.dataset.cluster);
};
const subclusterRows = () => [...rowOf(current).closest("section").querySelectorAll(".row")];

const KEYS = {
  j: () => move(1), arrowdown: () => move(1), "shift+arrowdown": () => move(1, true), "shift+j": () => move(1, true),
  k: () => move(-1), arrowup: () => move(-1), "shift+arrowup": () => move(-1, true), "shift+k": () => move(-1, true),
  pagedown: () => move(10), pageup: () => move(-10), home: () => move(-1e9), end: () => move(1e9),
  n: goToNextUndecided, "]": () => stepCluster(1), "[": () => stepCluster(-1),
  e: () => $(".examples a", rowOf(current))?.click(),
  enter: () => choose("accept"), d: () => choose("drop"), u: () => choose("unsure"),
  backspace: () => choose("clear"), delete: () => choose("clear"),
  g: () => search.focus(), "/": () => search.focus(), c: () => comment.focus(),
  z: () => send("/undo", new FormData()), "ctrl+z": () => send("/undo", new FormData()),
  y: () => send("/redo", new FormData()), "shift+z": () => send("/redo", new FormData()),
  "ctrl+y": () => send("/redo", new FormData()), "ctrl+shift+z": () => send("/redo", new FormData()),
  x: () => setTicked([rowOf(current)], !tickOf(rowOf(current)).checked),
  b: () => setTicked(subclusterRows(), !subclusterRows().every(row => tickOf(row).checked)), "ctrl+a": () => setTicked(rows(), true),
  s: () => openMenu("split"), m: () => openMenu("merge"), r: () => openMenu("rename-cluster"),
  a: () => openMenu("propose-group"), "shift+r": () => openMenu("rename-group"), "shift+m": () => openMenu("merge-group"),
  h: () => toggle("history-panel"), "?": () => toggle("help"), escape: () => setTicked(ticked(), false),
};
for (let n = 1; n <= 9; n++) KEYS[n] = () => choose(`take:${n}`);

function keyName(event) {
  // Letters by the position of the key if the keyboard layout has another script.
  const letter = /^Key/.test(event.code) && !/^[\x20-\x7e]$/.test(event.key) ? event.code.slice(3) : event.key;
  const key = letter.toLowerCase();
  const shift = event.shiftKey && /^([a-z]|arrow.*)$/.test(key) ? "shift+" : "";
  return `${event.ctrlKey || event.metaKey ? "ctrl+" : ""}${shift}${key}`;
}

document.addEventListener("keydown", event => {
  if (event.isComposing || event.altKey || conflict.open) return;
  const field = event.target.closest("input:not([type=checkbox]), select");
  if (event.key === "Escape") {
    const open = document.querySelectorAll("details[open]");
    for (const opened of open) opened.open = false;
    if (field === comment) comment.value = commentWas.value;
    if (field || open.length) return field === search ? leaveSearch() : setCurrent(rowOf(current));
  }
  if (field === search) return searchKey(event);
  if (field) return;
  const pressed = event.key === "Enter" || event.key === " ";
  if (pressed && event.target.closest("button, summary, a:not(.name)")) return;
  const handler = KEYS[keyName(event)];
  if (!handler) return;
  event.preventDefault();
  handler();
});

// Mouse and touch.

list.addEventListener("click", event => {
  const row = event.target.closest(".row");
  if (event.target.matches(".all"))
    return setTicked([...event.target.closest("section").querySelectorAll(".row")], event.target.checked);
  if (!row || event.target.closest(".examples a, button")) return;
  if (event.target.matches(".tick input")) {
    anchor = null;
    setCurrent(row, { focus: false });
    return showSelected();
  }
  if (event.target.closest(".tick")) return;
  event.preventDefault();
  if (event.shiftKey) selectTo(row);
  else if (event.ctrlKey || event.metaKey) setTicked([row], !tickOf(row).checked);
  else anchor = null;
  setCurrent(row);
});

$("#clusters").addEventListener("click", event => {
  const link = event.target.closest("a");
  if (!link || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  showCluster(link.dataset.cluster);
});

$("#groups").addEventListener("click", event => {
  if (event.shiftKey && event.target.closest("button[value^='group:']")) guess.checked = true;
}, true);

document.addEventListener("click", event => {
  const button = event.target.closest("[data-key]");
  if (button) KEYS[button.dataset.key]();
  for (const panel of document.querySelectorAll("details.panel[open]"))
    if (!panel.contains(event.target)) panel.open = false;
});

document.addEventListener("submit", event => {
  const form = event.target;
  if ("plain" in form.dataset) return;
  event.preventDefault();
  if (form.id === "search") return;
  if (conflict.contains(form)) conflict.close();
  if (form.method === "get") return refresh();
  const data = new FormData(form, event.submitter);
  send(event.submitter?.getAttribute("formaction") ?? form.getAttribute("action"), data);
  if (document.activeElement === comment) setCurrent(rowOf(current));
});

search.addEventListener("input", filter);
tabs.addEventListener("message", refresh);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
addEventListener("pagehide", () => {
  history.replaceState(null, "", `/?${new URLSearchParams({ cluster, label: current })}`);
});
setInterval(() => { if (!document.hidden) refresh(); }, POLL_MS);

document.documentElement.classList.add("js");
if (search.value) filter();
setCurrent(rowOf(current));
