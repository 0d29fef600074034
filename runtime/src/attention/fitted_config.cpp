#include "attention/fitted_config.hpp"

#include "attention/tiles.hpp"

namespace backlight::attention {

TileConfig fitted_config(const TileConfig& config, const AttentionProblem& problem,
                         const device::Target& target) noexcept {
    const TileConfig& narrow = kernel_preset("v4");
    if (config.family != KernelFamily::mma_resident || !has_wide_heads(problem) ||
        config.warps != narrow.warps || config.stages != narrow.stages) {
        return config;
    }
    TileConfig fitted = config;
    fitted.warps = wide_warps;
    if (shared_memory_bytes(fitted, problem) > target.shared_bytes_per_block) {
        fitted.stages = 1;
    }
    return fitted;
}

}  // namespace backlight::attention
