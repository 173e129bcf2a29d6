"""Score one tracked person with an exported model; needs numpy and onnxruntime, not stepvad.

    stepvad export model.safetensors -o model.onnx
    python examples/score_onnx.py model.onnx track.npz

track.npz: `keypoints (n, V, 2)` in pixels and `confidence (n, V)`, of n consecutive frames.
"""

import json
import os
import sys

import numpy as np

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read when it is imported
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
about = json.loads(session.get_modelmeta().custom_metadata_map["stepvad"])
track = np.load(sys.argv[2])
keypoints, confidence = track["keypoints"], track["confidence"]
if keypoints.shape[1] != len(about["joints"]):
    sys.exit(f"expected the joints {', '.join(about['joints'])}")

# every T frames in a row are a window: (n - T + 1, V, 2, T) to x (N, 2, V, T)
windows = np.lib.stride_tricks.sliding_window_view(keypoints, about["T"], axis=0)
x = windows.transpose(0, 2, 1, 3).astype(np.float32)
each = np.clip(np.nan_to_num(confidence), 0, 1).mean(axis=1)
c = np.lib.stride_tricks.sliding_window_view(each, about["T"]).mean(axis=1).astype(np.float32)

inputs = {"x": x, "c": c}
names = [value.name for value in session.get_inputs()]  # without c if the model ignores confidence
(A,) = session.run(["A"], {name: inputs[name] for name in names})
for frame, score in enumerate(A, start=about["T"] - 1):
    print(f"{frame},{score:.6g}")
