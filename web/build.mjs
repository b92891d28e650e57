// Bundles the charts of lab reports into one script: node build.mjs OUT [NODE_MODULES]
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const out = resolve(process.argv[2] ?? join(here, 'dist/report.js'));
const modules = resolve(process.argv[3] ?? join(here, 'node_modules'));
const require = createRequire(join(modules, 'any.js'));
const esbuild = await import(pathToFileURL(require.resolve('esbuild')).href);

await esbuild.build({
  entryPoints: [join(here, 'src/report.js')],
  outfile: out,
  nodePaths: [modules],
  bundle: true,
  minify: true,
  format: 'iife',
  target: 'es2020',
  charset: 'utf8',
  banner: { js: '/*! Charts: Apache ECharts and ZRender, under the Apache License 2.0 and the BSD 3-Clause License */' },
  legalComments: 'eof',
  logLevel: 'warning',
});
