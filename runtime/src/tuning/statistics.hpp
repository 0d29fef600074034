#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "backlight/tile_config.hpp"

namespace backlight::tuning {

/// Of at least one value; the mean of the middle two where their number is even.
double median(std::vector<double> values);

// Between runs of an otherwise idle GPU medians differ by about half a percent whatever the samples
// say; and samples that scatter by more than a few percent are no licence to call everything equal.
inline constexpr double least_noise = 0.005;
inline constexpr double most_noise = 0.03;

/// How far apart two medians may be and mean the same: the distance between the quartiles over the
/// median, but not below `least_noise` nor above `most_noise`. With fewer than four samples, which
/// have no quartiles to speak of, `most_noise`.
double noise(const std::vector<double>& samples);

/// A configuration with its time, in any unit that all contenders share.
struct Contender {
    TileConfig config;
    double time = 0;
    double noise = least_noise;
};

/// The challenger is faster than the other by more than the noise of either.
bool beats(const Contender& challenger, const Contender& other) noexcept;

/// The index of the winner; nothing where there are none. All that the fastest does not beat are
/// tied: among them the incumbent wins if it is one, else the first by `comes_before`.
std::optional<std::size_t> select(const std::vector<Contender>& contenders,
                                  const TileConfig& incumbent);

}  // namespace backlight::tuning
