// Keeps a page up to date, and reads keys. Every page works without it: what it fetches is the page itself, of which it takes the parts
// that change. Text is never made into markup here.

const EVENTS_SETTLE_MS = 250;
const POLL_MS = 5_000;
const POLL_SLOWLY_MS = 30_000;
/** Events may come without a pause: the page is fetched no more often than this. */
const BETWEEN_FETCHES_MS = 1_000;
/** A server that takes a request and says nothing is not there. */
const ANSWER_MS = 20_000;

const kind = document.body.dataset.live;
let source = null;
let timer = 0;
let isFetching = false;
let isAskedAgain = false;
let failures = 0;
let fetchedAt = 0;

/** What somebody filled in and did not send. What is ticked in a list is taken over, and so is the command for it. */
const TAKEN_OVER = '[name="run"], #all-here, #follow, #command';
const isFilledIn = (field) => {
  if (field.matches(TAKEN_OVER)) return false;
  if (field.matches('[type="checkbox"], [type="radio"]')) return field.checked !== field.defaultChecked;
  if (!field.matches('select')) return field.value !== field.defaultValue;
  const first = [...field.options].findIndex((it) => it.defaultSelected);
  return field.selectedIndex !== Math.max(first, 0);
};

const isBusy = (part) => {
  const active = document.activeElement;
  const isTyping = active && part.contains(active) && active.matches('input:not([type="checkbox"]), select, textarea');
  return isTyping || part.querySelector('details.act[open]') !== null || [...part.querySelectorAll('input:not([type="hidden"]), select, textarea')].some(isFilledIn);
};

/** What can be opened, by what it is about: its place changes with what is new. */
const openable = (part) => {
  const known = new Map();
  for (const it of part.querySelectorAll('details')) {
    const about = it.closest('[data-of], tr[id], [data-row], section');
    const link = (about ?? it).querySelector('a[href]')?.getAttribute('href');
    const key = [about?.dataset.of, about?.id, link, it.querySelector('form')?.getAttribute('action')].join(' ');
    let turn = 0;
    while (known.has(`${key} ${turn}`)) turn += 1;
    known.set(`${key} ${turn}`, it);
  }
  return known;
};

/** What a person opened stays open, and what they read stays where it is. */
const takeOver = (part, fresh) => {
  const before = openable(part);
  openable(fresh).forEach((it, key) => { if (before.has(key)) it.open = before.get(key).open; });
  // So does what they ticked, and the row that they are at.
  part.querySelectorAll('input[type="checkbox"]:checked').forEach((it) => {
    const same = [...fresh.querySelectorAll('input[type="checkbox"]')].find((other) => other.name === it.name && other.value === it.value);
    if (same) same.checked = true;
  });
  const chosen = part.querySelector('.chosen a')?.getAttribute('href');
  if (chosen) [...fresh.querySelectorAll('[data-row]')].find((row) => row.querySelector('a')?.getAttribute('href') === chosen)?.classList.add('chosen');
  const command = fresh.querySelector('#command');
  if (command && part.querySelector('#command')) command.value = part.querySelector('#command').value;
  const focused = part.contains(document.activeElement) ? document.activeElement.id || document.activeElement.getAttribute('href') : null;
  const fromTop = part.querySelector('.log')?.scrollTop ?? 0;
  const fromLeft = [...part.querySelectorAll('.diagram, .scrolls, .heat')].map((it) => it.scrollLeft);
  const follow = fresh.querySelector('#follow');
  if (follow) follow.checked = part.querySelector('#follow')?.checked ?? true;
  part.replaceWith(fresh);
  fresh.querySelectorAll('.diagram, .scrolls, .heat').forEach((it, place) => { it.scrollLeft = fromLeft[place] ?? 0; });
  const newLog = fresh.querySelector('.log');
  if (newLog) newLog.scrollTop = isFollowing() ? newLog.scrollHeight : fromTop;
  if (focused) [...fresh.querySelectorAll('[id], [href]')].find((it) => it.id === focused || it.getAttribute('href') === focused)?.focus();
};

