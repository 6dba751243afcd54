// The dashboard asks GET v1/dashboard every two seconds while it can be seen, and makes rates of the counts. What comes from the API goes
// into the page as text, never as markup: there is no innerHTML here.
"use strict";

const $ = id => document.getElementById(id);
const every = 2000, seldom = 10e3, kept = 600e3, recent = 10e3, lately = 60e3; // milliseconds
const verdicts = ["pass", "limited", "mitigated", "shadow", "tagged", "closed", "open", "denied", "maintenance"];
const refusing = ["limited", "mitigated", "closed", "denied", "maintenance"];
// What a verdict does to a request, in words: the metrics have its name.
const meaning = {pass: "passed", limited: "refused: over a limit", mitigated: "refused: source is blocked", shadow: "passed: a rule in shadow would refuse", tagged: "passed: tagged",
  closed: "refused: memcached away", open: "passed: memcached away", denied: "refused: deny list", maintenance: "refused: maintenance"};
const by = {edge: "this edge", pop: "another edge", admin: "an operator", peer: "another PoP"};

let points = [];      // for the plot: {at, rate by verdict}
let samples = [];     // of the last minute: {at, summary}
let nowAt = 0;        // when there was the latest one
let events = [];      // the newest first
let now = null;       // the latest summary
let shownSource = ""; // whose story is open
let version = "";     // of this edge
let shared = false;   // this edge shares a tier, so there may be others

// --- the API ---

class Refused extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

async function ask(path, {method = "GET", body, etag} = {}) {
  const headers = {}, token = sessionStorage.getItem("token"), who = sessionStorage.getItem("who");
  if (token) headers.Authorization = "Bearer " + token;
  if (who) headers["X-Operator"] = who;
  if (etag) headers["If-Match"] = etag;
  let r;
  try {
    r = await fetch(path, {method, body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body), headers, cache: "no-store"});
  } catch {
    throw new Refused(0, "the edge does not answer");
  }
  const text = await r.text();
  let answer = null;
  try { answer = JSON.parse(text); } catch { /* told below */ }
  if (r.status === 401) askForToken();
  if (!r.ok) throw new Refused(r.status, answer?.error?.message || `${path.split("?")[0]}: ${r.status}`);
  return {answer, etag: r.headers.get("ETag")};
}

const segments = source => source.split("/").map(encodeURIComponent).join("/");

// there is ask for what an edge may not have: null if it has not.
async function there(path) {
  try {
    return (await ask(path)).answer;
  } catch (e) {
    if (e.status === 404 || e.status === 400) return null;
    throw e;
  }
}

// The address of the page says what is shown: all edges of the PoP with #pop, this edge with #edge; without either all, where there may be others.
const ofPoP = () => location.hash === "#pop" || location.hash === "" && shared;
const scopeShown = () => { document.querySelector(`#scope [value=${ofPoP() ? "pop" : "edge"}]`).checked = true; };

// whole makes of the summary of all edges one that is read as that of one edge: their lists stand in place of its own.
function whole(summary) {
  const all = summary.whole;
  if (!all) return summary;
  const part = (own, is) => {
    const list = all.blocked.filter(is), more = list.filter(m => !m.on.includes(all.edges[0].name)).length; // those that this edge lacks
    return {in_force: own.in_force + more, matching: own.matching + more, list};
  };
  return {...summary, blocked: part(summary.blocked, m => m.mode === "enforce"), shadow: part(summary.shadow, m => m.mode !== "enforce"),
    requests: all.requests, refused: all.refused, keys: all.keys, refused_keys: all.refused_keys, events: all.events, wall: undefined};
}

// --- words ---

function number(n) {
  if (n >= 1e6) return (n / 1e6).toFixed(1) + " M";
  return n >= 100 || Number.isInteger(n) ? Math.round(n).toLocaleString("en") : n < 0.05 ? "0" : n.toFixed(1);
}

function span(seconds) {
  const s = Math.max(0, Math.round(seconds)), two = (a, x, b, y) => `${a} ${x}` + (b ? ` ${b} ${y}` : "");
  if (s >= 86400) return two(Math.floor(s / 86400), "d", Math.floor(s % 86400 / 3600), "h");
  if (s >= 3600) return two(Math.floor(s / 3600), "h", Math.floor(s % 3600 / 60), "min");
  return s >= 60 ? two(Math.floor(s / 60), "min", s % 60, "s") : s + " s";
}

// Times are UTC, as in logs and at the command line: 14:05:00Z, with the date where it is another day.
const utc = t => new Date(t).toISOString().slice(0, 19);
const clock = t => utc(t).slice(11) + "Z";
const when = t => utc(t).slice(0, 10) === utc(Date.now()).slice(0, 10) ? clock(t) : utc(t).replace("T", " ") + "Z";
const ruleName = rule => rule === "*" ? "all rules" : rule;
const until = t => `${span((new Date(t) - Date.now()) / 1000)}, till ${when(t)}`;
const seconds = s => s === null ? "–" : s < 0 ? "long" : s < 0.001 ? Math.round(s * 1e6) + " µs" : s < 1 ? number(s * 1e3) + " ms" : s.toFixed(1) + " s";
const spread = e => !e ? "" : `, on ${e.have} of ${e.known} edges` + (e.missing?.length ? ` (not ${e.refused ? "" : "yet "}on ${e.missing.join(", ")})` : "");
const warned = a => [].concat(a?.warnings || [], a?.warning || []).map(w => ". " + w).join("");

// who is an operator, and where he came from.
const who = (name, from) => name || from ? "by " + [name, from && "from " + from].filter(x => x).join(" ") : "";

// maintained tells of maintenance that is on.
const maintained = m => "Maintenance: every request gets 503" + (m.allow.length ? `, but those of ${m.allow.join(", ")}` : "") + (m.message ? `, with “${m.message}”` : "") +
  `. On since ${[when(m.since), who(m.by, m.from)].filter(x => x).join(" ")}; it ends by itself at ${when(m.until)}.`;

