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

export class Labels {
  constructor(board) {
    this.board = board;
    this.words = element('span');
    this.undo = button('Undo', () => this.board.guard(this.restore()));
    this.told = element(
      'div',
      { class: 'told', role: 'status', hidden: true },
      this.words,
      this.undo,
      button('×', () => this.tell(''), { 'aria-label': 'close', class: 'small' }),
    );
  }

  // A line at the bottom of the page. `entry`: what Undo restores.
  tell(words, entry) {
    this.words.textContent = words;
    this.entry = entry;
    this.undo.hidden = !entry;
    this.told.hidden = !words;
    clearTimeout(this.fading);
    if (words) this.fading = setTimeout(() => this.tell(''), entry ? 30000 : 6000);
  }

  edit(run) {
    const name = element('input', { type: 'text', maxlength: 200, value: run.name === run.folder ? '' : run.name });
    name.placeholder = run.folder;
    const tags = element('input', { type: 'text', value: (run.tags ?? []).join(', '), list: 'known-tags' });
    const note = element('textarea', { rows: 5, maxlength: 10000 });
    note.value = run.note ?? '';
    const wrong = element('p', { class: 'note', role: 'alert', hidden: true });
    const known = new Set([...this.board.runs.values()].flatMap((one) => one.tags ?? []));
    const guarded = (work) => async () => {
      try {
        await work();
        dialog.close();
      } catch (error) {
        wrong.textContent = error.message;
        wrong.hidden = false;
      }
    };
    const save = guarded(async () => {
      const list = tags.value.split(',').map((tag) => tag.trim());
      const labels = { name: name.value.trim(), tags: [...new Set(list.filter(Boolean))], note: note.value.trim() };
      await change('/api/labels', { run: run.id, ...labels });
    });
    const remove = guarded(() => this.remove(run));
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
        element('datalist', { id: 'known-tags' }, [...known].map((tag) => element('option', { value: tag }))),
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

  async remove(run) {
    const { entry } = await change('/api/delete', { run: run.id });
    this.tell(`${run.name} is in the trash.`, entry);
  }

  async restore(entry = this.entry) {
    const { name } = await change('/api/restore', { entry });
    this.tell(`${name} is back.`);
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
            await this.restore(entry);
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
