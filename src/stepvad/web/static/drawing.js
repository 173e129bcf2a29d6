// Drawing people and zones on a canvas; shared by the wall and the replays.
const BLACK = "#000000";

// The scale and the left and upper edge of a picture that fits into a canvas.
export const fit = (canvas, [wide, high]) => {
  const scale = Math.min(canvas.width / wide, canvas.height / high);
  return { scale, left: (canvas.width - scale * wide) / 2, top: (canvas.height - scale * high) / 2 };
};

export const clear = (pen) => {
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.fillStyle = BLACK;
  pen.fillRect(0, 0, pen.canvas.width, pen.canvas.height);
};

export const drawZones = (pen, zones, { scale, left, top }, [wide, high]) => {
  const ratio = devicePixelRatio || 1;
  pen.lineWidth = ratio;
  pen.font = `${11 * ratio}px system-ui, sans-serif`;
  const at = ([x, y]) => [left + x * wide * scale, top + y * high * scale];
  for (const [name, corners] of Object.entries(zones)) {
    pen.beginPath();
    for (const corner of corners) pen.lineTo(...at(corner));
    pen.closePath();
    pen.fillStyle = "rgb(86 180 233 / 0.07)";
    pen.fill();
    pen.strokeStyle = "rgb(86 180 233 / 0.35)";
    pen.stroke();
    const [x, y] = at(corners.reduce((a, b) => (a[0] + a[1] < b[0] + b[1] ? a : b)));
    pen.fillStyle = "rgb(160 205 236 / 0.75)";
    pen.fillText(name, x + 5 * ratio, y + 14 * ratio);
  }
};

// A skeleton; what it gives back are the places of the joints that were seen.
export const drawSkeleton = (pen, xy, bones, { scale, left, top }, colour, wide) => {
  const ratio = devicePixelRatio || 1;
  const at = (n) => (xy[2 * n] === null ? null : [left + scale * xy[2 * n], top + scale * xy[2 * n + 1]]);
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = wide * ratio;
  pen.lineCap = pen.lineJoin = "round";
  pen.beginPath();
  for (const [first, ...others] of bones) {
    const ends = [first, ...others].map(at);
    if (ends.some((end) => end === null)) continue;
    const [from, ...to] = ends;
    pen.moveTo(...from);
    pen.lineTo(...[0, 1].map((k) => to.reduce((sum, end) => sum + end[k], 0) / to.length));
  }
  pen.stroke();
  const seen = xy.map((_, n) => (n % 2 ? null : at(n / 2))).filter((place) => place !== null);
  if (!bones.length) for (const [x, y] of seen) pen.fillRect(x - ratio, y - ratio, 2 * ratio, 2 * ratio);
  return seen;
};
