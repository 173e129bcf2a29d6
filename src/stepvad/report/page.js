document.documentElement.classList.add("js");
document.querySelectorAll(".motion").forEach((box) => {
  Player.play(box, JSON.parse(box.querySelector("script").textContent));
});
