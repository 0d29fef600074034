"""Attention whose backward is Backlight's.

    import backlight

    out = backlight.attention(q, k, v, causal=True)     # PyTorch: forward PyTorch's, backward ours
    with backlight.patch_sdpa():                        # routes F.scaled_dot_product_attention
        ...
    d_q, d_k, d_v = backlight.backward(q, k, v, o, lse, d_o, causal=True)   # any framework with DLPack

PyTorch is imported when something that needs it is first used.
"""

import importlib

from . import _backlight
from .errors import ArgumentError, ArgumentTypeError, DeviceError, Error, UnsupportedError

__version__ = _backlight.version

_HOMES = {
    "attention": "_attention",
    "attention_varlen": "_attention",
    "patch_sdpa": "_sdpa",
    "backward": "_arrays",
}

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "DeviceError",
    "Error",
    "UnsupportedError",
    "__version__",
    *_HOMES,
]


def __getattr__(name):
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'backlight' has no attribute '{name}'")
    found = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = found
    return found


def __dir__():
    return sorted(__all__)
