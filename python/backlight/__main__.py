"""`python -m backlight` is the command `backlight`."""

import os
import sys
from pathlib import Path

from ._nvrtc import find_nvrtc


def main():
    package = Path(__file__).parent
    # The latter beside a build folder's own package.
    commands = [package / "bin" / "backlight", package / "../../../bin/backlight"]
    command = next((path for path in commands if path.is_file()), None)
    if command is None:
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
