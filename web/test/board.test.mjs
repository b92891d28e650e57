// Drives the board in Chromium: node board.test.mjs ADDRESS RUNS PROGRAM RECIPE NODE_MODULES [SCREENSHOTS]
// RUNS: the watched folder, with the runs "seed1" and "seed2", which differ only in their seed, and one whose name is
// an attempted injection. A training of RECIPE is started while the page is open. SCREENSHOTS: a folder for pictures.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { appendFileSync, existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as moment } from 'node:timers/promises';
import { changeRuns } from './board-changes.mjs';
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
  // Returns the data of a curve of the page.
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
  await drawn('Validation loss');
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
  // The transition takes a second, less than a busy machine's browser may need for one look, so it is stepped and
  // inspected in between.
  const written = join(runs, 'live', 'metrics.jsonl');
  while (training.exitCode === null && !(existsSync(written) && statSync(written).size > 0)) await moment(2);
  training.kill('SIGSTOP');
  await line('live').waitFor();
  await page.waitForFunction(() =>
    [...window.somePage.views[0].runs.values()].some(({ state }) => state === 'running'),
  );
  const seen = new Set();
  for (let i = 0; i < 100 && seen.size < 3 && training.exitCode === null; i += 1) {
    seen.add((await points('train.loss', 'live')).length);
    training.kill('SIGCONT');
    await moment(20);
    training.kill('SIGSTOP');
    await page.waitForTimeout(100);
  }
  training.kill('SIGCONT');
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
  const xAxis = page.getByRole('combobox', { name: 'x axis', exact: true });
  await xAxis.selectOption('tokens');
  await page.getByRole('combobox', { name: 'group', exact: true }).selectOption('1');
  await page.waitForFunction(() => window.somePage.views[0].views.compare.curves[3].bands.length === 1);
  await page.locator('#settings-table').waitFor();
  assert.ok((await page.locator('#settings-table tbody').innerText()).includes('train.max_steps'));
  // A link shows the same view.
  const other = await context.newPage();
  await other.goto(page.url());
  await other.locator('figure.chart svg').first().waitFor();
  assert.ok(await other.getByLabel('log y').isChecked());
  assert.equal(await other.getByRole('combobox', { name: 'x axis', exact: true }).inputValue(), 'tokens');
  assert.equal(await other.getByLabel('smoothing').inputValue(), '0.6');
  await other.close();
  for (const words of ['log x', 'log y']) await page.getByLabel(words).uncheck();
  await page.getByRole('combobox', { name: 'group', exact: true }).selectOption('');
  // Any number as the x axis. Times are those of the program that writes the lines.
  const xOf = async (value, unit) => {
    await xAxis.selectOption(value);
    await page.waitForFunction((wanted) => window.somePage.views[0].views.compare.curves[3].x === wanted, value);
    assert.equal(await page.evaluate(() => window.somePage.views[0].views.compare.curves[3].spec().x.unit), unit);
    return points('train.loss', 'live');
  };
  await xOf('time', 'seconds');
  const clocked = await xOf('clock', 'clock');
  for (const [x] of clocked) assert.ok(x > began - 1000 && x < Date.now() + 1000, `${x} is now`);
  const passed = await xOf('elapsed', 'seconds');
  assert.equal(passed[0][0], 0);
  assert.ok(Math.abs(passed.at(-1)[0] - (clocked.at(-1)[0] - clocked[0][0]) / 1000) < 0.1);
  const overRate = await xOf('train.lr', 'metric');
  const step5 = JSON.parse(readFileSync(written, 'utf8').split('\n')[2]);
  assert.ok(
    overRate.some(([x, y]) => Math.abs(x / step5.lr - 1) < 1e-4 && Math.abs(y / step5.loss - 1) < 1e-4),
    `no point for ${step5.lr}, ${step5.loss}`,
  );
  await xAxis.selectOption('step');
  await page.getByRole('button', { name: 'none', exact: true }).click();
  await page.getByText('No run is selected').waitFor();
  await line('live').locator('input').check();
  await drawn('Training loss');
  assert.equal(await page.evaluate(() => window.somePage.views[0].chosen().length), 1);
  await page.getByLabel('from', { exact: true }).fill('100');
  await page.getByLabel('to', { exact: true }).fill('200');
  await page.keyboard.press('Enter');
  await page.waitForFunction(
    () => window.somePage.views[0].views.compare.curves[3].data.values().next().value?.points.length === 51,
  );
  await page.getByRole('button', { name: 'reset zoom' }).click();
  // A range selected by dragging is shown in every chart; a double click resets it.
  const drag = async (title, begin, end) => {
    const sheet = figure(title).locator('.sheet');
    await sheet.scrollIntoViewIfNeeded();
    const box = await sheet.boundingBox();
    const at = (share) => [box.x + share * box.width, box.y + 0.4 * box.height];
    await page.mouse.move(...at(begin));
    await page.mouse.down();
    await page.mouse.move(...at(end), { steps: 4 });
    await page.mouse.up();
    return () => page.mouse.dblclick(...at((begin + end) / 2));
  };
  const whole = await drag('Training loss', 0.4, 0.7);
  await page.waitForFunction(() => /from=\d+&to=\d+/.test(window.location.hash));
  const [from, to] = ['from', 'to'].map((key) => Number(new URLSearchParams(new URL(page.url()).hash.slice(1)).get(key)));
  assert.ok(from > 60 && from < to && to < 260, `dragged from ${from} to ${to}`);
  await page.waitForFunction(
    ([low, high]) => {
      const { points: all } = window.somePage.views[0].views.compare.curves[3].data.values().next().value;
      return all.length > 20 && all.every(([x]) => x >= low && x <= high);
    },
    [from, to],
  );
  assert.equal(await page.getByLabel('from', { exact: true }).inputValue(), String(from));
  await whole();
  await page.waitForFunction(() => !window.location.hash.includes('from='));

  // --- the value of every run under the pointer, in every chart ---
  await page.getByRole('button', { name: 'all', exact: true }).click();
  await drawn('Training loss');
  await page.waitForFunction(() => window.somePage.views[0].views.compare.curves[3].figure.chart.spec.series.length >= 3);
  const trainLoss = figure('Training loss').locator('.sheet');
  await trainLoss.scrollIntoViewIfNeeded();
  const sheet = await trainLoss.boundingBox();
  // Within the steps of every run: the short runs have 20 to 25.
  await page.mouse.move(sheet.x + 62 + 0.05 * (sheet.width - 80), sheet.y + 100);
  const told = figure('Training loss').locator('.cross-tip');
  await told.waitFor();
  assert.match(await told.innerText(), /^step \d+/);
  for (const name of ['seed1', 'seed2', 'live']) assert.ok((await told.innerText()).includes(name), `the value of ${name}`);
  const step = Number(/^step (\d+)/.exec(await told.innerText())[1]);
  const value = await page.evaluate(
    (at) => {
      const [board] = window.somePage.views;
      const run = [...board.runs.values()].find(({ name }) => name === 'live');
      const one = board.views.compare.curves[3].data.get(run.id);
      const all = one.smooth ?? one.points;
      const next = all.findIndex(([x]) => x >= at);
      const [[x0, y0], [x1, y1]] = [all[Math.max(0, next - 1)], all[next]];
      return x1 > x0 ? y0 + ((y1 - y0) * (at - x0)) / (x1 - x0) : y1;
    },
    step,
  );
  const shownValue = Number(/live\s+([\d.]+)/.exec(await told.innerText())[1]);
  assert.ok(Math.abs(shownValue - value) < 0.002, `live at step ${step}: ${shownValue}, not ${value}`);
  assert.ok((await page.locator('.cross:not([hidden])').count()) > 1, 'the other charts show the step too');
  await page.mouse.move(5, 5);
  await page.locator('.cross-tip:not([hidden])').waitFor({ state: 'detached' });
  // Colors are derived from the run, whichever runs are displayed.
  const colours = () =>
    page.evaluate(() => [...window.somePage.views[0].runs.keys()].map((id) => window.somePage.views[0].colour(id)));
  const allColours = await colours();
  assert.equal(new Set(allColours).size, allColours.length, 'every run has a colour of its own');
  await line('seed1').locator('input').uncheck();
  assert.deepEqual(await colours(), allColours);
  await line('seed1').locator('input').check();
  // Between the powers of ten.
  await page.getByLabel('log y').check();
  await page.waitForFunction(() => window.somePage.views[0].views.compare.curves[3].spec().y.log);
  const yTicks = await page.evaluate(() => {
    const { drawing } = window.somePage.views[0].views.compare.curves[3].figure.chart;
    return drawing.getOption().yAxis[0].axisLabel.customValues;
  });
  assert.ok(yTicks.length >= 3 && yTicks.length <= 8, `ticks ${yTicks}`);
  await page.getByLabel('log y').uncheck();
  // Without outliers the axis begins above the lowest value, 1.2345.
  await page.getByLabel('ignore outliers').check();
  await page.waitForFunction(() => window.somePage.views[0].views.compare.curves[3].figure.chart.spec.y.calm);
  const [axisBegin, lowest] = await page.evaluate(() => {
    const { drawing, spec } = window.somePage.views[0].views.compare.curves[3].figure.chart;
    const values = spec.series.flatMap(({ points: all }) => all.map(([, y]) => y));
    return [drawing.getOption().yAxis[0].min, Math.min(...values)];
  });
  assert.ok(Math.abs(lowest - 1.2345) < 1e-6 && axisBegin > 2, `the axis begins at ${axisBegin}, lowest is ${lowest}`);
  await page.getByLabel('ignore outliers').uncheck();
  await page.waitForFunction(() => !window.somePage.views[0].views.compare.curves[3].figure.chart.spec.y.calm);
  // One chart larger.
  const size = () => figure('Training loss').locator('.sheet').boundingBox();
  const usual = await size();
  const larger = figure('Training loss').getByRole('button', { name: 'Training loss larger' });
  await larger.click();
  assert.ok((await size()).height > usual.height + 100 && (await size()).width > 1.5 * usual.width);
  await larger.click();
  assert.equal((await size()).height, usual.height);
  // Several metrics in one chart.
  await page.getByText('Several metrics in one chart').click();
  for (const title of ['Training loss', 'Validation loss']) await page.getByLabel(title, { exact: true }).last().check();
  await drawn('Several metrics');
  await page.waitForFunction(() => window.somePage.views[0].views.compare.mixed.series?.some(({ dash }) => dash === 1));
  for (const title of ['Training loss', 'Validation loss']) await page.getByLabel(title, { exact: true }).last().uncheck();
  // Groups by a setting.
  await figure('Training loss').scrollIntoViewIfNeeded();
  await page.getByRole('combobox', { name: 'group', exact: true }).selectOption({ label: 'max_steps' });
  await page.waitForFunction(() => window.somePage.views[0].views.compare.curves[3].bands.length >= 1);
  await page.getByRole('combobox', { name: 'group', exact: true }).selectOption('');

  // --- filter, sort and group ---
  const names = () => page.locator('.runs .name').allTextContents();
  const filter = page.getByLabel('filter runs');
  await filter.fill('max_steps=300');
  assert.deepEqual(await names(), ['live']);
  await filter.fill('/^.*SEED[12]$/ step<100');
  assert.deepEqual(await names(), ['seed1', 'seed2']);
  await filter.fill('/(/');
  assert.ok(await filter.evaluate((node) => !node.checkValidity()), 'an expression that is none is told');
  await filter.fill('');
  await page.locator('.tabs').getByRole('button', { name: 'Table', exact: true }).click();
  const heading = page.locator('#runs-table th', { hasText: 'training loss' });
  await heading.getByRole('button').click();
  assert.equal(await heading.getAttribute('aria-sort'), 'ascending');
  const column = async () => {
    const texts = await page.locator('#runs-table tbody tr td:nth-child(6)').allTextContents();
    return texts.filter(Boolean).map(Number);
  };
  const rising = await column();
  assert.ok(rising.length >= 3 && rising.every((one, i) => i === 0 || one >= rising[i - 1]), `${rising}`);
  await page.locator('#runs-table th', { hasText: 'training loss' }).getByRole('button').click();
  assert.deepEqual(await column(), [...rising].reverse());
  await page.getByRole('combobox', { name: 'group by', exact: true }).selectOption({ label: 'max_steps' });
  assert.ok((await page.locator('#runs-table tr.group').count()) >= 2);

  // --- settings against results ---
  await page.locator('.tabs').getByRole('button', { name: 'Settings', exact: true }).click();
  await page.getByRole('combobox', { name: 'result', exact: true }).selectOption('train_loss');
  await drawn('Settings and result');
  await page.getByRole('combobox', { name: 'setting', exact: true }).selectOption({ label: 'max_steps' });
  await page.waitForFunction(
    () => window.somePage.views[0].views.settings.scatter.chart.spec.dots.length === window.somePage.views[0].runs.size,
  );
  assert.ok(
    await page.evaluate(() => {
      const { lines, axes } = window.somePage.views[0].views.settings.parallel.chart.spec;
      return axes.at(-1).name === 'training loss' && lines.every(({ values }) => values.length === axes.length);
    }),
  );
  await page.locator('.tabs').getByRole('button', { name: 'Compare', exact: true }).click();
  await page.getByRole('button', { name: 'none', exact: true }).click();
  await line('live').locator('input').check();
  await drawn('Training loss');

  // --- inside a model ---
  await page.getByRole('button', { name: 'inside live', exact: true }).click();
  await figure('Expert load').locator('svg image').waitFor();
  const map = figure('Key map');
  await map.locator('svg').waitFor();
  await page
    .getByRole('combobox', { name: 'run', exact: true })
    .selectOption({ label: join(runs, 'seed1').replace(/^.*\/runs/, 'runs') });
  await page.waitForFunction(() => window.somePage.views[0].views.inside.keys.chart?.spec.frames.steps.length === 5);
  const mapNow = () => map.locator('svg').innerHTML();
  const end = await mapNow();
  await map.locator('input[type="range"]').focus();
  await page.keyboard.press('Home');
  assert.match(await map.locator('.now').first().textContent(), /^step 0$/);
  assert.notEqual(await mapNow(), end, 'at the first step the keys lie elsewhere');
  await map.getByRole('button', { name: 'Play' }).click();
  await page.waitForFunction(
    (node) => node.value === node.max,
    await map.locator('input[type="range"]').elementHandle(),
  );
  assert.equal(await mapNow(), end, 'after playing it is where it was');
  await map.getByRole('button', { name: 'compute t-SNE' }).click();
  await map.getByRole('button', { name: 't-SNE', exact: true }).click();
  assert.match(await map.locator('.now').first().textContent(), /^t-SNE of step 20/);
  await map.getByRole('button', { name: 'UMAP', exact: true }).click();
  assert.notEqual(await mapNow(), end);
  await figure('Co-activated experts').locator('svg').waitFor();
  await figure('Gini of load').locator('svg').waitFor();
  assert.ok(await figure('Gate entropy').isHidden(), 'one evaluation is not a curve');
  const carried = await page.evaluate(() => window.somePage.views[0].views.inside.load.chart.spec);
  assert.deepEqual(carried.x.values, [5, 10, 15, 20]);
  for (const row of carried.rows) assert.ok(Math.abs(row.reduce((a, b) => a + b) - 8) < 0.1, 'shares are of 8 experts');
  await page.getByRole('combobox', { name: 'layer', exact: true }).selectOption('1');
  await page.waitForFunction(() => window.location.hash.includes('layer=1'));
  // A standalone chart zooms itself.
  const gini = () => page.evaluate(() => window.somePage.views[0].views.inside.curves[0].figure.chart.stretch ?? null);
  const back = await drag('Gini of load', 0.3, 0.8);
  const [low, high] = await gini();
  assert.ok(low > 2 && low < high && high < 24, `dragged from ${low} to ${high}`);
  await back();
  assert.equal(await gini(), null);
  // A memory that is being read: slots as they are inserted and as tokens merge into them, and a memory that merges
  // another one.
  const some = (...words) => assert.equal(spawnSync(program, [...words], { cwd: runs }).status, 0, words.join(' '));
  const how = ['--slots', '64', '--tokens', '600', '--original', '0', '--threads', '1'];
  some('read', 'seed1', 'builtin:recipes', ...how);
  const memory = page.locator('section[aria-label="memory"]');
  await memory.getByText('Read: builtin:recipes (600 tokens, ').waitFor();
  await memory.locator('input[type="range"]').focus();
  await page.keyboard.press('Home');
  await memory.getByText(/^25 tokens read; since the previous frame: \d+ inserted, \d+ merged into$/).waitFor();
  await page.keyboard.press('End');
  // Clicks without waiting: scrollIntoViewIfNeeded waits for stability and fails if the element is redrawn meanwhile.
  await memory.locator('canvas').evaluate((canvas) => canvas.scrollIntoView({ block: 'nearest' }));
  const met = await page.evaluate(() => {
    const { drawnStore: all } = window.somePage.views[0].views.inside;
    const busiest = [...all.data.frames.at(-1).dots].sort((a, b) => b[3] - a[3])[0];
    const [x, y] = all.spot(busiest);
    return { x, y, met: all.data.slots[busiest[0]].met };
  });
  assert.ok(met.met > 1, 'tokens have merged into a slot');
  await memory.locator('canvas').click({ position: { x: met.x, y: met.y } });
  await memory.getByText(/more tokens have merged into it since/).waitFor();
  some('read', 'seed1', 'builtin:nature', '--memory', 'other.memory', ...how);
  some('memory', 'merge', 'seed1/memory.safetensors', 'other.memory');
  await memory.getByText('builtin:nature (600 tokens, ').waitFor();
  await memory.getByText('merged from another memory', { exact: false }).first().waitFor();
  // The data it shows live.
  const key = join(runs, 'seed1', 'load.jsonl');
  appendFileSync(key, '{"load":[[800,0,0,0,0,0,0,0],[0,800,0,0,0,0,0,0]],"step":25}\n');
  await page.waitForFunction(() => window.somePage.views[0].views.inside.load.chart.spec.x.values.at(-1) === 25);
  await page.getByRole('button', { name: 'Compare', exact: true }).click();

  // --- ask it ---
  await page.locator('.tabs').getByRole('button', { name: 'Ask', exact: true }).click();
  const form = page.locator('section[aria-label="ask"] form');
  await form.getByLabel('prompt').fill('Once upon a time there');
  await form.getByLabel('max tokens', { exact: true }).fill('12');
  await form.getByRole('button', { name: 'Ask' }).click();
  const answers = page.locator('.answer');
  const statusOf = (side) => answers.nth(side).locator('> .under');
  await statusOf(0)
    .filter({ hasText: /tokens; / })
    .waitFor();
  assert.ok((await answers.nth(0).locator('> .text span.written').count()) > 0, 'it has written something');
  assert.match(await answers.nth(0).locator('> .text span').first().getAttribute('title'), /^layer 0: \d+ \(/);
  await answers.nth(0).locator('.view .text button').nth(2).click();
  assert.match(await answers.nth(0).locator('.view section h2').textContent(), /^Token 2: /);
  const strongest = await page.evaluate(() => {
    const { trace } = window.somePage.views[0].views.ask.sides[0];
    return { layer: trace.data.layers[0], expert: trace.data.tokens[1].layers[0].experts[0], k: trace.data.top_k };
  });
  // The same model next to it, without an expert that the first one used, and with one expert per token.
  await page.getByLabel('compare with a second model').check();
  const other2 = answers.nth(1);
  await other2.getByLabel('disable expert: layer').fill(String(strongest.layer));
  await other2.getByLabel('expert', { exact: true }).fill(String(strongest.expert));
  await form.getByRole('button', { name: 'Ask' }).click();
  await statusOf(1)
    .filter({ hasText: /tokens; / })
    .waitFor();
  const fired = await page.evaluate(
    ([layer, expert]) => {
      const { sides } = window.somePage.views[0].views.ask;
      const uses = ({ trace }) => trace.data.tokens.some((one) => one.layers[layer].experts.includes(expert));
      return sides.map(uses);
    },
    [strongest.layer, strongest.expert],
  );
  assert.deepEqual(fired, [true, false], 'an expert that is switched off is chosen by nobody');
  await other2.getByLabel('expert', { exact: true }).fill('');
  await other2.getByLabel('top-k experts').fill('1');
  await form.getByRole('button', { name: 'Ask' }).click();
  await page.waitForFunction(() => window.somePage.views[0].views.ask.sides[1].trace?.data.top_k === 1);
  assert.equal(await page.evaluate(() => window.somePage.views[0].views.ask.sides[0].trace.data.top_k), strongest.k);
  await other2.getByLabel('top-k experts').fill('99');
  await form.getByRole('button', { name: 'Ask' }).click();
  await statusOf(1).filter({ hasText: 'must not exceed the number of experts, 8' }).waitFor();
  await other2.getByLabel('top-k experts').fill('');
  await form.getByRole('button', { name: 'Ask' }).click();
  await statusOf(1)
    .filter({ hasText: /tokens; / })
    .waitFor();
  assert.equal(
    await answers.nth(0).locator('> .text').textContent(),
    await answers.nth(1).locator('> .text').textContent(),
    'the same question has the same answer',
  );
  await page.getByRole('button', { name: 'Compare', exact: true }).click();

  // --- the texts of evaluations ---
  const tab = (name) => page.locator('.tabs').getByRole('button', { name, exact: true }).click();
  const text = (step, words) => `${JSON.stringify({ step, epoch: step / 10, samples: [{ prompt: 'Once', text: words }] })}\n`;
  appendFileSync(join(runs, 'seed1', 'samples.jsonl'), text(10, ' early') + text(20, ` ${attack}`));
  appendFileSync(join(runs, 'seed2', 'samples.jsonl'), text(20, ' other'));
  await tab('Samples');
  await page.getByRole('button', { name: 'all', exact: true }).click();
  const cards = page.locator('.samples .card');
  await cards.filter({ hasText: attack }).waitFor();
  await cards.filter({ hasText: 'Once other' }).waitFor();
  await page.getByRole('slider', { name: 'step' }).focus();
  await page.keyboard.press('Home');
  await cards.filter({ hasText: 'Once early' }).waitFor();
  assert.ok(page.url().includes('sample=10'), page.url());
  await page.keyboard.press('End');
  await page.getByRole('combobox', { name: 'show', exact: true }).selectOption({ label: 'seed1 over time' });
  await page.waitForFunction(() => /^step/.test(document.querySelector('.samples .card h3').textContent));
  assert.equal(await cards.count(), 2);
  assert.match(await cards.first().innerText(), /^step 20/, 'the last texts are first');
  await listen(page, 'texts over time');

  // --- experiments ---
  await tab('Causal');
  const causal = page.locator('section[aria-label="causal"]');
  await causal.getByRole('combobox', { name: 'run', exact: true }).selectOption({ label: 'seed1' });
  await causal.getByRole('button', { name: 'Measure' }).click();
  await drawn('Change in loss without each expert');
  assert.match(await causal.getByText(/Beyond chance \(p ≤/).innerText(), /: \d+ of 16 experts\.$/);
  await causal.getByRole('combobox', { name: 'leave out' }).selectOption('movement');
  await causal.getByRole('button', { name: 'Measure' }).click();
  await drawn('Change in loss by part');
  assert.match(await causal.getByText(/Beyond chance \(p ≤/).innerText(), /: \d of 4 changes\.$/);
  await causal.getByRole('combobox', { name: 'first run' }).selectOption({ label: 'seed1' });
  await causal.getByRole('combobox', { name: 'second run' }).selectOption({ label: 'seed2' });
  await causal.getByRole('button', { name: 'Compare routes' }).click();
  await drawn('Agreement of routes');
  await causal.getByText(/Agreement beyond chance .*: \d of 2 layers\.$/).waitFor();
  await listen(page, 'experiments');

  // --- labels, deletion and the way back ---
  assert.ok(!page.url().includes('key='), 'the key is not in the address that a reader copies');
  await changeRuns({ page, browser, address, runs, attack, line, names, filter, listen });
  await tab('Compare');
  await page.getByRole('button', { name: 'none', exact: true }).click();
  await line('live').locator('input').check();
  await drawn('Training loss');

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
  const views = ['Compare', 'Table', 'Settings', 'Samples', 'Inside', 'Causal', 'Ask'];
  const everywhere = async (what) => {
    for (const view of views) {
      await page.locator('.tabs').getByRole('button', { name: view, exact: true }).click();
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
    await page.locator('.tabs').getByRole('button', { name: view, exact: true }).click();
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
