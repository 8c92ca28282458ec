// What small windows put away: the sheet with the current label can be folded, and drawers open above the page.

import { $ } from "./dom.js";

const FOLDED_BELOW = 120;  // px; a sheet that is dragged to less is folded
const DRAG_FROM = 6;  // px; less is a tap
const body = document.body, sheet = $("#sheet"), toggle = $("#sheet-toggle"), grip = $("#sheet-grip");

const isFolded = () => body.classList.contains("sheet-folded");

/** Fold or unfold the sheet of a narrow window; other windows show all of it. */
export function foldSheet(fold = !isFolded()) {
  body.classList.toggle("sheet-folded", fold);
  toggle.setAttribute("aria-expanded", String(!fold));
}

/** Show an element that is in a closed drawer or in the folded sheet, so that it can be focused. */
export function reveal(element) {
  if (element.closest("aside")) foldSheet(false);
  const drawer = element.closest("[popover]");
  if (drawer && !element.checkVisibility()) drawer.showPopover();
}

function setHeight(height) {
  foldSheet(height < FOLDED_BELOW);
  sheet.style.setProperty("--sheet-height", `${height}px`);
}

grip.addEventListener("pointerdown", start => {
  const height = isFolded() ? 0 : sheet.offsetHeight;
  let moved = false;
  const drag = event => {
    moved ||= Math.abs(event.clientY - start.clientY) > DRAG_FROM;
    if (moved) setHeight(height + start.clientY - event.clientY);
  };
  grip.setPointerCapture(start.pointerId);
  grip.addEventListener("pointermove", drag);
  grip.addEventListener("lostpointercapture", () => {
    grip.removeEventListener("pointermove", drag);
    if (!moved) foldSheet();
    if (isFolded()) sheet.style.removeProperty("--sheet-height");
  }, { once: true });
});

toggle.addEventListener("click", () => foldSheet());

// Where the whole sheet scrolls, the matches are shown below the search.
$("#search").addEventListener("focusin", event => {
  const groups = $("#groups").getBoundingClientRect(), search = event.currentTarget.getBoundingClientRect();
  if (sheet.scrollHeight > sheet.clientHeight)
    sheet.scrollTop += groups.top - sheet.getBoundingClientRect().top - search.height;
});

// What was chosen in these drawers is elsewhere on the page.
document.addEventListener("click", event => {
  const drawer = event.target.closest("#clusters a, #more-actions button")?.closest(":popover-open");
  drawer?.hidePopover();
});
document.addEventListener("submit", event => {
  (event.submitter ?? event.target).closest(":popover-open:not(#tools)")?.hidePopover();
});

if (matchMedia("(height < 480px)").matches) foldSheet(true);
