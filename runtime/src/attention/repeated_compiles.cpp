#include "attention/repeated_compiles.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "logging.hpp"

namespace backlight::attention {

void RepeatedCompiles::note(const BackwardPlan& plan) {
    if (plan.config().sequence_lengths != SequenceLengths::compile_time ||
        std::ranges::all_of(plan.resources(), &KernelResources::cached)) {
        return;
    }
    const AttentionProblem& problem = plan.problem();
    std::string family = fmt::format("head_dim={} causal={} dtype={}", problem.head_dim,
                                     problem.causal, to_string(problem.dtype));
    if (problem.effective_head_dim_v() != problem.head_dim) {
        family += fmt::format(" head_dim_v={}", problem.effective_head_dim_v());
    }
    if (problem.window_left || problem.window_right) {
        family += fmt::format(" ({})", mask_text(problem));
    }
    if (problem.gradient_type != GradientType::input) {
        family += fmt::format(" gradient_type={}", to_string(problem.gradient_type));
    }
    if (problem.accumulate_gradients) {
        family += " accumulate_gradients";
    }
    family += fmt::format("{} {}", problem.deterministic ? " deterministic" : "",
                          to_string(plan.config()));
    int compiles = 0;
    {
        const std::lock_guard lock(mutex_);
        compiles = ++compiles_[family];
    }
    if (compiles == tolerated + 1) {
        logger().warn(
            "problems of {} have been compiled for {} times, once a sequence length: with "
            "sequence_lengths = run_time one kernel serves all lengths",
            family, compiles);
    }
}

}  // namespace backlight::attention
