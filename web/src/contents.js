// The table of contents: folded on a narrow screen; highlights the section being read.
export function showContents() {
  const nav = document.querySelector('nav');
  if (!nav) return;
  const fold = nav.querySelector('details');
  const narrow = window.matchMedia('(max-width: 60rem)');
  const fit = () => {
    fold.open = !narrow.matches;
  };
  fit();
  narrow.addEventListener('change', fit);
  const links = new Map([...nav.querySelectorAll('a')].map((link) => [link.getAttribute('href').slice(1), link]));
  const current = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        for (const link of links.values()) link.removeAttribute('aria-current');
        const link = links.get(entry.target.id);
        link.setAttribute('aria-current', 'true');
        const hidden = link.offsetTop < nav.scrollTop || link.offsetTop > nav.scrollTop + nav.clientHeight - 40;
        if (hidden) nav.scrollTop = link.offsetTop - 80;
      }
    },
    { rootMargin: '0px 0px -75% 0px' },
  );
  for (const id of links.keys()) current.observe(document.getElementById(id));
  nav.addEventListener('click', (event) => {
    if (narrow.matches && event.target.closest('a')) fold.open = false;
  });
}
