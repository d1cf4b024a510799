// Fold blocks into a turn, as `View` of agent/blocks.py does. Items keep the order in which they appeared.

export const HEARD = "heard:"; // begins the id of a step that only shows that a message arrived

export function newTurn(run, at) {
  return { run, at, state: "running", said: [], items: [], inner: [], plan: [], notice: "", seconds: 0, tokens: 0, feedback: 0 };
}

/** Build the turn that the service described with its blocks. */
export function turnOf(raw) {
  const turn = { ...newTurn(raw.run, raw.at), ...raw, items: [], inner: [], notice: "" };
  for (const block of raw.blocks) fold(turn, block);
  delete turn.blocks;
  return turn;
}

function put(turn, item, same, items = turn.items) {
  const index = items.findIndex((each) => each.type === item.type && same(each));
  if (index < 0) items.push(item);
  else items[index] = { ...items[index], ...item };
}

/** Apply one block, or one event of the same name. */
export function fold(turn, block) {
  switch (block.type) {
    case "text": {
      const known = turn.items.find((each) => each.type === "text" && each.part === block.part);
      if (!known) turn.items.push({ type: "text", part: block.part, text: block.delta });
      else known.text = block.replace ? block.delta : known.text + block.delta;
      if (block.delta) turn.notice = "";
      break;
    }
    case "step":
      if (block.id.startsWith(HEARD)) break;
      put(turn, block, (each) => each.id === block.id, block.parent ? turn.inner : turn.items); // of a sub-agent: below its task
      turn.notice = "";
      break;
    case "plan": turn.plan = block.items; break;
    case "question": put(turn, block, (each) => each.id === block.id); break;
    case "file": put(turn, block, (each) => (each.item ?? each.path) === (block.item ?? block.path)); break;
    case "said": put(turn, block, (each) => each.key === block.key); break;
    case "failed": put(turn, { type: "failed", text: block.text ?? [block.what, block.what_to_do].filter(Boolean).join(" ") }, () => true); break;
    case "notice":
      if (!block.kept) turn.notice = block.text;
      else put(turn, block, (each) => each.text === block.text);
      break;
  }
}

/** Replace what a turn shows by a snapshot of the stream. */
export function restore(turn, shown) {
  turn.items = turn.items.filter((each) => each.type === "said");
  turn.inner = [];
  for (const step of shown.steps) fold(turn, { type: "step", ...step });
  for (const text of shown.texts) fold(turn, { type: "text", part: text.part, delta: text.text, replace: true });
  for (const ask of shown.questions) fold(turn, { type: "question", ...ask });
  for (const file of shown.files) fold(turn, { type: "file", ...file });
  for (const text of shown.kept) fold(turn, { type: "notice", text, kept: true });
  turn.plan = shown.plan;
  turn.notice = shown.notice;
}

/** The latest text that is not blank: what is copied. */
export function answerOf(turn) {
  return turn.items.filter((each) => each.type === "text" && each.text.trim()).at(-1)?.text ?? "";
}
