"""The torch device that is asked for, or one sentence why it cannot be had."""

from __future__ import annotations

from collections.abc import Callable

import torch

from stepvad.errors import ConfigError


def torch_device(name: str) -> torch.device:
    """The device of this name, checked: torch can compute on it here."""
    try:
        device = torch.device(name)
        usable = bool(torch.ones(1, device=device).sum().item() == 1)
    except (RuntimeError, AssertionError, NotImplementedError):  # torch raises one or another
        usable = False
    if not usable:
        there = ", ".join(["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))])
        raise ConfigError(
            f"device: expected one that torch can compute on here ({there}), got {name!r}",
            hint="install a torch build and a driver for that device, or use the device cpu",
        )
    return device


def has_bfloat16(device: torch.device) -> bool:
    """Whether torch multiplies bfloat16 faster than float32 on a device."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    known: Callable[[], dict[str, bool]] = getattr(torch.cpu, "get_capabilities", dict)
    return device.type == "cpu" and known().get("amx_bf16", False)
