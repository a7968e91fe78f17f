// The player's name, remembered by the browser for all worlds of a site.

const NAME_KEY = "drumline name";
/** Longest name in characters; the server cleans names by itself. */
export const MAX_NAME = 24;

/** The name that the player used last, or "". */
export function storedName(): string {
  try {
    return (localStorage.getItem(NAME_KEY) ?? "").slice(0, MAX_NAME);
  } catch {
    return "";
  }
}

/** A name for somebody who has none. */
export function guestName(): string {
  return `Guest ${100 + Math.floor(Math.random() * 900)}`;
}

/** Remembers the player's name for the next visit. */
export function storeName(name: string): void {
  try {
    localStorage.setItem(NAME_KEY, name);
  } catch {
    // No storage: it is asked for again.
  }
}
