// Opens a page of the program in Chromium: node page.test.mjs PAGE.html EXPECTED.json NODE_MODULES [SCREENSHOTS]
// EXPECTED.json: {
//   cells: [{table, row, column, text}],   row and column from 0
//   charts: {id: {selector, least}},       marks a chart must have
//   texts: [text],                         must be read on the page as they stand, markup and all
//   play: "trace" | "keys"                 what the page must answer to
// }; every part may be left out. SCREENSHOTS: a folder for pictures of it, light, dark and on a telephone.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { fits, overhear, tools } from './browser.mjs';

const [file, expectedFile, modules, shots] = process.argv.slice(2);
const expected = JSON.parse(readFileSync(expectedFile, 'utf8'));
const { launch, listen } = tools(modules);

// Clicks a mark of a chart as a user does, who hovers over it first: hovering redraws the mark in the next frame, and a
// click during that is lost.
async function press(page, mark) {
  await mark.scrollIntoViewIfNeeded();
  const { x, y, width, height } = await mark.boundingBox();
  const middle = [x + width / 2, y + height / 2];
  await page.mouse.move(...middle);
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
  await page.mouse.click(...middle);
}

const plays = {
  // A token, an expert and a set can be selected and deselected, by mouse and by keyboard.
  async trace(page) {
    const chips = page.locator('.view .text button');
    await chips.nth(2).focus();
    await page.keyboard.press('Enter');
    assert.equal(await chips.nth(2).getAttribute('aria-pressed'), 'true');
    assert.match(await page.locator('.view section h2').textContent(), /^Token 2: /);
    await page.locator('.view section .pair button').first().click();
    assert.match(await page.locator('.view section h2').textContent(), /^Expert \d+ of layer \d+ fires for [1-9]/);
    assert.ok((await page.locator('.view aside button[aria-pressed="true"]').count()) >= 2, 'the list shows it too');
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('.view section h2').count(), 0);
    await page.getByRole('button', { name: 'sets' }).click();
    assert.match(await page.locator('.view aside h2').textContent(), /^\d+ different sets in layer \d+$/);
    const strength = (chip) => chip.evaluate((node) => Number(node.style.getPropertyValue('--strength')));
    assert.equal(await strength(chips.nth(3)), 0);
    await page.getByRole('button', { name: 'surprise' }).click();
    assert.ok((await strength(chips.nth(3))) > 0, 'a token that was not certain is shaded');
    await press(page, page.locator('#trace-field svg path').nth(3));
    assert.match(await page.locator('.view section h2').textContent(), /^Token \d+: /);
  },
  // A map of keys offers its methods and its saved steps.
  async keys(page) {
    const figure = page.locator('figure.chart:has(input[type="range"])').first();
    await figure.scrollIntoViewIfNeeded();
    const drawing = () => figure.locator('svg').innerHTML();
    const end = await drawing();
    await figure.locator('input').focus();
    await page.keyboard.press('Home');
    assert.match(await figure.locator('.now').textContent(), /^step 0$/);
    assert.notEqual(await drawing(), end, 'at the first step the keys lie elsewhere');
    await figure.getByRole('button', { name: 'Play' }).click();
    await page.waitForFunction((node) => node.value === node.max, await figure.locator('input').elementHandle());
    assert.equal(await drawing(), end, 'after playing it is where it was');
    const method = async (name) => {
      await figure.getByRole('button', { name, exact: true }).click();
      return drawing();
    };
    const umap = await method('UMAP');
    assert.notEqual(umap, end);
    assert.ok(await figure.locator('.time').isHidden(), 'UMAP has no steps');
    assert.equal(await method('PCA'), end);
    await page.reload();
    await figure.scrollIntoViewIfNeeded();
    await figure.locator('svg').waitFor();
    assert.equal(await method('UMAP'), umap, 'the same map every time');
    await method('PCA');
  },
};