// changed tells how two rules as JSON differ; of what is no rule it shows both, where there was something before.
function changed(before, after) {
  const read = v => { try { return typeof v === "string" ? JSON.parse(v) : v; } catch { return undefined; } };
  const a = read(before), b = read(after), show = v => v === undefined ? "default" : typeof v === "string" ? v : JSON.stringify(v);
  if (!a || !b || typeof a !== "object" || typeof b !== "object") return before ? `${before} → ${after || "nothing"}` : "";
  return [...new Set([...Object.keys(a), ...Object.keys(b)])].filter(k => JSON.stringify(a[k]) !== JSON.stringify(b[k]))
    .map(k => `${k}: ${show(a[k])} → ${show(b[k])}`).join(", ");
}

// patch is the merge patch (RFC 7396) that makes one object of another: history then says what was changed, and no more.
function patch(before, after) {
  const object = v => v && typeof v === "object" && !Array.isArray(v), out = {};
  for (const k of new Set([...Object.keys(before), ...Object.keys(after)])) {
    if (JSON.stringify(before[k]) === JSON.stringify(after[k])) continue;
    out[k] = !(k in after) ? null : object(before[k]) && object(after[k]) ? patch(before[k], after[k]) : after[k];
  }
  return out;
}

// --- tables ---

// put changes a text only if it differs, so that a selection stays.
function put(node, text) { if (node.textContent !== text) node.textContent = text; }

// fill shows a list. A row has a key, by which it is found again, so that what has the focus keeps it; a cell is a text, or a
// function that makes or changes what is in the element it is given.
function fill(id, heads, rows, none) {
  const t = $(id), focused = document.activeElement;
  if (!t.tHead) {
    const head = t.createTHead().insertRow();
    for (const [name, kind] of heads) {
      const th = document.createElement("th");
      th.scope = "col";
      th.className = kind || "";
      th.textContent = name;
      head.append(th);
    }
    t.createTBody();
  }
  t.tHead.hidden = !rows.length;
  const body = t.tBodies[0], had = new Map([...body.rows].map(tr => [tr.dataset.key, tr]));
  if (!rows.length) rows = [{key: "none", cells: [none], none: true}];
  rows.forEach((row, i) => {
    let tr = had.get(row.key);
    had.delete(row.key);
    if (!tr) {
      tr = document.createElement("tr");
      tr.dataset.key = row.key;
      row.cells.forEach((_, j) => {
        const td = tr.insertCell();
        td.className = row.none ? "none" : heads[j][1] || "";
        td.dataset.name = row.none ? "" : heads[j][0];
        if (row.none) td.colSpan = heads.length;
      });
    }
    row.cells.forEach((cell, j) => {
      const td = tr.cells[j];
      if (typeof cell === "function") cell(td); else put(td, cell);
      td.classList.toggle("empty", !td.childNodes.length);
    });
    tr.className = row.kind || "";
    if (body.rows[i] !== tr) body.insertBefore(tr, body.rows[i] || null);
  });
  for (const tr of had.values()) tr.remove();
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus();
}

// button and link are cells.
const button = (text, label, act, kind = "") => td => {
  let b = td.firstElementChild;
  if (!b) {
    b = document.createElement("button");
    b.type = "button";
    b.className = kind;
    td.replaceChildren(b);
  }
  put(b, text);
  if (label) b.setAttribute("aria-label", label);
  b.onclick = () => act(b);
};
const sourceLink = source => source ? button(source, "", () => openSource(source), "link") : "";

// sourceAndPlace is sourceLink, and below it what is known of the address, such as its country and network.
const sourceAndPlace = (source, known) => td => {
  sourceLink(source)(td);
  let place = td.querySelector("div");
  if (!place && known) {
    place = td.appendChild(document.createElement("div"));
    place.className = "soft";
  }
  if (place) put(place, known || "");
};

// used is a cell that shows how much of a limit is used, and perhaps by whom.
const used = (estimate, limit, source) => td => {
  if (!td.firstElementChild) {
    td.replaceChildren(document.createElement("span"), document.createElement("meter"));
    if (source) {
      const who = document.createElement("div");
      who.append(document.createElement("button"));
      who.firstElementChild.type = "button";
      who.firstElementChild.className = "link";
      td.append(who);
    }
  }
  const [text, meter] = td.children, b = td.querySelector("button");
  put(text, `${number(estimate)} of ${number(limit)}`);
  Object.assign(meter, {min: 0, max: limit, low: limit * 0.7, high: limit * 0.9, optimum: 0, value: Math.min(estimate, limit)});
  meter.setAttribute("aria-label", "used of the limit");
  if (b) {
    put(b, source);
    b.onclick = () => openSource(source);
  }
};

// --- rates ---

// since is the oldest sample of the last so many milliseconds, and how many seconds ago it was. Where only the newest is of these, as after a slow
// answer, it is the one before: else nothing would seem to happen.
function since(ms) {
  const last = samples.length - 1, i = samples.findIndex(s => nowAt - s.at <= ms);
  const first = samples[i < 0 || i === last && nowAt - samples[i].at <= every / 2 ? Math.max(0, i < 0 ? last : last - 1) : i];
  return {first: first.summary, seconds: (nowAt - first.at) / 1000};
}

const rate = (after, before, seconds) => seconds > 0 ? Math.max(0, (after || 0) - (before || 0)) / seconds : 0;
const byName = (list, name, field = "name") => (list || []).find(x => x[field] === name);

// quantile of what came into a histogram between two samples; null: nothing came; -1: it is above every bound.
function quantile(after, before, q) {
  if (!after?.length) return null;
  const counts = after.map(([bound, n], i) => [bound, n - (before?.[i]?.[1] || 0)]), all = counts[counts.length - 1][1];
  if (all <= 0) return null;
  let low = 0, under = 0;
  for (const [bound, n] of counts) {
    if (n >= q * all) return bound < 0 ? -1 : low + (bound - low) * (q * all - under) / Math.max(1, n - under);
    [low, under] = [bound, n];
  }
  return -1;
}

function totals(summary) {
  const sum = {denied: summary.denied || 0, maintenance: summary.maintained || 0};
  for (const r of summary.rules) for (const [v, n] of Object.entries(r.verdicts)) sum[v] = (sum[v] || 0) + n;
  return sum;
}

// refusedOf is how many requests a second got a refusal as their answer, each once, however many rules refuse it.
const refusedOf = (now, first, s) => rate(now.answers.limit, first.answers?.limit, s) + rate(now.denied, first.denied, s) + rate(now.maintained, first.maintained, s);

