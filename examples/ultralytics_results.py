"""Tracked poses from results of ultralytics that you have, as plain arrays.

ultralytics is under the AGPL: nothing here imports it. Save the arrays where you run it,

    for number, r in enumerate(model.track("lobby.mp4", stream=True)):
        ids = r.boxes.id  # None where nobody is tracked
        np.savez(f"frames/{number:06}", boxes=r.boxes.xyxy.cpu(), joints=r.keypoints.data.cpu(),
                 **({} if ids is None else {"ids": ids.cpu()}))

then: python ultralytics_results.py frames/ poses/lobby.json 25
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from stepvad import Clip, write_clip
from stepvad.poses import tracks_of
from stepvad.video import Boxes, People, track_people


def people_of(boxes: Any, joints: Any) -> People:
    """People from `.boxes.xyxy` `(N, 4)` and `.keypoints.data` `(N, 17, 3)` of a frame."""
    corners, joints = np.reshape(boxes, (-1, 4)), np.reshape(joints, (-1, 17, 3))
    return People(Boxes(corners, np.ones(len(corners))), joints[..., :2], joints[..., 2])


def clip_of(frames: list[dict[str, Any]], name: str, fps: float) -> Clip:
    """A clip from the arrays of each frame; people are tracked here if no frame has ids."""
    people = [people_of(frame["boxes"], frame["joints"]) for frame in frames]
    if not any("ids" in frame for frame in frames):
        return track_people(people, name, fps=fps)
    rows = [
        (int(track), number, some.keypoints[row], some.confidence[row])
        for number, (frame, some) in enumerate(zip(frames, people, strict=True))
        for row, track in enumerate(frame.get("ids", ()))
    ]
    tracks = tracks_of(*(np.array(column) for column in zip(*rows, strict=True)))
    return Clip(name, fps, len(frames), tracks)


if __name__ == "__main__":
    folder, out, fps = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    frames = [dict(np.load(file)) for file in sorted(folder.glob("*.npz"))]
    write_clip(clip_of(frames, folder.name, fps), out)
