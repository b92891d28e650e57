// Drives the chat of `some serve` in Chromium: node talk.test.mjs ADDRESS KEY NODE_MODULES [SCREENSHOTS]
// The server requires KEY and serves one model with experts.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { fits, overhear, tools } from './browser.mjs';

const [address, apiKey, modules, shots] = process.argv.slice(2);
const { launch, listen } = tools(modules);

const browser = await launch();
try {
  for (const colorScheme of ['light', 'dark']) {
    const context = await browser.newContext({ viewport: { width: 1100, height: 900 }, colorScheme });
    const page = await context.newPage();
    page.setDefaultTimeout(30000);
    const { problems, requests } = overhear(page);
    const shoot = async (name) => {
      if (shots) await page.screenshot({ path: join(shots, `talk-${colorScheme}-${name}.png`), fullPage: true });
    };
    await page.goto(address);
    await page.getByRole('alert').waitFor();
    assert.match(await page.getByRole('alert').textContent(), /API key/);
    await listen(page, 'without a key');
    await page.getByLabel('API key').fill(apiKey);
    await page.getByRole('button', { name: 'Use' }).click();
    await page.getByText(/Step \d+, \d+ layers/).waitFor();
    assert.deepEqual(
      problems.filter((one) => !one.includes('401')),
      [],
    );
    problems.length = 0;

    // Without a mouse: type, send, and walk through the tokens of the answer.
    await page.getByLabel('experts', { exact: true }).check();
    await page.getByLabel('tokens', { exact: true }).fill('24');
    await page.getByLabel('seed').fill('7');
    const prompt = page.getByLabel('your text');
    await prompt.focus();
    await page.keyboard.type('Once upon a time <b>there</b>');
    await page.keyboard.press('Enter');
    const tokens = page.getByRole('group', { name: 'tokens of the answer' }).getByRole('button');
    await tokens.first().waitFor();
    assert.ok((await tokens.count()) > 1);
    assert.equal(await prompt.inputValue(), '');
    assert.equal(await page.locator('.message b').count(), 0, 'text stays text');
    await tokens.first().focus();
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowLeft');
    await page.keyboard.press('Enter');
    const panel = page.getByRole('region', { name: 'the selected token' });
    await panel.waitFor();
    assert.match(await panel.textContent(), /probability.*Experts.*layer 0/);
    assert.equal(await tokens.first().getAttribute('aria-expanded'), 'true');
    await listen(page, `a ${colorScheme} answer with experts`);
    await shoot('experts');
    await page.keyboard.press('Enter');
    assert.equal(await panel.isVisible(), false);

    // A session learns, shows its sources, and forgets.
    await page.getByLabel('learn from my messages').check();
    await page.getByLabel('sources').check();
    await prompt.fill('The red key lies under the third stone. The red key lies under');
    await page.keyboard.press('Enter');
    const group = page.getByRole('group', { name: 'tokens of the answer' }).nth(1);
    await group.getByRole('button').first().click();
    const second = page.getByRole('region', { name: 'the selected token' });
    await second.waitFor();
    assert.match(await second.textContent(), /Shares in the probability of this token.*slots.*contexts/);
    await listen(page, `a ${colorScheme} answer with sources`);
    await shoot('sources');
    await page.getByRole('button', { name: 'Forget' }).click();
    await page.getByText('Your messages were removed from the memory.').waitFor();

    for (const width of [1100, 360]) await fits(page, width);
    await shoot('phone');
    await page.getByRole('button', { name: 'New' }).click();
    assert.equal(await page.locator('.message').count(), 0);
    assert.deepEqual(problems, []);
    assert.ok(
      requests.every((one) => one.startsWith(address)),
      'only the server is asked',
    );

    // Stop ends an answer, unless it has already ended.
    await page.getByLabel('tokens', { exact: true }).fill('4000');
    await prompt.fill('A long story');
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Stop' }).dispatchEvent('click');
    await page
      .locator('.message.model')
      .getByText(/stopped|end of text|token limit reached/)
      .waitFor();
    await context.close();
  }
} finally {
  await browser.close();
}
