#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "c_api/guard.hpp"
#include "c_api/handles.hpp"
#include "c_api/structs.hpp"

using namespace backlight;
using namespace backlight::c_api;

namespace {

/// `make` gives a plan of the runtime, for the problem and, where one is given, the configuration.
template <typename Make>
backlight_status make_plan(backlight_runtime* runtime, const backlight_problem* problem,
                           const backlight_tile_config* config, backlight_plan** plan, Make make) {
    return guarded([&] {
        required(plan, "plan") = nullptr;
        Runtime& owner = required(runtime, "runtime").runtime;
        const AttentionProblem asked = problem_of(problem);
        const std::optional<TileConfig> tiles = config_of(config);
        *plan = new backlight_plan{tiles ? make(owner, asked, *tiles) : make(owner, asked)};
    });
}

}  // namespace

extern "C" {

backlight_status backlight_runtime_create(const backlight_runtime_options* options,
                                          backlight_runtime** runtime) {
    return guarded([&] {
        required(runtime, "runtime") = nullptr;
        auto made = std::make_unique<backlight_runtime>(
            backlight_runtime{.runtime = Runtime(options_of(options)), .layer_names = {}});
        for (const LayerHits& layer : made->runtime.counters().hits_by_layer) {
            made->layer_names.push_back(layer.name);
        }
        *runtime = made.release();
    });
}

void backlight_runtime_destroy(backlight_runtime* runtime) {
    delete runtime;
}

const char* backlight_runtime_target(const backlight_runtime* runtime) {
    return runtime != nullptr ? runtime->runtime.target().c_str() : nullptr;
}

const char* backlight_runtime_device_name(const backlight_runtime* runtime) {
    return runtime != nullptr ? runtime->runtime.device_name().c_str() : nullptr;
}

backlight_status backlight_runtime_counters(const backlight_runtime* runtime,
                                            backlight_counters* counters) {
    return guarded([&] {
        const RuntimeCounters counted = required(runtime, "runtime").runtime.counters();
        fill(counters, "counters",
             {.memory_hits = counted.memory_hits,
              .layer_hits = counted.layer_hits(),
              .misses = counted.misses,
              .compiles = counted.compiles,
              .compile_milliseconds = counted.compile_milliseconds,
              .stores = counted.stores,
              .failed_stores = counted.failed_stores,
              .evictions = counted.evictions,
              .repairs = counted.repairs,
              .tensor_maps_encoded = counted.tensor_maps_encoded,
              .layers = counted.hits_by_layer.size()});
    });
}

backlight_status backlight_runtime_layer_hits(const backlight_runtime* runtime, size_t layer,
                                              const char** name, uint64_t* hits) {
    return guarded([&] {
        const backlight_runtime& owner = required(runtime, "runtime");
        uint64_t& count = required(hits, "hits");
        if (layer >= owner.layer_names.size()) {
            refuse(fmt::format("layer is {}: it must be below counters.layers, {}", layer,
                               owner.layer_names.size()));
        }
        count = owner.runtime.counters().hits_by_layer[layer].hits;
        if (name != nullptr) {
            *name = owner.layer_names[layer].c_str();
        }
    });
}

backlight_status backlight_runtime_backward(backlight_runtime* runtime,
                                            const backlight_problem* problem,
                                            const backlight_tile_config* config,
                                            backlight_plan** plan) {
    return make_plan(runtime, problem, config, plan,
                     [](Runtime& owner, const auto&... asked) { return owner.backward(asked...); });
}

backlight_status backlight_runtime_prepare(backlight_runtime* runtime,
                                           const backlight_problem* problem,
                                           const backlight_tile_config* config,
                                           backlight_plan** plan) {
    return make_plan(runtime, problem, config, plan,
                     [](Runtime& owner, const auto&... asked) { return owner.prepare(asked...); });
}

backlight_status backlight_runtime_tune(backlight_runtime* runtime,
                                        const backlight_problem* problem,
                                        const backlight_tune_options* options,
                                        backlight_tile_config* winner,
                                        backlight_tune_result* result) {
    return guarded([&] {
        Runtime& owner = required(runtime, "runtime").runtime;
        const AttentionProblem asked = problem_of(problem);
        const TuneOptions how = tune_options_of(options);
        // Refused before the minutes that the work takes, not after.
        if (winner != nullptr) {
            fill(winner, "winner", config_in_c({}));
        }
        if (result != nullptr) {
            fill(result, "result", {});
        }
        const TuneReport report = owner.tune(asked, how);
        if (winner != nullptr) {
            fill(winner, "winner", config_in_c(report.winner));
        }
        if (result == nullptr) {
            return;
        }
        backlight_tune_result told{.seconds = report.seconds,
                                   .complete = report.complete ? 1 : 0,
                                   .candidates = static_cast<int32_t>(report.candidates.size())};
        for (const TuneCandidate& candidate : report.candidates) {
            told.timed += candidate.outcome == TuneOutcome::timed ? 1 : 0;
            told.wrong += candidate.outcome == TuneOutcome::wrong ? 1 : 0;
            if (candidate.config == report.winner && candidate.outcome == TuneOutcome::timed) {
                told.winner_milliseconds = candidate.median_milliseconds;
                told.baseline_milliseconds = candidate.baseline_milliseconds;
            }
        }
        fill(result, "result", told);
    });
}

}  // extern "C"
