// node-redis: its typed Bloom and cuckoo commands, in both versions of the protocol.

import { createRequire } from 'node:module'
import { setTimeout as pause } from 'node:timers/promises'
import { RESP_TYPES, createClient } from 'redis'
import { atLeast, check, client, numbers, port, refused, same } from './checks.mjs'

const { version } = createRequire(import.meta.url)('redis/package.json')

async function connect(RESP) {
  const redis = createClient({ socket: { host: '127.0.0.1', port }, RESP })
  redis.on('error', () => {})
  await redis.connect()
  return redis
}

async function run(RESP) {
  client('node-redis', version, RESP)
  let redis
  await check('connects', async () => { redis = await connect(RESP) })
  if (!redis) return
  const key = (name) => `node-redis:${RESP}:${name}`
  const old = (await redis.keys('*')).filter((name) => name.startsWith(key('')))
  if (old.length > 0) await redis.del(old)

  await check('bf reserve with every option', async () => {
    same(await redis.bf.reserve(key('plain'), 0.01, 1000), 'OK')
    same(await redis.bf.reserve(key('expanding'), 0.001, 1000, { EXPANSION: 4 }), 'OK')
    same(await redis.bf.reserve(key('fixed'), 0.001, 100, { NONSCALING: true }), 'OK')
    same((await redis.bf.info(key('expanding')))['Expansion rate'], 4)
    same((await redis.bf.info(key('fixed')))['Expansion rate'], null)
    await refused('item exists', () => redis.bf.reserve(key('plain'), 0.01, 1000))
    await refused('error rate', () => redis.bf.reserve(key('new'), 1.5, 10))
    await refused('capacity', () => redis.bf.reserve(key('new'), 0.5, 0))
  })
  await check('bf add and exists', async () => {
    // The typed commands promise booleans, and a caller may compare with them.
    if ((await redis.bf.add(key('add'), 'one')) !== true) throw new Error('no boolean')
    if ((await redis.bf.add(key('add'), 'one')) !== false) throw new Error('no boolean')
    if ((await redis.bf.exists(key('add'), 'one')) !== true) throw new Error('no boolean')
    same(await redis.bf.exists(key('add'), 'two'), false)
    same(await redis.bf.exists(key('missing'), 'two'), false)
  })
  await check('bf madd and mexists', async () => {
    same(await redis.bf.mAdd(key('madd'), ['a', 'b', 'c']), [true, true, true])
    same(await redis.bf.mAdd(key('madd'), ['c', 'd']), [false, true])
    same(await redis.bf.mExists(key('madd'), ['a', 'x', 'd']), [true, false, true])
  })
  await check('bf insert with every option', async () => {
    const made = { CAPACITY: 5000, ERROR: 0.0001, EXPANSION: 3 }
    same(await redis.bf.insert(key('insert'), ['a', 'b'], made), [true, true])
    same(await redis.bf.insert(key('insert'), ['b', 'c'], { NOCREATE: true }), [false, true])
    same((await redis.bf.info(key('insert'))).Capacity, 5000)
    same(await redis.bf.insert(key('insert fixed'), ['a'], { CAPACITY: 10, NONSCALING: true }), [true])
    await refused('not found', () => redis.bf.insert(key('missing'), ['a'], { NOCREATE: true }))
  })
  await check('bf info and card', async () => {
    await redis.bf.reserve(key('info'), 0.01, 200)
    await redis.bf.mAdd(key('info'), numbers(50))
    const info = await redis.bf.info(key('info'))
    same([info.Capacity, info['Number of filters'], info['Expansion rate']], [200, 1, 2])
    same(info['Number of items inserted'], await redis.bf.card(key('info')))
    atLeast(info.Size, 200)
    await refused('not found', () => redis.bf.info(key('missing')))
  })
  await check('bf scandump and loadchunk', async () => {
    const raw = redis.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer })
    await redis.bf.reserve(key('dump'), 0.01, 1000)
    await redis.bf.mAdd(key('dump'), numbers(100))
    const chunks = []
    for (let iterator = 0; ;) {
      const part = await raw.bf.scanDump(key('dump'), iterator)
      iterator = part.iterator
      if (iterator === 0) break
      chunks.push(part)
    }
    for (const part of chunks) same(await redis.bf.loadChunk(key('loaded'), part.iterator, part.chunk), 'OK')
    same(await redis.bf.mExists(key('loaded'), numbers(100)), numbers(100).map(() => true))
  })
  await check('cf reserve with every option', async () => {
    const options = { BUCKETSIZE: 4, MAXITERATIONS: 30, EXPANSION: 2 }
    same(await redis.cf.reserve(key('cf reserve'), 1000, options), 'OK')
    const info = await redis.cf.info(key('cf reserve'))
    same([info['Bucket size'], info['Max iterations'], info['Expansion rate']], [4, 30, 2])
    await refused('item exists', () => redis.cf.reserve(key('cf reserve'), 1000))
  })
  await check('cf add, insert, count', async () => {
    same(await redis.cf.add(key('cf add'), 'one'), true)
    same(await redis.cf.addNX(key('cf add'), 'one'), false)
    same(await redis.cf.addNX(key('cf add'), 'two'), true)
    same(await redis.cf.insert(key('cf add'), ['one', 'three']), [true, true])
    same(await redis.cf.insertNX(key('cf add'), ['one', 'four']), [0, 1])
    same(await redis.cf.count(key('cf add'), 'one'), 2)
    same(await redis.cf.exists(key('cf add'), 'four'), true)
    same(await redis.cf.exists(key('cf add'), 'five'), false)
    same(await redis.sendCommand(['CF.MEXISTS', key('cf add'), 'one', 'five']), [true, false])
    await refused('not found', () => redis.cf.insert(key('missing'), ['a'], { NOCREATE: true }))
  })
  await check('cf del', async () => {
    await redis.cf.add(key('cf del'), 'one')
    same(await redis.cf.del(key('cf del'), 'never added'), false)
    same(await redis.cf.del(key('cf del'), 'one'), true)
    same(await redis.cf.exists(key('cf del'), 'one'), false)
    await refused('Not found', () => redis.cf.del(key('missing'), 'one'))
  })
  await check('cf info', async () => {
    await redis.cf.reserve(key('cf info'), 1000)
    await redis.cf.insert(key('cf info'), ['a', 'b'])
    const info = await redis.cf.info(key('cf info'))
    same([info['Number of items inserted'], info['Number of filters'], info['Bucket size']], [2, 1, 2])
    atLeast(info.Size, 1000)
    atLeast(info['Number of buckets'], 500)
    for (const name of ['Number of items deleted', 'Expansion rate', 'Max iterations']) atLeast(info[name], 0)
  })
  await check('pipeline of 1000', async () => {
    const answers = await Promise.all([
      ...numbers(500).map((item) => redis.bf.add(key('pipeline'), item)),
      ...numbers(500).map((item) => redis.bf.exists(key('pipeline'), item)),
    ])
    same(answers.slice(500), numbers(500).map(() => true))
  })
  await check('multi and exec', async () => {
    const answers = await redis.multi().bf.add(key('multi'), 'a').bf.mAdd(key('multi'), ['a', 'b']).bf.exists(key('multi'), 'c').exec()
    same(answers, [true, [false, true], false])
  })
  await check('binary keys and items', async () => {
    const binary = Buffer.concat([Buffer.from(key('binary')), Buffer.from([0, 255, 13, 10, 128])])
    await redis.del(binary)
    same(await redis.bf.add(binary, Buffer.from([0, 255, 254])), true)
    same(await redis.bf.exists(binary, Buffer.from([0, 255, 254])), true)
    same(await redis.bf.exists(binary, Buffer.from([0, 255, 253])), false)
  })
  await check('empty item and unicode', async () => {
    same(await redis.bf.mAdd(key('ключ 🗝'), ['', 'элемент', '🌼']), [true, true, true])
    same(await redis.bf.mExists(key('ключ 🗝'), ['', 'элемент', '🌼', '🌻']), [true, true, true, false])
  })
  await check('wrong type', async () => {
    await redis.bf.add(key('a bloom'), 'x')
    await redis.cf.add(key('a cuckoo'), 'x')
    await refused('WRONGTYPE', () => redis.cf.add(key('a bloom'), 'x'))
    await refused('WRONGTYPE', () => redis.bf.add(key('a cuckoo'), 'x'))
  })
  await check('reconnects after client kill', async () => {
    const victim = await connect(RESP)
    await victim.bf.add(key('killed'), 'before')
    const id = await victim.clientId()
    same(await redis.clientKill({ filter: 'ID', id }), 1)
    await pause(100)
    same(await victim.bf.exists(key('killed'), 'before'), true)
    atLeast(await victim.clientId(), id + 1)
    victim.destroy()
  })
  await check('del, exists and type', async () => {
    await redis.bf.add(key('del'), 'x')
    same(await redis.type(key('del')), 'MBbloom--')
    same(await redis.exists([key('del'), key('missing')]), 1)
    same(await redis.del(key('del')), 1)
    same(await redis.exists(key('del')), 0)
  })
  await check('scan', async () => {
    for (const item of numbers(30)) await redis.bf.add(key(`scan ${item}`), 'x')
    const found = new Set()
    for await (const keys of redis.scanIterator({ MATCH: key('scan *'), COUNT: 7 })) for (const one of keys) found.add(one)
    same(found.size, 30)
  })
  await check('rename, expire and ttl', async () => {
    await redis.bf.add(key('old'), 'x')
    same(await redis.rename(key('old'), key('new name')), 'OK')
    same(await redis.bf.exists(key('new name'), 'x'), true)
    same(await redis.expire(key('new name'), 100), 1)
    atLeast(await redis.ttl(key('new name')), 90)
  })
  redis.destroy()
}

for (const RESP of [2, 3]) await run(RESP)
