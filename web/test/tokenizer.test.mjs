// Reads a tokenizer.json of ours with Hugging Face's own library, which must give the same ids.
// usage: node tokenizer.test.mjs TOKENIZER.json EXPECTED.json NODE_MODULES   EXPECTED: [{"text": ..., "ids": [...]},
// ...]
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const [tokenizerPath, expectedPath, modules] = process.argv.slice(2);
const { Tokenizer } = await import(pathToFileURL(`${modules}/@huggingface/tokenizers/dist/tokenizers.mjs`).href);
const tokenizer = new Tokenizer(JSON.parse(readFileSync(tokenizerPath, 'utf8')), {});
const cases = JSON.parse(readFileSync(expectedPath, 'utf8'));
let different = 0;
for (const { text, ids } of cases) {
  const theirs = Array.from(tokenizer.encode(text, { add_special_tokens: false }).ids, Number);
  if (JSON.stringify(theirs) === JSON.stringify(ids)) continue;
  different += 1;
  console.error(`${JSON.stringify(text)}: ours ${ids}, theirs ${theirs}`);
}
console.log(`${cases.length} texts, ${different} encoded differently`);
process.exit(cases.length > 0 && different === 0 ? 0 : 1);
