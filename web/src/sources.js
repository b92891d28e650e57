// The sources of one token, side by side: the shares of the model, of slots and of contexts in its probability, and the
// passages they come from. The data are `memory` of a traced token and `sources` of a generated one.
import { element } from './dom.js';

export const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)}%`;

const kinds = [
  ['model', 'model'],
  ['slots', 'slots (similar states)'],
  ['contexts', 'contexts (the same last tokens)'],
];

function where({ kind, context_tokens: length, seen }) {
  if (kind !== 'context') return 'slot';
  return `context of ${length} token${length === 1 ? '' : 's'}, seen ${seen} time${seen === 1 ? '' : 's'}`;
}

export function sources({ share, slots_share: slots, contexts_share: contexts, passages }) {
  const shares = { model: 1 - share, slots, contexts };
  return element(
    'div',
    { class: 'sources' },
    element(
      'table',
      {},
      element('caption', {}, 'Shares in the probability of this token'),
      element(
        'tbody',
        {},
        kinds.map(([kind, words]) =>
          element(
            'tr',
            {},
            element('th', { scope: 'row' }, words),
            element(
              'td',
              {},
              element('meter', { min: 0, max: 1, value: shares[kind], 'aria-label': `share: ${words}` }),
            ),
            element('td', { class: 'number' }, percent(shares[kind])),
          ),
        ),
      ),
    ),
    element(
      'ul',
      {},
      passages.map((passage) =>
        element(
          'li',
          {},
          `${percent(passage.share)} ${where(passage)}: `,
          element('q', {}, passage.before, element('mark', {}, passage.token), passage.after),
          ` ${passage.text}, token ${passage.offset}`,
        ),
      ),
    ),
  );
}
