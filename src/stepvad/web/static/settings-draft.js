// What the page changes before it is saved: a draft of the file's values, and the edits that lead to it.
const KEYS = ["name", "url", "credentials", "rate", "threshold", "hours", "went_down", "loop", "record"];

const same = (a, b) => JSON.stringify(a ?? null) === JSON.stringify(b ?? null);

const cameraOf = (values) => ({
  was: values.name,
  keys: Object.fromEntries(KEYS.map((key) => [key, values[key] ?? null])),
  zones: Object.entries(values.zones).map(([name, corners]) => ({
    name,
    corners: corners.map((corner) => [...corner]),
    hours: values.zone_hours[name] ?? null,
  })),
  tried: null,
});

export const newCamera = () => ({
  was: null,
  keys: Object.fromEntries(KEYS.map((key) => [key, null])),
  zones: [],
  tried: null,
});

// A false that the file does not say is no change.
const changedKeys = (before, now) => {
  const changed = {};
  for (const key of KEYS) {
    const old = before[key] ?? null;
    const value = now[key] ?? null;
    if (same(old, value) || (old === null && value === false)) continue;
    changed[key] = value;
  }
  return changed;
};

const zonesOf = (camera) => ({
  zones: Object.fromEntries(camera.zones.map((zone) => [zone.name, zone.corners])),
  zone_hours: Object.fromEntries(camera.zones.filter((zone) => zone.hours !== null).map((zone) => [zone.name, zone.hours])),
});

const addition = (camera) => {
  const given = Object.entries(camera.keys).filter(([, value]) => value !== null && value !== false);
  return { edit: "add camera", keys: Object.fromEntries(given), ...zonesOf(camera) };
};

export class Draft {
  constructor(values) {
    this.values = values;
    this.cameras = values.cameras.map(cameraOf);
    this.sections = { retention: { ...values.retention }, pose: { ...values.pose } };
  }

  // Additions come first, so that a site always has a camera.
  edits() {
    const edits = this.cameras.filter((camera) => camera.was === null).map(addition);
    for (const before of this.values.cameras) {
      const camera = this.cameras.find((one) => one.was === before.name);
      if (!camera) {
        edits.push({ edit: "remove camera", camera: before.name });
        continue;
      }
      const zones = zonesOf(camera);
      if (!same(zones, zonesOf(cameraOf(before)))) edits.push({ edit: "set zones", camera: before.name, ...zones });
      const keys = changedKeys(before, camera.keys);
      if (Object.keys(keys).length) edits.push({ edit: "change camera", camera: before.name, keys });
    }
    for (const [section, values] of Object.entries(this.sections)) {
      const keys = Object.fromEntries(
        Object.entries(values).filter(([key, value]) => !same(value, this.values[section][key])),
      );
      if (Object.keys(keys).length) edits.push({ edit: "change section", section, keys });
    }
    return edits;
  }
}
