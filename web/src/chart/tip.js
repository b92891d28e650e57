// Tooltip: lines of text next to the pointer, built as elements, so that no name is interpreted as markup.
import { element } from '../dom.js';

// Each line is a text, or {colour, name, value}.
export function tip(...lines) {
  return element(
    'div',
    { class: 'tip' },
    lines.flat().map((line) => {
      if (typeof line === 'string') return element('div', {}, line);
      const mark = element('span', { class: 'mark' });
      mark.style.background = line.colour;
      return element('div', {}, mark, `${line.name} `, element('b', {}, line.value));
    }),
  );
}
