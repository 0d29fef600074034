#!/usr/bin/env bash
# Installs what is missing, builds, and runs all tests. Arguments go to ctest:
#
#   tests/run.sh                       every test; those that need a GPU are skipped without one
#   tests/run.sh --label-exclude long  without the long sweeps
#   tests/run.sh -R cache              tests by name
#
# With CI set in the environment, a compiler warning fails the build.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
environment=$(tools/dependencies.sh --python)
eval "$environment"

warnings_as_errors=OFF
if [ -n "${CI:-}" ]; then
    warnings_as_errors=ON
fi
cmake --preset release -DBACKLIGHT_WARNINGS_AS_ERRORS=$warnings_as_errors -DBACKLIGHT_BUILD_PYTHON=ON \
    -DPython_EXECUTABLE="$(python3 -c 'import sys; print(sys.executable)')"
cmake --build --preset release
ctest --preset release --parallel "$(nproc)" --output-on-failure "$@"
