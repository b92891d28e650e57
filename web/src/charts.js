// Draws the figures of a page: each when it is near the window, all before printing, and again when colors or width
// change.
import { Chart } from './chart/chart.js';

export function showCharts(specs) {
  const drawn = new Map();
  const draw = (figure) => {
    const spec = specs[figure.id];
    if (!spec || drawn.has(figure)) return;
    drawn.set(figure, new Chart(figure.querySelector('.plot'), spec, figure.querySelector('figcaption').textContent));
  };
  const figures = [...document.querySelectorAll('figure.chart')];
  const near = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
    },
    { rootMargin: '600px' },
  );
  for (const figure of figures) near.observe(figure);
  const drawAll = () => figures.forEach(draw);
  window.addEventListener('beforeprint', () => {
    for (const fold of document.querySelectorAll('details')) fold.open = true;
    drawAll();
  });
  return { drawAll, each: (use) => [...drawn.values()].forEach(use) };
}
