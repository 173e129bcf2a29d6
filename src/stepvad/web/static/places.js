// Drawings of the places that cameras see, each loaded once and again when it changes.
const FAINT = 0.34;
const loaded = new Map();

const load = ({ name, place }) => {
  const image = new Image();
  image.src = `/api/cameras/${encodeURIComponent(name)}/place?version=${place}`;
  const one = { version: place, image, ready: image.decode().then(() => true, () => false) };
  loaded.set(name, one);
  return one;
};

const drawingOf = (camera) => {
  const one = loaded.get(camera.name);
  return one?.version === camera.place ? one : load(camera);
};

// Draws the place of a camera faintly where its picture would be; false if there is nothing to draw yet.
export const drawPlace = (pen, camera, { scale, left, top }, [wide, high]) => {
  if (!camera?.place) return false;
  const { image } = drawingOf(camera);
  if (!image.complete || !image.naturalWidth) return false;
  pen.globalAlpha = FAINT;
  pen.drawImage(image, left, top, scale * wide, scale * high);
  pen.globalAlpha = 1;
  return true;
};

// Resolves once the drawing of a camera is there; to false if it has none.
export const placeReady = async (camera) => Boolean(camera?.place) && drawingOf(camera).ready;
