#!/usr/bin/env bash
# From a fresh checkout to the main job: installs what is missing, builds the command `backlight`, and
# checks and times the attention backward on the GPU. Without a GPU it compiles every kernel for two
# of them, prints what the compiler reports, and executes the same kernels on the CPU.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
environment=$(tools/dependencies.sh)
eval "$environment"

cmake --preset release > /dev/null
cmake --build --preset release --target backlight_command
backlight=build/release/bin/backlight

has_gpu() {
    # The device files first: nvidia-smi is not in every container.
    compgen -G '/dev/nvidia[0-9]*' > /dev/null ||
        { command -v nvidia-smi > /dev/null && nvidia-smi --list-gpus 2> /dev/null | grep '^GPU' > /dev/null; }
}

if has_gpu; then
    echo
    echo "Comparing every kernel with the reference:"
    "$backlight" verify
    echo
    echo "Timing the whole backward:"
    "$backlight" bench --shape 8_16_4096_128 --direction backward --causal
else
    "$backlight" inspect --target sm_90a --target sm_120a --head-dim 128 --causal
    echo
    echo "Executing every kernel on the CPU, on the emulated device, and comparing with the reference:"
    "$backlight" verify --device emulated --quick
    echo
    echo "This machine has no NVIDIA GPU. Shown: the kernels compile for both cards, and the whole backward"
    echo "gives the reference's gradients at small shapes, under adversarial schedules. Not shown: a GPU"
    echo "executing them, large shapes, and how fast they are."
fi
