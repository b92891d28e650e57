// The script of every page: reads the page's data and draws charts and views in their elements.
import { showCharts } from './charts.js';
import { showContents } from './contents.js';
import { board } from './view/board.js';
import { store } from './view/store.js';
import { talk } from './view/talk.js';
import { trace } from './view/trace.js';

const views = { board, store, talk, trace };

const data = JSON.parse(document.getElementById('page-data').textContent);
const charts = showCharts(data.charts);
const shown = [...document.querySelectorAll('.view')].map((place) => {
  const { view, ...content } = data.views[place.id];
  return views[view](place, content);
});
showContents();

const all = (use) => {
  charts.each(use);
  shown.forEach(use);
};
let waiting = 0;
window.addEventListener('resize', () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => all((one) => one.resize()), 100);
});
window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => all((one) => one.draw()));

window.somePage = { drawAll: charts.drawAll, charts: data.charts, views: shown }; // for the tests
