// An answer while it is generated. When it is complete and experts or sources were requested, each token is a button
// that shows them.
import { button, element } from '../dom.js';
import { percent, sources } from '../sources.js';

// Returns the text of each token. A character may span several tokens: it is shown with the last of them.
function texts(entries, blanks) {
  const decoder = new TextDecoder();
  return entries.map(({ bytes }) => (blanks ? '' : ' ') + decoder.decode(new Uint8Array(bytes), { stream: blanks }));
}

function experts(layers) {
  return element(
    'table',
    {},
    element('caption', {}, 'Experts of this token, with their gates'),
    element(
      'tbody',
      {},
      layers.map((chosen, layer) =>
        element(
          'tr',
          {},
          element('th', { scope: 'row' }, `layer ${layer}`),
          chosen.map(([number, gate]) =>
            element(
              'td',
              {},
              `${number} `,
              element('meter', { min: 0, max: 1, value: gate, 'aria-label': `gate of expert ${number}` }),
              ` ${gate.toFixed(2)}`,
            ),
          ),
        ),
      ),
    ),
  );
}

export class Answer {
  constructor(model) {
    this.model = model;
    this.text = element('div', { class: 'text' });
    this.told = element('p', { class: 'under', role: 'status' });
    this.panel = element('div', {
      class: 'token-panel',
      role: 'region',
      'aria-label': 'the selected token',
      hidden: true,
    });
    this.node = element(
      'div',
      { class: 'message model' },
      element('p', { class: 'who' }, model.id),
      this.text,
      this.panel,
      this.told,
    );
    this.content = '';
    this.tokens = [];
    this.experts = new Map(); // indexed by the token's position in the whole text
    this.sources = new Map();
  }

  chunk({ choices, usage }) {
    for (const { delta, logprobs, some, finish_reason: reason } of choices) {
      if (delta.content) {
        this.content += delta.content;
        this.text.append(delta.content);
      }
      this.tokens.push(...(logprobs?.content ?? []));
      for (const one of some?.experts ?? []) this.experts.set(one.index, one.layers);
      for (const one of some?.sources ?? []) this.sources.set(one.index, one);
      if (reason) this.reason = reason;
    }
    if (usage) this.usage = usage;
  }

  finish(words) {
    const count = this.usage?.completion_tokens ?? this.tokens.length;
    const why = { stop: 'end of text', length: 'token limit reached' }[this.reason] ?? words ?? '';
    this.told.textContent = [count ? `${count} tokens` : '', why].filter(Boolean).join('; ');
    if (this.usage && this.tokens.length > 0 && (this.experts.size > 0 || this.sources.size > 0)) this.make();
  }

  // Turns tokens into buttons. One of them is in the Tab order; arrow keys move between them.
  make() {
    const first = this.usage.prompt_tokens;
    this.buttons = texts(this.tokens, this.model.some.tokens_hold_blanks).map((text, i) =>
      button(text, () => this.show(i), {
        class: 'token',
        tabindex: i === 0 ? 0 : -1,
        'aria-expanded': 'false',
        'aria-label': text.trim() === '' ? 'blank' : null,
        'data-from': (this.sources.get(first + i)?.share ?? 0) > 0.1,
      }),
    );
    this.text.replaceChildren(...this.buttons);
    this.text.setAttribute('role', 'group');
    this.text.setAttribute('aria-label', 'tokens of the answer');
    this.text.addEventListener('keydown', (event) => {
      const at = this.buttons.indexOf(document.activeElement);
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: this.buttons.length - 1 }[event.key];
      if (at < 0 || to === undefined || !this.buttons[to]) return;
      event.preventDefault();
      this.reach(to);
    });
    this.told.append('; select a token to see its experts and sources');
  }

  reach(i) {
    this.buttons.forEach((one, at) => one.setAttribute('tabindex', at === i ? 0 : -1));
    this.buttons[i].focus();
  }

  show(i) {
    const again = this.shown === i;
    this.shown = again ? undefined : i;
    this.buttons.forEach((one, at) => one.setAttribute('aria-expanded', String(at === this.shown)));
    this.panel.hidden = again;
    if (again) return;
    this.reach(i);
    const { token, logprob } = this.tokens[i];
    const place = this.usage.prompt_tokens + i;
    const layers = this.experts.get(place);
    const from = this.sources.get(place);
    this.panel.replaceChildren(
      element('p', {}, element('strong', {}, `“${token}”`), ` with a probability of ${percent(Math.exp(logprob))}`),
      ...(from ? [sources(from)] : []),
      ...(layers
        ? [element('div', { class: 'table', tabindex: 0, role: 'group', 'aria-label': 'experts' }, experts(layers))]
        : []),
      ...(!from && !layers ? [element('p', {}, 'This is the last token, which the model has not read.')] : []),
    );
  }
}
