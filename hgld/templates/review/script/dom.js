// Short names for finding elements.

export const $ = (selector, within = document) => within?.querySelector(selector) ?? null;
export const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
