#include "configuration_choice.hpp"

#include <algorithm>

#include "backlight/error.hpp"
#include "device/device.hpp"
#include "problem_features.hpp"
#include "runtime_implementation.hpp"
#include "tuning/choice.hpp"
#include "tuning/database.hpp"
#include "tuning/kernel_digest.hpp"
#include "tuning/shipped.hpp"

namespace backlight::tool {

namespace {

void add_once(std::vector<TileConfig>& configs, const TileConfig& config) {
    if (std::ranges::find(configs, config) == configs.end()) {
        configs.push_back(config);
    }
}

/// The kinds of cards of that target that something is known of.
std::vector<tuning::Card> cards_of(const device::Target& target, tuning::Tunings& tunings) {
    std::vector<tuning::Card> cards;
    const tuning::Database user = tunings.user();
    for (const tuning::Database* database : {&user, &tuning::shipped_database()}) {
        for (const tuning::Record& record : database->records()) {
            if (record.card.target == target.name &&
                std::ranges::find(cards, record.card) == cards.end()) {
                cards.push_back(record.card);
            }
        }
    }
    return cards;
}

}  // namespace

void ConfigurationChoice::add_configs(const AttentionProblem& problem, const device::Target& target,
                                      std::vector<TileConfig>& configs) {
    add_once(configs, default_config(problem, target));
    const auto is_fresh = [&](const tuning::Record& record) {
        try {
            return record.kernel_digest ==
                   tuning::main_kernel_digest(store_, record.problem, record.config, target);
        } catch (const Error&) {
            return false;  // refused, or there is no compiler to tell by
        }
    };
    for (const tuning::Card& card : cards_of(target, tunings_)) {
        const device::DeviceProperties device{
            .name = card.name, .target = target, .multiprocessors = card.multiprocessors};
        add_once(configs, tunings_.choose(problem, device, is_fresh).config);
    }
}

std::vector<NamedConfig> ConfigurationChoice::configs_for(const AttentionProblem& problem,
                                                          const device::Target& target) {
    std::vector<TileConfig> configs;
    if (problem.seqlen_q > 0) {
        add_configs(problem, target, configs);
    } else {
        constexpr std::int64_t shortest = 512;
        constexpr std::int64_t longest = 16384;
        // And as many that are multiples of 64, not of the 128 that wgmma needs.
        constexpr std::int64_t smaller_tile = 64;
        for (const std::int64_t less : {std::int64_t{0}, smaller_tile}) {
            for (std::int64_t seqlen = shortest; seqlen <= longest; seqlen *= 2) {
                add_configs(with_seqlen(problem, seqlen - less), target, configs);
            }
        }
        std::erase_if(configs, [](const TileConfig& config) {
            return config.sequence_lengths == SequenceLengths::compile_time;
        });
    }
    std::vector<NamedConfig> named;
    named.reserve(configs.size());
    for (const TileConfig& config : configs) {
        named.push_back({config_name(config), config});
    }
    return named;
}

}  // namespace backlight::tool
