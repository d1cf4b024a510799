// LangGraph's own JavaScript client against Fawn: node langgraph_sdk.js URL, the key in FAWN_KEY, requests in REQUESTS.
const { Client } = require("@langchain/langgraph-sdk");

const client = new Client({ apiUrl: process.argv[2], apiKey: process.env.FAWN_KEY });
const { words, slow, question } = JSON.parse(process.env.REQUESTS);
const said = (text) => ({ messages: [{ role: "user", content: text }] });
const tell = (name, value) => console.log(JSON.stringify({ name, value }));
const MODES = ["messages-tuple", "values", "updates", "custom"];

async function main() {
  const { thread_id } = await client.threads.create({ metadata: { who: "js" } });
  const kinds = [];
  let text = "", created;
  const run = client.runs.stream(thread_id, "fawn", { input: said(words), streamMode: MODES, streamResumable: true, onRunCreated: (each) => (created = each) });
  for await (const part of run) {
    kinds.push(part.event);
    if (part.event === "messages") text += part.data[0].content;
  }
  tell("streamed", { text, first: kinds[0], last: kinds.at(-1), run: created.run_id });
  tell("state", (await client.threads.getState(thread_id)).values.messages.map((each) => each.type));
  tell("found", (await client.threads.search({ metadata: { who: "js" } })).length);

  const begun = await client.runs.create(thread_id, "fawn", { input: said(slow) });
  await client.runs.cancel(thread_id, begun.run_id, true);
  tell("cancelled", (await client.runs.get(thread_id, begun.run_id)).status);

  let asked;
  for await (const part of client.runs.stream(thread_id, "fawn", { input: said(question), streamMode: ["updates"] })) asked ??= part.data?.__interrupt__?.[0];
  tell("asked", asked.value.question);
  const resumed = await client.runs.wait(thread_id, "fawn", { command: { resume: { [asked.id]: "Blue" } } });
  tell("resumed", resumed.messages.at(-1).content);
}

main().catch((error) => tell("failed", String(error)));
