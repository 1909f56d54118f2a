// What all programs for Node share: checks, and the lines that they print.

export const port = Number(process.env.UMBEL_PORT)

/** Begins the checks of a client. */
export function client(name, version, protocol) {
  console.log(`client\t${name}\t${version}\tRESP${protocol}`)
}

export async function check(name, body) {
  try {
    await body()
    console.log(`ok\t${name}`)
  } catch (error) {
    const why = String(error?.message ?? error).replaceAll(/\s+/g, ' ')
    // A command that is still to come is no failure; the table says how many wait.
    console.log(`${why.includes('not here yet') ? 'waits' : 'failed'}\t${name}\t${why}`)
  }
}

/** Answers in either version of the protocol: 1 and true are the same. */
function plain(value) {
  if (Array.isArray(value)) return value.map(plain)
  if (typeof value === 'boolean') return Number(value)
  return Buffer.isBuffer(value) ? value.toString() : value
}

export function same(found, wanted) {
  const [a, b] = [JSON.stringify(plain(found)), JSON.stringify(plain(wanted))]
  if (a !== b) throw new Error(`${a} instead of ${b}`)
}

export function atLeast(found, least) {
  if (!(found >= least)) throw new Error(`${found} is less than ${least}`)
}

export async function refused(text, body) {
  let answer
  try {
    answer = await body()
  } catch (error) {
    if (!error.message.includes(text)) throw new Error(`refused with ${error.message} instead of ${text}`)
    return
  }
  throw new Error(`${JSON.stringify(answer)} instead of an error with ${text}`)
}

export const numbers = (count) => Array.from({ length: count }, (_, number) => `item ${number}`)
