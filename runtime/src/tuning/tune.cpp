#include "tuning/tune.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "attention/family_support.hpp"
#include "attention/kernels.hpp"
#include "attention/validation.hpp"
#include "backlight/error.hpp"
#include "logging.hpp"
#include "tuning/device_trials.hpp"
#include "tuning/kernel_digest.hpp"
#include "tuning/search_space.hpp"

namespace backlight {

const char* to_string(TuneOutcome outcome) noexcept {
    constexpr std::array names = {"timed", "slow", "spilled", "refused", "wrong", "not_reached"};
    const auto index = static_cast<std::size_t>(outcome);
    return index < names.size() ? names[index] : "unknown";
}

namespace tuning {

namespace {

IsFresh freshness(attention::KernelLoader& loader) {
    return [&loader](const Record& record) {
        try {
            return !record.kernel_digest.empty() &&
                   record.kernel_digest == main_kernel_digest(loader.store(), record.problem,
                                                              record.config,
                                                              loader.device().properties().target);
        } catch (const Error&) {
            // Without a compiler no digest can be told, and a kernel may come from the cache.
            return false;
        }
    };
}

Choice choose(const AttentionProblem& problem, attention::KernelLoader& loader, Tunings& tunings) {
    return tunings.choose(problem, loader.device().properties(), freshness(loader));
}

void append(std::vector<TileConfig>& configs, const TileConfig& config) {
    if (std::ranges::count(configs, config) == 0) {
        configs.push_back(config);
    }
}

SearchRequest request_for(const AttentionProblem& problem, const TuneOptions& options,
                          const device::DeviceProperties& device, const TileConfig& incumbent,
                          Tunings& tunings) {
    SearchRequest request{.problem = problem};
    // The preset that is legal wherever one of them is.
    const TileConfig& baseline = kernel_preset("v3");
    if (is_legal(baseline, problem, device.target)) {
        request.baseline = baseline;
        request.compared.push_back(baseline);
    }
    for (const KernelPreset& preset : kernel_presets()) {
        if (is_legal(preset.config, problem, device.target)) {
            append(request.compared, preset.config);
        }
    }
    if (is_legal(incumbent, problem, device.target)) {
        append(request.compared, incumbent);
    }
    if (options.candidates.empty()) {
        request.candidates =
            legal_tiles(problem, device.target, kernel_family(options.kernel_family));
        if (request.candidates.empty()) {
            throw Error(ErrorCode::unsupported,
                        fmt::format("kernel_family is '{}': none of its kernels takes {} on {}",
                                    options.kernel_family, to_string(problem), device.target.name));
        }
        request.with_variants = true;
    } else {
        for (const TileConfig& config : options.candidates) {
            attention::validate(config, problem, device.target);
        }
        request.candidates = options.candidates;
    }
    const Bucket bucket = bucket_of(problem);
    const Card card = card_of(device);
    const Database known = tunings.user();
    for (const Record& record : known.records()) {
        if (record.card == card && bucket_of(record.problem) == bucket) {
            request.known.push_back(record);
        }
    }
    return request;
}

Database records_of(const std::vector<TuneCandidate>& candidates, const AttentionProblem& problem,
                    const Card& card) {
    Database database;
    std::vector<KernelFamily> families;
    for (const KernelFamily family : kernel_families()) {
        const auto of_family = [&](const TuneCandidate& candidate) {
            return candidate.config.family == family &&
                   candidate.outcome != TuneOutcome::not_reached;
        };
        if (std::ranges::any_of(candidates, of_family)) {
            families.push_back(family);
        }
    }
    for (const TuneCandidate& candidate : candidates) {
        const bool timed = candidate.outcome == TuneOutcome::timed;
        if (candidate.from_database || (!timed && candidate.outcome != TuneOutcome::slow)) {
            continue;
        }
        database.put({.card = card,
                      .problem = problem,
                      .config = candidate.config,
                      .kernel_digest = candidate.kernel_digest,
                      .checked = timed,
                      .samples_milliseconds = candidate.samples_milliseconds,
                      .baseline_milliseconds = candidate.baseline_milliseconds,
                      .date = now_utc(),
                      .families = families});
    }
    return database;
}

/// Where every configuration that was checked is wrong, what plans choose would be one of these.
void require_a_right_one(const TuneReport& report) {
    const auto count = [&](TuneOutcome outcome) {
        return std::ranges::count(report.candidates, outcome, &TuneCandidate::outcome);
    };
    if (count(TuneOutcome::wrong) == 0 || count(TuneOutcome::timed) > 0) {
        return;
    }
    const auto first =
        std::ranges::find(report.candidates, TuneOutcome::wrong, &TuneCandidate::outcome);
    throw Error(ErrorCode::kernel_fault,
                fmt::format("{}: the gradients of all {} configurations that were checked are not "
                            "the reference's, so none can win; the first is {}: {}",
                            to_string(report.problem), count(TuneOutcome::wrong),
                            to_string(first->config), first->note));
}

}  // namespace

TileConfig choose_config(const AttentionProblem& problem, attention::KernelLoader& loader,
                         Tunings& tunings) {
    attention::validate(problem);
    if (problem.is_empty()) {
        return heuristic(problem, loader.device().properties().target);  // Records are of kernels.
    }
    attention::require_any_family(problem, kernel_families());
    const Choice choice = choose(problem, loader, tunings);
    logger().info("{}: {} ({}{})", to_string(problem), to_string(choice.config),
                  to_string(choice.source), choice.stale ? ", of an earlier kernel" : "");
    return choice.config;
}

std::vector<TileConfig> other_configs(const AttentionProblem& problem,
                                      attention::KernelLoader& loader, Tunings& tunings) {
    const device::DeviceProperties& device = loader.device().properties();
    // Records of many problems have the same few configurations.
    std::vector<std::pair<TileConfig, bool>> asked;
    const auto is_usable = [&](const TileConfig& config) {
        const auto known = std::ranges::find(asked, config, &std::pair<TileConfig, bool>::first);
        if (known != asked.end()) {
            return known->second;
        }
        const bool usable = std::ranges::all_of(
            attention::backward_chain(problem, config, device.target),
            [&](const attention::KernelPlan& plan) { return loader.store().has(plan.request); });
        asked.emplace_back(config, usable);
        return usable;
    };
    std::vector<TileConfig> configs;
    append(configs, tunings.choose(problem, device, freshness(loader), is_usable).config);
    append(configs, heuristic(problem, device.target));
    return configs;
}

TuneReport tune(const AttentionProblem& problem, const TuneOptions& options,
                attention::KernelLoader& loader, Tunings& tunings) {
    check_options(options);
    attention::validate(problem);
    if (problem.packed) {
        throw Error(
            ErrorCode::unsupported,
            "packed is given: lengths decide what is best, and of packed sequences only the "
            "device knows them; tune the same problem without it, whose records serve both");
    }
    if (problem.is_empty()) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("seqlen_q is {} and seqlen_kv is {}: neither may be 0, there is "
                                "nothing to tune",
                                problem.seqlen_q, problem.seqlen_kv));
    }
    attention::require_any_family(problem, kernel_families());
    const device::DeviceProperties& device = loader.device().properties();
    const TileConfig incumbent = choose(problem, loader, tunings).config;
    const SearchRequest request = request_for(problem, options, device, incumbent, tunings);
    DeviceTrials trials(loader, problem, options.stream);
    const double start = trials.seconds();

    TuneReport report{.problem = problem};
    report.candidates = search(request, options, trials);
    tunings.add(records_of(report.candidates, problem, card_of(device)));
    require_a_right_one(report);
    report.winner = choose(problem, loader, tunings).config;
    report.seconds = trials.seconds() - start;
    report.complete = std::ranges::count(report.candidates, TuneOutcome::not_reached,
                                         &TuneCandidate::outcome) == 0;
    return report;
}

}  // namespace tuning

}  // namespace backlight
