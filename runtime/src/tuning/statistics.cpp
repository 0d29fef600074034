#include "tuning/statistics.hpp"

#include <algorithm>
#include <cmath>

#include "tuning/search_space.hpp"

namespace backlight::tuning {

namespace {

/// Between the two values next to it, in proportion; `sorted` has one or more.
double quantile(const std::vector<double>& sorted, double fraction) {
    const double place = fraction * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, sorted.size() - 1);
    return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

}  // namespace

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return quantile(values, 0.5);
}

double noise(const std::vector<double>& samples) {
    constexpr std::size_t fewest = 4;
    if (samples.size() < fewest) {
        return most_noise;
    }
    std::vector<double> sorted = samples;
    std::ranges::sort(sorted);
    const double spread = quantile(sorted, 0.75) - quantile(sorted, 0.25);
    return std::clamp(spread / quantile(sorted, 0.5), least_noise, most_noise);
}

bool beats(const Contender& challenger, const Contender& other) noexcept {
    return challenger.time < other.time * (1 - std::max(challenger.noise, other.noise));
}

std::optional<std::size_t> select(const std::vector<Contender>& contenders,
                                  const TileConfig& incumbent) {
    if (contenders.empty()) {
        return std::nullopt;
    }
    const auto fastest =
        std::ranges::min_element(contenders, [](const auto& left, const auto& right) {
            return left.time != right.time ? left.time < right.time
                                           : comes_before(left.config, right.config);
        });
    std::optional<std::size_t> first;
    for (std::size_t i = 0; i < contenders.size(); ++i) {
        const Contender& contender = contenders[i];
        if (beats(*fastest, contender)) {
            continue;
        }
        if (contender.config == incumbent) {
            return i;
        }
        if (!first || comes_before(contender.config, contenders[*first].config)) {
            first = i;
        }
    }
    return first;
}

}  // namespace backlight::tuning
