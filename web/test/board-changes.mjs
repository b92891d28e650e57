// Part of board.test.mjs: labels of one run and of several, deletion and the way back, and readers without the key.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

// `line` and `names` find runs in the list, `filter` is its field, `listen` checks accessibility.
export async function changeRuns({ page, browser, address, runs, attack, line, names, filter, listen }) {
  const edit = async (name) => {
    await page.getByRole('button', { name: `edit ${name}`, exact: true }).click();
    return page.getByRole('dialog');
  };
  let dialog = await edit('seed2');
  const renamed = `${attack} & "two"`;
  await dialog.locator('input').first().fill(renamed);
  await dialog.locator('input').nth(1).fill('baseline, <b>two words</b>');
  await dialog.locator('textarea').fill(`first line\n${attack}`);
  await listen(page, 'a dialog');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await line(renamed.replaceAll('"', '\\"')).waitFor();
  assert.equal(await page.evaluate(() => document.images.length), 0, 'no label has become an image');
  await page.locator('.runs .tag', { hasText: '<b>two words</b>' }).click();
  assert.deepEqual(await names(), [renamed]);
  await filter.fill('tag=baseline');
  assert.deepEqual(await names(), [renamed]);
  await filter.fill('');
  dialog = await edit('live');
  await dialog.getByRole('button', { name: 'Delete' }).click();
  await line('live').waitFor({ state: 'detached' });
  assert.ok(!existsSync(join(runs, 'live')), 'its folder is in the trash');
  await page.locator('.told').getByText('live is in the trash.').waitFor();
  await page.locator('.told').getByRole('button', { name: 'Undo' }).click();
  await line('live').waitFor();
  await (await edit('live')).getByRole('button', { name: 'Delete' }).click();
  await line('live').waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'trash', exact: true }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Restore' }).click();
  await line('live').waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
  // Several runs at once.
  await page.getByRole('button', { name: 'none', exact: true }).click();
  for (const name of ['seed1', 'live']) await line(name).locator('input').check();
  await page.getByRole('button', { name: 'edit 2 selected runs' }).click();
  dialog = page.getByRole('dialog');
  await dialog.locator('input').first().fill('pair, other');
  await dialog.locator('textarea').fill('both');
  await listen(page, 'a dialog for several runs');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.locator('.told').getByText('2 runs changed.').waitFor();
  await filter.fill('tag=pair');
  await page.waitForFunction(() => document.querySelectorAll('.runs li').length === 2);
  assert.deepEqual((await names()).sort(), ['live', 'seed1']);
  await page.getByRole('button', { name: 'edit 2 selected runs' }).click();
  await dialog.getByRole('button', { name: 'pair', exact: true }).click();
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.waitForFunction(() => document.querySelectorAll('.runs li').length === 0);
  await filter.fill('');
  await page.getByRole('button', { name: 'edit 2 selected runs' }).click();
  await dialog.getByRole('button', { name: 'Delete 2 runs' }).click();
  await line('live').waitFor({ state: 'detached' });
  await page.locator('.told').getByText('2 runs are in the trash.').waitFor();
  await page.locator('.told').getByRole('button', { name: 'Undo' }).click();
  await line('live').waitFor();
  await line('seed1').waitFor();
  // A reader without the key cannot change anything.
  const stranger = await (await browser.newContext()).newPage();
  await stranger.goto(address.split('#')[0]);
  await stranger.locator('.runs .name').first().waitFor();
  assert.equal(await stranger.getByRole('button', { name: /^edit / }).count(), 0);
  const refused = await stranger.evaluate(async () => {
    const [id] = window.somePage.views[0].runs.keys();
    const headers = { 'Content-Type': 'application/json', 'X-Board-Key': '' };
    return (await fetch('/api/delete', { method: 'POST', headers, body: JSON.stringify({ runs: [id] }) })).status;
  });
  assert.equal(refused, 403);
  await stranger.context().close();
}
