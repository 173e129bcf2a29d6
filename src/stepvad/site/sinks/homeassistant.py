"""Home Assistant discovery messages, which make every camera appear as a device."""

from __future__ import annotations

import json
from importlib.metadata import version


def topics(prefix: str, discovery: str, site: str, camera: str) -> dict[str, str]:
    """The retained messages that announce one camera, by topic."""
    state = f"{prefix}/{camera}"
    node = f"stepvad_{site}_{camera}"
    device = {
        "identifiers": [node],
        "name": f"{site} {camera}",
        "manufacturer": "stepvad",
        "model": "camera",
        "sw_version": version("stepvad"),
    }
    site_is_up = {"topic": f"{prefix}/available"}
    camera_is_up = {
        "topic": f"{state}/status",
        "value_template": "{{ 'online' if value == 'online' else 'offline' }}",
    }
    anomaly = {
        "name": "Anomaly",
        "unique_id": f"{node}_anomaly",
        "device_class": "problem",
        "state_topic": f"{state}/anomaly",
        "payload_on": "ON",
        "payload_off": "OFF",
        "availability": [site_is_up, camera_is_up],
        "availability_mode": "all",
        "device": device,
    }
    connected = {
        "name": "Connection",
        "unique_id": f"{node}_status",
        "device_class": "connectivity",
        "entity_category": "diagnostic",
        "state_topic": f"{state}/status",
        "value_template": "{{ 'ON' if value == 'online' else 'OFF' }}",
        "availability": [site_is_up],
        "device": device,
    }
    overloaded = {
        "name": "Overloaded",
        "unique_id": f"{node}_load",
        "device_class": "problem",
        "entity_category": "diagnostic",
        "state_topic": f"{state}/load",
        "value_template": "{{ 'OFF' if value == 'ok' else 'ON' }}",
        "availability": [site_is_up, camera_is_up],
        "availability_mode": "all",
        "device": device,
    }
    return {
        f"{discovery}/binary_sensor/{node}/anomaly/config": json.dumps(anomaly),
        f"{discovery}/binary_sensor/{node}/status/config": json.dumps(connected),
        f"{discovery}/binary_sensor/{node}/load/config": json.dumps(overloaded),
    }
