"use strict";
// Search with a picture as soon as it is chosen, dropped or pasted, and show the answer without leaving the page.

document.documentElement.classList.add("js");
const status = document.getElementById("status");
let current = null;

const show = (html) => {
  const page = new DOMParser().parseFromString(html, "text/html");
  document.querySelector("main").replaceWith(page.querySelector("main"));
  document.title = page.title;
  status.textContent = "";
  document.getElementById("answer-title")?.focus();
};

const search = async (file) => {
  current?.abort();
  const request = current = new AbortController();
  status.textContent = "Searching …";
  try {
    const response = await fetch("/search", { method: "POST", body: file, signal: request.signal });
    const text = await response.text();
    if (!response.headers.get("content-type")?.startsWith("text/html")) throw new Error(text.trim());
    show(text);
  } catch (error) {
    if (request.signal.aborted) return;
    const isOffline = error instanceof TypeError;
    status.textContent = isOffline ? "hgld does not answer; is it still running?" : error.message;
  }
};

document.getElementById("upload").addEventListener("submit", (event) => {
  const file = document.getElementById("image").files[0];
  if (!file) return;
  event.preventDefault();
  search(file);
});
document.getElementById("image").addEventListener("change", (event) => {
  if (event.target.files[0]) search(event.target.files[0]);
});
addEventListener("paste", (event) => {
  if (event.clipboardData.files[0]) search(event.clipboardData.files[0]);
});
addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dropping");
});
addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) document.body.classList.remove("dropping");
});
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  if (event.dataTransfer.files[0]) search(event.dataTransfer.files[0]);
});
