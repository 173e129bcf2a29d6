"""Score tracked people with an exported model; needs numpy and onnxruntime, not stepvad.

    stepvad export model.safetensors -o model.onnx
    python examples/score_onnx.py model.onnx lobby.parquet

Poses are what `stepvad extract` writes (needs pyarrow, too), or one person's track.npz: `keypoints
(n, V, 2)` in pixels and `confidence (n, V)`, of n consecutive frames. COCO's 17 joints become the
model's 18. The library also places joints that were not found; this example does not.
"""

import json
import os
import sys

import numpy as np

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read when it is imported
import onnxruntime

FROM_COCO = [0, 0, 6, 8, 10, 5, 7, 9, 12, 14, 16, 11, 13, 15, 2, 1, 4, 3]  # 1, the neck, is below
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
about = json.loads(session.get_modelmeta().custom_metadata_map["stepvad"])
T, joints = about["T"], about["joints"]

if sys.argv[2].endswith(".npz"):
    track = np.load(sys.argv[2])
    tracks = [("", 0, track["keypoints"], track["confidence"])]
else:
    from pyarrow import parquet

    rows = parquet.read_table(sys.argv[2]).sort_by([("clip", "ascending"), ("track", "ascending")])
    x, y, sure = (np.array(rows[name].to_pylist()) for name in ("x", "y", "confidence"))
    clip, number, frame = (np.array(rows[name].to_pylist()) for name in ("clip", "track", "frame"))
    begins = (clip[1:] != clip[:-1]) | (number[1:] != number[:-1]) | (frame[1:] != frame[:-1] + 1)
    runs = np.split(np.arange(len(frame)), np.flatnonzero(begins) + 1)
    places = np.stack([x, y], axis=-1)
    tracks = [(f"{clip[r[0]]},{number[r[0]]},", frame[r[0]], places[r], sure[r]) for r in runs]

for name, first, keypoints, confidence in tracks:
    if keypoints.shape[1] == 17 and len(joints) == 18:
        necks = keypoints[:, 5:7].mean(axis=1), confidence[:, 5:7].mean(axis=1)  # mid-shoulder
        keypoints, confidence = keypoints[:, FROM_COCO], confidence[:, FROM_COCO]
        keypoints[:, 1], confidence[:, 1] = necks
    if keypoints.shape[1] != len(joints):
        sys.exit(f"expected the joints {', '.join(joints)}")
    if len(keypoints) < T:
        continue
    # every T frames in a row are a window: (n - T + 1, V, 2, T) to x (N, 2, V, T)
    windows = np.lib.stride_tricks.sliding_window_view(keypoints, T, axis=0)
    each = np.clip(np.nan_to_num(confidence), 0, 1).mean(axis=1)
    c = np.lib.stride_tricks.sliding_window_view(each, T).mean(axis=1)
    inputs = {"x": windows.transpose(0, 2, 1, 3), "c": c}
    names = [value.name for value in session.get_inputs()]  # no c if confidence is ignored
    (A,) = session.run(["A"], {key: inputs[key].astype(np.float32) for key in names})
    for last, score in enumerate(A, start=first + T - 1):
        print(f"{name}{last},{score:.6g}")