const browser = await launch();
try {
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, colorScheme: 'light' });
  const page = await context.newPage();
  page.setDefaultTimeout(60000);
  const { problems, requests } = overhear(page);
  const address = pathToFileURL(resolve(file)).href;
  await page.goto(address);

  // Charts are drawn when they are near the window.
  const first = page.locator('figure.chart').first();
  await first.scrollIntoViewIfNeeded();
  await first.locator('svg').waitFor();
  await page.evaluate(() => window.somePage.drawAll());
  const measure = () =>
    page.evaluate(() =>
      [...document.querySelectorAll('figure.chart')].map((figure) => ({
        id: figure.id,
        paths: figure.querySelectorAll('svg path').length,
        height: figure.querySelector('svg')?.getBoundingClientRect().height ?? 0,
      })),
    );
  const charts = await measure();
  assert.ok(charts.length > 0, 'the page has charts');
  for (const chart of charts) {
    assert.ok(chart.paths >= 5, `${chart.id} has marks`);
    assert.ok(chart.height > 60, `${chart.id} has a height`);
  }
  for (const [id, want] of Object.entries(expected.charts ?? {})) {
    assert.ok(
      charts.some((one) => one.id === id),
      `there is a chart ${id}`,
    );
    const marks = await page.locator(`[id="${id}"] ${want.selector}`).count();
    assert.ok(marks >= want.least, `${id} has ${marks} of ${want.selector}, fewer than ${want.least}`);
  }
  for (const { table, row, column, text } of expected.cells ?? []) {
    const found = await page.evaluate(
      ([id, r, c]) => document.getElementById(id)?.tBodies[0].rows[r]?.cells[c]?.textContent,
      [table, row, column],
    );
    assert.equal(found, text, `${table}, row ${row}, column ${column}`);
  }

  // Untrusted names stay text.
  const words = await page.evaluate(() => document.body.innerText);
  for (const text of expected.texts ?? []) assert.ok(words.includes(text), `the page shows ${text}`);
  assert.equal(await page.evaluate(() => document.images.length), 0, 'no text has become an image');
  assert.equal(await page.evaluate(() => document.scripts.length), 2, 'no text has become a script');

  const broken = await page.evaluate(() =>
    [...document.querySelectorAll('a[href^="#"]')]
      .map((a) => a.getAttribute('href').slice(1))
      .filter((id) => !document.getElementById(id)),
  );
  assert.deepEqual(broken, [], 'every link of the page leads somewhere');
  const ids = await page.evaluate(() => [...document.querySelectorAll('[id]')].map((element) => element.id));
  assert.equal(new Set(ids).size, ids.length, 'no id stands twice');
  assert.match(await page.locator('header.page').innerText(), /made by\s+some \d+\.\d+/, 'the program is named');

  if (expected.play) await plays[expected.play](page);
  await page.evaluate(() => window.somePage.drawAll());

  // Wide, on a laptop, on a phone, dark and light: nothing is cut off or overlaps, and everything is accessible by
  // keyboard and screen reader.
  const shoot = async (name) => {
    if (!shots) return;
    const path = join(shots, `${basename(file, '.html')}-${name}.png`);
    await page.screenshot({ path, fullPage: true, timeout: 90000 });
  };
  const fitsIn = async (width) => {
    await fits(page, width);
    const now = await measure();
    assert.equal(now.length, charts.length);
    for (const chart of now) assert.ok(chart.height > 60, `${chart.id} is still drawn at ${width} pixels`);
  };
  for (const width of [2200, 1024, 1400]) await fitsIn(width);
  await listen(page, 'light');
  await shoot('light');
  const ink = () => getComputedStyle(document.querySelector('figure.chart svg text')).fill;
  const light = await page.evaluate(ink);
  await page.emulateMedia({ colorScheme: 'dark' });
  await page.waitForFunction(
    (before) => getComputedStyle(document.querySelector('figure.chart svg text')).fill !== before,
    light,
  );
  await listen(page, 'dark');
  await shoot('dark');
  await fitsIn(360);
  await listen(page, 'on a telephone');
  await shoot('telephone');

  assert.deepEqual(problems, [], 'no errors or warnings on the console');
  const foreign = requests.filter((url) => url !== address && !url.startsWith('data:'));
  assert.deepEqual(foreign, [], 'nothing is fetched');
  console.log(`${charts.length} charts, no errors, nothing fetched`);
} finally {
  await browser.close();
}
