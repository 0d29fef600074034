#pragma once

#include "attention/kernel_loader.hpp"
#include "backlight/tuning.hpp"
#include "tuning/tunings.hpp"

namespace backlight::tuning {

/// The configuration of a plan whose maker names none; told to the log.
TileConfig choose_config(const AttentionProblem& problem, attention::KernelLoader& loader,
                         Tunings& tunings);

/// `Runtime::tune`: searches, and adds what it finds to the database.
TuneReport tune(const AttentionProblem& problem, const TuneOptions& options,
                attention::KernelLoader& loader, Tunings& tunings);

}  // namespace backlight::tuning
