// Opens pages whose names, titles, prompts and texts are attacks:
//   node attacks.test.mjs BOARD SERVE NODE_MODULES PAGE...
// BOARD, SERVE: addresses of `some board` and `some serve`; PAGE: HTML files. A run was trained on the attacks, so its
// texts repeat them. Nothing of this may run, load or become an element.
import assert from 'node:assert/strict';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { overhear, tools } from './browser.mjs';

const [boardAddress, serve, modules, ...files] = process.argv.slice(2);
const [board, key] = boardAddress.split('#'); // the key that lets a page change runs
const { launch } = tools(modules);
const attacks = [
  '<img src=x onerror=hacked()>',
  '"><svg onload=hacked()>',
  "'><b id=hacked>bold</b>",
  '</script><script>hacked()</script>',
  '<a href="javascript:hacked()">press</a>',
  '<iframe srcdoc="<script>parent.hacked()</script>"></iframe>',
  '<style>*{display:none}</style>',
  '<!-- ', // hides what follows
  '</textarea></title></style><img src=x onerror=hacked()>',
];

const browser = await launch();
const open = async (address) => {
  const context = await browser.newContext({ viewport: { width: 1300, height: 900 } });
  const page = await context.newPage();
  page.setDefaultTimeout(30000);
  const heard = overhear(page);
  const calls = [];
  await context.exposeFunction('hacked', () => calls.push(page.url()));
  await page.goto(address);
  return { context, page, calls, ...heard };
};
// Elements and effects that no text may produce, in any document of the page.
const unharmed = async ({ page, calls, problems, requests }, what, home) => {
  await page.waitForTimeout(300);
  assert.deepEqual(calls, [], `${what}: an attack ran`);
  const found = await page.evaluate(() => {
    const all = (selector) => [...document.querySelectorAll(selector)];
    return [
      ...all('#hacked, img[src="x"], iframe[srcdoc], a[href^="javascript"], [onload], [onerror]'),
      ...all('style').filter((one) => one.textContent.startsWith('*{display')),
      ...all('script').filter((one) => one.textContent === 'hacked()'),
    ].map((one) => one.outerHTML);
  });
  assert.deepEqual(found, [], `${what}: a text became an element`);
  // The server refuses nonsense in an address.
  const told = problems.filter((one) => !one.includes('status of 400'));
  assert.deepEqual(told, [], `${what}: the page complains`);
  const other = requests.filter((one) => !one.startsWith(home) && !one.startsWith('data:') && !one.startsWith('blob:'));
  assert.deepEqual(other, [], `${what}: somebody else was asked`);
  assert.ok((await page.locator('body').innerText()).trim().length > 40, `${what}: the page shows something`);
};

try {
  for (const file of files) {
    const home = pathToFileURL(resolve(file)).href;
    const opened = await open(home);
    await unharmed(opened, file, home);
    // Tooltips and selections show the same texts.
    for (const mark of (await opened.page.locator('button, svg path, svg circle, summary').all()).slice(0, 40)) {
      if (!(await mark.isVisible())) continue;
      await mark.hover({ force: true, timeout: 2000 }).catch(() => {});
      await mark.click({ force: true, timeout: 2000 }).catch(() => {});
    }
    await unharmed(opened, `${file}, touched`, home);
    await opened.context.close();
  }

  // The board: every view of every run, and its prompts.
  const live = await open(boardAddress);
  await live.page.locator('.runs .name').first().waitFor();
  const shown = (await live.page.locator('.runs').innerText()).includes('<img src=x onerror=hacked()>');
  assert.ok(shown, 'the name of a run is shown as it is');
  await unharmed(live, 'board', board);
  for (const role of ['tab', 'link', 'button']) {
    for (const one of (await live.page.getByRole(role).all()).slice(0, 30)) {
      if (!(await one.isVisible())) continue;
      await one.click({ timeout: 3000 }).catch(() => {});
      const boxes = 'textarea:visible, input[type="text"]:visible, input[type="search"]:visible';
      for (const box of await live.page.locator(boxes).all())
        await box.fill(attacks[0], { timeout: 3000 }).catch(() => {});
    }
  }
  await unharmed(live, 'board, touched', board);
  const views = await live.page.evaluate(() => Object.keys(window.somePage?.views?.[0]?.views ?? {}));
  const hashes = [
    `view=${encodeURIComponent(attacks[0])}`,
    `run=${encodeURIComponent(attacks[1])}`,
    `x=${encodeURIComponent(attacks[3])}`,
    ...views.map((one) => `view=${one}&run=${encodeURIComponent(attacks[0])}`),
  ];
  for (const hash of hashes) {
    await live.page.goto(`${board}#${key ? `${key}&` : ''}${hash}`);
    await live.page.reload();
    await unharmed(live, `board ${hash}`, board);
  }
  await live.context.close();

  // The chat: the prompt, and an answer that repeats what the model was trained on.
  const chat = await open(serve);
  await chat.page.getByText(/Step \d+, \d+ layers/).waitFor();
  await chat.page.getByLabel('experts', { exact: true }).check();
  await chat.page.getByLabel('tokens', { exact: true }).fill('60');
  await chat.page.getByLabel('learn from my messages').check();
  await chat.page.getByLabel('sources').check();
  const prompt = chat.page.getByLabel('your text');
  for (const [number, attack] of attacks.entries()) {
    await prompt.fill(attack);
    await chat.page.keyboard.press('Enter');
    const tokens = chat.page.getByRole('group', { name: 'tokens of the answer' }).nth(number).getByRole('button');
    await tokens.first().waitFor();
    await tokens.first().click();
    await chat.page.getByRole('region', { name: 'the selected token' }).last().waitFor();
  }
  const said = await chat.page.locator('body').innerText();
  assert.ok(said.includes(attacks[3]), 'the prompt is shown as it is');
  await unharmed(chat, 'chat', serve);
  await chat.context.close();
} finally {
  await browser.close();
}
