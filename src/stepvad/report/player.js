"use strict";
// Plays the motion around a peak: the observed skeleton, hot joints, the nearest normal motion.
const Player = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const LARGEST_DOT = 0.055; // radius, in widths of the view
  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  const shape = (name, kind, parent) => {
    const made = document.createElementNS(SVG, name);
    if (kind) made.setAttribute("class", kind);
    parent.append(made);
    return made;
  };

  // Bones as one line with many begins. A bone of three joints ends amid the last two.
  const outline = (joints, bones) => {
    const at = (n) => [joints[2 * n], joints[2 * n + 1]];
    if (!bones.length) {
      let dots = "";
      for (let n = 0; n < joints.length; n += 2) dots += `M${joints[n]} ${joints[n + 1]}h1`;
      return dots;
    }
    return bones.map(([a, ...ends]) => {
      const [x, y] = at(a);
      const places = ends.map(at);
      const [u, v] = [0, 1].map((k) => places.reduce((sum, p) => sum + p[k], 0) / places.length);
      return `M${x} ${y}L${u} ${v}`;
    }).join("");
  };

  const clock = (seconds) => {
    const tenths = Math.round(10 * seconds);
    const minutes = Math.floor(tenths / 600);
    const rest = ((tenths % 600) / 10).toFixed(1).padStart(4, "0");
    if (minutes < 60) return `${minutes}:${rest}`;
    return `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest}`;
  };

  // Fills a box; what it gives back stops the motion for good. One that is `driven` has no time
  // of its own: it shows the frame that `show` of what it gives back is called with.
  const play = (box, data, { driven = false } = {}) => {
    box.append(document.getElementById("player").content.cloneNode(true));
    const part = (kind) => box.querySelector(`.${kind}`);
    const stage = part("stage");
    const [button, seek, time] = [part("play"), part("seek"), part("clock")];
    const beside = part("beside"); // where there is room for two views
    const n = data.observed.length;
    const wide = data.size;
    stage.setAttribute("aria-label", box.dataset.label);

    // lines fixed in the picture of the camera, by which one sees the person move
    const far = 40 * wide;
    const [x0, y0] = data.camera[0];
    let lines = "";
    for (let x = x0 - far; x <= x0 + far; x += wide / 4) lines += `M${x} ${y0 - far}v${2 * far}`;
    shape("path", "grid", stage).setAttribute("d", lines);
    const ghost = shape("path", "ghost", stage);
    const body = shape("path", "bone", stage);
    const dots = data.heat[0].map(() => shape("circle", "heat", stage));

    let frame = data.peak;
    let running = false;
    let once = false;
    let owed = 0;
    let before = 0;

    const draw = () => {
      const joints = data.observed[frame];
      const [x, y] = data.camera[frame];
      const views = beside && beside.checked ? 2 : 1;
      stage.setAttribute("viewBox", `${x - wide / 2} ${y - wide / 2} ${views * wide} ${wide}`);
      if (beside) stage.style.aspectRatio = views;
      ghost.setAttribute("transform", `translate(${(views - 1) * wide})`);
      body.setAttribute("d", outline(joints, data.bones));
      ghost.setAttribute("d", outline(data.ghost[frame], data.bones));
      dots.forEach((dot, v) => {
        dot.setAttribute("cx", joints[2 * v]);
        dot.setAttribute("cy", joints[2 * v + 1]);
        dot.setAttribute("r", LARGEST_DOT * wide * Math.sqrt(data.heat[frame][v] / 100));
      });
      seek.value = frame;
      const now = clock((data.first + frame) / data.fps);
      seek.setAttribute("aria-valuetext", now);
      time.textContent = now;
      box.dataset.frame = frame;
    };
    const step = (now) => {
      if (!running) return;
      // `now` may lie before the start; a page that was held up goes on where it was
      const passed = Math.min(Math.max(now - before, 0), 100);
      owed += passed / 1000 * data.fps * (part("slow").checked ? 0.5 : 1);
      before = now;
      const steps = Math.floor(owed);
      if (steps) {
        owed -= steps;
        if (once && frame + steps >= n) {
          frame = data.peak;
          stop();
        } else {
          frame = (frame + steps) % n;
        }
        draw();
      }
      requestAnimationFrame(step);
    };
    const start = (one) => {
      running = true;
      once = one;
      owed = 0;
      before = performance.now();
      button.textContent = "Pause";
      requestAnimationFrame(step);
    };
    const stop = () => {
      running = false;
      button.textContent = "Play";
    };

    seek.max = n - 1;
    button.addEventListener("click", () => (running ? stop() : start(false)));
    seek.addEventListener("input", () => {
      stop();
      frame = Number(seek.value);
      draw();
    });
    if (beside) beside.addEventListener("change", () => draw());
    part("with-ghost").addEventListener("change", (change) => {
      box.classList.toggle("no-ghost", !change.target.checked);
    });
    draw();
    if (driven) {
      box.classList.add("driven");
      const leave = () => stop();
      leave.show = (n) => {
        frame = Math.min(Math.max(n, 0), data.observed.length - 1);
        draw();
      };
      return leave;
    }

    // once through when it is first seen, unless less motion is wanted
    const watch = new IntersectionObserver((seen) => {
      if (!seen.some((one) => one.isIntersecting)) return;
      watch.disconnect();
      if (calm.matches || running) return;
      frame = 0;
      draw();
      start(true);
    }, { threshold: 0.8 });
    watch.observe(stage);
    return () => {
      watch.disconnect();
      stop();
    };
  };

  return { play };
})();
