// Opens a report in Chromium: node report.test.mjs REPORT.html EXPECTED.json NODE_MODULES [SCREENSHOT_FOLDER]
// EXPECTED.json: {cells: [{table, row, column, text}], charts: {id: {selector, least}}} (row and column from 0).
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const [report, expectedFile, modules, shots] = process.argv.slice(2);
const expected = JSON.parse(readFileSync(expectedFile, 'utf8'));
const { chromium } = createRequire(join(resolve(modules), 'any.js'))('playwright-core');

// A browser started so has a fresh profile of its own, which it removes.
const browser = await chromium.launch({
  executablePath: process.env.SOME_CHROMIUM ?? '/usr/bin/chromium',
  headless: true,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});
try {
  const page = await browser.newPage({ viewport: { width: 1400, height: 900 } });
  const problems = [];
  const requests = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) problems.push(message.text());
  });
  page.on('pageerror', (error) => problems.push(String(error)));
  page.on('request', (request) => requests.push(request.url()));
  const address = pathToFileURL(resolve(report)).href;
  await page.goto(address);

  // Charts are drawn as they come near the window.
  const first = page.locator('figure.chart').first();
  await first.scrollIntoViewIfNeeded();
  await first.locator('svg').waitFor();
  await page.evaluate(() => window.someReport.drawAll());
  const charts = await page.evaluate(() =>
    [...document.querySelectorAll('figure.chart')].map((figure) => ({
      id: figure.id,
      paths: figure.querySelectorAll('svg path').length,
      height: figure.querySelector('svg')?.getBoundingClientRect().height ?? 0,
    })),
  );
  assert.ok(charts.length > 0, 'the report has charts');
  for (const chart of charts) {
    assert.ok(chart.paths >= 5, `${chart.id} has marks`);
    assert.ok(chart.height > 100, `${chart.id} has a height`);
  }
  for (const [id, want] of Object.entries(expected.charts ?? {})) {
    const chart = charts.find((one) => one.id === id);
    assert.ok(chart, `there is a chart ${id}`);
    const marks = await page.locator(`[id="${id}"] ${want.selector}`).count();
    assert.ok(marks >= want.least, `${id} has ${marks} of ${want.selector}, fewer than ${want.least}`);
  }

  for (const { table, row, column, text } of expected.cells) {
    const found = await page.evaluate(([id, r, c]) => document.getElementById(id)?.tBodies[0].rows[r]?.cells[c]?.textContent, [table, row, column]);
    assert.equal(found, text, `${table}, row ${row}, column ${column}`);
  }

  const broken = await page.evaluate(() => [...document.querySelectorAll('a[href^="#"]')].map((a) => a.getAttribute('href').slice(1)).filter((id) => !document.getElementById(id)));
  assert.deepEqual(broken, [], 'every link of the page leads somewhere');
  const ids = await page.evaluate(() => [...document.querySelectorAll('[id]')].map((element) => element.id));
  assert.equal(new Set(ids).size, ids.length, 'no id stands twice');
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(wide <= 0, `the page is ${wide} pixels wider than the window`);

  // Dark colours, a narrow window and printing must not break it.
  const shoot = (name) => shots && page.screenshot({ path: join(shots, name), timeout: 90000 });
  await shoot('light.png');
  const ink = () => getComputedStyle(document.querySelector('figure.chart svg text')).fill;
  const light = await page.evaluate(ink);
  await page.emulateMedia({ colorScheme: 'dark' });
  await page.waitForFunction((before) => getComputedStyle(document.querySelector('figure.chart svg text')).fill !== before, light);
  await shoot('dark.png');
  await page.setViewportSize({ width: 420, height: 900 });
  await page.waitForTimeout(300);
  const narrow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(narrow <= 0, `on a telephone the page is ${narrow} pixels too wide`);
  await shoot('narrow.png');
  assert.equal(await page.locator('figure.chart svg').count(), charts.length, 'every chart is still drawn');

  assert.deepEqual(problems, [], 'no errors or warnings on the console');
  assert.deepEqual(requests.filter((url) => url !== address && !url.startsWith('data:')), [], 'nothing is fetched');
  console.log(`${charts.length} charts, ${expected.cells.length} cells, no errors, nothing fetched`);
} finally {
  await browser.close();
}
