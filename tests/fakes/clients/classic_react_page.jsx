// A chat of the older useStream, which asks for what agent-chat-ui asks for: /?api=URL&key=KEY&thread=ID.
// https://github.com/langchain-ai/agent-chat-ui/blob/main/src/components/thread/index.tsx
import { useStream } from "@langchain/langgraph-sdk/react";
import { useState } from "react";
import { createRoot } from "react-dom/client";

const asked = new URLSearchParams(location.search);
const textOf = (content) => (typeof content === "string" ? content : content.map((each) => each.text ?? "").join(""));

function Chat() {
  const [text, setText] = useState("");
  const [thread, setThread] = useState(asked.get("thread"));
  const stream = useStream({
    apiUrl: asked.get("api"),
    apiKey: asked.get("key"),
    assistantId: "fawn",
    threadId: thread,
    onThreadId: setThread,
    fetchStateHistory: true,
  });
  const send = (event) => {
    event.preventDefault();
    const message = { id: crypto.randomUUID(), type: "human", content: [{ type: "text", text }] };
    stream.submit(
      { messages: [message] },
      {
        streamMode: ["values"],
        streamSubgraphs: true,
        streamResumable: true,
        optimisticValues: (before) => ({ ...before, messages: [...(before.messages ?? []), message] }),
      },
    );
    setText("");
  };
  const decide = (decision) => stream.submit({}, { command: { resume: { decisions: [decision] } } });
  const request = stream.interrupt?.value?.action_requests?.[0];
  return (
    <main>
      {stream.messages.map((each) => (
        <p key={each.id} className={each.type}>
          {textOf(each.content)}
        </p>
      ))}
      {stream.interrupt && <b id="question">{request?.description ?? stream.interrupt.value.question}</b>}
      {request && <button id="approve" onClick={() => decide({ type: "approve" })}>Approve</button>}
      {request && <button id="deny" onClick={() => decide({ type: "reject", message: "not this one" })}>Deny</button>}
      <output id="state">{stream.isLoading ? "loading" : "idle"}</output>
      <output id="thread">{thread}</output>
      <output id="error">{stream.error && String(stream.error)}</output>
      <form onSubmit={send}>
        <input id="text" value={text} onChange={(event) => setText(event.target.value)} />
      </form>
    </main>
  );
}

createRoot(document.getElementById("root")).render(<Chat />);
