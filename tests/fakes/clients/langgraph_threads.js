// LangGraph's JavaScript client against Fawn, on streams of threads: node langgraph_threads.js URL, with FAWN_KEY and REQUESTS.
const { Client } = require("@langchain/langgraph-sdk");

const client = new Client({ apiUrl: process.argv[2], apiKey: process.env.FAWN_KEY });
const { words, question } = JSON.parse(process.env.REQUESTS);
const said = (text) => ({ messages: [{ role: "user", content: text }] });
const tell = (name, value) => console.log(JSON.stringify({ name, value }));
const contents = (state) => state.messages.map((each) => each.content);

async function main() {
  const thread = client.threads.stream({ assistantId: "fawn" });
  const texts = [];
  const reading = (async () => {
    for await (const message of thread.messages) texts.push(await message.text);
  })();
  // not submitRun: it hears of the end on a stream of its own, which may be faster than the one with the values
  const { run_id } = await thread.run.start({ input: said(words) });
  const output = await thread.output;
  tell("output", contents(output));
  await reading;
  tell("texts", texts);
  tell("status", (await client.runs.get(thread.threadId, run_id)).status);
  await thread.close();

  const other = client.threads.stream({ assistantId: "fawn" });
  await other.submitRun({ input: said(question) });
  while (!other.interrupted) await new Promise((done) => setTimeout(done, 20));
  const [{ interruptId, payload, namespace }] = other.interrupts;
  tell("asked", payload.question);
  await other.respondInput({ interrupt_id: interruptId, namespace, response: "Blue" });
  for (;;) {
    const state = await client.threads.getState(other.threadId);
    if (state.next.length === 0) {
      tell("answered", contents(state.values).at(-1));
      break;
    }
    await new Promise((done) => setTimeout(done, 50));
  }
  await other.close();
}

main().catch((error) => tell("failed", String(error)));
