"use strict";
// Send the form that uses the key as soon as somebody looks at the page; a browser that only prepares it waits.

const open = () => {
  const form = document.querySelector("form");
  form.querySelector("button").disabled = true;
  form.submit();
};
if (document.prerendering) document.addEventListener("prerenderingchange", open, { once: true });
else open();
