"""Publish the poses that another program finds, for a camera of a site at `nats:NAME`.

    python publish_poses.py nats://user:password@broker:4222 SITE NAME RATE WIDTH HEIGHT < poses

It reads one JSON document a line: a frame of DeepStream's message converter (its `nv.Frame`, with
keypoints in each object's `pose`), or a frame of AlphaPose's results (a list of people). A line is
a frame also if nobody is in it. Only COCO's 17 joints are used.

The device must be a user that may publish `poses.SITE.*`; it needs `stepvad[fleet]`.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import nats
import numpy as np
from nats.errors import Error

from stepvad.errors import DataError
from stepvad.fleet.poses import encode
from stepvad.poses import Pose
from stepvad.skeletons import COCO17

RETRY_S = 0.2


def from_deepstream(frame: dict[str, Any]) -> list[Pose]:
    """The people of an `nv.Frame`: joints by name, x and y first, the confidence last."""
    people = []
    for item in frame.get("objects", []):
        joints = np.zeros((17, 3), np.float32)  # x, y and confidence; 0 where none was found
        for point in item.get("pose", {}).get("keypoints", []):
            name = point["name"].replace("-", "_").replace(" ", "_")
            if name in COCO17.joints:
                x, y, *rest = point["coordinates"]
                sure = point.get("confidence", rest[-1] if rest else 1.0)
                joints[COCO17.joints.index(name)] = x, y, min(max(sure, 0.0), 1.0)
        if joints[:, 2].any():
            people.append(Pose(int(item["id"]), joints[:, :2], joints[:, 2]))
    return people


def from_alphapose(results: list[dict[str, Any]]) -> list[Pose]:
    """The people of a frame of AlphaPose with tracking: 17 or more joints, COCO's in front."""
    people = []
    for one in results:
        joints = np.array(one["keypoints"], np.float32).reshape(-1, 3)[:17]
        track = one["idx"] if "idx" in one else one["track_id"]
        people.append(Pose(int(track), joints[:, :2], joints[:, 2].clip(0.0, 1.0)))
    return people


def from_line(line: str) -> list[Pose]:
    """The people of a frame, in whichever of the two forms it has."""
    document = json.loads(line)
    return from_alphapose(document) if isinstance(document, list) else from_deepstream(document)


async def publish(
    address: str, site: str, name: str, rate: float, size: tuple[int, int], lines: Iterator[str]
) -> int:
    """Publish a frame for each line, the next once a broker has the last; the number of them."""
    client = await nats.connect(address, max_reconnect_attempts=-1)
    stream, epoch = client.jetstream(timeout=2.0), int(time.time() * 1000)
    frame, sent = -1, 0
    while (line := await asyncio.to_thread(next, lines, None)) is not None:
        frame += 1
        try:
            poses = from_line(line)
            data = encode(poses, epoch=epoch, frame=frame, rate=rate, size=size)
        except (DataError, ValueError, LookupError, TypeError) as error:
            print(f"frame {frame} is left out: {error}", file=sys.stderr)
            continue
        while True:  # a site skips a frame that comes twice
            try:
                await stream.publish(f"poses.{site}.{name}", data)
                break
            except (Error, TimeoutError):
                await asyncio.sleep(RETRY_S)
        sent += 1
    await client.close()
    return sent


if __name__ == "__main__":
    to, at, camera, rate, width, height = sys.argv[1:]
    asyncio.run(publish(to, at, camera, float(rate), (int(width), int(height)), sys.stdin))
