// The page of a trace: its data, and a little script that shows where an expert, a set or a token fires again.
#include "study/trace.h"

namespace some::study {
namespace {

const char* const page_head = R"PAGE(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>Trace</title>
<style>
:root{color-scheme:light dark;--ink:#1d1d1f;--soft:#5f5f6b;--page:#fff;--panel:#f6f6f9;--line:#d8d8e0;--hit:214,66,92;--pick:#2f5fd0}
@media (prefers-color-scheme:dark){:root{--ink:#ececf2;--soft:#a6a6b4;--page:#17171b;--panel:#212127;--line:#3b3b46;--hit:255,120,140;--pick:#8fb0ff}}
*{box-sizing:border-box}body{font:15px/1.5 system-ui,'DejaVu Sans',Arial,sans-serif;color:var(--ink);background:var(--page);margin:0}
main{max-width:1240px;margin:0 auto;padding:1.2rem}h1{font-size:1.35rem;margin:0 0 .3rem}h2{font-size:1rem;margin:0 0 .5rem}
p{margin:.3rem 0;max-width:60rem}.soft{color:var(--soft)}
.bar{display:flex;flex-wrap:wrap;gap:.35rem;align-items:center;margin:1rem 0 .6rem}
button{font:inherit;color:inherit;background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:.15rem .6rem;cursor:pointer}
button:focus-visible{outline:2px solid var(--pick);outline-offset:1px}
button[aria-pressed=true]{border-color:var(--pick);box-shadow:inset 0 0 0 1px var(--pick);font-weight:600}
.grid{display:grid;grid-template-columns:minmax(0,1fr) 21rem;gap:1.2rem}@media(max-width:900px){.grid{grid-template-columns:1fr}}
#text{line-height:2.1;padding:.8rem;background:var(--panel);border:1px solid var(--line);border-radius:8px;overflow-wrap:anywhere}
#text button{padding:.1rem .12rem;margin:0;border:1px solid transparent;border-bottom:1px dotted var(--line);border-radius:4px;background:none;white-space:pre-wrap}
#text button.written{border-bottom:2px solid var(--soft)}
#text button.picked{border:1px solid var(--pick);box-shadow:inset 0 0 0 1px var(--pick)}
aside{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:.8rem;max-height:80vh;overflow:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:14px}td,th{padding:.2rem .4rem;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
td.num,th.num{text-align:right}.fill{display:inline-block;height:.6rem;background:rgb(var(--hit));border-radius:2px;vertical-align:middle}
.pair{display:inline-block;margin-right:1.4rem}#text.apart button{margin-right:.4rem}#seen{margin-top:1rem}mark{background:rgba(var(--hit),.35);color:inherit;border-radius:3px}
code{background:rgba(128,128,128,.18);padding:0 .25rem;border-radius:3px;white-space:pre}
</style></head><body><main>
<h1>Which experts each token chose</h1>
<p id="about" class="soft"></p>
<p>Click a token to see its experts in every layer, and every other token that shares them in the layer shown. Click an expert or a set to see all the tokens it fires for: the stronger the colour, the larger its gate. Click again, or press Escape, to clear.</p>
<div class="bar" id="layers" role="group" aria-label="layer"></div>
<div class="grid"><div><div id="text"></div><div id="seen"></div></div><aside><div class="bar" style="margin-top:0" role="group" aria-label="list"><button id="by-expert">experts</button><button id="by-set">sets</button></div><div id="list"></div></aside></div>
<script type="application/json" id="data">)PAGE";

const char* const page_tail = R"PAGE(</script>
<script>
'use strict';
const data = JSON.parse(document.getElementById('data').textContent), tokens = data.tokens, k = data.top_k;
const el = (name, attributes, ...children) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) key === 'onclick' ? node.onclick = value : node.setAttribute(key, value);
  node.append(...children);
  return node;
};
const shown = text => text.replace(/\n/g, '\u21b5\n');
const code = text => el('code', {}, text === '' ? '\u2205' : text.replace(/ /g, '\u00b7').replace(/\n/g, '\u21b5'));
let layer = Math.max(0, data.layers.indexOf(data.middle_layer)), list = 'expert', pick = null;
const at = (t, l = layer) => tokens[t].layers[l];
const setOf = (t, l = layer) => [...at(t, l).experts].sort((a, b) => a - b).join(' ');
const gateOf = (t, expert) => { const i = at(t).experts.indexOf(expert); return i < 0 ? 0 : at(t).gates[i]; };
document.title = 'Trace: ' + data.text.slice(0, 40);
document.getElementById('about').textContent = `${data.run}, step ${data.step}: ${tokens.length} tokens, ${data.experts} experts a layer, ${k} chosen by each token.` +
  (data.prompt_tokens ? ` The first ${data.prompt_tokens} tokens are the prompt; what the model wrote is underlined.` : '');
data.layers.forEach((number, index) => document.getElementById('layers').append(
  el('button', {onclick: () => { layer = index; if (pick && pick.kind !== 'token') pick = null; draw(); }}, `layer ${number}` + (number === data.middle_layer ? ' (middle)' : ''))));
const chips = tokens.map((token, t) => {
  const chip = el('button', {onclick: () => choose('token', t)}, token.text === '' ? '\u2205' : shown(token.text));
  if (token.generated) chip.classList.add('written');
  return chip;
});
document.getElementById('text').append(...chips);
if (!data.tokens_hold_blanks) document.getElementById('text').classList.add('apart');
document.getElementById('by-expert').onclick = () => { list = 'expert'; draw(); };
document.getElementById('by-set').onclick = () => { list = 'set'; draw(); };
document.addEventListener('keydown', event => { if (event.key === 'Escape') { pick = null; draw(); } });
function choose(kind, value) {
  pick = pick && pick.kind === kind && pick.value === value ? null : {kind, value};
  draw();
}
// How strongly a token is coloured for what is picked: the gate of the expert, the whole set, or the gates shared with the picked token.
function strength(t) {
  if (!pick) return 0;
  if (pick.kind === 'expert') return gateOf(t, pick.value);
  if (pick.kind === 'set') return setOf(t) === pick.value ? 1 : 0;
  if (t === pick.value) return 1;
  return at(pick.value).experts.reduce((sum, expert) => sum + Math.min(gateOf(t, expert), gateOf(pick.value, expert)), 0);
}
// An expert of another layer is shown in its own.
const expertButton = (expert, l = layer) => {
  const button = el('button', {onclick: () => { list = 'expert'; if (l !== layer) { layer = l; pick = null; } choose('expert', expert); }}, String(expert));
  button.setAttribute('aria-pressed', String(l === layer && !!pick && pick.kind === 'expert' && pick.value === expert));
  return button;
};
const setButton = set => {
  const button = el('button', {onclick: () => choose('set', set)}, `{${set}}`);
  button.setAttribute('aria-pressed', String(!!pick && pick.kind === 'set' && pick.value === set));
  return button;
};
function row(...cells) { return el('tr', {}, ...cells.map(cell => cell instanceof Node && cell.nodeName === 'TD' ? cell : el('td', {}, cell))); }
const num = text => el('td', {class: 'num'}, text);
function drawList() {
  const counts = new Map(), mass = new Map();
  tokens.forEach((_, t) => {
    if (list === 'set') { const set = setOf(t); counts.set(set, (counts.get(set) || 0) + 1); return; }
    at(t).experts.forEach((expert, i) => { counts.set(expert, (counts.get(expert) || 0) + 1); mass.set(expert, (mass.get(expert) || 0) + at(t).gates[i]); });
  });
  const sorted = [...counts].sort((a, b) => b[1] - a[1] || (a[0] > b[0] ? 1 : -1)), most = sorted.length ? sorted[0][1] : 1;
  const table = el('table', {}, el('tr', {}, el('th', {}, list === 'set' ? 'set' : 'expert'), el('th', {class: 'num'}, 'tokens'), list === 'set' ? '' : el('th', {class: 'num'}, 'mean gate'), el('th', {}, '')));
  for (const [name, count] of sorted) {
    const bar = el('span', {class: 'fill', style: `width:${Math.max(2, 60 * count / most)}px`});
    table.append(list === 'set' ? row(setButton(name), num(String(count)), bar) : row(expertButton(name), num(String(count)), num((mass.get(name) / count).toFixed(2)), bar));
  }
  const heading = list === 'set' ? `${sorted.length} different sets in layer ${data.layers[layer]}` : `${sorted.length} of ${data.experts} experts fire in layer ${data.layers[layer]}`;
  document.getElementById('list').replaceChildren(el('h2', {}, heading), table);
  document.getElementById('by-expert').setAttribute('aria-pressed', String(list === 'expert'));
  document.getElementById('by-set').setAttribute('aria-pressed', String(list === 'set'));
}
function drawSeen() {
  const seen = document.getElementById('seen');
  if (!pick) { seen.replaceChildren(); return; }
  const hits = tokens.map((_, t) => [t, strength(t)]).filter(([t, s]) => s > 0);
  const around = t => { const line = el('span', {}); for (let i = Math.max(0, t - 4); i <= Math.min(tokens.length - 1, t + 3); ++i) line.append(i === t ? el('mark', {}, tokens[i].text) : tokens[i].text, data.tokens_hold_blanks ? '' : ' '); return line; };
  if (pick.kind === 'token') {
    const t = pick.value, table = el('table', {}, el('tr', {}, el('th', {}, 'layer'), el('th', {}, 'experts, with their gates; click one to see where else it fires')));
    data.layers.forEach((number, l) => {
      const cell = el('td', {});
      at(t, l).experts.forEach((expert, i) => cell.append(el('span', {class: 'pair'}, expertButton(expert, l), ` ${at(t, l).gates[i].toFixed(3)}`)));
      table.append(row(String(number), cell));
    });
    const surprise = tokens[t].surprise_nats === undefined ? '' : ` The model expected it with probability ${Math.exp(-tokens[t].surprise_nats).toPrecision(2)}.`;
    seen.replaceChildren(el('h2', {}, `Token ${t}: `, code(tokens[t].text)), el('p', {class: 'soft'}, `id ${tokens[t].id}.${surprise} ${hits.length - 1} other tokens share an expert with it in layer ${data.layers[layer]}; its exact set `, setButton(setOf(t)), ` stands at ${tokens.filter((_, i) => setOf(i) === setOf(t)).length} tokens.`), table);
    return;
  }
  const table = el('table', {}, el('tr', {}, el('th', {}, 'token'), el('th', {class: 'num'}, 'gate'), el('th', {}, 'where')));
  for (const [t, s] of hits) table.append(row(el('button', {onclick: () => choose('token', t)}, code(tokens[t].text)), num(pick.kind === 'set' ? at(t).gates.map(g => g.toFixed(2)).join(' ') : s.toFixed(3)), around(t)));
  const name = pick.kind === 'set' ? `Set {${pick.value}}` : `Expert ${pick.value}`;
  seen.replaceChildren(el('h2', {}, `${name} of layer ${data.layers[layer]} fires for ${hits.length} of ${tokens.length} tokens`), table);
}
function draw() {
  [...document.getElementById('layers').children].forEach((button, index) => button.setAttribute('aria-pressed', String(index === layer)));
  chips.forEach((chip, t) => {
    const s = strength(t);
    chip.style.background = s > 0 ? `rgba(var(--hit),${(0.12 + 0.6 * s).toFixed(3)})` : '';
    chip.classList.toggle('picked', !!pick && pick.kind === 'token' && pick.value === t);
    chip.title = at(t).experts.map((expert, i) => `expert ${expert}: gate ${at(t).gates[i].toFixed(3)}`).join('\n');
  });
  drawList();
  drawSeen();
}
draw();
</script></main></body></html>
)PAGE";

}  // namespace

std::string trace_page(const nlohmann::json& trace) {
  // Inside a script element only "</" and "<!--" could end it; as escapes they are the same JSON.
  std::string text = trace.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), safe;
  for (const char c : text) {
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  }
  return page_head + safe + page_tail;
}

}  // namespace some::study
