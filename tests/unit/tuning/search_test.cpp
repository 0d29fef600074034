// The tuner's decisions, on a device whose times are made up.

#include "tuning/search.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "backlight/error.hpp"
#include "tuning/search_space.hpp"
#include "tuning_test_support.hpp"

using namespace backlight;
using namespace backlight::test;
using namespace backlight::tuning;

namespace {

const TileConfig v1 = kernel_preset("v1");
const TileConfig v2 = kernel_preset("v2");
const TileConfig v3 = kernel_preset("v3");
const TileConfig wide{.block_q = 64, .block_kv = 128, .warps = 8, .stages = 1};
const TileConfig deep{.block_q = 64, .block_kv = 64, .warps = 8, .stages = 2};

struct Comparison {
    bool operator()(const TileConfig& left, const TileConfig& right) const {
        return comes_before(left, right);
    }
};

template <typename Value>
using ByConfig = std::map<TileConfig, Value, Comparison>;

/// A device with a time a configuration, a second a trial, and faults where the test wants them.
class FakeTrials final : public Trials {
  public:
    ByConfig<double> times;
    ByConfig<int> spills;
    ByConfig<std::string> faults;
    std::set<TileConfig, Comparison> uncompilable;
    double seconds_per_trial = 0.001;

    ByConfig<int> timed;
    std::set<TileConfig, Comparison> checked;
    std::set<TileConfig, Comparison> released;
    std::vector<std::pair<TileConfig, bool>> trials;
    std::atomic<int> compiling = 0;
    std::atomic<int> most_compiling = 0;
    std::atomic<int> compiles = 0;

    std::string kernel_digest(const TileConfig& config) override {
        return "digest of " + to_string(config);
    }
    KernelResources compile(const TileConfig& config) override {
        const int now = ++compiling;
        for (int most = most_compiling; now > most;) {
            most_compiling.compare_exchange_weak(most, now);
        }
        ++compiles;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        --compiling;
        if (uncompilable.contains(config)) {
            throw Error(ErrorCode::compile_failed, "the compiler says no");
        }
        const auto found = spills.find(config);
        return {.registers = 128, .spill_store_bytes = found != spills.end() ? found->second : 0};
    }
    double time(const TileConfig& config, bool rested) override {
        now_ += seconds_per_trial;
        ++timed[config];
        trials.emplace_back(config, rested);
        const auto found = times.find(config);
        return found != times.end() ? found->second : 10;
    }
    std::string check(const TileConfig& config) override {
        checked.insert(config);
        const auto found = faults.find(config);
        return found != faults.end() ? found->second : "";
    }
    void release(const TileConfig& config) override { released.insert(config); }
    double seconds() const override { return now_; }

  private:
    double now_ = 100;
};

SearchRequest request(std::vector<TileConfig> candidates) {
    return {.problem = tuned_problem(),
            .candidates = std::move(candidates),
            .compared = {v3, v1, v2},
            .baseline = v3};
}

const TuneCandidate& find(const std::vector<TuneCandidate>& candidates, const TileConfig& config) {
    const auto found = std::ranges::find(candidates, config, &TuneCandidate::config);
    REQUIRE(found != candidates.end());
    return *found;
}

TuneOptions options_for_test() {
    return {.compile_threads = 2, .repeats = 6};
}

void set_usual_times(FakeTrials& trials) {
    trials.times = {{v1, 1.3}, {v2, 1.02}, {v3, 1}, {wide, 0.9}, {deep, 1.6}};
}

}  // namespace

TEST_CASE("presets and the fastest are timed in full and the hopeless stopped at once") {
    FakeTrials trials;
    set_usual_times(trials);
    const auto found = search(request({v1, v2, v3, wide, deep}), options_for_test(), trials);
    CHECK(found.size() == 5);
    for (const TileConfig& config : {v1, v2, v3, wide}) {
        CHECK(find(found, config).outcome == TuneOutcome::timed);
        CHECK(find(found, config).samples_milliseconds.size() == 6);
        CHECK(find(found, config).baseline_milliseconds == doctest::Approx(1));
        CHECK(trials.checked.contains(config));
    }
    CHECK(find(found, deep).outcome == TuneOutcome::slow);
    // A trial to warm up, and one that tells enough.
    CHECK(trials.timed[deep] == 2);
    CHECK(trials.released.contains(deep));
    CHECK(!trials.checked.contains(deep));
    CHECK(find(found, v3).preset == "v3");
    CHECK(find(found, wide).preset.empty());
}