// decided is how many refusals a second the rules decided: also of requests that only limit_api asks about, which get no answer here.
function decided(first, s) {
  const after = totals(now), before = totals(first);
  return refusing.reduce((sum, v) => sum + rate(after[v], before[v], s), 0);
}

// --- the plot ---

// step is a round distance of lines for a scale that ends at most.
function step(most) {
  const ten = 10 ** Math.floor(Math.log10(most / 4));
  return Math.max(1, [1, 2, 5, 10].map(m => m * ten).find(s => s * 4 >= most));
}

// drawn makes an element of a drawing.
function drawn(name, attributes, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text) e.textContent = text;
  return e;
}

function draw() {
  const svg = $("plot"), w = svg.clientWidth, h = svg.clientHeight, left = 52, right = 12, top = 8, bottom = 22;
  if (!w || !points.length) return;
  const end = points[points.length - 1].at, shown = verdicts.filter(v => v === "pass" || v === "limited" || v === "mitigated" || points.some(p => p.rate[v] > 0));
  const length = [60e3, 120e3, 300e3, kept].find(l => l >= end - points[0].at) || kept;
  const most = Math.max(4, ...points.map(p => shown.reduce((n, v) => n + (p.rate[v] || 0), 0))), s = step(most), scale = s * Math.ceil(most / s);
  const x = at => left + (w - left - right) * (1 - (end - at) / length), y = n => top + (h - top - bottom) * (1 - n / scale);
  const parts = [];
  for (let n = 0; n <= scale; n += s) {
    parts.push(drawn("line", {x1: left, x2: w - right, y1: y(n), y2: y(n)}), drawn("text", {x: left - 6, y: y(n) + 4, "text-anchor": "end"}, number(n)));
  }
  for (let i = 0; i <= 4; i++) {
    const ago = length * (4 - i) / 4, text = ago === 0 ? "now" : "−" + (ago % 60e3 ? span(ago / 1000) : ago / 60e3 + " min");
    if (w < 500 && i % 2) continue;
    parts.push(drawn("text", {x: x(end - ago), y: h - 4, "text-anchor": i === 0 ? "start" : i === 4 ? "end" : "middle"}, text));
  }
  // One verdict lies on the other, so that the height is all that was decided.
  let under = points.map(() => 0);
  for (const v of shown) {
    const over = under.map((n, i) => n + (points[i].rate[v] || 0)), at = (list, i) => x(points[i].at).toFixed(1) + " " + y(list[i]).toFixed(1);
    parts.push(drawn("path", {class: v, d: "M" + points.map((_, i) => at(over, i)).join("L") + "L" + points.map((_, i) => at(under, points.length - 1 - i)).join("L") + "Z"}));
    under = over;
  }
  svg.replaceChildren(...parts);
  const last = points[points.length - 1].rate, made = verdicts.reduce((n, v) => n + (last[v] || 0), 0);
  put($("decisions"), `Each rule decides about each request that matches it: ${number(made)} decisions a second now`);
  $("legend").replaceChildren(...shown.map(v => {
    const li = document.createElement("li");
    li.className = v;
    li.textContent = `${meaning[v]} ${number(last[v] || 0)}`;
    return li;
  }));
}

// --- what is shown ---

function figures(list) {
  $("figures").replaceChildren(...list.filter(f => f).map(([name, value, kind]) => {
    const div = document.createElement("div"), dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.textContent = name;
    dd.textContent = value;
    dd.className = kind || "";
    div.append(dt, dd);
    return div;
  }));
}

// overLimit is why an edge has blocked a source.
function overLimit(m) {
  const r = byName(now?.rules, m.rule), passes = r?.action === "tag" && m.mode === "enforce" ? " (its requests are tagged and pass)" : "";
  return (m.by === "admin" || !r?.limit ? "" : m.policy ? "more than " + m.policy + " allows" : `more than ${number(r.limit)} in ${r.window}`) + passes;
}

// shownKey is what operators see of a key, and the plan of who has it.
const shownKey = k => [k.key_start && k.key_start + "…", k.plan].filter(x => x).join(" · ");

function blockedRows(list) {
  return list.map(m => ({key: (m.policy || m.rule) + " " + m.source, cells: [sourceAndPlace(m.source, m.known), m.policy || ruleName(m.rule), now?.whole && (m.by === "edge" || m.by === "pop") ? "an edge" : by[m.by] || m.by, [shownKey(m), m.reason || overLimit(m)].filter(x => x).join(": ") + (m.not_on?.length ? ` (not on ${m.not_on.join(", ")})` : ""), until(m.end),
    button("Lift", `Lift the block of ${m.source} under ${ruleName(m.rule)}`, b => takeBack(b, `v1/mitigations/${encodeURIComponent(m.rule)}/${segments(m.source)}`,
      `Lifted ${m.source} under ${ruleName(m.rule)}`))]}));
}
const blockedHeads = [["Source", "key"], ["Rule"], ["By"], ["Why", "text"], ["Until"], ["", "act"]];

const lists = {allow: {word: "allowed", does: "never limited"}, deny: {word: "denied", does: "always refused"}};

function showLists() {
  const rows = ["deny", "allow"].flatMap(list => (now[list] || []).map(l => ({key: list + " " + l.prefix, cells: [
    l.prefix, lists[list].does, l.reason || "", until(l.end),
    button("Remove", `${l.prefix} is ${lists[list].word}: take it off the list`, b => takeBack(b, `v1/${list}/${segments(l.prefix)}`, `${l.prefix} is ${lists[list].word} no more`))]})));
  fill("lists", [["Prefix", "key"], ["What"], ["Why", "text"], ["Until"], ["", "act"]], rows, "Nobody.");
}

function blockedTable(id, blocked, none) {
  const rows = blockedRows(blocked.list);
  if (blocked.matching > rows.length) rows.push({key: "more", cells: [`and ${number(blocked.matching - rows.length)} more: search`, "", "", "", "", ""]});
  const found = $("find").value.trim() !== "";
  put($(id + "-count"), found ? `${number(blocked.matching)} of ${number(blocked.in_force)}` : number(blocked.in_force));
  fill(id, blockedHeads, rows, found && blocked.in_force ? "Nobody like that." : none);
}

