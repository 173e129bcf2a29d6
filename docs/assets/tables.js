// Cells of tables: a name too long for a column may break, and a text that would run down a narrow one gets room.
addEventListener("load", () => {
  const [longest, densest] = matchMedia("(max-width: 44em)").matches ? [24, 0.8] : [40, 1.2]; // characters, and per pixel
  for (const code of document.querySelectorAll("td code")) code.classList.toggle("long", code.textContent.length > longest);
  for (const cell of document.querySelectorAll("td")) cell.classList.toggle("squeezed", cell.textContent.length > densest * cell.clientWidth);
});
