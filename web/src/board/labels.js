// Changes of runs: a dialog for name, tags and note, deletion with undo, and the trash.
import { button, element } from '../dom.js';
import { ask, change } from './server.js';

const field = (words, input, hint) =>
  element('label', { class: 'field' }, element('span', {}, words), input, hint ? element('small', {}, hint) : []);

// A dialog that is rebuilt each time; the keyboard focus is restored when it closes.
function open(title, ...content) {
  const dialog = element('dialog', { 'aria-label': title, close: () => dialog.remove() }, element('h2', {}, title), content);
  document.querySelector('.board').append(dialog);
  dialog.showModal();
  return dialog;
}

// Returns a handler that does the work and closes the dialog, or shows the error in `wrong`, a part of that dialog.
const closing = (wrong, work) => async () => {
  try {
    await work();
    wrong.closest('dialog')?.close();
  } catch (error) {
    wrong.textContent = error.message;
    wrong.hidden = false;
  }
};

const several = (count) => `${count} ${count === 1 ? 'run' : 'runs'}`;
const problems = (failed) => failed.map(({ name, message }) => ` ${name}: ${message}.`).join('');
const tagsIn = (text) => [
  ...new Set(
    text
      .split(',')
      .map((tag) => tag.trim())
      .filter(Boolean),
  ),
];

// Tags of runs, sorted, with the number of runs that have each.
function countTags(runs) {
  const count = new Map();
  for (const tag of runs.flatMap((run) => run.tags ?? [])) count.set(tag, (count.get(tag) ?? 0) + 1);
  return new Map([...count].sort(([a], [b]) => a.localeCompare(b)));
}

const knownTags = (board) =>
  element(
    'datalist',
    { id: 'known-tags' },
    [...countTags([...board.runs.values()]).keys()].map((tag) => element('option', { value: tag })),
  );

export class Labels {
  constructor(board) {
    this.board = board;
    this.words = element('span');
    this.undo = button('Undo', () => this.board.guard(this.restore(this.entries)));
    this.told = element(
      'div',
      { class: 'told', role: 'status', hidden: true },
      this.words,
      this.undo,
      button('×', () => this.tell(''), { 'aria-label': 'close', class: 'small' }),
    );
  }

  // A line at the bottom of the page. `entries`: what Undo restores.
  tell(words, entries = []) {
    this.words.textContent = words;
    this.entries = entries;
    this.undo.hidden = !entries.length;
    this.told.hidden = !words;
    clearTimeout(this.fading);
    if (words) this.fading = setTimeout(() => this.tell(''), entries.length ? 30000 : 6000);
  }

  edit(run) {
    const name = element('input', { type: 'text', maxlength: 200, value: run.name === run.folder ? '' : run.name });
    name.placeholder = run.folder;
    const tags = element('input', { type: 'text', value: (run.tags ?? []).join(', '), list: 'known-tags' });
    const note = element('textarea', { rows: 5, maxlength: 10000 });
    note.value = run.note ?? '';
    const wrong = element('p', { class: 'note', role: 'alert', hidden: true });
    const save = closing(wrong, async () => {
      const labels = { name: name.value.trim(), tags: tagsIn(tags.value), note: note.value.trim() };
      await change('/api/labels', { run: run.id, ...labels });
    });
    const remove = closing(wrong, () => this.remove([run]));
    const dialog = open(
      `Run ${run.folder}`,
      element(
        'form',
        {
          submit: (event) => {
            event.preventDefault();
            save();
          },
        },
        field('Name', name, 'Shown on the board. Commands keep using the folder.'),
        field('Tags', tags, 'Separated by commas; tag=NAME in the filter finds them.'),
        knownTags(this.board),
        field('Note', note),
        wrong,
        element(
          'div',
          { class: 'controls ends' },
          element('button', { type: 'submit', class: 'main' }, 'Save'),
          button('Cancel', () => dialog.close()),
          button('Delete', remove, {
            class: 'danger',
            disabled: run.state === 'running',
            title: run.state === 'running' ? 'a run that is training cannot be deleted' : 'move to the trash',
          }),
        ),
      ),
    );
  }

  // Tags, a note and deletion for several runs at once.
  editMany(runs) {
    const add = element('input', { type: 'text', list: 'known-tags' });
    const note = element('textarea', { rows: 3, maxlength: 10000 });
    const wrong = element('p', { class: 'note', role: 'alert', hidden: true });
    const have = countTags(runs);
    const removed = new Set();
    const tags = [...have].map(([tag, count]) =>
      button(
        count === runs.length ? tag : `${tag} (${count})`,
        ({ currentTarget }) => {
          if (!removed.delete(tag)) removed.add(tag);
          currentTarget.setAttribute('aria-pressed', String(removed.has(tag)));
        },
        { class: 'tag', 'aria-pressed': 'false' },
      ),
    );
    const ids = runs.map(({ id }) => id);
    const save = closing(wrong, async () => {
      const words = { add: tagsIn(add.value), remove: [...removed], note: note.value.trim() };
      const { changed, failed } = await change('/api/labels/many', { runs: ids, ...words });
      this.tell(`${several(changed)} changed.${problems(failed)}`);
    });
    const dialog = open(
      several(runs.length),
      element(
        'form',
        {
          submit: (event) => {
            event.preventDefault();
            save();
          },
        },
        element('p', { class: 'under' }, runs.map(({ name }) => name).join(', ')),
        field('Add tags', add, 'Separated by commas.'),
        knownTags(this.board),
        tags.length ? element('div', { class: 'field' }, element('span', {}, 'Remove tags'), tags) : [],
        field('Add to the notes', note, 'Appended to the note of each run.'),
        wrong,
        element(
          'div',
          { class: 'controls ends' },
          element('button', { type: 'submit', class: 'main' }, 'Save'),
          button('Cancel', () => dialog.close()),
          button(`Delete ${several(runs.length)}`, closing(wrong, () => this.remove(runs)), { class: 'danger' }),
        ),
      ),
    );
  }

  async remove(runs) {
    const { entries, failed } = await change('/api/delete', { runs: runs.map(({ id }) => id) });
    const what = entries.length === 1 ? entries[0].name : several(entries.length);
    const verb = entries.length === 1 ? 'is' : 'are';
    this.tell(
      `${what} ${verb} in the trash.${problems(failed)}`,
      entries.map(({ entry }) => entry),
    );
  }

  async restore(entries) {
    const { names, failed } = await change('/api/restore', { entries });
    const what = names.length === 1 ? `${names[0]} is` : `${several(names.length)} are`;
    this.tell(`${what} back.${problems(failed)}`);
  }

  async trash() {
    const { runs } = await ask('/api/trash');
    const list = element('ul', { class: 'trash' });
    for (const { entry, name, place, when } of runs) {
      const line = element(
        'li',
        {},
        element('span', { class: 'name', title: place }, name),
        element('span', { class: 'state' }, `deleted ${when} UTC`),
        button('Restore', async () => {
          try {
            await this.restore([entry]);
            line.remove();
          } catch (error) {
            this.board.tell(error.message);
            dialog.close();
          }
        }),
      );
      list.append(line);
    }
    const dialog = open(
      'Trash',
      runs.length ? list : element('p', {}, 'The trash is empty.'),
      element(
        'p',
        { class: 'under' },
        'Deleted runs are kept in the folder .trash next to the other runs, until you remove that folder yourself.',
      ),
      element('div', { class: 'controls ends' }, button('Close', () => dialog.close())),
    );
  }
}
