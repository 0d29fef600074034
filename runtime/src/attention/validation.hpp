#pragma once

#include <cstddef>

#include "backlight/problem.hpp"
#include "backlight/tensors.hpp"
#include "backlight/tile_config.hpp"
#include "device/target.hpp"

namespace backlight::attention {

/// Throws `invalid_argument` for a problem that makes no sense and `unsupported` for one that no
/// kernel of this build takes.
void validate(const AttentionProblem& problem);

/// Throws `invalid_argument` where the configuration breaks a rule of its own or does not fit the
/// problem, and `shared_memory_exceeded` where it does not fit the target.
void validate(const TileConfig& config, const AttentionProblem& problem,
              const device::Target& target);

/// The rules of `BackwardTensors`; throws `invalid_argument`. Allocates nothing unless it throws.
void validate(const BackwardTensors& tensors, const AttentionProblem& problem);

/// The rules of `BackwardPlan::run` for a workspace: given, aligned, large enough (else
/// `workspace_too_small`), and no tensor starts in it.
void validate_workspace(const BackwardTensors& tensors, const void* workspace,
                        std::size_t given_bytes, std::size_t needed_bytes,
                        const AttentionProblem& problem);

}  // namespace backlight::attention