const refresh = async () => {
  if (isFetching) { isAskedAgain = true; return; }
  isFetching = true;
  isAskedAgain = false;
  fetchedAt = Date.now();
  try {
    const answer = await fetch(location.href, { headers: { accept: 'text/html' }, credentials: 'same-origin', signal: AbortSignal.timeout(ANSWER_MS) });
    if (answer.redirected && new URL(answer.url).pathname === '/sign-in') { location.assign(answer.url); return; }
    if (!answer.ok) throw new Error(String(answer.status));
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    for (const part of document.querySelectorAll('[data-part]')) {
      const fresh = page.getElementById(part.id);
      if (!fresh || isBusy(part) || fresh.outerHTML === part.outerHTML) continue;
      takeOver(part, document.adoptNode(fresh));
    }
    improve();
    failures = 0;
    document.body.classList.remove('stale');
    document.title = page.title;
    // Nothing more will happen here.
    if (!page.body.dataset.live) { document.body.removeAttribute('data-live'); stop(); }
  } catch {
    failures += 1;
    document.body.classList.add('stale');
  } finally {
    isFetching = false;
    if (isAskedAgain) soon();
  }
};

/** What is due already is not put off by what comes after it. */
const soon = () => {
  const rest = fetchedAt + BETWEEN_FETCHES_MS - Date.now();
  timer ||= setTimeout(() => { timer = 0; refresh(); }, Math.max(EVENTS_SETTLE_MS, rest));
};

const isLive = () => Boolean(document.body.dataset.live) && !document.hidden;

let poller = 0;
let pace = 0;
const fetchLater = () => {
  clearTimeout(poller);
  poller = setTimeout(async () => { await refresh(); if (isLive()) { fetchLater(); listenAgain(); } }, failures > 2 ? POLL_SLOWLY_MS : pace);
};
/** A stream that fails every three seconds changes nothing about a pace that there is: it would put the next fetch off for ever. */
const poll = (ms) => { if (pace !== ms) { pace = ms; fetchLater(); } };

let listenedAt = 0;
const listen = () => {
  const run = document.body.dataset.run;
  listenedAt = Date.now();
  source = new EventSource(`/console/events${run ? `?run=${encodeURIComponent(run)}` : ''}`);
  // A stream is there when it says so, not when it was asked for: until then, and from each failure on, the page is fetched.
  poll(POLL_MS);
  source.addEventListener('error', () => poll(POLL_MS));
  // What passed while nobody listened is on the page that is fetched now; what a page says of time is renewed once in a while.
  source.addEventListener('ready', () => { soon(); poll(POLL_SLOWLY_MS); });
  for (const topic of ['run.status.changed', 'run.items.changed', 'run.noted', 'reset']) source.addEventListener(topic, soon);
};
/** Browsers try a stream again that broke off, and not one that was refused. */
const listenAgain = () => {
  if (source?.readyState === 2 && failures === 0 && Date.now() - listenedAt >= POLL_SLOWLY_MS) listen();
};

const stop = () => {
  source?.close();
  source = null;
  clearTimeout(timer);
  clearTimeout(poller);
  timer = 0;
  pace = 0;
};

const start = () => {
  if (!isLive()) return;
  if (kind === 'poll' || !('EventSource' in window)) { poll(POLL_MS); } else { listen(); }
};

document.addEventListener('visibilitychange', () => { stop(); if (!document.hidden && document.body.dataset.live) { refresh(); start(); } });
window.addEventListener('pagehide', stop);
// A page that comes out of the browser's memory is an old one.
window.addEventListener('pageshow', (event) => { if (event.persisted) { refresh(); start(); } });

const isFollowing = () => document.getElementById('follow')?.checked ?? false;

