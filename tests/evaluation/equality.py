"""When two data sets hold the same."""

from __future__ import annotations

import numpy as np

from stepvad.evaluation.datasets import Dataset


def assert_same_data(one: Dataset, other: Dataset) -> None:
    """Same clips in the same order, same labels and classes, same smoothing."""
    assert [c.digest() for c in one.train_clips()] == [c.digest() for c in other.train_clips()]
    assert (one.person_sigma, one.frame_sigma, one.smoothing, one.left_out) == (
        other.person_sigma, other.frame_sigma, other.smoothing, other.left_out
    )  # fmt: skip
    assert [*one.labels] == [*other.labels]
    for (clip, labels), (same, truth) in zip(one.test_clips(), other.test_clips(), strict=True):
        assert clip.digest() == same.digest()
        assert clip.n_frames == same.n_frames
        np.testing.assert_array_equal(labels.abnormal, truth.abnormal)
        np.testing.assert_array_equal(labels.counted, truth.counted)
        assert labels.classes.keys() == truth.classes.keys()
        for name, frames in labels.classes.items():
            np.testing.assert_array_equal(frames, truth.classes[name])
