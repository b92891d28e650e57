// Keeps the state of the view in the address after the #, so that a link shows the same view.
const usual = {
  view: 'compare',
  runs: '',
  x: 'step',
  smooth: '0',
  logx: '',
  logy: '',
  calm: '', // y axes without outliers
  band: '',
  from: '',
  to: '',
  run: '',
  layer: '0',
  step: '',
  other: '',
  sort: '',
  group: '',
  result: 'loss',
  setting: '',
  metrics: '',
  sample: '', // the step whose texts are shown; empty: the last one
  over: '', // the run whose texts are shown over time
};

export class Place {
  constructor(changed) {
    this.read();
    window.addEventListener('hashchange', () => {
      if (!window.location.hash.includes('=') && window.location.hash.length > 1) return; // a section of the page
      this.read();
      changed();
    });
  }

  read() {
    const words = new URLSearchParams(window.location.hash.slice(1));
    this.now = {};
    for (const [key, value] of Object.entries(usual)) this.now[key] = words.get(key) ?? value;
  }

  get(key) {
    return this.now[key];
  }

  set(changes) {
    Object.assign(this.now, changes);
    const words = new URLSearchParams();
    for (const [key, value] of Object.entries(this.now)) if (value !== usual[key]) words.set(key, value);
    const text = words.toString();
    window.history.replaceState(null, '', text ? `#${text}` : window.location.pathname + window.location.search);
  }
}
