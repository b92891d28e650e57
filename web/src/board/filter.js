// Filters runs by terms separated by blanks outside of quotes; a run must match all of them:
//   part of a name     /regular expression/     loss<3.5     lr>=0.002     top_k=2     state=done     tag=baseline
// The left side is a result (loss, bits_per_byte, train_loss, step, seconds, tokens_per_second), state, name, tag, or a
// setting by its full or short name.
const results = {
  loss: 'loss',
  bits_per_byte: 'bits_per_byte',
  bpb: 'bits_per_byte',
  train_loss: 'train_loss',
  step: 'step',
  seconds: 'seconds',
  tokens_per_second: 'tokens_per_second',
};
const compare = {
  '=': (a, b) => (typeof a === 'number' ? a === Number(b) : String(a) === b),
  '!=': (a, b) => !compare['='](a, b),
  '<': (a, b) => Number(a) < Number(b),
  '>': (a, b) => Number(a) > Number(b),
  '<=': (a, b) => Number(a) <= Number(b),
  '>=': (a, b) => Number(a) >= Number(b),
};

// Converts a setting's value to a number if possible; otherwise to a text without quotes.
export function plain(value) {
  if (value === undefined || value === '') return undefined;
  const text = value.replace(/^"(.*)"$/, '$1');
  return text !== '' && Number.isFinite(Number(text)) ? Number(text) : text;
}

function settingOf(settings, name) {
  if (settings === undefined) return undefined;
  const key = name in settings ? name : Object.keys(settings).find((one) => one.endsWith(`.${name}`));
  return key === undefined ? undefined : plain(settings[key]);
}

// Returns a predicate of a run and its settings; throws an Error with the problem.
export function filterOf(words) {
  const terms = [...words.matchAll(/(?:"[^"]*"|\S)+/g)].map(([term]) => {
    const found = /^([\w.]+)(!=|<=|>=|=|<|>)(.+)$/.exec(term);
    if (found) {
      const [, name, sign, value] = found;
      // A run has any number of tags.
      if (name === 'tag' && (sign === '=' || sign === '!='))
        return (run) => (run.tags ?? []).includes(value.replace(/^"(.*)"$/, '$1')) === (sign === '=');
      return (run, settings) => {
        const has =
          name in results
            ? run[results[name]]
            : name === 'name' || name === 'state'
              ? run[name]
              : settingOf(settings, name);
        return has !== undefined && compare[sign](has, value.replace(/^"(.*)"$/, '$1'));
      };
    }
    const pattern = /^\/(.+)\/$/.exec(term);
    if (pattern) {
      const expression = new RegExp(pattern[1], 'i');
      return (run) => expression.test(run.place) || expression.test(run.name);
    }
    const part = term.toLowerCase();
    return (run) => [run.place, run.name, ...(run.tags ?? [])].some((text) => text.toLowerCase().includes(part));
  });
  return (run, settings) => terms.every((term) => term(run, settings));
}
