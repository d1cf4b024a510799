// The vendor's own SDK for Node as a second client of the fake WeCom.
const { WSClient } = require('@wecom/aibot-node-sdk')

const quiet = { debug() {}, info() {}, warn() {}, error() {} }
const say = value => console.log(JSON.stringify(value))
const options = { botId: 'aibot-fawn', secret: 'wecom-secret', wsUrl: process.argv[2], logger: quiet, heartbeatInterval: 200 }
const client = new WSClient(options)
const failed = answer => answer.errcode

client.on('message.text', async frame => {
  await client.replyStream(frame, 's1', 'working')
  await client.replyStream(frame, 's1', 'done', true)
  const after = await client.replyStream(frame, 's1', 'again').then(() => 0, failed)
  const media = await client.uploadMedia(Buffer.alloc(1300000, 7), { type: 'file', filename: 'a.bin' })
  await client.sendMediaMessage('JaneDoe', 'file', media.media_id)
  const card = { card_type: 'button_interaction', main_title: { title: 'Which?' }, task_id: 't1' }
  await client.sendMessage('JaneDoe', {
    msgtype: 'template_card', template_card: { ...card, button_list: [{ text: 'red', key: 'r' }] },
  })
  const text = await client.sendMessage('JaneDoe', { msgtype: 'text', text: { content: 'x' } }).then(() => 0, failed)
  say({ text: frame.body.text.content, after, refused: text })
})
client.on('message.file', async frame => {
  const file = await client.downloadFile(frame.body.file.url, frame.body.file.aeskey)
  say({ name: file.filename, bytes: file.buffer.toString() })
})
client.on('event.template_card_event', async frame => {
  const event = frame.body.event.template_card_event
  const card = { card_type: 'button_interaction', main_title: { title: 'red it is' }, task_id: event.task_id }
  await client.updateTemplateCard(frame, { ...card, button_list: [{ text: 'red', key: '-' }] })
  say({ pressed: event.event_key })
})
client.on('event.feedback_event', frame => say({ feedback: frame.body.event.feedback_event.type }))
client.connect()