TEST_CASE("finalists are interleaved and every other round goes backwards") {
    FakeTrials trials;
    set_usual_times(trials);
    search(request({v1, v2, v3}), options_for_test(), trials);
    std::vector<TileConfig> rested;
    for (const auto& [config, pause] : trials.trials) {
        if (pause) {
            rested.push_back(config);
        }
    }
    REQUIRE(rested.size() == 18);
    const std::vector<TileConfig> there(rested.begin(), rested.begin() + 3);
    std::vector<TileConfig> back(rested.begin() + 3, rested.begin() + 6);
    std::ranges::reverse(back);
    CHECK(there == back);
}

TEST_CASE("what spills much is not tried but for the presets") {
    FakeTrials trials;
    set_usual_times(trials);
    trials.spills = {{v1, 200}, {wide, spilled_bytes_limit + 1}, {deep, spilled_bytes_limit}};
    const auto found = search(request({wide, deep}), options_for_test(), trials);
    CHECK(find(found, wide).outcome == TuneOutcome::spilled);
    CHECK(find(found, wide).note == "65 bytes a thread");
    CHECK(trials.timed[wide] == 0);
    CHECK(find(found, deep).outcome == TuneOutcome::slow);
    CHECK(find(found, v1).outcome == TuneOutcome::timed);
}

TEST_CASE("wrong gradients keep the fastest from winning") {
    FakeTrials trials;
    set_usual_times(trials);
    trials.faults = {{wide, "dQ: relative L2 is 1"}};
    const auto found = search(request({wide}), options_for_test(), trials);
    CHECK(find(found, wide).outcome == TuneOutcome::wrong);
    CHECK(find(found, wide).note == "dQ: relative L2 is 1");
    CHECK(find(found, v3).outcome == TuneOutcome::timed);
}

TEST_CASE("what does not compile is an outcome and the search goes on") {
    FakeTrials trials;
    set_usual_times(trials);
    trials.uncompilable = {deep};
    const auto found = search(request({deep, wide}), options_for_test(), trials);
    CHECK(find(found, deep).outcome == TuneOutcome::refused);
    CHECK(find(found, deep).note == "the compiler says no");
    CHECK(find(found, wide).outcome == TuneOutcome::timed);
    trials.uncompilable = {v3};
    check_refused(ErrorCode::compile_failed, {"the compiler says no"},
                  [&] { search(request({wide}), options_for_test(), trials); });
}

TEST_CASE("no more kernels are compiled at the same time than asked for") {
    FakeTrials trials;
    TuneOptions options = options_for_test();
    options.compile_threads = 3;
    const auto tiles = legal_tiles(tuned_problem(), device::target_by_name("sm_90a"));
    search(request(tiles), options, trials);
    CHECK(trials.compiles == static_cast<int>(tiles.size()));
    CHECK(trials.most_compiling <= 3);
    CHECK(trials.most_compiling >= 2);
}

TEST_CASE("at the end of the budget no configuration is begun but presets are timed in full") {
    FakeTrials trials;
    set_usual_times(trials);
    trials.seconds_per_trial = 10;
    TuneOptions options = options_for_test();
    options.repeats = 20;
    const auto found = search(request({wide, deep}), options, trials);
    for (const TileConfig& config : {v1, v2, v3}) {
        CHECK(find(found, config).outcome == TuneOutcome::timed);
        CHECK(find(found, config).samples_milliseconds.size() ==
              static_cast<std::size_t>(least_repeats));
    }
    CHECK(find(found, wide).outcome == TuneOutcome::not_reached);
    CHECK(find(found, deep).outcome == TuneOutcome::not_reached);
    CHECK(trials.timed[wide] == 0);
}

