// Bundles the script and the style of the program's pages: node build.mjs OUT_FOLDER [NODE_MODULES]
// Writes page.js, page.css and page.sha256: the script's hash, by which a page's content policy knows it.
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const out = resolve(process.argv[2] ?? join(here, 'dist'));
const modules = resolve(process.argv[3] ?? join(here, 'node_modules'));
const require = createRequire(join(modules, 'any.js'));
const esbuild = await import(pathToFileURL(require.resolve('esbuild')).href);

mkdirSync(out, { recursive: true });
await esbuild.build({
  entryPoints: [join(here, 'src/main.js'), join(here, 'src/page.css')], // page.js and page.css
  outdir: out,
  entryNames: 'page',
  nodePaths: [modules],
  bundle: true,
  minify: true,
  format: 'iife',
  target: ['es2022', 'chrome111', 'firefox113', 'safari16.4'],
  charset: 'utf8',
  banner: {
    js:
      '/*! Holds Apache ECharts and ZRender (Apache License 2.0, BSD 3-Clause License), umap-js (Apache License 2.0),\n' +
      'ml-levenberg-marquardt and ml-matrix (MIT License) */',
  },
  legalComments: 'eof',
  logLevel: 'warning',
});

const script = readFileSync(join(out, 'page.js'), 'utf8');
// Where the page's own script element would end or begin a comment, the page would be broken.
for (const mark of ['</script', '<!--']) {
  if (script.toLowerCase().includes(mark)) throw new Error(`page.js holds ${mark}: it cannot stand inside a page`);
}
writeFileSync(join(out, 'page.sha256'), createHash('sha256').update(script).digest('base64'));