// wants is what a match asks for, a few words each.
function wants(m) {
  const named = (what, values) => Object.entries(values || {}).map(([name, value]) => `${what} ${name}=${value}`);
  return [...(m.methods || []), ...(m.hosts || []).filter(h => h !== "*"), m.path === "*" ? "" : m.path, ...(m.sources || []), ...named("header", m.headers), ...named("query", m.query),
    ...named("cookie", m.cookies), m.plans ? "plan " + m.plans.join(" or ") : "",
    m.descriptors ? `descriptors of ${m.descriptors.domain}: ` + m.descriptors.entries.map(e => e.key + (e.value ? "=" + e.value : "")).join(" ") : ""].filter(x => x);
}

// unusual are fields of a rule that are told where they are not what they are by default.
const unusual = {algorithm: "sliding", burst: 0, action: "refuse", check: "async", first_sight: "go", on_store_failure: "local", estimate: "nearest", priority: "default", queue: "0s"};

function about(rule) {
  const m = rule.match || {}, key = (rule.key || []).filter(k => k !== "source"), cost = rule.cost ?? 1;
  return [[wants(m).join(" "), m.not ? "not " + wants(m.not).join(" or ") : ""].filter(x => x).join(" ") || "everything", key.length ? "by " + rule.key.join(" and ") : "",
    rule.count?.statuses ? "answered " + rule.count.statuses.join(", ") : rule.count?.refused ? "refused too" : "", rule.share && rule.share < 100 ? `of ${rule.share} % of sources` : "",
    rule.windows ? "and " + rule.windows.map(w => `${number(w.limit)} in ${w.window}`).join(", ") : "",
    rule.prefixes ? "by /" + rule.prefixes.map(p => p.prefix || p).join(", /") : "",
    cost === 1 ? "" : "cost " + (cost.bytes ? `1 for each ${number(cost.bytes)} bytes` : cost.header ? "by " + cost.header : number(cost)),
    rule.plans ? "plans " + Object.entries(rule.plans).map(([plan, p]) => `${plan} ${number(p.limit)}`).join(", ") : "",
    rule.escalate ? "blocked for " + [rule.mitigation_timeout, ...rule.escalate].join(", then ") : "",
    ...Object.entries(unusual).filter(([field, usually]) => rule[field] !== undefined && rule[field] !== usually).map(([field]) => field.replaceAll("_", " ") + " " + rule[field])].filter(x => x).join(", ");
}

function showRules() {
  const {first, seconds: s} = since(recent);
  fill("rules", [["Rule", "key"], ["Mode"], ["Limit", "n"], ["About", "text"], ["Requests/s", "n"], ["Refused", "n"], ["Blocked", "n"], ["Nearest to its limit", "near"], ["", "act"]], now.rules.map(r => {
    const before = byName(first.rules, r.name)?.verdicts || r.verdicts, per = v => rate(r.verdicts[v], before[v], s);
    const all = Object.keys(r.verdicts).reduce((n, v) => n + per(v), 0), no = (r.mode === "shadow" ? ["shadow"] : refusing).reduce((n, v) => n + per(v), 0);
    return {key: r.name, cells: [r.name, r.mode, [r.limit ? `${number(r.limit)} in ${r.window}` : "", r.concurrency ? `${number(r.concurrency)} in flight (${number(r.in_flight || 0)} ${now.whole ? "now" : "here"})` : ""].filter(x => x).join(", "), about(r), number(all),
      r.mode === "off" ? "" : (r.mode === "shadow" ? "would be " : "") + (all > 0 ? Math.round(100 * no / all) : 0) + " %",
      number(r.active), r.nearest ? used(r.nearest.estimate, r.nearest.limit, r.nearest.source) : "–",
      button("Edit…", "Edit the rule " + r.name, () => openRule(r.name))]};
  }), "No rules.");
}

function showOrigins() {
  const ten = since(recent), minute = since(lately);
  fill("origins", [["Origin", "key"], ["Health"], ["Under way", "n"], ["Median", "n"], ["p99", "n"], ["2xx/s", "n"], ["3xx/s", "n"], ["4xx/s", "n"], ["5xx/s", "n"]], (now.origins || []).map(o => {
    const before = byName(ten.first.origins, o.name)?.answers || o.answers, long = byName(minute.first.origins, o.name)?.seconds;
    const kind = c => Object.keys(o.answers).filter(k => k[0] === c).reduce((n, k) => n + rate(o.answers[k], before[k], ten.seconds), 0);
    const health = td => { put(td, o.up ? "up" : "down"); td.className = o.up ? "good" : "bad"; };
    return {key: o.name, cells: [o.name, health, number(o.active), seconds(quantile(o.seconds, long, 0.5)), seconds(quantile(o.seconds, long, 0.99)),
      ...["2", "3", "4", "5"].map(c => number(kind(c)))]};
  }), "No origins.");
}

function showShedding() {
  const ten = since(recent), list = now.shedding || [];
  $("shedding-section").hidden = !list.length;
  fill("shedding", [["Origin", "key"], ["State"], ["Limit", "n"], ["Under way", "n"], ["Waiting", "n"], ["Usual latency", "n"], ["Shed/s", "n"]], list.map(o => {
    const name = o.hosts.join(", "), s = o.shedding, before = (ten.first.shedding || []).find(b => b.hosts.join(", ") === name)?.shedding.shed || s.shed;
    const state = td => { put(td, s.now ? "sheds" : "has room"); td.className = s.now ? "bad" : "good"; };
    const shed = Object.keys(s.shed).map(p => [p, rate(s.shed[p], before[p], ten.seconds)]).filter(([, n]) => n > 0).map(([p, n]) => `${number(n)} ${p}`);
    return {key: name, cells: [name === "*" ? "all hosts" : name, state, number(s.limit), number(s.in_flight), number(s.waiting), s.base_seconds ? seconds(s.base_seconds) : "–", shed.join(", ") || "0"]};
  }), "");
}

function showNodes() {
  const minute = since(lately);
  fill("nodes", [["Node", "key"], ["State"], ["Median", "n"], ["p99", "n"]], (now.nodes || []).map(n => {
    const before = byName(minute.first.nodes, n.address, "address")?.seconds;
    const state = td => { put(td, (n.up ? "up" : "down") + (n.joining ? ", joining" : n.leaving ? ", leaving" : "")); td.className = n.up ? "good" : "bad"; };
    return {key: n.address, cells: [n.address, state, seconds(quantile(n.seconds, before, 0.5)), seconds(quantile(n.seconds, before, 0.99))]};
  }), "This edge counts alone.");
}

