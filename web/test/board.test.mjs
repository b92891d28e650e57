// Drives the board in Chromium: node board.test.mjs ADDRESS RUNS PROGRAM RECIPE NODE_MODULES [SCREENSHOTS]
// RUNS: the folder it watches. It holds the runs "seed1" and "seed2", which differ in their seed alone, and one named
// like an attack. A real training of RECIPE is started while the page is open. SCREENSHOTS: a folder for pictures.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { appendFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fits, overhear, tools } from './browser.mjs';

const [address, runs, program, recipe, modules, shots] = process.argv.slice(2);
const { launch, listen } = tools(modules);
const attack = '<img src=x onerror=alert(1)>';

const browser = await launch();
try {
  const context = await browser.newContext({
    viewport: { width: 1400, height: 900 },
    colorScheme: 'light',
    acceptDownloads: true,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(30000);
  const { problems, requests } = overhear(page);
  const shoot = async (name) => {
    if (shots) await page.screenshot({ path: join(shots, `board-${name}.png`), fullPage: true, timeout: 90000 });
  };
  const figure = (title) => page.locator(`figure.chart[aria-label="${title}"]`);
  const drawn = (title) => figure(title).locator('svg').waitFor();
  const line = (name) => page.locator('.runs li', { has: page.locator(`.name:text-is("${name}")`) });
  // What a curve of the page holds now.
  const points = (metric, name) =>
    page.evaluate(
      ([wanted, of]) => {
        const [board] = window.somePage.views;
        const run = [...board.runs.values()].find((one) => one.name === of);
        const curve = board.views.compare.curves.find((one) => one.metric === wanted);
        return run ? (curve.data.get(run.id)?.points ?? []) : [];
      },
      [metric, name],
    );

  // --- the first view ---
  await page.goto(address);
  await drawn('Validation loss over real tokens');
  assert.ok((await page.locator('.runs .name').allTextContents()).includes(attack), 'a name is shown as it stands');
  assert.equal(await page.evaluate(() => document.images.length), 0, 'no name has become an image');
  assert.equal(await page.evaluate(() => document.scripts.length), 2, 'no name has become a script');

  // --- live: lines as they come ---
  const metrics = join(runs, 'seed1', 'metrics.jsonl');
  const [last] = readFileSync(metrics, 'utf8')
    .trim()
    .split('\n')
    .filter((text) => text.includes('"train"'))
    .slice(-1);
  const before = (await points('train.loss', 'seed1')).length;
  const next = { ...JSON.parse(last), step: JSON.parse(last).step + 5, loss: 1.2345 };
  const began = Date.now();
  appendFileSync(metrics, `${JSON.stringify(next)}\n`);
  await page.waitForFunction(() =>
    [...window.somePage.views[0].views.compare.curves.find(({ metric }) => metric === 'train.loss').data.values()].some(
      (one) => Math.abs((one.points.at(-1)?.[1] ?? 0) - 1.2345) < 1e-6,
    ),
  );
  const waited = Date.now() - began;
  assert.equal((await points('train.loss', 'seed1')).length, before + 1);
  assert.ok(waited < 3000, `a new line was seen after ${waited} ms`);

  // --- live: a real training that begins while the page is open ---
  const training = spawn(
    program,
    [
      'train',
      recipe,
      '--out',
      join(runs, 'live'),
      'train.max_steps=300',
      'train.epochs=2',
      'train.measure_every=2',
      'train.threads=1',
    ],
    { stdio: 'ignore' },
  );
  const trained = new Promise((done) => {
    training.on('exit', done);
  });
  await line('live').waitFor();
  await page.waitForFunction(() =>
    [...window.somePage.views[0].runs.values()].some(({ state }) => state === 'running'),
  );
  const seen = new Set();
  for (let i = 0; i < 400 && !(await line('live').locator('.state').textContent()).startsWith('done'); i += 1) {
    seen.add((await points('train.loss', 'live')).length);
    await page.waitForTimeout(50);
  }
  assert.equal(await trained, 0, 'the training ended well');
  await page.waitForFunction(() => [...window.somePage.views[0].runs.values()].some(({ step }) => step === 300));
  assert.ok(seen.size >= 3, `the curve grew while it was looked at: ${[...seen]}`);
  await page.waitForFunction(
    () =>
      [...window.somePage.views[0].views.compare.curves[3].data.values()].filter(({ points: all }) => all.length >= 150)
        .length > 0,
  );
  assert.equal((await points('train.loss', 'live')).length, 150, 'no point is missed or told twice');

  // --- compare ---
  await shoot('light');
  const path = (title) => figure(title).locator('svg').innerHTML();
  const plain = await path('Training loss');
  await page.getByLabel('smoothing').focus();
  for (let i = 0; i < 60; i += 1) await page.keyboard.press('ArrowRight');
  await page.waitForFunction(() => window.location.hash.includes('smooth=0.6'));
  await page.waitForFunction(() =>
    [...window.somePage.views[0].views.compare.curves[3].data.values()].every((one) => one.smooth),
  );
  assert.notEqual(await path('Training loss'), plain);
  await page.getByLabel('log x').check();
  await page.getByLabel('log y').check();
  await page.getByRole('button', { name: 'tokens', exact: true }).click();
  await page.getByLabel('seeds as a band').check();
  await page.waitForFunction(() => window.somePage.views[0].views.compare.curves[3].bands.length === 1);
  await page.locator('#settings-table').waitFor();
  assert.ok((await page.locator('#settings-table tbody').innerText()).includes('train.max_steps'));
  // A link shows the same again.
  const other = await context.newPage();
  await other.goto(page.url());
  await other.locator('figure.chart svg').first().waitFor();
  assert.ok(await other.getByLabel('log y').isChecked());
  assert.equal(await other.getByRole('button', { name: 'tokens', exact: true }).getAttribute('aria-pressed'), 'true');
  assert.equal(await other.getByLabel('smoothing').inputValue(), '0.6');
  await other.close();
  for (const words of ['log x', 'log y', 'seeds as a band']) await page.getByLabel(words).uncheck();
  await page.getByRole('button', { name: 'time', exact: true }).click();
  await page.waitForFunction(() => window.somePage.views[0].views.compare.curves[3].spec().x.unit === 'seconds');
  await page.getByRole('button', { name: 'steps', exact: true }).click();
  await page.getByRole('button', { name: 'none', exact: true }).click();
  await page.getByText('No run is chosen').waitFor();
  await line('live').locator('input').check();
  await drawn('Training loss');
  assert.equal(await page.evaluate(() => window.somePage.views[0].chosen().length), 1);
  await page.getByLabel('from', { exact: true }).fill('100');
  await page.getByLabel('to', { exact: true }).fill('200');
  await page.keyboard.press('Enter');
  await page.waitForFunction(
    () => window.somePage.views[0].views.compare.curves[3].data.values().next().value?.points.length === 51,
  );
  await page.getByRole('button', { name: 'all of it' }).click();

  // --- exports ---
  const take = async (title, kind) => {
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      figure(title)
        .getByRole('button', { name: `as ${kind}` })
        .click(),
    ]);
    assert.match(download.suggestedFilename(), new RegExp(`\\.${kind.toLowerCase()}$`));
    return readFileSync(await download.path());
  };
  const svg = (await take('Training loss', 'SVG')).toString();
  assert.match(svg, /^<svg[^]*<path[^]*<\/svg>$/);
  const png = await take('Training loss', 'PNG');
  assert.deepEqual([...png.subarray(0, 4)], [0x89, 0x50, 0x4e, 0x47]);
  assert.ok(png.length > 3000, 'the picture has something in it');
  const rows = (await take('Training loss', 'CSV')).toString().trim().split('\n');
  assert.equal(rows[0], 'step,run,nats');
  assert.equal(rows.length, 151);
  assert.match(rows[1], /^2,.*live,\d/);

  // --- wide, on a telephone, dark and light, by keyboard and by ear ---
  const views = ['Compare'];
  const everywhere = async (what) => {
    for (const view of views) {
      await page.getByRole('button', { name: view, exact: true }).click();
      await page.waitForTimeout(300);
      await listen(page, `${view}, ${what}`);
      await shoot(`${view.toLowerCase()}-${what}`);
    }
  };
  await page.getByRole('button', { name: 'all', exact: true }).click();
  await drawn('Training loss');
  for (const width of [2200, 1024, 1400]) await fits(page, width);
  await everywhere('light');
  const ink = () => getComputedStyle(document.querySelector('section:not([hidden]) figure.chart svg text')).fill;
  await page.getByRole('button', { name: 'Compare', exact: true }).click();
  const light = await page.evaluate(ink);
  await page.emulateMedia({ colorScheme: 'dark' });
  await page.waitForFunction(
    (was) => getComputedStyle(document.querySelector('section:not([hidden]) figure.chart svg text')).fill !== was,
    light,
  );
  await everywhere('dark');
  for (const view of views) {
    await page.getByRole('button', { name: view, exact: true }).click();
    await fits(page, 360);
  }
  await everywhere('telephone');

  assert.deepEqual(problems, [], 'no errors or warnings on the console');
  const own = new URL(address).origin;
  const foreign = requests.filter(
    (url) => !url.startsWith(own) && !url.startsWith('data:') && !url.startsWith('blob:'),
  );
  assert.deepEqual(foreign, [], 'nothing is fetched from elsewhere');
  console.log(`a line was seen after ${waited} ms`);
} finally {
  await browser.close();
}
