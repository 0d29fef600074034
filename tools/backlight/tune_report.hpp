#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "backlight/tuning.hpp"

namespace backlight::tool {

// What a tuning found, and what follows from it: pure functions, no GPU.

/// The preset's name or that of the tiles, and what is unusual about the launch: "v3",
/// "tile_64_64_8_2 constant lengths".
std::string candidate_name(const TuneCandidate& candidate);

/// The candidate that won; null where it was not among those of this run.
const TuneCandidate* winner_of(const TuneReport& report);

/// What plans use from now on was found to be wrong: it is a record of before, or what is chosen
/// without one.
bool winner_is_wrong(const TuneReport& report);

/// How many times as fast as the preset: 1.1 is ten percent faster. By times to the baseline where
/// both have one, since those of different runs may not be compared otherwise; nothing where one
/// was not timed in full.
std::optional<double> speed_against(const TuneCandidate& candidate, const TuneReport& report,
                                    std::string_view preset);

/// The presets that are faster than the winner by more than the noise: none, if all is well.
std::vector<std::string> presets_that_beat_the_winner(const TuneReport& report);

/// Where the times come from: those of the emulated device rank nothing and let nobody win.
enum class TimesOf { gpu, emulated_device };

/// The candidates timed in full, the fastest first, the fastest of the others up to ten, and how
/// many there were of each outcome. Of the emulated device the candidates as they were tried.
std::string format_tune(const TuneReport& report, TimesOf times = TimesOf::gpu);

/// Without a winner, and what follows from it, of the emulated device.
nlohmann::ordered_json to_json(const TuneReport& report, TimesOf times = TimesOf::gpu);

}  // namespace backlight::tool
