// The script of the review page: keyboard control and partial updates of a page whose forms also work without it. This
// module starts the others, and connects mouse, touch and the forms.

import { $, $$ } from "./dom.js";
import { showForm, showView } from "./clusters.js";
import { comment } from "./comments.js";
import "./groups.js";
import "./keys.js";
import { send, undo } from "./queue.js";
import { currentRow, endRange, list, selectTo, setCurrent, setTicked, showSelected, tickOf, toggleTicked } from "./rows.js";
import "./unsaved.js";
import { state } from "./state.js";
import { refresh } from "./updates.js";

const POLL_MS = 2000;

list.addEventListener("click", event => {
  const row = event.target.closest(".row");
  if (event.target.matches(".all")) return setTicked($$(".row", event.target.closest("section")), event.target.checked);
  if (!row || event.target.closest(".examples a, button")) return;
  if (event.target.matches(".tick input")) {
    endRange();
    setCurrent(row, { focus: false });
    return showSelected();
  }
  if (event.target.closest(".tick")) return;
  event.preventDefault();
  if (event.shiftKey) selectTo(row);
  else if (event.ctrlKey || event.metaKey) toggleTicked([row]);
  else endRange();
  setCurrent(row);
});

document.addEventListener("click", event => {
  const link = event.target.closest("a[data-view]");
  if (!link || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  showView(link.dataset.view, link.dataset.label ?? (link.closest("#clusters") ? "" : state.label));
});

document.addEventListener("submit", event => {
  const form = event.target;
  if ("plain" in form.dataset) return;
  event.preventDefault();
  if ("view" in form.dataset) return showForm(form);
  if (form.id === "search") return;
  if (form.id === "undo") return undo();
  const data = new FormData(form, event.submitter), active = document.activeElement;
  let action = event.submitter?.getAttribute("formaction") ?? form.getAttribute("action"), menu = form;
  if (event.submitter?.closest("#split") || (data.get("choose") === "enter" && active.closest("#split"))) {
    action = "/move";
    menu = $("#split");
  } else if (data.get("choose") === "enter") data.set("choose", "comment");
  send(action, data, menu);
  if (active === comment) setCurrent(currentRow());
});

document.addEventListener("click", event => { if (event.target.closest("[data-reload]")) location.reload(); });

document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
setInterval(() => { if (!document.hidden) refresh(); }, POLL_MS);

document.documentElement.classList.add("js");
setCurrent(currentRow());
