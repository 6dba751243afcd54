// Says how servers of Node read requests: each line that comes is one as JSON, {"raw": its bytes as Latin-1}, and each line that goes is
// {"reader": {"what": [all that an application may get for it]}}. The requests go to real servers over loopback. The first line says which.
// usage: node node.js DIRECTORY-OF-node_modules
'use strict';
const { createRequire } = require('node:module');
const net = require('node:net');
const http = require('node:http');
const need = createRequire(process.argv[2] + '/');

const basicAuth = need('basic-auth');
const bearerFrom = need('passport-jwt').ExtractJwt;
const Bearer = need('passport-http-bearer').Strategy;
const { BasicStrategy } = need('passport-http');

const text = (v) => (v === undefined || v === null || (typeof v === 'object' && !Array.isArray(v)) ? [] : [String(v), String(v).trim()]);

// bearer asks passport's strategy, which says what it takes for the token.
function bearer(req) {
  let got;
  const s = new Bearer((token, done) => { got = token; done(null, false); });
  s.fail = () => {};
  s.error = () => {};
  s.authenticate({ headers: req.headers, query: {} });
  return got;
}

function basicUser(req) {
  let got;
  const s = new BasicStrategy((user, password, done) => { got = user + ':' + password; done(null, false); });
  s.fail = () => {};
  s.error = () => {};
  s.authenticate(req);
  return got;
}

function tokens(req) {
  const value = req.headers.authorization;
  if (value === undefined) return [];
  const found = [value, value.trim(), value.split(' ')[1], value.split(' ').pop(), value.split(/\s+/)[1], value.replace(/^Bearer\s+/i, ''),
    value.startsWith('Bearer ') ? value.slice(7).trim() : undefined, (value.match(/^Bearer\s+(\S+)/i) || [])[1],
    bearerFrom.fromAuthHeaderAsBearerToken()(req), bearerFrom.fromAuthHeaderWithScheme('jwt')(req), bearerFrom.fromHeader('authorization')(req), bearer(req)];
  const basic = basicAuth(req);
  if (basic) found.push('user ' + basic.name + ':' + basic.pass);
  const user = basicUser(req);
  if (user) found.push('user ' + user);
  for (const t of found.slice(0, 12)) { // as jws verifies what is no HMAC: the text that is signed, and the bytes of the signature
    if (!t || !/^[a-zA-Z0-9\-_]+?\.[a-zA-Z0-9\-_]+?\.([a-zA-Z0-9\-_]+)?$/.test(t)) continue;
    const i = t.lastIndexOf('.');
    found.push(t.slice(0, i + 1) + Buffer.from(t.slice(i + 1), 'base64').toString('base64url'));
  }
  return found.filter((t) => t !== undefined && t !== null && t !== '');
}

function read(req, query, cookies, route) {
  return JSON.stringify({ path: route ? [route] : [], key: text(query.key), q: text(query.q), session: cookies ? text(cookies.session) : [],
    'x-api-key': text(req.headers['x-api-key']), authorization: tokens(req) });
}

function express(make, parser, cookieParser) {
  const app = make();
  app.set('query parser', parser);
  app.use(cookieParser());
  const answer = (route) => (req, res) => res.end(read(req, req.query, req.cookies, route));
  app.all('/login', answer('/login'));
  app.all('/c', answer('/c'));
  app.use(answer(''));
  app.use((err, req, res, next) => res.end('{}'));
  return http.createServer(app);
}

async function fastify(options) {
  const app = need('fastify')({ routerOptions: options });
  const answer = (route) => (req, reply) => { reply.header('connection', 'close'); reply.send(read(req.raw, req.query || {}, null, route)); };
  app.all('/login', answer('/login'));
  app.all('/c', answer('/c'));
  app.setNotFoundHandler(answer(''));
  await app.ready();
  return app.server;
}

function ask(port, raw) {
  return new Promise((done) => {
    let got = '';
    const c = net.connect(port, '127.0.0.1', () => c.write(raw, 'latin1'));
    c.on('data', (d) => { got += d.toString('utf8'); });
    c.on('error', () => {});
    c.on('close', () => {
      const body = got.slice(got.indexOf('{'));
      try { done(got.startsWith('HTTP/1.1 400') ? {} : JSON.parse(body.slice(0, body.lastIndexOf('}') + 1))); } catch { done({}); }
    });
  });
}

(async () => {
  const servers = {
    'Express 4': express(need('express'), 'extended', need('cookie-parser-before')),
    'Express 5': express(need('express5'), 'simple', need('cookie-parser')),
    'Express 5, extended': express(need('express5'), 'extended', need('cookie-parser')),
    'Fastify': await fastify({}),
    'Fastify, semicolons': await fastify({ useSemicolonDelimiter: true }),
  };
  for (const s of Object.values(servers)) await new Promise((done) => s.listen(0, '127.0.0.1', done));
  const version = (name) => need(name + '/package.json').name + ' ' + need(name + '/package.json').version;
  console.log(JSON.stringify({ versions: ['Node ' + process.versions.node, ...['express', 'express5', 'fastify', 'find-my-way', 'qs', 'cookie-parser-before', 'cookie-parser', 'passport-jwt', 'passport-http', 'passport-http-bearer', 'basic-auth'].map(version)] }));
  let waiting = '';
  for await (const chunk of process.stdin) {
    waiting += chunk;
    const lines = waiting.split('\n');
    waiting = lines.pop();
    for (let i = 0; i < lines.length; i += 32) {
      const answers = await Promise.all(lines.slice(i, i + 32).map(async (line) => {
        const { raw } = JSON.parse(line);
        const all = {};
        await Promise.all(Object.entries(servers).map(async ([name, s]) => { all[name] = await ask(s.address().port, raw); }));
        return JSON.stringify(all);
      }));
      process.stdout.write(answers.join('\n') + '\n');
    }
  }
  process.exit(0);
})();
