#pragma once

#include <functional>
#include <optional>
#include <span>

#include "backlight/problem.hpp"
#include "backlight/tile_config.hpp"
#include "device/device.hpp"
#include "tuning/database.hpp"

namespace backlight::tuning {

/// Where the configuration of a plan comes from, where its maker names none.
enum class ChoiceSource { tuned, shipped, heuristic };

const char* to_string(ChoiceSource source) noexcept;

struct Choice {
    TileConfig config;
    ChoiceSource source = ChoiceSource::heuristic;
    /// The records are of other kernels than this build has.
    bool stale = false;
    /// Of the records' bucket from the problem's.
    int distance = 0;
};

/// Records that came from one place.
struct DatabaseLayer {
    const Database* database;
    ChoiceSource source;
};

/// The record's kernel digest is that of the kernel as this build compiles it.
using IsFresh = std::function<bool(const Record&)>;

/// Its kernels can be had.
using IsUsable = std::function<bool(const TileConfig&)>;

/// What a plan uses. Checked records of the card whose configuration is legal here: the nearest
/// bucket, of these the fresh, of these the first layer; `select` among what is left. Where there
/// are none, the heuristic. Records that are not usable do not count; without `is_usable` all are.
///
/// A bucket of a layer counts only if a search that made one of its records had the heuristic's
/// family of kernels to compare with: the best of what was there before a faster family says
/// nothing about that. Unless the heuristic's kernels are not usable.
Choice choose(const AttentionProblem& problem, const device::DeviceProperties& device,
              std::span<const DatabaseLayer> layers, const IsFresh& is_fresh,
              const IsUsable& is_usable = {});

/// What is best on a card of that target as far as can be told without a measurement on the card.
/// Legal for the problem wherever the rules for its lengths allow anything at all.
TileConfig heuristic(const AttentionProblem& problem, const device::Target& target);

}  // namespace backlight::tuning
