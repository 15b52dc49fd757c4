// What tests look at in a page, besides what it says.
window.checks = {
  // As a reader would choose or type it.
  set(id, value, event) {
    const node = document.getElementById(id);
    node.value = value;
    node.dispatchEvent(new Event(event));
  },

  bars() {
    return [...document.querySelectorAll("#chart [role=option]")];
  },

  // What has the focus, and whether that can be seen.
  focus() {
    const node = document.activeElement;
    const style = getComputedStyle(node);
    const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    return [node.id || node.className || node.tagName, seen];
  },

  doubledIds() {
    const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
    return ids.filter((id, i) => ids.indexOf(id) !== i);
  },

  // No heading is more than one level below the one before it.
  headingsInOrder() {
    const levels = [...document.querySelectorAll("h1, h2, h3, h4")].map((node) => Number(node.tagName[1]));
    return levels.every((level, i) => i === 0 || level <= levels[i - 1] + 1);
  },

  readOutByThemselves() {
    return [...document.querySelectorAll("[aria-live], [role=status], [role=alert]")].map((node) => node.id);
  },

  innerHtmlIs() {
    try {
      document.querySelector("main").innerHTML = "<b>x</b>";
      return "allowed";
    } catch (error) {
      return error.name;
    }
  },

  // Texts with less than 4.5 : 1 against their ground (WCAG 2.2, 1.4.3).
  poorContrast() {
    const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => {
      paint.clearRect(0, 0, 1, 1);
      paint.fillStyle = colour;
      paint.fillRect(0, 0, 1, 1);
      return [...paint.getImageData(0, 0, 1, 1).data];
    };
    const level = (colour) => {
      const [r, g, b] = rgba(colour).map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (node) => {
      for (let at = node; at; at = at.parentElement) {
        const colour = getComputedStyle(at).backgroundColor;
        if (rgba(colour)[3] === 255) return colour;
      }
      return "white";
    };
    const apart = "svg, select, .hidden, .skip, noscript, button:disabled";
    const poor = [];
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const [node, text] = [walk.currentNode.parentElement, walk.currentNode.data.trim()];
      if (!text || !node.checkVisibility() || node.closest(apart)) continue;
      const [light, dark] = [level(getComputedStyle(node).color), level(ground(node))].sort((a, b) => b - a);
      const ratio = (light + 0.05) / (dark + 0.05);
      if (ratio < 4.5) poor.push(`${ratio.toFixed(2)}: ${text.slice(0, 40)}`);
    }
    return poor;
  },
};
