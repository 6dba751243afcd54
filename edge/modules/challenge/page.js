// The script of the page. Comments and indents do not go to browsers (script in page.go).
(() => {
  const main = document.querySelector('[data-question]')
  const told = main.dataset
  const key = 'sluice_challenge'

  // say ends the page's work with words, and with a button to begin anew.
  const say = text => {
    main.querySelector('[role]').textContent = text
    main.querySelector('progress').remove()
    const button = main.querySelector('button')
    button.hidden = false
    button.onclick = () => {
      try { sessionStorage.removeItem(key) } catch (e) {}
      location.reload()
    }
  }

  // solve finds the least number whose SHA-256, after the question, begins with so many bits that
  // are zero. It is written out because crypto.subtle is not there over plain HTTP. Both fit into
  // one block, so there is one round a number.
  const solve = (question, bits) => {
    const H = [], K = [], W = []
    const r = (x, k) => x >>> k | x << 32 - k
    for (let p = 2, i; K.length < 64; p++) {
      for (i = 2; i * i <= p && p % i; i++);
      if (i * i > p) {
        if (H.length < 8) H.push(p ** .5 * 2 ** 32 | 0)
        K.push(p ** (1 / 3) * 2 ** 32 | 0)
      }
    }
    for (let n = 0; ; n++) {
      const t = question + n
      let s = H, i
      for (i = 0; i < 16; i++) W[i] = 0
      for (i = 0; i <= t.length; i++)
        W[i >> 2] |= (i < t.length ? t.charCodeAt(i) : 128) << 24 - i % 4 * 8
      W[15] = t.length * 8
      for (i = 0; i < 64; i++) {
        if (i > 15) {
          const a = W[i - 15], b = W[i - 2]
          W[i] = W[i - 16] + (r(a, 7) ^ r(a, 18) ^ a >>> 3) + W[i - 7] +
            (r(b, 17) ^ r(b, 19) ^ b >>> 10) | 0
        }
        const [a, b, c, d, e, f, g, h] = s
        const x = h + (r(e, 6) ^ r(e, 11) ^ r(e, 25)) + (e & f ^ ~e & g) + K[i] + W[i] | 0
        s = [x + (r(a, 2) ^ r(a, 13) ^ r(a, 22)) + (a & b ^ a & c ^ b & c) | 0, a, b, c,
          d + x | 0, e, f, g]
      }
      if ((H[0] + s[0] | 0) >>> 32 - bits < 1) return n
    }
  }

  // send gives the answer, asks whether the pass comes back, and loads what was asked for, once.
  const send = n =>
    fetch(told.path, { method: 'POST', headers: { 'Sluice-Answer': told.question + '.' + n } })
      .then(r => { if (!r.ok) throw r; return fetch(told.path, { cache: 'no-store' }) })
      .then(r => {
        if (!r.ok) return say(told.cookies)
        sessionStorage.setItem(key, Date.now())
        location.reload()
      })
      .catch(() => say(told.failed))

  // here solves without a worker, where the browser has none.
  const here = () => setTimeout(() => send(solve(told.question, +told.bits)), 50)

  // A pass that did not help a moment ago will not help now. Storage is refused with cookies.
  try {
    if (Date.now() - sessionStorage.getItem(key) < 2e4) return say(told.again)
    if (!navigator.cookieEnabled) throw 0
  } catch (e) {
    return say(told.cookies)
  }
  try {
    const code = `postMessage((${solve})("${told.question}",${told.bits}))`
    const worker = new Worker(URL.createObjectURL(new Blob([code])))
    worker.onmessage = e => send(e.data)
    worker.onerror = here
  } catch (e) {
    here()
  }
})()
