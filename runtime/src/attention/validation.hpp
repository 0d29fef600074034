#pragma once

#include <cstddef>

#include "backlight/problem.hpp"
#include "backlight/tensors.hpp"
#include "backlight/tile_config.hpp"
#include "device/target.hpp"

namespace backlight::attention {

/// The rules of AttentionProblem itself, whatever kernels there are: throws `invalid_argument` for
/// one that makes no sense, and `unsupported` for head dimensions beyond those of the interface.
void validate(const AttentionProblem& problem);

/// Whether the configuration's kernels take a valid problem on the target. Throws `unsupported` for
/// what its family does not take (family_support.hpp), `invalid_argument` where the configuration
/// breaks a rule of its own or does not fit the problem, and `shared_memory_exceeded` where it does
/// not fit the target. For a problem without scores only the configuration's ranges count.
void validate(const TileConfig& config, const AttentionProblem& problem,
              const device::Target& target);

/// The rules of `BackwardTensors`; throws `invalid_argument`. Allocates nothing unless it throws.
void validate(const BackwardTensors& tensors, const AttentionProblem& problem);

/// The rules of `BackwardPlan::run` for a workspace, if one is needed: given, aligned, large enough
/// (else `workspace_too_small`), and no tensor starts in it.
void validate_workspace(const BackwardTensors& tensors, const void* workspace,
                        std::size_t given_bytes, std::size_t needed_bytes,
                        const AttentionProblem& problem);

}  // namespace backlight::attention
