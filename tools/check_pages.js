// What a reader of this page would trip over, a sentence each: run in the page by check_pages.py.
(() => {
  const found = [];
  const width = document.documentElement.clientWidth;
  const name = (e) => e.tagName.toLowerCase() + (e.id ? `#${e.id}` : "") + (e.classList.length ? `.${e.classList[0]}` : "");

  // Parts that stick out, but for those within a box that scrolls.
  const boxed = (e) => {
    for (let p = e; p && p !== document.body; p = p.parentElement) {
      const style = getComputedStyle(p);
      if (style.overflowX !== "visible" || style.position === "fixed") return true;
    }
    return false;
  };
  if (document.documentElement.scrollWidth > width) found.push(`the page is ${document.documentElement.scrollWidth} wide`);
  for (const e of document.querySelectorAll("body *")) {
    const { right, width: wide } = e.getBoundingClientRect();
    if (wide && right > width + 1 && !boxed(e)) {
      found.push(`${name(e)} ends at ${Math.round(right)}`);
      break;
    }
  }

  // Text and what is behind it: the ratio of WCAG 2, which asks for 3 of large letters.
  const numbers = (colour) => (colour.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const style = getComputedStyle(e);
      const colour = numbers(style.backgroundColor);
      if (style.backgroundImage !== "none") return null; // a picture: not judged
      if (colour.length < 4 || colour[3] > 0.9) return colour;
    }
    return [255, 255, 255];
  };
  const contrast = (one, two) => {
    const [a, b] = [luminance(one), luminance(two)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
  const pale = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const e = text.parentElement;
    const { width: wide, height: high } = e.getBoundingClientRect();
    const visible = e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && wide > 1 && high > 1;
    if (!text.data.trim() || !visible || e.closest("svg, script, style, noscript")) continue;
    const [colour, back] = [numbers(getComputedStyle(e).color), behind(e)];
    const ratio = back && !(colour[3] < 0.1) ? contrast(colour, back) : 21;
    if (ratio < 3) pale.add(`pale, ${ratio.toFixed(1)}: ${name(e)} ${text.data.trim().slice(0, 30)}`);
  }
  found.push(...[...pale].slice(0, 3));

  for (const image of document.images) {
    if (image.checkVisibility() && image.complete && !image.naturalWidth) found.push(`no picture: ${image.src}`);
  }
  return found;
})();
