// Starts Chromium for the tests of pages, and checks what every page must satisfy.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';

export function tools(modules) {
  const require = createRequire(join(resolve(modules), 'any.js'));
  const { chromium } = require('playwright-core');
  const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
  return {
    // Starts a browser with a fresh profile, which is removed afterwards.
    launch: () =>
      chromium.launch({
        executablePath: process.env.SOME_CHROMIUM ?? '/usr/bin/chromium',
        headless: true,
        args: [
          '--no-sandbox',
          '--disable-gpu',
          '--disable-quic',
          '--no-first-run',
          '--disable-background-networking',
          '--disable-component-update',
          '--disable-sync',
        ],
      }),
    // Checks accessibility by keyboard and screen reader.
    listen: async (page, what) => {
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
      const told = violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => node.html)}`);
      assert.deepEqual(told, [], `axe finds nothing, ${what}`);
    },
  };
}

// Collects errors and requests of a page.
export function overhear(page) {
  const problems = [];
  const requests = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) problems.push(message.text());
  });
  page.on('pageerror', (error) => problems.push(String(error)));
  page.on('dialog', (dialog) => problems.push(`a dialog: ${dialog.message()}`));
  page.on('request', (request) => requests.push(request.url()));
  return { problems, requests };
}

export async function fits(page, width) {
  await page.setViewportSize({ width, height: 900 });
  await page.waitForTimeout(300);
  const over = () => document.documentElement.scrollWidth - document.documentElement.clientWidth;
  // On a busy machine charts take longer to be redrawn.
  for (let i = 0; i < 50 && (await page.evaluate(over)) > 0; i += 1) await page.waitForTimeout(100);
  assert.ok((await page.evaluate(over)) <= 0, `at ${width} pixels the page is ${await page.evaluate(over)} too wide`);
}
