#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backlight/tuning.hpp"
#include "tuning/record.hpp"

namespace backlight::tuning {

/// What a search asks of a device. Only `compile` is called from other threads than the search's.
class Trials {
  public:
    virtual ~Trials() = default;

    /// Of the main kernel; needs no compilation.
    virtual std::string kernel_digest(const TileConfig& config) = 0;
    /// Throws `compile_failed`.
    virtual KernelResources compile(const TileConfig& config) = 0;
    /// Milliseconds of one whole backward with nothing in the L2 cache; `rested`: after a pause, so
    /// that heat of the work before does not lower the clock.
    virtual double time(const TileConfig& config, bool rested) = 0;
    /// What is wrong with the gradients; empty if nothing is.
    virtual std::string check(const TileConfig& config) = 0;
    /// The configuration is not asked for again.
    virtual void release(const TileConfig& config) = 0;
    /// Since any moment.
    virtual double seconds() const = 0;
};

struct SearchRequest {
    AttentionProblem problem;
    /// In the order of their trying, all legal. Those in `compared` are tried first, whatever the
    /// budget says, and timed in full.
    std::vector<TileConfig> candidates;
    std::vector<TileConfig> compared;
    /// Timed in each run, so that figures of different runs can be compared; one of `compared`.
    std::optional<TileConfig> baseline;
    /// Try other launches of the fastest two tiles as well.
    bool with_variants = false;
    /// What the database holds of the card and the problem's bucket.
    std::vector<Record> known;
};

// The thresholds of a search; docs/tuning.md gives their reasons.
inline constexpr int spilled_bytes_limit = 64;
inline constexpr double slow_ratio = 1.25;
inline constexpr double finalist_ratio = 1.05;
inline constexpr std::size_t most_finalists = 6;
inline constexpr int screening_samples = 3;
inline constexpr int least_repeats = 5;

/// Throws `invalid_argument` for options out of range, `unsupported` for a family that there is
/// not.
void check_options(const TuneOptions& options);

/// Compiles, discards, screens, checks and times. Throws what `trials` throws for one of `compared`
/// and what `check_options` throws; everything else becomes an outcome.
std::vector<TuneCandidate> search(const SearchRequest& request, const TuneOptions& options,
                                  Trials& trials);

}  // namespace backlight::tuning
