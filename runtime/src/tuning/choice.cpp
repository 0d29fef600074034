#include "tuning/choice.hpp"

#include <algorithm>
#include <tuple>
#include <vector>

#include "tuning/search_space.hpp"
#include "tuning/statistics.hpp"

namespace backlight::tuning {

namespace {

/// The records that compete, on one scale: ratios to the baseline where all have one, else time a
/// floating-point operation.
std::vector<Contender> contenders_of(const std::vector<const Record*>& records) {
    const bool ratios = std::ranges::all_of(
        records, [](const Record* record) { return record->baseline_milliseconds > 0; });
    std::vector<Contender> contenders;
    for (const Record* record : records) {
        const double unit =
            ratios ? record->baseline_milliseconds : backward_flops(record->problem);
        contenders.push_back({.config = record->config,
                              .time = median(record->samples_milliseconds) / unit,
                              .noise = noise(record->samples_milliseconds)});
    }
    return contenders;
}

/// Where records compete with each other.
struct Place {
    std::size_t layer;
    Bucket bucket;

    bool operator==(const Place&) const = default;
};

/// The places with a record of the card whose search had the family to compare with.
std::vector<Place> places_covering(KernelFamily family, const Card& card,
                                   std::span<const DatabaseLayer> layers) {
    std::vector<Place> places;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
        for (const Record& record : layers[layer].database->records()) {
            if (record.card == card && covers(record, family)) {
                const Place place{layer, bucket_of(record.problem)};
                // Records are in the order of their buckets.
                if (places.empty() || places.back() != place) {
                    places.push_back(place);
                }
            }
        }
    }
    return places;
}

}  // namespace

const char* to_string(ChoiceSource source) noexcept {
    switch (source) {
        case ChoiceSource::tuned:
            return "tuned";
        case ChoiceSource::shipped:
            return "shipped";
        case ChoiceSource::heuristic:
            return "heuristic";
    }
    return "unknown";
}

Choice choose(const AttentionProblem& problem, const device::DeviceProperties& device,
              std::span<const DatabaseLayer> layers, const IsFresh& is_fresh,
              const IsUsable& is_usable) {
    const Card card = card_of(device);
    const Bucket bucket = bucket_of(problem);
    const TileConfig fallback = heuristic(problem, device.target);
    const bool any_family = is_usable && !is_usable(fallback);
    const std::vector<Place> covering = places_covering(fallback.family, card, layers);
    using Rank = std::tuple<int, bool, std::size_t>;  // distance, stale, layer
    struct Candidate {
        Rank rank;
        const Record* record;
    };
    std::vector<Candidate> candidates;
    int nearest = -1;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
        for (const Record& record : layers[layer].database->records()) {
            if (!record.checked || record.card != card || !serves_lengths(record, problem)) {
                continue;
            }
            const Bucket records_bucket = bucket_of(record.problem);
            const auto away = distance(bucket, records_bucket);
            // What is farther than another need not be asked whether it is legal or fresh.
            if (!away || (nearest >= 0 && *away > nearest) ||
                (!any_family && std::ranges::count(covering, Place{layer, records_bucket}) == 0) ||
                !is_legal(record.config, problem, device.target) ||
                (is_usable && !is_usable(record.config))) {
                continue;
            }
            nearest = *away;
            candidates.push_back({{*away, false, layer}, &record});
        }
    }
    std::erase_if(candidates, [&](const Candidate& candidate) {
        return std::get<0>(candidate.rank) > nearest;
    });
    if (candidates.empty()) {
        return {.config = fallback};
    }
    for (Candidate& candidate : candidates) {
        std::get<1>(candidate.rank) = !is_fresh(*candidate.record);
    }
    const Rank best = std::ranges::min_element(candidates, {}, &Candidate::rank)->rank;
    std::vector<const Record*> records;
    for (const Candidate& candidate : candidates) {
        if (candidate.rank == best) {
            records.push_back(candidate.record);
        }
    }
    return {.config = records[*select(contenders_of(records), fallback)]->config,
            .source = layers[std::get<2>(best)].source,
            .stale = std::get<1>(best),
            .distance = nearest};
}

}  // namespace backlight::tuning
