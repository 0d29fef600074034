"""Builds the wheel as `pip install .` does, installs it into an empty environment and runs the command. Takes
minutes, and a network.

    python wheel_check.py [WHEEL]       with a wheel, builds none
"""

import os
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = (r"backlight/_backlight\..*so", r"backlight/__init__\.pyi", r"backlight/_backlight\.pyi", r"backlight/py\.typed")


def run(*command, **options):
    print("+", *command, flush=True)
    return subprocess.run([str(part) for part in command], check=True, text=True, **options)


def check(condition, text):
    if not condition:
        sys.exit(f"wheel_check: {text}")


def foreign_libraries(folder):
    """What the wheel's programs need that no Linux with a C++ compiler is sure to have."""
    usual = ("linux-vdso", "libstdc++", "libgcc_s", "libm.", "libc.", "libdl.", "libpthread", "librt.", "ld-linux", "/ld-")
    found = []
    for path in folder.rglob("*"):
        if path.suffix == ".so" or path.parent.name == "bin":
            needed = run("objdump", "-p", path, stdout=subprocess.PIPE).stdout
            found += [x for x in re.findall(r"NEEDED\s+(\S+)", needed) if not x.startswith(usual)]
    return found


def main():
    with tempfile.TemporaryDirectory() as folder:
        wheels = [Path(x) for x in sys.argv[1:]]
        if not wheels:
            run(sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "-w", folder)
            wheels = list(Path(folder).glob("backlight-*.whl"))
        with zipfile.ZipFile(wheels[0]) as archive:
            names = archive.namelist()
            for pattern in FILES:
                check(any(re.fullmatch(pattern, name) for name in names), f"{wheels[0].name} has no {pattern}")
            archive.extractall(Path(folder, "content"))
        foreign = foreign_libraries(Path(folder, "content"))
        check(not foreign, f"the wheel needs {foreign}")
        # Of the module's symbols a process may see its entry alone: PyTorch has an fmt of its own.
        (module,) = Path(folder, "content", "backlight").glob("_backlight.*so")
        told = run("nm", "-D", "--defined-only", "-C", module, stdout=subprocess.PIPE).stdout
        strong = [line.split(None, 2)[2] for line in told.splitlines() if line.split()[1] == "T"]
        check(strong == ["PyInit__backlight"], f"the module exports {strong}")
        venv.create(Path(folder, "venv"), with_pip=True)
        python = Path(folder, "venv", "bin", "python")
        run(python, "-m", "pip", "install", "-q", "--no-deps", wheels[0])
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "BACKLIGHT"))}
        run(python, "-c", "import backlight; print(backlight.__version__)", cwd=folder, env=environment)
        if any(name == "backlight/bin/backlight" for name in names):
            run(python, "-m", "backlight", "--version", cwd=folder, env=environment)
            run(Path(folder, "venv", "bin", "backlight"), "--version", cwd=folder, env=environment)
            run(python, "-m", "backlight.bench_peers", "--dry-run", "--cells", "1_2_128_64_causal", "--device", "emulated",
                cwd=folder, env=environment)  # fmt: skip
    print("wheel_check: good")


if __name__ == "__main__":
    main()
