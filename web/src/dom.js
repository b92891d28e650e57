// Creates elements by script. Text passed here is always text, never markup: nothing in this folder writes HTML.
export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === 'function') node.addEventListener(key, value);
    else if (value !== undefined && value !== null && value !== false)
      node.setAttribute(key, value === true ? '' : value);
  }
  node.append(...children.flat());
  return node;
}

export const button = (words, click, attributes = {}) =>
  element('button', { type: 'button', click, ...attributes }, words);

// A row of buttons of which one is pressed. `entries`: [[value, words], ...]; returns the row and a function that
// presses one.
export function choice(label, entries, chosen, choose) {
  const buttons = entries.map(([value, words]) => [value, button(words, () => choose(value))]);
  const row = element(
    'div',
    { class: 'choice', role: 'group', 'aria-label': label },
    buttons.map(([, node]) => node),
  );
  const press = (value) => {
    for (const [own, node] of buttons) node.setAttribute('aria-pressed', String(own === value));
  };
  press(chosen);
  return { row, press };
}