/** What needs a script shows itself only where there is one. */
const improve = () => {
  document.querySelectorAll('.copy[hidden], #follow[hidden], .follow[hidden], .js[hidden]').forEach((it) => { it.hidden = false; });
  document.querySelectorAll('form[data-here] input[name="to"]').forEach((it) => { it.value = location.pathname + location.search; });
};

document.addEventListener('click', async (event) => {
  const button = event.target.closest?.('[data-copy]');
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = 'copied';
  } catch {
    button.textContent = 'not copied';
  }
  setTimeout(() => { button.textContent = 'copy'; }, 1_500);
});

const boxes = () => [...document.querySelectorAll('[data-row] input[name="run"]')];
document.addEventListener('change', (event) => {
  if (event.target.id === 'all-here') boxes().forEach((box) => { box.checked = event.target.checked; });
});

const ticked = () => document.querySelector('.chosen input[name="run"]');

/** What is ticked, or else the row that one is at: the next page asks whether that is meant. */
const ask = (command) => {
  const choice = document.getElementById('command');
  if (!choice || ![...choice.options].some((it) => it.value === command)) return;
  if (!boxes().some((box) => box.checked)) { const box = ticked(); if (!box) return; box.checked = true; }
  choice.value = command;
  choice.form.requestSubmit();
};

const rows = () => [...document.querySelectorAll('[data-row]')];
const choose = (by) => {
  const all = rows();
  if (all.length === 0) return;
  const at = all.findIndex((row) => row.classList.contains('chosen'));
  const next = Math.min(Math.max(at + by, 0), all.length - 1);
  all.forEach((row, place) => row.classList.toggle('chosen', place === next));
  (all[next].querySelector('a') ?? all[next]).focus();
  all[next].scrollIntoView({ block: 'nearest' });
};

/** What opens over the page: it closes by Esc, and by a click elsewhere if nothing was filled in. */
const OVER = 'details:is(.act, .why-not, .menu)[open]';
document.addEventListener('click', (event) => {
  if (event.target.closest?.('[data-pick]')) return;
  for (const it of document.querySelectorAll(OVER)) {
    if (!it.contains(event.target) && ![...it.querySelectorAll('input:not([type="hidden"]), select, textarea')].some(isFilledIn)) it.open = false;
  }
});
document.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape') return;
  document.querySelectorAll(OVER).forEach((it) => {
    if (it.contains(document.activeElement)) it.querySelector('summary').focus();
    it.open = false;
  });
});

let isGoing = false;
document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches?.('input:not([type="checkbox"]), select, textarea')) return;
  const { key } = event;
  if (isGoing) {
    isGoing = false;
    const link = [...document.querySelectorAll('nav [data-key]')].find((it) => it.dataset.key === key);
    if (link) { event.preventDefault(); link.click(); }
    return;
  }
  if (key === 'g') { isGoing = true; setTimeout(() => { isGoing = false; }, 1_200); }
  else if (key === '?') { const help = document.getElementById('help'); if (help.open) help.close(); else help.showModal(); }
  else if (key === '/') { const field = document.querySelector('[role="search"] input[type="search"]'); if (field) { event.preventDefault(); field.focus(); field.select(); } }
  else if (key === 'j') choose(1);
  else if (key === 'k') choose(-1);
  else if (key === 'x') { const box = ticked(); if (box) box.checked = !box.checked; }
  else if (key === 'c') ask('cancel');
});

/** What is too wide for its place begins where it matters: at the state that the run is in, at the page that this is. */
const centre = (element, within) => {
  if (!element || !within) return;
  const [inner, outer] = [element.getBoundingClientRect(), within.getBoundingClientRect()];
  within.scrollLeft += inner.left + inner.width / 2 - outer.left - outer.width / 2;
};
centre(document.querySelector('.state.current'), document.querySelector('.diagram:has(.state.current)'));
centre(document.querySelector('.tabs [aria-current]'), document.querySelector('.tabs'));

improve();
const log = document.querySelector('.log');
if (log && document.body.dataset.live && !location.hash.startsWith('#L')) log.scrollTop = log.scrollHeight;
start();
