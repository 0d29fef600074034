#pragma once

#include <filesystem>
#include <vector>

#include "arguments.hpp"
#include "backlight/problem.hpp"
#include "compiler/kernel_store.hpp"
#include "device/target.hpp"
#include "tuning/tunings.hpp"

namespace backlight::tool {

/// The configurations that plans use where their makers name none, on all cards of a target, none
/// of which need be there: what is measured of some kinds of cards, and the heuristic for the
/// others.
class ConfigurationChoice {
  public:
    /// `database` is the user's file of tuned records; empty: only what is shipped. The store tells
    /// which records are of the kernels at hand.
    ConfigurationChoice(const std::filesystem::path& database, compiler::KernelStore& store)
        : tunings_(database), store_(store) {}

    /// Each once, the heuristic's first. Of a problem without lengths, those of the usual lengths
    /// and of others that are multiples of 64, as far as they serve every length.
    std::vector<NamedConfig> configs_for(const AttentionProblem& problem,
                                         const device::Target& target);

  private:
    void add_configs(const AttentionProblem& problem, const device::Target& target,
                     std::vector<TileConfig>& configs);

    tuning::Tunings tunings_;
    compiler::KernelStore& store_;
};

}  // namespace backlight::tool
