// Which keys do what: those of the table of actions, unless the annotator chose another key for an action, or switched off
// the keys of one character, which voice control and unsteady hands press by accident (WCAG 2.1.4).

const COOKIE = "hgld-keys";  // not localStorage, which forgets at each start: the page's port is another one then
const YEAR_S = 31_536_000;
const RESERVED = {
  tab: "moves the focus", escape: "closes menus", " ": "ticks boxes and presses buttons", dead: "begins an accent",
};
const NAMES = { arrowdown: "↓", arrowup: "↑", backspace: "⌫", pagedown: "Page ↓", pageup: "Page ↑", shift: "⇧" };
const ARIA_NAMES = {
  arrowdown: "ArrowDown", arrowup: "ArrowUp", pagedown: "PageDown", pageup: "PageUp", ctrl: "Control",
};
const capitalised = part => part.charAt(0).toUpperCase() + part.slice(1);
const parts = key => key.match(/^(ctrl\+)?(shift\+)?(.+)$/s).slice(1).filter(Boolean)
  .map((part, at, all) => at < all.length - 1 ? part.slice(0, -1) : part);

let settings = read();

function read() {
  const stored = document.cookie.match(new RegExp(`(?:^|; )${COOKIE}=([^;]*)`));
  try {
    const { off = false, keys = {} } = JSON.parse(decodeURIComponent(stored[1]));
    return { off: off === true, keys: Object.fromEntries(Object.entries(keys).filter(([, key]) => typeof key === "string")) };
  } catch {
    return { off: false, keys: {} };  // none, or not ours
  }
}

function store(changed) {
  settings = changed;
  const value = encodeURIComponent(JSON.stringify(settings));
  document.cookie = `${COOKIE}=${value}; max-age=${YEAR_S}; path=/; samesite=strict`;
}

/** Return the name of a pressed key, e.g. "ctrl+shift+z". */
export function keyName(event) {
  // Letters by the position of the key if the keyboard layout has another script.
  const letter = /^Key/.test(event.code) && !/^[\x20-\x7e]$/.test(event.key) ? event.code.slice(3) : event.key;
  const key = letter.toLowerCase();
  const shift = event.shiftKey && /^([a-z]|enter|arrow.*)$/.test(key) ? "shift+" : "";
  return `${event.ctrlKey || event.metaKey ? "ctrl+" : ""}${shift}${key}`;
}

const isCharacter = key => [...key.replace(/^shift\+/, "")].length === 1;
const allKeys = (name, action) => Object.hasOwn(settings.keys, name) ? [settings.keys[name]] : action.keys;

/** Return the keys of an action that are switched on. */
export const keysOf = (name, action) => allKeys(name, action).filter(key => !(settings.off && isCharacter(key)));

/** Return the actions by key. */
export const actionsByKey = actions =>
  new Map(Object.entries(actions).flatMap(([name, action]) => keysOf(name, action).map(key => [key, action])));

/** Return a key as the page shows it, e.g. "⇧R". */
export const shownKey = key => parts(key).map(part => NAMES[part] ?? capitalised(part)).join(" ").replace("⇧ ", "⇧");

/** Return a key as `aria-keyshortcuts` has it, e.g. "Shift+R". */
export const ariaKey = key => parts(key).map(part => ARIA_NAMES[part] ?? capitalised(part)).join("+");

export const charactersAreOff = () => settings.off;
export const isChanged = () => settings.off || Object.keys(settings.keys).length > 0;
export const switchCharacters = off => store({ ...settings, off });
export const resetKeys = () => store({ off: false, keys: {} });

/** Give an action another key; return why not, or nothing if it has it now. */
export function changeKey(actions, name, event) {
  const key = keyName(event), shown = shownKey(key);
  if (event.altKey || /^(shift|control|meta|alt|altgraph|capslock|f\d+)$/.test(key)) return `${shown} cannot be a key of the page.`;
  if (key in RESERVED) return `${key === " " ? "Space" : shown} ${RESERVED[key]}; choose another key.`;
  if (/^ctrl\+[acvxtnwqrlf]$/.test(key) && !actions[name].keys.includes(key)) return `${shown} belongs to the browser; choose another key.`;
  const other = Object.keys(actions).find(each => each !== name && allKeys(each, actions[each]).includes(key));
  if (other) return `${shown} is the key for “${actions[other].about}”; give that another key first.`;
  store({ ...settings, keys: { ...settings.keys, [name]: key } });
  return "";
}
