// What the page changes before it is saved: a draft of the file's values, and the edits that lead to it.
const KEYS = ["name", "url", "credentials", "rate", "threshold", "hours", "went_down", "loop", "record"];

const same = (a, b) => JSON.stringify(a ?? null) === JSON.stringify(b ?? null);

const cameraOf = (values) => ({
  was: values.name,
  keys: Object.fromEntries(KEYS.map((key) => [key, values[key] ?? null])),
  zones: Object.entries(values.zones).map(([name, corners]) => ({
    was: name,
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

const zoneEdits = (camera, before) => {
  const edits = [];
  const known = (name) => camera.zones.find((zone) => zone.was === name);
  for (const name of Object.keys(before.zones)) {
    if (!known(name)) edits.push({ edit: "delete zone", camera: camera.was, zone: name });
  }
  for (const zone of camera.zones) {
    if (zone.was !== null && zone.was !== zone.name) {
      edits.push({ edit: "rename zone", camera: camera.was, zone: zone.was, to: zone.name });
    }
    const old = zone.was === null ? null : { corners: before.zones[zone.was], hours: before.zone_hours[zone.was] ?? null };
    if (old && same(old.corners, zone.corners) && same(old.hours, zone.hours)) continue;
    edits.push({ edit: "set zone", camera: camera.was, zone: zone.name, corners: zone.corners, hours: zone.hours });
  }
  return edits;
};

const addition = (camera) => {
  const given = Object.entries(camera.keys).filter(([, value]) => value !== null && value !== false);
  const hours = camera.zones.filter((zone) => zone.hours !== null);
  return {
    edit: "add camera",
    keys: Object.fromEntries(given),
    zones: Object.fromEntries(camera.zones.map((zone) => [zone.name, zone.corners])),
    zone_hours: Object.fromEntries(hours.map((zone) => [zone.name, zone.hours])),
  };
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
      edits.push(...zoneEdits(camera, before));
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
