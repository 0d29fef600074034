#pragma once

#include <vector>

#include "attention/kernel_loader.hpp"
#include "backlight/tuning.hpp"
#include "tuning/tunings.hpp"

namespace backlight::tuning {

/// The configuration of a plan whose maker names none; told to the log.
TileConfig choose_config(const AttentionProblem& problem, attention::KernelLoader& loader,
                         Tunings& tunings);

/// What serves where the kernels of that one cannot be had: the best of those that are in memory or
/// in the cache, then the heuristic's.
std::vector<TileConfig> other_configs(const AttentionProblem& problem,
                                      attention::KernelLoader& loader, Tunings& tunings);

/// `Runtime::tune`: searches, and adds what it finds to the database.
TuneReport tune(const AttentionProblem& problem, const TuneOptions& options,
                attention::KernelLoader& loader, Tunings& tunings);

}  // namespace backlight::tuning
