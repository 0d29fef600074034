"""Where NVRTC is: in NVIDIA's Python wheels, which PyTorch brings along, unless the environment says."""

import importlib.util
import os
import re
from pathlib import Path

from . import _backlight

# Below the wheels' common folder `nvidia`, as of CUDA 13 and of CUDA 12.
_FOLDERS = ("cu*/lib", "cuda_nvrtc/lib")
_NAME = re.compile(r"libnvrtc\.so\.(\d+)(?:\.\d+)*$")


def find_nvrtc(roots=None):
    """The newest libnvrtc of the installed wheels, or None."""
    if roots is None:
        spec = importlib.util.find_spec("nvidia")
        roots = list(spec.submodule_search_locations or []) if spec else []
    found = []
    for root in roots:
        for folder in _FOLDERS:
            for path in Path(root).glob(f"{folder}/libnvrtc.so.*"):
                match = _NAME.match(path.name)
                if match:
                    found.append((int(match[1]), str(path)))
    return max(found)[1] if found else None


def tell_library():
    """Called before the first device is opened. The library itself heeds BACKLIGHT_NVRTC_PATH."""
    if not os.environ.get("BACKLIGHT_NVRTC_PATH"):
        path = find_nvrtc()
        if path:
            _backlight.use_nvrtc(path)


tell_library()
