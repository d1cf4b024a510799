// A person on the crypto of Element's clients: shares keys only with devices that their owner signed, and reads only those.
// Commands come as JSON lines: {"room": BOT}, {"send": CONTENT, "to": ROOM}. What it sees goes out as JSON lines.
const crypto = require('@matrix-org/matrix-sdk-crypto-wasm')
const readline = require('node:readline')

const [url, user, device, token] = process.argv.slice(2)
const V = '/_matrix/client/v3'
const say = value => console.log(JSON.stringify(value))
let me, since = '', next = 0

async function call(method, path, body) {
  const data = body === undefined || typeof body === 'string' ? body : JSON.stringify(body)
  const answer = await fetch(url + path, { method, headers: { Authorization: `Bearer ${token}` }, body: data })
  return answer.json()
}

async function send(request) {
  const { RequestType: T } = crypto
  const [method, path] = {
    [T.KeysUpload]: ['POST', `${V}/keys/upload`], [T.KeysQuery]: ['POST', `${V}/keys/query`],
    [T.KeysClaim]: ['POST', `${V}/keys/claim`], [T.SignatureUpload]: ['POST', `${V}/keys/signatures/upload`],
    [T.ToDevice]: ['PUT', `${V}/sendToDevice/${request.event_type}/${request.txn_id}`],
  }[request.type]
  const answer = await call(method, path, request.body)
  if (request.id) await me.markRequestAsSent(request.id, request.type, JSON.stringify(answer))
}
const flush = async () => { for (const request of await me.outgoingRequests()) await send(request) }

async function begin() {
  await crypto.initAsync()
  me = await crypto.OlmMachine.initialize(new crypto.UserId(user), new crypto.DeviceId(device))
  await flush()
  const signing = await me.bootstrapCrossSigning(true)
  if (signing.uploadKeysRequest) await send(signing.uploadKeysRequest)
  await call('POST', `${V}/keys/device_signing/upload`, signing.uploadSigningKeysRequest.body)
  await send(signing.uploadSignaturesRequest)
  say({ ready: true })
}

async function makeRoom(bot) {
  const encryption = { type: 'm.room.encryption', state_key: '', content: { algorithm: 'm.megolm.v1.aes-sha2' } }
  const body = { preset: 'private_chat', is_direct: true, invite: [bot], initial_state: [encryption] }
  const { room_id: room } = await call('POST', `${V}/createRoom`, body)
  say({ room })
}

async function post(room, content, bot) {
  await me.updateTrackedUsers([bot, user].map(each => new crypto.UserId(each)))
  await flush()
  const claim = await me.getMissingSessions([new crypto.UserId(bot)])
  if (claim) await send(claim)
  const settings = new crypto.EncryptionSettings()
  settings.sharingStrategy = crypto.CollectStrategy.identityBasedStrategy()
  const requests = await me.shareRoomKey(new crypto.RoomId(room), [new crypto.UserId(bot)], settings)
  for (const request of requests) await send(request)
  const sealed = await me.encryptRoomEvent(new crypto.RoomId(room), 'm.room.message', JSON.stringify(content))
  const path = `${V}/rooms/${encodeURIComponent(room)}/send/m.room.encrypted/p${next++}`
  const relation = content['m.relates_to']
  const event = relation ? { ...JSON.parse(sealed), 'm.relates_to': relation } : JSON.parse(sealed)
  say({ sent: (await call('PUT', path, event)).event_id })
}

async function read() {
  const got = await call('GET', `${V}/sync?timeout=300${since ? '&since=' + since : ''}`)
  since = got.next_batch
  const changed = (got.device_lists?.changed ?? []).map(each => new crypto.UserId(each))
  const counts = new Map(Object.entries(got.device_one_time_keys_count ?? {}))
  const events = JSON.stringify(got.to_device?.events ?? [])
  await me.receiveSyncChanges(events, new crypto.DeviceLists(changed), counts)
  await flush()
  for (const [room, { timeline }] of Object.entries(got.rooms?.join ?? {})) {
    for (const event of timeline.events) {
      if (event.sender === user) continue
      if (event.type === 'm.room.message') say({ open: event.content.body })
      if (event.type !== 'm.room.encrypted') continue
      const trust = new crypto.DecryptionSettings(crypto.TrustRequirement.CrossSigned)
      try {
        const clear = await me.decryptRoomEvent(JSON.stringify(event), new crypto.RoomId(room), trust)
        say({ id: event.event_id, event: JSON.parse(clear.event).content })
      } catch (error) { say({ refused: error.description ?? String(error) }) }
    }
  }
}

const queue = []
readline.createInterface({ input: process.stdin }).on('line', line => queue.push(JSON.parse(line))).on('close', () => process.exit())
async function main() {
  await begin()
  for (;;) {
    while (queue.length) {
      const command = queue.shift()
      if (command.room) await makeRoom(command.room)
      else await post(command.to, command.send, command.bot)
    }
    await read()
  }
}
main().catch(error => { say({ failed: String(error) }); process.exit(1) })
