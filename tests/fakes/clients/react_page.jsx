// A chat of @langchain/react: a test bundles it, and opens it in Chromium as /?api=URL&key=KEY&thread=ID.
import { useStream } from "@langchain/react";
import { useState } from "react";
import { createRoot } from "react-dom/client";

const asked = new URLSearchParams(location.search);

function Chat() {
  const [text, setText] = useState("");
  const [thread, setThread] = useState(asked.get("thread"));
  const [run, setRun] = useState("");
  const stream = useStream({
    apiUrl: asked.get("api"),
    apiKey: asked.get("key"),
    assistantId: "fawn",
    threadId: thread,
    onThreadId: setThread,
    onCreated: ({ runId }) => setRun(runId),
  });
  const send = (event) => {
    event.preventDefault();
    stream.submit({ messages: [{ type: "human", content: text }] });
    setText("");
  };
  const request = stream.interrupt?.value?.action_requests?.[0];
  const answer = (value) => stream.respond(value);
  return (
    <main>
      {stream.messages.map((each) => (
        <p key={each.id} className={each.getType()}>
          {each.text}
        </p>
      ))}
      {stream.toolCalls.map((each) => (
        <i key={each.id} className="tool">
          {each.name}
        </i>
      ))}
      {stream.interrupt && <b id="question">{request?.description ?? stream.interrupt.value.question}</b>}
      {request && <button id="approve" onClick={() => answer({ decisions: [{ type: "approve" }] })}>Approve</button>}
      {request && <button id="deny" onClick={() => answer({ decisions: [{ type: "reject" }] })}>Deny</button>}
      {stream.interrupt && !request && <button id="answer" onClick={() => answer("Blue")}>Blue</button>}
      {stream.isLoading && <button id="stop" onClick={() => stream.stop()}>Stop</button>}
      <output id="state">{stream.isLoading ? "loading" : stream.isThreadLoading ? "reading" : "idle"}</output>
      <output id="thread">{thread}</output>
      <output id="run">{run}</output>
      <output id="error">{stream.error && String(stream.error)}</output>
      <form onSubmit={send}>
        <input id="text" value={text} onChange={(event) => setText(event.target.value)} />
      </form>
    </main>
  );
}

createRoot(document.getElementById("root")).render(<Chat />);
