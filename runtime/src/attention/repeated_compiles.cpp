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
    const std::string family =
        fmt::format("head_dim={} causal={} dtype={} {}", problem.head_dim, problem.causal,
                    to_string(problem.dtype), to_string(plan.config()));
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
