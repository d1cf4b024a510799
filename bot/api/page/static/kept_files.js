// Files that were chosen and not sent yet, over a reload: in the browser's own store, of the person who is signed in.

const DATABASE = "fawn", STORE = "files", OWNER = "person";
let opening = null;

function open() {
  opening ??= new Promise((done, fail) => {
    const asked = indexedDB.open(DATABASE, 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore(STORE);
    asked.onsuccess = () => {
      asked.result.onversionchange = () => { asked.result.close(); opening = null; }; // another tab deletes it
      done(asked.result);
    };
    asked.onerror = () => fail(asked.error);
  });
  return opening;
}

/** Do one thing in the store. Without one, as in a private window of some browsers, nothing is kept: `none`. */
async function within(mode, work, none) {
  try {
    const store = (await open()).transaction(STORE, mode).objectStore(STORE), asked = work(store);
    return await new Promise((done, fail) => { asked.onsuccess = () => done(asked.result ?? none); asked.onerror = () => fail(asked.error); });
  } catch {
    return none;
  }
}

/** Keep the files of a place, such as the draft of a thread; none forgets them. */
export const keepFiles = (place, files) => within("readwrite", (store) => (files.length ? store.put(files, place) : store.delete(place)));

/** Return the files that are kept for a place. */
export const keptFiles = (place) => within("readonly", (store) => store.get(place), []);

/** Forget the files of all places. */
export const forgetFiles = () => within("readwrite", (store) => store.clear());

/** Forget what another person has left here. */
export async function keepFilesOf(person) {
  if ((await within("readonly", (store) => store.get(OWNER))) === person) return;
  await forgetFiles();
  await within("readwrite", (store) => store.put(person, OWNER));
}
