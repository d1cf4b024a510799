// The fake Slack against @slack/socket-mode and @slack/web-api: `node slack.js URL`. Every event is answered with a round
// of calls; what came back is printed as one line of JSON.
const { SocketModeClient, LogLevel } = require("@slack/socket-mode");
const { WebClient } = require("@slack/web-api");

const slackApiUrl = `${process.argv[2]}/api/`;
const web = new WebClient("xoxb-fawn", { slackApiUrl, logLevel: LogLevel.ERROR, retryConfig: { retries: 0 } });
const socket = new SocketModeClient({ appToken: "xapp-fawn", clientOptions: { slackApiUrl }, logLevel: LogLevel.ERROR });
const say = (what) => console.log(JSON.stringify(what));
const refused = (call) => call.then(() => "ok", (error) => error.data?.error ?? error.code);

async function converse(event) {
  const at = { channel: event.channel, thread_ts: event.ts };
  const me = await web.auth.test();
  const metadata = { event_type: "js", event_payload: { n: 1 } };
  const blocks = [{ type: "markdown", text: "**js**" }];
  const post = await web.chat.postMessage({ ...at, text: "js", blocks, metadata });
  await web.chat.update({ channel: event.channel, ts: post.ts, text: "js2", blocks });
  const stream = web.chatStream({ ...at, recipient_team_id: event.team, recipient_user_id: event.user, buffer_size: 1 });
  await stream.append({ markdown_text: "**str" });
  await stream.append({ chunks: [{ type: "task_update", id: "1", title: "Look", status: "complete" }] });
  await stream.stop({ markdown_text: "eam**" });
  const late = await refused(web.chat.appendStream({ channel: event.channel, ts: stream.ts ?? "0", markdown_text: "x" }));
  await web.reactions.add({ channel: event.channel, timestamp: event.ts, name: "eyes" });
  const twice = await refused(web.reactions.add({ channel: event.channel, timestamp: event.ts, name: "eyes" }));
  const thread = await web.conversations.replies({ channel: event.channel, ts: event.ts, include_all_metadata: true });
  const joined = await web.users.conversations({ types: "public_channel,im" });
  const person = await web.users.info({ user: event.user });
  const session = { channel_id: event.channel, thread_ts: event.ts };
  await web.agents.sessions.setStatus({ ...session, status: "suspended", title: "Greetings" });
  const wrong = await refused(web.agents.sessions.setStatus({ ...session, status: "is working…" }));
  await web.filesUploadV2({ channel_id: event.channel, thread_ts: event.ts, filename: "r.csv", content: "a,b\n" });
  const silent = await refused(web.chat.postMessage({ channel: event.channel, text: "" }));
  return {
    text: event.text,
    me: [me.team_id, me.user_id],
    thread: thread.messages.map((message) => message.metadata?.event_payload?.n ?? 0),
    channels: joined.channels.length,
    name: person.user.profile.display_name,
    refusals: [late, twice, silent, wrong],
  };
}

async function fetched(file) {
  const ask = (headers) => fetch(file.url_private_download, { headers, redirect: "manual" });
  const got = await ask({ Authorization: "Bearer xoxb-fawn" });
  return { file: await got.text(), stranger: (await ask({})).status };
}

socket.on("app_mention", async ({ event, ack }) => {
  await ack();
  say(await converse(event).catch((error) => ({ error: `${error.message} ${JSON.stringify(error.data)}` })));
});
socket.on("message", async ({ event, ack, retry_num }) => {
  if (event.text === "later" && !retry_num) return; // not acknowledged: it has to come again
  await ack();
  say({ subtype: event.subtype, retry: retry_num, ...(event.files ? await fetched(event.files[0]) : {}) });
});
socket.on("slash_commands", async ({ body, ack }) => {
  await ack();
  const respond = (text) =>
    fetch(body.response_url, { method: "POST", body: JSON.stringify({ text }), headers: { "Content-Type": "application/json" } });
  say({ command: body.command, words: body.text, answers: [(await respond("well")).status] });
});
socket.on("interactive", async ({ body, ack }) => {
  await ack();
  say({ type: body.type, value: body.actions?.[0].value, about: body.message.text });
});
socket.start().catch((error) => say({ error: error.message }));