function showEdges(pop) {
  const list = pop.edges || [], me = list[0];
  shared = pop.nodes?.length > 0;
  version = me?.version || "";
  $("edges-section").hidden = !list.length;
  fill("edges", [["Edge", "key"], ["Address"], ["Version"], ["Up for"], ["Rules"], ["Since"]], list.map((e, i) => {
    const same = td => { put(td, (e.config_hash === me.config_hash ? "the same" : "differ from this edge's") + (e.refused ? `, ${e.refused} not understood` : "")); td.className = e.config_hash === me.config_hash && !e.refused ? "" : "bad"; };
    const started = e.started && !e.started.startsWith("0001") ? span((Date.now() - new Date(e.started)) / 1000) : "";
    return {key: e.id || String(i), cells: [(e.name || e.id || "") + (i ? "" : " (this one)"), e.address || "", e.version || "", started, same, e.since && !e.since.startsWith("0001") ? when(e.since) : ""]};
  }), "");
}

// showWhole tells which edges are in what is shown, how old what each shows is, and which are missing.
function showWhole() {
  const list = now.whole?.edges || [], there = list.filter(e => !e.missing).length;
  $("whole-section").hidden = !list.length;
  put($("whole-count"), `${there} of ${list.length}`);
  $("whole-count").className = there < list.length ? "bad" : "soft";
  fill("whole", [["Edge", "key"], ["State"], ["Age", "n"], ["Why it is missing", "text"]], list.map((e, i) => ({key: e.id || e.name, kind: e.missing ? "bad" : "",
    cells: [e.name + (i ? "" : " (this one)"), e.missing ? "missing" : "shown", e.missing ? e.age_seconds ? span(e.age_seconds) : "" : e.age_seconds.toFixed(1) + " s", e.missing || ""]})), "");
}

// showHeavy lists who asks much; of the whole PoP with what each edge counts, and with the least where that is not sure.
function showHeavy(id, list) {
  const count = h => (h.edges && h.error ? number(h.count - Math.min(h.error, h.count)) + "–" : "") + number(h.count);
  const each = h => Object.entries(h.edges || {}).sort((a, b) => b[1] - a[1]).map(([edge, n]) => `${edge} ${number(n)}`).join(", ");
  fill(id, now.whole ? [["Source", "key"], ["Edges", "text"], ["Requests", "n"]] : [["Source", "key"], ["Requests", "n"]],
    list.map(h => ({key: h.source, cells: now.whole ? [sourceLink(h.source), each(h), count(h)] : [sourceLink(h.source), count(h)]})), "None yet.");
}

const eventHeads = [["When", "time"], ["What", "text"]];
const eventRows = list => list.map(e => ({key: [e.number, ...(e.edges || [])].join(" "), cells: [when(e.time), td => {
  if (td.firstElementChild) return; // an event does not change
  const text = document.createElement("span"), parts = [e.text];
  if (e.rule) parts.push("under " + (e.policy || ruleName(e.rule)));
  if (changed(e.old, e.new)) parts.push("(" + changed(e.old, e.new) + ")");
  if (e.who || e.from) parts.push(who(e.who, e.from));
  if (e.edges) parts.push(`on ${e.edges.join(", ")}`);
  if (e.skipped) parts.push(`(and ${number(e.skipped)} like it)`);
  text.textContent = (e.kind ? e.kind + ": " : "") + parts.join(" ");
  if (e.kind === "warning" || e.level === "WARN" || e.level === "ERROR") text.className = "bad";
  td.append(text);
  if (e.source) {
    const b = document.createElement("button");
    b.type = "button";
    b.className = "link";
    b.textContent = e.source;
    b.onclick = () => openSource(e.source);
    td.append(" ", b);
  }
}]}));

// warningsOf are the texts of warnings, each once, whichever edges give it.
function warningsOf(list) {
  const edges = new Map();
  for (const e of list) edges.set(e.text, new Set([...edges.get(e.text) || [], ...e.edges || []]));
  return [...edges].map(([text, of]) => of.size > 1 ? `${of.size} edges (${[...of].sort().join(", ")}): ${text}` : [...of, text].join(": "));
}

// gone are the edges that went lately and have not come back, with how many seconds ago that was.
function gone() {
  if (now.whole) return now.whole.edges.filter(e => e.missing).map(e => [e.name, e.age_seconds]);
  const last = new Map(); // events are the newest first
  for (const e of events) {
    const name = e.kind === "edge" && e.text.match(/^edge (.+) is (?:gone|there)/)?.[1];
    if (name && !last.has(name)) last.set(name, e);
  }
  return [...last].filter(([, e]) => e.new === "gone" && Date.now() - new Date(e.time) < kept).map(([name, e]) => [name, (Date.now() - new Date(e.time)) / 1000]);
}

// several names the first of a list, and how many others there are.
const several = list => list.length > 3 ? `${list.slice(0, 3).join(", ")} and ${list.length - 3} more` : list.join(", ").replace(/, ([^,]*)$/, " and $1");

