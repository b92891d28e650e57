// The page's script: draws each chart when it comes near the window, all of them before printing, and again when the
// colours or the width change.
import { drawChart } from './charts.js';

const specs = new Map(JSON.parse(document.getElementById('report-data').textContent).charts.map((spec) => [spec.id, spec]));
const drawn = new Map();

function draw(figure) {
  const spec = specs.get(figure.dataset.chart);
  if (!spec || drawn.has(figure)) return;
  drawn.set(figure, drawChart(figure.querySelector('.plot'), spec));
  figure.dataset.drawn = 'yes';
}

function drawAll() {
  for (const figure of document.querySelectorAll('figure.chart')) draw(figure);
}

function redraw() {
  for (const [figure, chart] of [...drawn]) {
    chart.dispose();
    drawn.delete(figure);
    draw(figure);
  }
}

const near = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
  },
  { rootMargin: '600px' },
);
for (const figure of document.querySelectorAll('figure.chart')) near.observe(figure);

let waiting = 0;
window.addEventListener('resize', () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    for (const chart of drawn.values()) chart.resize();
  }, 100);
});
window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
window.addEventListener('beforeprint', () => {
  for (const fold of document.querySelectorAll('details')) fold.open = true;
  drawAll();
});

// The part of the contents that is on the screen.
const links = new Map([...document.querySelectorAll('nav a')].map((link) => [link.getAttribute('href').slice(1), link]));
const current = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute('aria-current');
      const link = links.get(entry.target.id);
      link.setAttribute('aria-current', 'true');
      const nav = link.closest('nav');
      if (link.offsetTop < nav.scrollTop || link.offsetTop > nav.scrollTop + nav.clientHeight - 40) nav.scrollTop = link.offsetTop - 80;
    }
  },
  { rootMargin: '0px 0px -75% 0px' },
);
for (const id of links.keys()) current.observe(document.getElementById(id));

window.someReport = { drawAll, charts: specs };
