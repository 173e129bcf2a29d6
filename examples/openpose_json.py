"""Tracked poses from what OpenPose wrote with --write_json: a folder, one file for each frame.

    python openpose_json.py lobby_json/ poses/lobby.json 25

The last word is the frame rate. OpenPose does not track people, so they are tracked here.
"""

import json
import sys
from pathlib import Path

import numpy as np

from stepvad import DataError, write_clip
from stepvad.video import Boxes, People, track_people

COCO17 = {
    25: [0, 16, 15, 18, 17, 5, 2, 6, 3, 7, 4, 12, 9, 13, 10, 14, 11],  # of BODY_25
    18: [0, 15, 14, 17, 16, 5, 2, 6, 3, 7, 4, 11, 8, 12, 9, 13, 10],  # of OpenPose's COCO
}


def people_of(file: Path) -> People:
    """The people of a frame; a box is around the joints that were found."""
    people = json.loads(file.read_text("utf-8"))["people"]
    joints = [np.reshape(person["pose_keypoints_2d"], (-1, 3)) for person in people]
    if odd := next((len(some) for some in joints if len(some) not in COCO17), None):
        raise DataError(f"{file}: expected 25 or 18 joints, got {odd}", hint="use BODY_25 or COCO")
    joints = [some[COCO17[len(some)]] for some in joints]
    seen = [some for some in joints if (some[:, 2] > 0).any()]
    found = [some[some[:, 2] > 0, :2] for some in seen]
    corners = [np.concatenate([xy.min(axis=0), xy.max(axis=0) + 1]) for xy in found]
    stack = np.reshape(seen, (-1, 17, 3))
    boxes = Boxes(np.reshape(corners, (-1, 4)), stack[..., 2].mean(axis=1))
    return People(boxes, stack[..., :2], np.clip(stack[..., 2], 0, 1))


if __name__ == "__main__":
    folder, out, fps = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    files = sorted(folder.glob("*_keypoints.json"))  # OpenPose pads the numbers with zeros
    write_clip(track_people(map(people_of, files), folder.name, fps=fps), out)