// inWords is the state in one line: what is wrong, then who is refused, or that it is quiet. kind is bad, busy or none.
function inWords() {
  const {first, seconds: s} = since(recent), refused = refusedOf(now, first, s) || decided(first, s), down = (now.nodes || []).filter(n => !n.up);
  const tags = tagged(), n = now.blocked.in_force - tags;
  const wrong = [...gone().map(([name, ago]) => `edge ${name} has been silent` + (ago ? ` for ${span(ago)}` : "")), now.unready && "this edge is not ready",
    now.alone ? "this edge counts alone, no memcached node answers" : down.length && `memcached ${several(down.map(d => d.address))} is down`,
    ...(now.origins || []).filter(o => !o.up).map(o => `origin ${o.name} is down`),
    ...(now.shedding || []).filter(o => o.shedding.now).map(o => `origin ${o.hosts.join(", ").replace(/^\*$/, "")} is overloaded`.replace("  ", " ")),
    now.maintenance && "closed for maintenance",
    ...(now.everybody || []).filter(m => m.mode === "enforce").map(m => `rule ${m.rule} challenges everybody, ${until(m.end)}` + (m.reason ? ` (${m.reason})` : ""))].filter(x => x);
  const rules = [...new Set(now.blocked.list.filter(m => m.action !== "tag").map(m => m.rule))].filter(rule => rule !== "*");
  const does = [n && `${number(n)} ${n === 1 ? "source is" : "sources are"} blocked` + (rules.length ? ` under ${rules.length > 1 ? "rules" : "rule"} ${several(rules)}` : ""),
    tags && `${number(tags)} ${tags === 1 ? "is" : "are"} tagged and ${tags === 1 ? "passes" : "pass"}`,
    refused >= 0.05 && `${number(refused)} ${refused === 1 ? "request" : "requests"} a second refused`].filter(x => x).join("; ");
  const text = [wrong.join(", "), does || !wrong.length && "quiet: nobody is blocked, nothing is refused"].filter(x => x).join("; ");
  const last = events.find(e => e.kind === "operator" || e.kind === "reload");
  const of = last && [last.source, last.rule && "under " + ruleName(last.rule)].filter(x => x).join(" ");
  const change = last ? `Last change ${span((Date.now() - new Date(last.time)) / 1000)} ago${last.who ? " by " + last.who : ""}: ${last.text}${of ? ` (${of})` : ""}.` : "";
  return {text: text[0].toUpperCase() + text.slice(1) + ".", change, kind: wrong.length ? "bad" : does ? "busy" : ""};
}

// tagged is how many blocks are of rules that tag: their sources pass.
const tagged = () => Math.min(now.blocked.in_force, now.rules.filter(r => r.action === "tag" && r.mode === "enforce").reduce((sum, r) => sum + r.active, 0));

function show() {
  const {first, seconds: s} = since(recent), asked = rate(now.received, first.received, s), tagging = tagged();
  const own = refusedOf(now, first, s), all = Object.keys(now.answers).reduce((n, k) => n + rate(now.answers[k], first.answers?.[k], s), 0);
  $("scope").hidden = !shared && !ofPoP(); // an edge that counts alone is the whole PoP
  put($("plot-of"), now.whole ? "All edges together" : "This edge");
  for (const e of document.querySelectorAll(".own")) e.hidden = !now.whole;
  put($("where"), [now.pop && "PoP " + now.pop + (now.edges > 1 ? ` of ${now.edges} edges` : ""), now.edge && "this is edge " + now.edge, version || now.version, !now.whole && now.started && "up " + span(new Date(now.time) / 1000 - now.started)].filter(x => x).join(" · "));
  figures([["Requests a second", number(asked)], ["Of them refused", (all > 0 ? Math.round(100 * own / all) : 0) + " %"],
    [tagging ? "Blocked, and tagged" : "Blocks in force", number(now.blocked.in_force - tagging) + (tagging ? ", " + number(tagging) : ""), now.blocked.in_force ? "mitigated" : ""], ["Connections", number(now.connections)],
    now.http2 && ["By HTTP/2", (asked > 0 ? Math.round(100 * rate(now.http2, first.http2 || 0, s) / asked) : 0) + " %"],
    now.wall && ["In the kernel's set", now.wall.up ? `${number(now.wall.entries)} of ${number(now.wall.room)}` : "none: away", now.wall.up ? "" : "bad"],
    now.wall && ["SYNs refused a second", number(rate(now.wall.refused, first.wall?.refused, s))],
    now.seconds && ["99 % answered within", seconds(quantile(now.seconds, since(lately).first.seconds, 0.99))]]);
  const down = (now.origins || []).filter(o => !o.up).map(o => `origin ${o.name} is down`);
  const warnings = warningsOf(events.filter(e => e.kind === "warning" && Date.now() - new Date(e.time) < kept));
  const missing = (now.whole?.edges || []).filter(e => e.missing).map(e => e.name);
  const wrong = [missing.length && `the numbers below are without ${several(missing)}`, now.unready, now.apart, now.alone && "this edge counts alone: no memcached node answers", ...down, ...(now.nodes || []).filter(n => !n.up).map(n => `memcached ${n.address} is down`),
    now.wall?.error && "sluice-wall cannot be used: " + now.wall.error,
    now.failed_reload && "the last reload failed, and what was in force still is: " + now.failed_reload.error,
    now.waiting?.length && "waits for a restart: " + now.waiting.map(w => w.field).join(", "), ...warnings].filter(x => x);
  const words = inWords();
  put($("says"), words.text);
  put($("changed"), words.change);
  $("says").className = words.kind;
  $("maintenance").hidden = !now.maintenance;
  put($("maintenance"), now.maintenance ? maintained(now.maintenance) : "");
  $("warning").hidden = !wrong.length;
  put($("warning"), wrong.join(" · "));
  draw();
  showWhole();
  blockedTable("blocked", now.blocked, "Nobody is blocked.");
  $("shadow-section").hidden = !now.shadow.in_force && !now.rules.some(r => r.mode === "shadow");
  blockedTable("shadow", now.shadow, "Nobody.");
  showLists();
  showRules();
  showOrigins();
  showShedding();
  showNodes();
  for (const id of ["requests", "refused"]) showHeavy(id, now[id] || []);
  for (const id of ["keys", "refused_keys"]) {
    const list = now[id] || [];
    $(id + "-section").hidden = !list.length;
    fill(id, [["Source", "key"], ["Key"], ["Of"], ["Rules"], ["Requests", "n"]], list.map(h => ({key: h.source, cells: [sourceLink(h.source), shownKey(h), h.key, (h.rules || []).join(", "), number(h.count)]})), "None yet.");
  }
  fill("events", eventHeads, eventRows(events.slice(0, 30)), "None yet.");
}

// counted is whose counts a summary has: they begin anew where it is another.
const counted = s => s.whole ? s.whole.since : s.started;

