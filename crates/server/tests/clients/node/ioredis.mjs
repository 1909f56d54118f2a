// ioredis has no Bloom commands of its own: raw ones, through `call` and pipelines.

import { createRequire } from 'node:module'
import { setTimeout as pause } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { atLeast, check, client, numbers, port, refused, same } from './checks.mjs'

const { version } = createRequire(import.meta.url)('ioredis/package.json')

async function run(protocol) {
  client('ioredis', version, protocol)
  const redis = new Redis({ port, protocol, lazyConnect: true, maxRetriesPerRequest: 3 })
  redis.on('error', () => {})
  let connected = false
  await check('connects', async () => {
    await redis.connect()
    connected = true
  })
  if (!connected) return redis.disconnect()
  const key = (name) => `ioredis:${protocol}:${name}`
  const old = (await redis.keys('*')).filter((name) => name.startsWith(key('')))
  if (old.length > 0) await redis.del(old)
  const call = (...words) => redis.call(...words)

  await check('bf reserve with every option', async () => {
    same(await call('BF.RESERVE', key('plain'), 0.01, 1000), 'OK')
    same(await call('BF.RESERVE', key('expanding'), 0.01, 1000, 'EXPANSION', 4), 'OK')
    same(await call('BF.RESERVE', key('fixed'), 0.01, 1000, 'NONSCALING'), 'OK')
    await refused('item exists', () => call('BF.RESERVE', key('plain'), 0.01, 1000))
  })
  await check('bf add, madd, insert, exists, mexists, card', async () => {
    same(await call('BF.ADD', key('add'), 'one'), 1)
    same(await call('BF.ADD', key('add'), 'one'), 0)
    same(await call('BF.MADD', key('add'), 'one', 'two'), [0, 1])
    same(await call('BF.INSERT', key('add'), 'CAPACITY', 10, 'ITEMS', 'two', 'three'), [0, 1])
    same(await call('BF.EXISTS', key('add'), 'three'), 1)
    same(await call('BF.MEXISTS', key('add'), 'one', 'four'), [1, 0])
    same(await call('BF.CARD', key('add')), 3)
  })
  await check('bf info', async () => {
    const info = await call('BF.INFO', key('expanding'))
    // Version 2 gives a flat list, version 3 a map, which ioredis makes a flat list or an object.
    const flat = Array.isArray(info) ? info : info instanceof Map ? [...info].flat() : Object.entries(info).flat()
    same(flat[flat.indexOf('Capacity') + 1], 1000)
    same(flat[flat.indexOf('Expansion rate') + 1], 4)
    same(flat.length, 10)
  })
  await check('bf scandump and loadchunk', async () => {
    await call('BF.RESERVE', key('dump'), 0.01, 1000)
    await call('BF.MADD', key('dump'), ...numbers(100))
    const chunks = []
    for (let iterator = 0; ;) {
      const [next, data] = await redis.callBuffer('BF.SCANDUMP', key('dump'), iterator)
      iterator = Number(next)
      if (iterator === 0) break
      chunks.push([iterator, data])
    }
    for (const [iterator, data] of chunks) same(await call('BF.LOADCHUNK', key('loaded'), iterator, data), 'OK')
    same(await call('BF.MEXISTS', key('loaded'), ...numbers(100)), numbers(100).map(() => 1))
  })
  await check('cf commands', async () => {
    same(await call('CF.RESERVE', key('cf'), 1000, 'BUCKETSIZE', 4, 'MAXITERATIONS', 30, 'EXPANSION', 2), 'OK')
    same(await call('CF.ADD', key('cf'), 'one'), 1)
    same(await call('CF.ADDNX', key('cf'), 'one'), 0)
    same(await call('CF.INSERT', key('cf'), 'ITEMS', 'one', 'two'), [1, 1])
    same(await call('CF.INSERTNX', key('cf'), 'ITEMS', 'one', 'three'), [0, 1])
    same(await call('CF.COUNT', key('cf'), 'one'), 2)
    same(await call('CF.MEXISTS', key('cf'), 'one', 'four'), [1, 0])
    same(await call('CF.DEL', key('cf'), 'never added'), 0)
    same(await call('CF.DEL', key('cf'), 'three'), 1)
    same(await call('CF.EXISTS', key('cf'), 'three'), 0)
  })
  await check('pipeline of 1000', async () => {
    const pipeline = redis.pipeline()
    for (const item of numbers(500)) pipeline.call('BF.ADD', key('pipeline'), item)
    for (const item of numbers(500)) pipeline.call('BF.EXISTS', key('pipeline'), item)
    const answers = await pipeline.exec()
    same(answers.length, 1000)
    same(answers.slice(500).map(([error, answer]) => error ?? answer), numbers(500).map(() => 1))
  })
  await check('multi and exec', async () => {
    const answers = await redis.multi().call('BF.ADD', key('multi'), 'a').call('BF.EXISTS', key('multi'), 'b').exec()
    same(answers.map(([, answer]) => answer), [1, 0])
  })
  await check('binary, empty and unicode items', async () => {
    const items = [Buffer.from([0, 255, 13, 10]), '', 'элемент 🌼']
    same(await call('BF.MADD', key('items'), ...items), [1, 1, 1])
    same(await call('BF.MEXISTS', key('items'), ...items, Buffer.from([0, 255])), [1, 1, 1, 0])
  })
  await check('errors', async () => {
    await call('CF.ADD', key('a cuckoo'), 'x')
    await refused('WRONGTYPE', () => call('BF.ADD', key('a cuckoo'), 'x'))
    await refused('not found', () => call('BF.INFO', key('missing')))
    await refused('unknown command', () => call('NO.SUCH', 'x'))
  })
  await check('reconnects after client kill', async () => {
    const id = await redis.client('ID')
    const other = new Redis({ port, protocol })
    same(await other.client('KILL', 'ID', id), 1)
    await pause(200)
    same(await call('BF.EXISTS', key('add'), 'one'), 1)
    atLeast(await redis.client('ID'), id + 1)
    other.disconnect()
  })
  await check('del, exists and type', async () => {
    same(await redis.type(key('add')), 'MBbloom--')
    same(await redis.del(key('add')), 1)
    same(await redis.exists(key('add')), 0)
  })
  await check('scan, rename, expire and ttl', async () => {
    const [, found] = await redis.scan(0, 'MATCH', key('cf'), 'COUNT', 1000)
    same(found, [key('cf')])
    same(await redis.rename(key('cf'), key('renamed')), 'OK')
    same(await redis.expire(key('renamed'), 100), 1)
    atLeast(await redis.ttl(key('renamed')), 90)
  })
  redis.disconnect()
}

for (const protocol of [2, 3]) await run(protocol)