TEST_CASE("other launches are tried of the fastest two tiles only") {
    FakeTrials trials;
    set_usual_times(trials);
    TileConfig early_off = wide;
    early_off.programmatic_dependent_launch = false;
    trials.times[early_off] = 0.8;
    SearchRequest wanted = request({v1, v2, v3, wide, deep});
    wanted.with_variants = true;
    const auto found = search(wanted, options_for_test(), trials);
    CHECK(found.size() == 5 + 2 * 3);
    for (const TileConfig& variant : launch_variants(wide)) {
        CHECK(find(found, variant).outcome != TuneOutcome::not_reached);
    }
    for (const TileConfig& variant : launch_variants(v3)) {
        CHECK(find(found, variant).outcome != TuneOutcome::not_reached);
    }
    CHECK(find(found, early_off).outcome == TuneOutcome::timed);
}

TEST_CASE("adding a configuration times only that one and the baseline") {
    FakeTrials first;
    set_usual_times(first);
    SearchRequest wanted = request({v1, v2, v3, wide});
    for (const TuneCandidate& candidate : search(wanted, options_for_test(), first)) {
        Record known = record(candidate.config, candidate.median_milliseconds);
        known.kernel_digest = candidate.kernel_digest;
        known.baseline_milliseconds = candidate.baseline_milliseconds;
        wanted.known.push_back(known);
    }
    FakeTrials nothing_new;
    const auto same = search(wanted, options_for_test(), nothing_new);
    CHECK(nothing_new.trials.empty());
    CHECK(nothing_new.compiles == 0);
    CHECK(std::ranges::all_of(same, &TuneCandidate::from_database));

    FakeTrials second;
    set_usual_times(second);
    second.times[deep] = 0.91;
    wanted.candidates.push_back(deep);
    const auto found = search(wanted, options_for_test(), second);
    CHECK(second.timed.size() == 2);
    CHECK(second.timed.contains(v3));
    CHECK(second.timed.contains(deep));
    CHECK(find(found, deep).outcome == TuneOutcome::timed);
    CHECK(find(found, deep).baseline_milliseconds == doctest::Approx(1));
    CHECK(find(found, wide).from_database);

    SUBCASE("a record of another kernel is stale and timed again") {
        wanted.known[3].kernel_digest = "before";
        FakeTrials third;
        set_usual_times(third);
        search(wanted, options_for_test(), third);
        CHECK(third.timed.contains(wanted.known[3].config));
    }
    SUBCASE("all is timed again where that is asked for") {
        TuneOptions options = options_for_test();
        options.retime = true;
        FakeTrials third;
        set_usual_times(third);
        search(wanted, options, third);
        CHECK(third.timed.size() == 5);
    }
    SUBCASE("a new one that is slower than the best that is known does not get far") {
        FakeTrials third;
        set_usual_times(third);
        third.times[deep] = 1.2;  // Faster than 1.25 of the baseline, not of the best known.
        const auto slower = search(wanted, options_for_test(), third);
        CHECK(find(slower, deep).outcome == TuneOutcome::slow);
        CHECK(third.timed[deep] == 2);
    }
}

TEST_CASE("the search tells how far it has come") {
    FakeTrials trials;
    set_usual_times(trials);
    TuneOptions options = options_for_test();
    std::vector<std::string> stages;
    options.progress = [&](const TuneProgress& progress) {
        CHECK(progress.done < progress.total);
        if (stages.empty() || stages.back() != progress.stage) {
            stages.emplace_back(progress.stage);
        }
    };
    search(request({wide}), options, trials);
    CHECK(stages == std::vector<std::string>{"screen", "check", "time"});
}

TEST_CASE("options of a tuning that make no sense are refused by name") {
    FakeTrials trials;
    const auto refused = [&](ErrorCode code, std::initializer_list<std::string_view> fragments,
                             const TuneOptions& options) {
        check_refused(code, fragments, [&] { search(request({}), options, trials); });
    };
    refused(ErrorCode::invalid_argument, {"budget is 0"},
            {.budget = std::chrono::duration<double>(0)});
    refused(ErrorCode::invalid_argument, {"repeats is 4", "5 or more"}, {.repeats = 4});
    refused(ErrorCode::invalid_argument, {"compile_threads is -1"}, {.compile_threads = -1});
    refused(ErrorCode::unsupported, {"kernel_family is 'ptx'", "mma, wgmma, mma_resident"},
            {.kernel_family = "ptx"});
}
