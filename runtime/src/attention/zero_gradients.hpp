#pragma once

#include "backlight/problem.hpp"
#include "backlight/tensors.hpp"
#include "device/device.hpp"

namespace backlight::attention {

/// Enqueues zeros for dQ, dK and dV, the gradients of a problem without scores, and nothing for a
/// tensor that has no elements. The tensors are valid. Fills rather than a kernel: nothing has to
/// be compiled, and they can be captured as well.
void zero_gradients(device::Device& device, const BackwardTensors& tensors,
                    const AttentionProblem& problem, Stream stream);

}  // namespace backlight::attention
