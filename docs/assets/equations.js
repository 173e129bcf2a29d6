// Equations of a page, set by KaTeX from the TeX that arithmatex leaves in the page.
for (const place of document.querySelectorAll(".arithmatex")) {
  const tex = place.textContent.trim().slice(2, -2); // without \( \) or \[ \]
  katex.render(tex, place, { displayMode: place.tagName === "DIV", throwOnError: false });
}
