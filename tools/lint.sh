#!/usr/bin/env bash
# Checks formatting (clang-format) and runs clang-tidy over the project's C++ sources, with the
# compile commands of build/release (made by tests/run.sh or `cmake --preset release`). Arguments, if
# any, are the sources for clang-tidy to check; all of them otherwise.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
for program in clang-format clang-tidy; do
    command -v $program > /dev/null || {
        echo "lint: $program is missing (Debian package $program)" >&2
        exit 1
    }
done
if [ ! -f build/release/compile_commands.json ]; then
    echo "lint: build/release/compile_commands.json is missing: run cmake --preset release" >&2
    exit 1
fi

folders=(cache runtime tools tests python)
# Kernel sources are CUDA, but formatted alike.
find "${folders[@]}" kernel_sources -type f -regex '.*\.\(hpp\|cpp\|h\|cu\|cuh\)' -print0 |
    xargs -0 clang-format --dry-run -Werror

if [ $# -gt 0 ]; then
    sources=("$@")
else
    # Only what the build compiles: clang-tidy guesses at the options of other files.
    sources=()
    while IFS= read -r -d '' source; do
        if grep -qF "$PWD/$source\"" build/release/compile_commands.json; then
            sources+=("$source")
        fi
    done < <(find "${folders[@]}" -type f -name '*.cpp' -print0)
fi
printf '%s\0' "${sources[@]}" |
    xargs -0 -n 1 -P "$(nproc)" clang-tidy -p build/release --quiet --warnings-as-errors='*'
