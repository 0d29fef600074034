"""`python -m backlight` is the command `backlight`."""

import os
import sys
from pathlib import Path

from ._nvrtc import find_nvrtc


def main():
    command = Path(__file__).with_name("bin") / "backlight"
    if not command.is_file():
        sys.exit(
            "backlight: this package was built without the command, for want of Boost.Context "
            "(Debian: libboost-context-dev): install it and the package again"
        )
    environment = dict(os.environ)
    path = find_nvrtc()
    if path:
        environment.setdefault("BACKLIGHT_NVRTC_PATH", path)
    environment.setdefault("BACKLIGHT_PYTHON", sys.executable)
    os.execve(command, [str(command), *sys.argv[1:]], environment)


if __name__ == "__main__":
    main()
