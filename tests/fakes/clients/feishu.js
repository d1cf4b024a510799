// The fake Feishu against @larksuiteoapi/node-sdk: `node feishu.js DOMAIN`. Every event is answered with a round of calls;
// what came back is printed as one line of JSON.
const fs = require("fs");
const os = require("os");
const path = require("path");
const lark = require("@larksuiteoapi/node-sdk");

const app = { appId: "cli_a0123456789abcde", appSecret: "s3cretOfTheApp", domain: process.argv[2] };
const client = new lark.Client({ ...app, loggerLevel: lark.LoggerLevel.error });
const socket = new lark.WSClient({ ...app, loggerLevel: lark.LoggerLevel.error });
const say = (what) => console.log(JSON.stringify(what));

async function converse(event) {
  const id = event.message.message_id;
  const reaction = await client.im.v1.messageReaction.create({
    path: { message_id: id },
    data: { reaction_type: { emoji_type: "OnIt" } },
  });
  const element = { tag: "markdown", element_id: "text", content: "" };
  const card = { schema: "2.0", config: { streaming_mode: true }, body: { elements: [element] } };
  const made = await client.cardkit.v1.card.create({ data: { type: "card_json", data: JSON.stringify(card) } });
  const cardId = made.data.card_id;
  const body = {
    msg_type: "interactive",
    content: JSON.stringify({ type: "card", data: { card_id: cardId } }),
    reply_in_thread: true,
    uuid: `js-${id}`,
  };
  const first = await client.im.v1.message.reply({ path: { message_id: id }, data: body });
  const again = await client.im.v1.message.reply({ path: { message_id: id }, data: body });
  const write = (content, sequence) =>
    client.cardkit.v1.cardElement.content({
      path: { card_id: cardId, element_id: "text" },
      data: { content, sequence },
    });
  await write("Half", 1);
  const late = await write("Late", 1).catch((error) => error.response.data);
  await write("Half and whole", 2);
  const found = await client.cardkit.v1.card.idConvert({ data: { message_id: first.data.message_id } });
  const settled = await client.cardkit.v1.card.settings({
    path: { card_id: cardId },
    data: { settings: JSON.stringify({ config: { streaming_mode: false } }), sequence: 3 },
  });
  const closed = await write("Closed", 4).catch((error) => error.response.data);
  card.config.streaming_mode = false;
  card.body.elements = [
    { tag: "markdown", element_id: "text", content: "Which?" },
    { tag: "button", text: { tag: "plain_text", content: "red" }, behaviors: [{ type: "callback", value: { n: 1 } }] },
  ];
  const replaced = await client.cardkit.v1.card.update({
    path: { card_id: cardId },
    data: { card: { type: "card_json", data: JSON.stringify(card) }, sequence: 5 },
  });
  const read = await client.im.v1.message.get({ path: { message_id: id } });
  const list = await client.im.v1.message.list({
    params: { container_id_type: "chat", container_id: event.message.chat_id, page_size: 50 },
  });
  say({
    event: event.event_id,
    text: event.message.content,
    mentions: (event.message.mentions || []).map((mention) => mention.id.open_id),
    reaction: reaction.code,
    once: first.data.message_id === again.data.message_id,
    thread: first.data.thread_id,
    late: late.code,
    closed: closed.code,
    found: found.data.card_id === cardId,
    codes: [settled.code, replaced.code],
    read: read.data.items[0].body.content,
    list: list.data.items.length,
  });
}

async function files(event) {
  const content = JSON.parse(event.message.content);
  const got = await client.im.v1.messageResource.get({
    path: { message_id: event.message.message_id, file_key: content.file_key },
    params: { type: "file" },
  });
  const target = path.join(fs.mkdtempSync(path.join(os.tmpdir(), "feishu-")), "got");
  await got.writeFile(target);
  const upload = await client.im.v1.file.create({
    data: { file_type: "stream", file_name: "copy.csv", file: fs.readFileSync(target) },
  });
  const sent = await client.im.v1.message.create({
    params: { receive_id_type: "chat_id" },
    data: {
      receive_id: event.message.chat_id,
      msg_type: "file",
      content: JSON.stringify({ file_key: upload.file_key }),
    },
  });
  const wrong = await client.im.v1.message
    .create({
      params: { receive_id_type: "chat_id" },
      data: { receive_id: "oc_nowhere", msg_type: "text", content: '{"text":"x"}' },
    })
    .catch((error) => error.response.data);
  say({ name: content.file_name, bytes: fs.readFileSync(target, "utf8"), sent: sent.code, wrong: wrong.code });
  fs.rmSync(path.dirname(target), { recursive: true });
}

const dispatcher = new lark.EventDispatcher({ loggerLevel: lark.LoggerLevel.error }).register({
  "im.message.receive_v1": (event) => {
    (event.message.message_type === "file" ? files : converse)(event).catch((error) => say({ error: String(error) }));
  },
  "im.message.recalled_v1": (event) => say({ recalled: event.message_id }),
  "im.message.reaction.created_v1": (event) => say({ reacted: event.reaction_type.emoji_type }),
  "application.bot.menu_v6": (event) => say({ menu: event.event_key, person: event.operator.operator_name }),
  "card.action.trigger": (event) => {
    say({ pressed: event.action.value, message: event.context.open_message_id });
    return { toast: { type: "success", content: "done" } };
  },
});
socket.start({ eventDispatcher: dispatcher });
