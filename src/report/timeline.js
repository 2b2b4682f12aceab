// What a page does beyond what it shows: hints without delay, and zoom into timelines.
(() => {
  'use strict';
  const hint = document.createElement('div');
  hint.className = 'hint';
  hint.hidden = true;
  hint.setAttribute('role', 'status');
  document.body.append(hint);

  // Titles are shown by the page itself, so the browser's slow ones go.
  const titles = new Map();
  for (const title of document.querySelectorAll('svg title')) {
    titles.set(title.parentElement, title.textContent);
    title.remove();
  }
  const titled = (node) => {
    while (node && node !== document && !titles.has(node)) node = node.parentNode;
    return node && titles.get(node);
  };
  document.addEventListener('pointermove', (event) => {
    const text = titled(event.target);
    hint.hidden = !text;
    if (!text) return;
    hint.textContent = text;
    const box = hint.getBoundingClientRect();
    const x = Math.min(event.clientX + 14, innerWidth - box.width - 6);
    const y = event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18;
    hint.style.transform = `translate(${Math.max(4, x)}px, ${y}px)`;
    hint.style.left = hint.style.top = 0;
  });
  document.addEventListener('pointerleave', () => { hint.hidden = true; });

  const section = document.getElementById('timeline');
  if (!section) return;
  const plots = [...section.querySelectorAll('svg[data-span-ns]')];
  const span = Number(plots[0].dataset.spanNs);
  const width = 10000;
  let from = 0;
  let to = 1;

  const units = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];
  const ticks = () => {
    const rough = (to - from) * span / 8;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((value) => value >= rough * 0.999);
    const [scale, unit] = units.find(([value]) => value <= step * 10) || units[3];
    const digits = Math.max(0, Math.ceil(-Math.log10(step / scale) - 1e-9) + (step / power === 2.5 ? 1 : 0));
    const all = [];
    for (let at = Math.ceil(from * span / step) * step; at <= to * span * 1.000001; at += step) {
      all.push([(at / span - from) / (to - from), `${(at / scale).toFixed(Math.min(digits, 9))} ${unit}`]);
    }
    return all;
  };
  const element = (name, attributes, text) => {
    const made = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    return made;
  };
  const draw = () => {
    for (const plot of plots) {
      const lanes = plot.querySelector('.lanes');
      const height = lanes.viewBox.baseVal.height;
      lanes.setAttribute('viewBox', `${from * width} 0 ${(to - from) * width} ${height}`);
      const axis = plot.querySelector('.time-axis');
      axis.replaceChildren();
      for (const [i, [share, text]] of ticks().entries()) {
        const x = `${share * 100}%`;
        axis.append(element('line', {class: 'grid', x1: x, x2: x, y1: -4, y2: '100%'}));
        axis.append(element('text', {class: i % 2 ? 'tick middle odd' : 'tick middle', x, y: -8}, text));
      }
    }
  };
  const zoom = (begin, end) => {
    const least = Math.min(1, 20 / span);
    const length = Math.min(1, Math.max(least, end - begin));
    from = Math.min(Math.max(0, begin), 1 - length);
    to = from + length;
    draw();
  };
  const scale = (factor) => {
    const middle = (from + to) / 2;
    const half = (to - from) / 2 * factor;
    zoom(middle - half, middle + half);
  };
  const shift = (share) => {
    const by = Math.min(Math.max((to - from) * share, -from), 1 - to);
    zoom(from + by, to + by);
  };

  const tools = document.createElement('div');
  tools.className = 'tools';
  for (const [name, label, act] of [['+', 'Zoom in', () => scale(0.5)], ['−', 'Zoom out', () => scale(2)],
    ['←', 'Earlier', () => shift(-0.4)], ['→', 'Later', () => shift(0.4)], ['all', 'Whole step', () => zoom(0, 1)]]) {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = name;
    button.title = label;
    button.setAttribute('aria-label', label);
    button.addEventListener('click', act);
    tools.append(button);
  }
  tools.append('or drag over a part; double-click shows all');
  section.querySelector('figure').before(tools);

  for (const plot of plots) {
    const lanes = plot.querySelector('.lanes');
    const share = (event) => {
      const box = plot.getBoundingClientRect();
      return from + (to - from) * Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    };
    let begin = null;
    let mark = null;
    lanes.addEventListener('pointerdown', (event) => {
      if (event.button !== 0 || event.pointerType === 'touch') return;
      begin = share(event);
      mark = element('rect', {class: 'drag', y: 0, height: lanes.viewBox.baseVal.height});
      lanes.append(mark);
      lanes.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    lanes.addEventListener('pointermove', (event) => {
      if (begin === null) return;
      const end = share(event);
      mark.setAttribute('x', Math.min(begin, end) * width);
      mark.setAttribute('width', Math.abs(end - begin) * width);
    });
    lanes.addEventListener('pointerup', (event) => {
      if (begin === null) return;
      const end = share(event);
      const [low, high] = [Math.min(begin, end), Math.max(begin, end)];
      begin = null;
      mark.remove();
      if (high - low > (to - from) * 0.005) zoom(low, high);
    });
    lanes.addEventListener('dblclick', () => zoom(0, 1));
  }
})();