function take(summary, at) {
  if (now && counted(now) !== counted(summary)) {
    [samples, events] = [[], []];
    if (!summary.whole) points = []; // of the PoP an edge has come or gone, and what was a rate then still was
  }
  const before = samples[samples.length - 1];
  if (before && at - before.at > every / 2) {
    // What another edge shows is up to seconds old, and unevenly so: a rate of the whole PoP is over more of them.
    const from = summary.whole ? samples.find(s => at - s.at <= recent) || before : before;
    const after = totals(summary), were = totals(from.summary), r = {};
    for (const v of verdicts) r[v] = rate(after[v], were[v], (at - from.at) / 1000);
    points = [...points.filter(p => at - p.at <= kept), {at, rate: r}];
  }
  // What an operator does asks again at once: too soon for a rate.
  if (!before || at - before.at > every / 2) samples = [...samples.filter(s => at - s.at <= lately || s === before), {at, summary}];
  if (summary.whole) events = [];
  const known = new Set(events.map(e => e.number));
  events = [...(summary.events || []).filter(e => !known.has(e.number)), ...events].slice(0, 200);
  [now, nowAt] = [summary, at];
}

// --- asking again and again ---

let timer = 0, asking = false, again = false, turn = 0;

async function poll() {
  clearTimeout(timer);
  if (asking) { again = true; return; }
  asking = true;
  const begun = performance.now();
  try {
    const q = $("find").value.trim(), last = events.length ? events[0].number : 0, scope = ofPoP();
    const {answer} = await ask(`v1/dashboard?since=${last}&q=${encodeURIComponent(q)}${scope ? "&scope=pop" : ""}`);
    const at = performance.now();
    if (turn++ % 5 === 0) showEdges((await ask("v1/pop")).answer);
    if (scope === ofPoP()) { // else it was switched meanwhile, or that there are others is known only now
      take(whole(answer), at);
      show();
    } else {
      scopeShown();
      again = true;
    }
    if (shownSource) await showSource();
    state("live");
  } catch (e) {
    state(e.message, true);
    if (e.status === 401) { asking = again = false; return; } // until there is a token
  }
  asking = false;
  // An edge that has much to tell is asked less often, so that it spends little of its time on a viewer, but often enough for an operator at night.
  // Of the whole PoP it waits for others more than it works, and who looks too seldom waits for all of them anew.
  const pause = again ? 0 : Math.min(ofPoP() ? 2 * every : seldom, Math.max(every, 20 * (performance.now() - begun)));
  again = false;
  if (!document.hidden) timer = setTimeout(poll, pause);
}

function state(text, bad) {
  put($("state"), text);
  if (bad) {
    put($("says"), text[0].toUpperCase() + text.slice(1) + ": what is below is old.");
    $("says").className = "bad";
  }
  $("state").className = bad ? "bad" : "good";
}

function notice(text) {
  $("notice").hidden = !text;
  put($("notice"), text);
}

// --- what an operator does ---

// dialog opens one; what() does what its form asks for, and an error of it stays in the form.
function dialog(id, what) {
  const d = $(id), form = d.querySelector("form"), wrong = d.querySelector(".wrong"), main = d.querySelector("button[type=submit]");
  wrong.textContent = "";
  form.onsubmit = async e => {
    e.preventDefault();
    wrong.textContent = "";
    if (main) main.disabled = true;
    try {
      if (what && await what(form) !== false) d.close();
    } catch (e) {
      wrong.textContent = e.message;
    }
    if (main) main.disabled = false;
  };
  for (const b of d.querySelectorAll("button.close")) b.onclick = () => d.close();
  if (!d.open) d.showModal();
  return form;
}

function askForToken() {
  if ($("d-operator").open) return;
  const form = dialog("d-operator", form => {
    sessionStorage.setItem("token", form.elements.token.value.trim());
    sessionStorage.setItem("who", form.elements.who.value.trim());
    setTimeout(poll);
  });
  form.elements.who.value = sessionStorage.getItem("who") || "";
  form.elements.token.value = "";
  if (sessionStorage.getItem("token")) $("d-operator").querySelector(".wrong").textContent = "The edge does not take the token that it was given.";
}

function openBlock(source = "") {
  const form = dialog("d-block", async form => {
    const of = form.elements, rule = of.rule.value, {answer} = await ask(`v1/mitigations/${encodeURIComponent(rule)}/${segments(of.source.value.trim())}`,
      {method: "PUT", body: {for: of.for.value.trim(), reason: of.reason.value}});
    notice(`Blocked ${answer.source || of.source.value} under ${ruleName(rule)}${spread(answer.edges)}${warned(answer)}.`);
    poll();
  });
  const option = (value, text) => Object.assign(document.createElement("option"), {value, textContent: text});
  form.elements.rule.replaceChildren(option("*", "all rules"), ...(now?.rules || []).filter(r => r.mode !== "off").map(r => option(r.name, r.mode === "enforce" ? r.name : `${r.name} (shadow: refuses nobody)`)));
  form.elements.source.value = source;
  form.elements.reason.value = "";
  (source ? form.elements.rule : form.elements.source).focus();
}

function openList(list, source = "") {
  const {word, does} = lists[list], form = dialog("d-list", async form => {
    const of = form.elements, {answer} = await ask(`v1/${list}/${segments(of.source.value.trim())}`, {method: "PUT", body: {for: of.for.value.trim(), reason: of.reason.value}});
    notice(`${answer.prefix} is ${word}${spread(answer.edges)}${warned(answer)}.`);
    poll();
  });
  const verb = list === "allow" ? "Allow" : "Deny";
  put($("t-list"), verb + " a source");
  put($("l-does"), `The source is ${does} for this time, on every edge of the PoP, whatever rules say.` + (list === "allow" ? " Who is denied stays so." : ""));
  put($("d-list").querySelector("button[type=submit]"), verb);
  form.elements.source.value = source;
  form.elements.reason.value = "";
  (source ? form.elements.for : form.elements.source).focus();
}

// takeBack ends what stands in a button's row, and goes on to the next row.
async function takeBack(b, path, done) {
  b.disabled = true;
  try {
    const {answer} = await ask(path, {method: "DELETE"});
    notice(`${done}${spread(answer.edges)}${warned(answer)}.`);
    const row = b.closest("tr"), next = (row.nextElementSibling || row.previousElementSibling)?.querySelector(".act button");
    if (document.activeElement === b || document.activeElement === document.body) (next || b.closest("dialog")?.querySelector("button.close") || $("find")).focus();
    poll();
  } catch (e) {
    notice(e.message);
  }
  b.disabled = false;
}

