#!/usr/bin/env bash
# Installs what building and running Backlight needs and this machine lacks, and prints, as lines for
# `eval`, where cuda.h, nvrtc.h and libnvrtc are:
#
#   environment=$(tools/dependencies.sh) && eval "$environment"
#
# Says nothing else, and calls no package manager, where nothing is missing.
#
# --wheels              takes NVRTC and the headers from the Python wheels even where there is a
#                       toolkit; they are unpacked into .deps/ of the project
# --python              also what the Python package is built with: Python's headers, and nanobind, which
#                       is unpacked into .deps/
# BACKLIGHT_CUDA_HOME   the only toolkit to consider
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
wheels_dir=$root/.deps/cuda
# The oldest CUDA whose NVRTC compiles for compute capability 12.0.
oldest_cuda_version=12080
wheels=('nvidia-cuda-nvrtc==13.0.*' 'nvidia-cuda-runtime==13.0.*')

say() { echo "dependencies: $*" >&2; }
fail() {
    say "$*"
    exit 1
}

force_wheels=false
with_python=false
for argument in "$@"; do
    case "$argument" in
        --wheels) force_wheels=true ;;
        --python) with_python=true ;;
        *) fail "usage: tools/dependencies.sh [--wheels] [--python]" ;;
    esac
done

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo > /dev/null; then
        sudo "$@"
    else
        fail "must be root, or have sudo, to run: $*"
    fi
}

apt_updated=false
install_packages() {
    command -v apt-get > /dev/null ||
        fail "missing, and there is no apt-get to install them with (names of Debian 12): $*"
    say "installing $*"
    # Standard output is for `eval`.
    if ! $apt_updated; then
        as_root apt-get update -qq >&2
        apt_updated=true
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

missing_programs() {
    command -v g++ > /dev/null || command -v "${CXX:-c++}" > /dev/null || echo g++
    command -v cmake > /dev/null || echo cmake
    command -v ninja > /dev/null || echo ninja-build
    command -v git > /dev/null || echo git
}

# The Debian packages of the headers that the compiler does not find.
missing_headers() {
    local prefix
    local -a prefixes include_options=()
    IFS=':;' read -ra prefixes <<< "${CMAKE_PREFIX_PATH:-}"
    for prefix in "${prefixes[@]}"; do
        include_options+=("-I$prefix/include")
    done
    "${CXX:-c++}" -std=c++20 -E -P "${include_options[@]}" -x c++ - << 'END'
#if !__has_include(<spdlog/spdlog.h>)
libspdlog-dev
#endif
#if !__has_include(<fmt/format.h>)
libfmt-dev
#endif
#if !__has_include(<xxhash.h>)
libxxhash-dev
#endif
#if !__has_include(<doctest/doctest.h>)
doctest-dev
#endif
#if !__has_include(<CLI/CLI.hpp>)
libcli11-dev
#endif
#if !__has_include(<nlohmann/json.hpp>)
nlohmann-json3-dev
#endif
#if !__has_include(<boost/context/fiber.hpp>)
libboost-context-dev
#endif
END
}

# first_match NAME DIRECTORY...: the first file of that name pattern in the first directory with one.
first_match() {
    local name=$1 directory file
    shift
    for directory in "$@"; do
        for file in "$directory"/$name; do
            if [ -e "$file" ]; then
                echo "$file"
                return 0
            fi
        done
    done
    return 1
}

# Sets cuda_header, nvrtc_header and nvrtc_library to those under a directory, if all are there and
# not too old.
find_cuda_under() {
    local base=$1 version
    cuda_header=$(first_match cuda.h "$base/include" "$base"/targets/*/include) &&
        nvrtc_header=$(first_match nvrtc.h "$base/include" "$base"/targets/*/include) &&
        nvrtc_library=$(first_match 'libnvrtc.so.*' "$base/lib64" "$base/lib" "$base"/targets/*/lib) ||
        return 1
    version=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$cuda_header")
    [ "${version:-0}" -ge $oldest_cuda_version ]
}

toolkit_candidates() {
    if [ -n "${BACKLIGHT_CUDA_HOME:-}" ]; then
        echo "$BACKLIGHT_CUDA_HOME"
        return
    fi
    local nvcc candidate
    for candidate in "${CUDA_HOME:-}" "${CUDA_PATH:-}"; do
        [ -z "$candidate" ] || echo "$candidate"
    done
    if nvcc=$(command -v nvcc); then
        dirname "$(dirname "$(readlink -f "$nvcc")")"
    fi
    echo /usr/local/cuda
    echo /opt/cuda
    # The newest first.
    printf '%s\n' /usr/local/cuda-* | sort -rV
}

find_toolkit() {
    local candidate
    while IFS= read -r candidate; do
        if find_cuda_under "$candidate"; then
            return 0
        fi
    done < <(toolkit_candidates)
    return 1
}

# unpack_wheels DIRECTORY WHEEL...
unpack_wheels() {
    local directory=$1 python=python3
    shift
    if ! $python -m pip --version > /dev/null 2>&1; then
        install_packages python3 python3-pip
        # Another python3, one without pip, may come first on the PATH.
        python=/usr/bin/python3
    fi
    say "unpacking $* into $directory"
    # Into a folder beside it first: an interrupted download must not look complete.
    rm -rf "$directory" "$directory.partial"
    mkdir -p "$root/.deps"
    PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore $python -m pip install --quiet \
        --no-deps --target "$directory.partial" "$@" >&2
    mv "$directory.partial" "$directory"
}

has_python_headers() {
    python3 -c 'import os, sysconfig
raise SystemExit(not os.path.isfile(os.path.join(sysconfig.get_path("include"), "Python.h")))' 2> /dev/null
}

prepare_python() {
    has_python_headers || install_packages python3 python3-dev
    python3 -m nanobind --cmake_dir > /dev/null 2>&1 || [ -d "$root/.deps/python/nanobind" ] ||
        unpack_wheels "$root/.deps/python" 'nanobind>=2.9,<4'
}

print_environment() {
    local include_dirs
    include_dirs=$(dirname "$cuda_header")
    if [ "$(dirname "$nvrtc_header")" != "$include_dirs" ]; then
        include_dirs+=";$(dirname "$nvrtc_header")"
    fi
    printf 'export BACKLIGHT_CUDA_INCLUDE_DIR=%q\n' "$include_dirs"
    printf 'export BACKLIGHT_NVRTC_PATH=%q\n' "$nvrtc_library"
}

mapfile -t missing < <(missing_programs)
if [ ${#missing[@]} -gt 0 ]; then
    install_packages "${missing[@]}"
fi
headers=$(missing_headers)
mapfile -t missing < <(grep -v '^$' <<< "$headers" || true)
if [ ${#missing[@]} -gt 0 ]; then
    install_packages "${missing[@]}"
fi

if $with_python; then
    prepare_python
fi

cuda_header=''
nvrtc_header=''
nvrtc_library=''
wheels_root() { first_match 'cu*' "$wheels_dir/nvidia"; }
if $force_wheels || ! find_toolkit; then
    if ! { found=$(wheels_root) && find_cuda_under "$found"; }; then
        unpack_wheels "$wheels_dir" "${wheels[@]}"
        if ! { found=$(wheels_root) && find_cuda_under "$found"; }; then
            fail "the wheels ${wheels[*]} lack cuda.h, nvrtc.h or libnvrtc; looked in $wheels_dir"
        fi
    fi
fi
print_environment