async function openRule(name) {
  let rule, etag;
  try {
    ({answer: rule, etag} = await ask("v1/rules/" + encodeURIComponent(name)));
  } catch (e) { return notice(e.message); }
  const fields = ["limit", "window", "mitigation_timeout", "mode"];
  const saved = answer => { notice(`Rule ${name} is changed${spread(answer.edges)}${warned(answer)}.`); poll(); };
  const form = dialog("d-rule", async form => {
    let changed;
    try { changed = JSON.parse(form.elements.whole.value); } catch (e) { throw new Error("The whole rule is no JSON: " + e.message); }
    for (const f of fields) {
      const value = form.elements[f].value.trim();
      if (value === String(rule[f] ?? "")) continue;
      if (value === "") delete changed[f]; else changed[f] = f === "limit" ? Number(value) : value;
    }
    try {
      saved((await ask("v1/rules/" + encodeURIComponent(name), {method: "PATCH", body: patch(rule, changed), etag})).answer);
    } catch (e) {
      throw e.status === 412 ? new Error("Somebody has changed this rule meanwhile. Close this and open it again.") : e;
    }
  });
  put($("t-rule"), "Rule " + name);
  for (const f of fields) form.elements[f].value = rule[f] ?? "";
  form.elements.whole.value = JSON.stringify(rule, null, 2);
  form.elements.limit.focus();
  $("past").hidden = true;
  const past = await there(`v1/rules/${encodeURIComponent(name)}/history`).catch(() => null);
  if (!Array.isArray(past)) return; // this edge keeps none
  $("past").hidden = false;
  fill("versions", [["Version", "key"], ["When"], ["What", "text"], ["Who"], ["", "act"]], past.map(p => ({key: String(p.version), cells: [
    p.version === 0 ? "the file" : String(p.version), p.at ? when(p.at) : "",
    p.refused || (p.version === 0 ? "what the file says" : p.does === "removed" ? "removed" : p.old && p.new ? changed(p.old, p.new) || "the same" : p.does || ""),
    [p.who, p.from && "from " + p.from].filter(x => x).join(" "),
    p.in_force ? "in force" : button("Roll back", `Roll ${name} back to version ${p.version}`, async b => {
      b.disabled = true;
      try {
        saved((await ask(`v1/rules/${encodeURIComponent(name)}/rollback`, {method: "POST", body: {to: p.version}})).answer);
        $("d-rule").close();
      } catch (e) {
        form.querySelector(".wrong").textContent = e.message;
      }
      b.disabled = false;
    })]})), "None.");
}

function openSource(source) {
  shownSource = source;
  for (const id of ["s-blocked", "s-rules", "s-events"]) $(id).replaceChildren();
  put($("t-source"), source);
  put($("s-asks"), "");
  for (const id of ["s-allow", "s-deny"]) $(id).hidden = source.startsWith("#"); // lists are of addresses
  $("s-counted").hidden = true;
  dialog("d-source");
  showSource().catch(e => put($("d-source").querySelector(".wrong"), e.message));
}

// showSource tells one source's story: what is in force, how it stands, what happened.
async function showSource() {
  const source = shownSource, heavy = (list, what) => { const h = byName(list, source, "source"); return h ? `${number(h.count)} ${what}` : ""; };
  const [found, standings, told] = await Promise.all([ask("v1/dashboard?since=9007199254740991&q=" + encodeURIComponent(source)),
    there("v1/sources/" + encodeURIComponent(source.split("/")[0])), there("v1/events")]);
  if (source !== shownSource) return; // closed meanwhile, or another one is open
  const mine = [...found.answer.blocked.list, ...found.answer.shadow.list].filter(m => m.source === source);
  put($("s-asks"), [standings?.allowed && "allowed: never limited", standings?.denied && "denied: always refused", heavy(now?.requests, "requests of late"), heavy(now?.refused, "refused")].filter(x => x).join(", "));
  fill("s-blocked", blockedHeads, blockedRows(mine.map(m => m.mode === "enforce" ? m : {...m, reason: `${m.mode}: refuses nobody. ${m.reason || ""}`})), "No block is in force.");
  const list = Array.isArray(standings) ? standings : standings?.rules;
  $("s-counted").hidden = !Array.isArray(list);
  if (Array.isArray(list)) {
    fill("s-rules", [["Rule", "key"], ["Mode"], ["In the window"], ["Remaining", "n"], ["In flight"], ["Blocked"]], list.map(s => ({key: s.policy || s.rule, cells: [
      s.policy || s.rule, s.mode || "", s.limit ? used(s.estimate || 0, s.limit) : "–", s.limit ? number(s.remaining ?? 0) : "–",
      s.places ? used(s.places.held, s.places.limit) : "–", s.mitigated_until ? until(s.mitigated_until) : "no"]})), "No rule counts it.");
  }
  fill("s-events", eventHeads, eventRows((Array.isArray(told) ? told : told?.events || []).filter(e => e.source === source).slice(0, 50)), "Nothing that is still known.");
}

// --- begin ---

$("operator").onclick = () => askForToken();
$("block").onclick = () => openBlock();
$("s-block").onclick = () => { const source = shownSource; $("d-source").close(); openBlock(source); };
for (const list of ["allow", "deny"]) {
  $(list).onclick = () => openList(list);
  $("s-" + list).onclick = () => { const source = shownSource; $("d-source").close(); openList(list, source); };
}
$("d-source").onclose = () => { shownSource = ""; };
let typing = 0;
$("find").oninput = () => { clearTimeout(typing); typing = setTimeout(poll, 250); };
document.addEventListener("keydown", e => {
  if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]") || /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName)) return;
  e.preventDefault();
  $("find").focus();
});
document.addEventListener("visibilitychange", () => { if (document.hidden) { clearTimeout(timer); state("paused"); } else poll(); });
new ResizeObserver(draw).observe($("plot"));
// Another address shows something else: nothing of before stays, and tables have other columns.
function switched() {
  scopeShown();
  [points, samples, events, now, turn] = [[], [], [], null, 0];
  for (const id of ["requests", "refused"]) $(id).replaceChildren();
  state(ofPoP() ? "asking all edges" : "loading");
  poll();
}
for (const radio of document.querySelectorAll("#scope input")) radio.onchange = () => { location.hash = radio.value; };
window.addEventListener("hashchange", switched);
scopeShown();
poll();
