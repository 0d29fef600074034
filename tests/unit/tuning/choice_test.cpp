// What a plan uses whose maker names no configuration.

#include "tuning/choice.hpp"

#include "compiler/kernel_store.hpp"
#include "configuration_choice.hpp"
#include "tuning/shipped.hpp"
#include "tuning_test_support.hpp"

using namespace backlight;
using namespace backlight::test;
using namespace backlight::tuning;

namespace {

const TileConfig v1 = kernel_preset("v1");
const TileConfig v2 = kernel_preset("v2");
const TileConfig v3 = kernel_preset("v3");

bool is_fresh(const Record& record) {
    return record.kernel_digest == "fresh";
}

Choice chosen(const Database& user, const Database& shipped,
              const AttentionProblem& problem = tuned_problem(),
              const device::DeviceProperties& device = properties()) {
    const std::array<DatabaseLayer, 2> layers = {{
        {&user, ChoiceSource::tuned},
        {&shipped, ChoiceSource::shipped},
    }};
    return choose(problem, device, layers, is_fresh);
}

Record with(Record record, const std::string& digest) {
    record.kernel_digest = digest;
    return record;
}

}  // namespace

TEST_CASE(
    "a tuned record counts for more than a shipped one and that for more than the heuristic") {
    const Database tuned = database_of({record(v1, 0.9)});
    const Database shipped = database_of({record(v3, 0.5)});
    Choice choice = chosen(tuned, shipped);
    CHECK(choice.config == v1);
    CHECK(choice.source == ChoiceSource::tuned);
    choice = chosen({}, shipped);
    CHECK(choice.config == v3);
    CHECK(choice.source == ChoiceSource::shipped);
    choice = chosen({}, {});
    CHECK(choice.config == heuristic(tuned_problem(), properties().target));
    CHECK(choice.source == ChoiceSource::heuristic);
}

TEST_CASE("records of another card are not used") {
    const Database tuned = database_of({record(v1, 0.9)});
    for (const auto& device : {properties("Another card"), properties("Test card", "sm_120a")}) {
        CHECK(chosen(tuned, {}, tuned_problem(), device).source == ChoiceSource::heuristic);
    }
    auto fewer = properties();
    fewer.multiprocessors = 114;
    CHECK(chosen(tuned, {}, tuned_problem(), fewer).source == ChoiceSource::heuristic);
}

TEST_CASE("the nearest bucket is used whatever the layer and none that is too far away") {
    const Database tuned = database_of({record(v1, 0.9, tuned_problem(512))});
    const Database shipped = database_of({record(v3, 0.9, tuned_problem(4096))});
    CHECK(chosen(tuned, shipped, tuned_problem(512)).config == v1);
    CHECK(chosen(tuned, shipped, tuned_problem(1024)).config == v1);
    CHECK(chosen(tuned, shipped, tuned_problem(2048)).config == v3);
    const Choice far = chosen(tuned, shipped, tuned_problem(32768));
    CHECK(far.config == v3);
    CHECK(far.distance == 12);
    CHECK(chosen(tuned, shipped, tuned_problem(65536)).source == ChoiceSource::heuristic);
    // As far from both: the user's.
    CHECK(chosen(database_of({record(v1, 0.9, tuned_problem(1024))}),
                 database_of({record(v3, 0.9, tuned_problem(4096))}), tuned_problem(2048))
              .config == v1);
}

TEST_CASE("bf16 records serve fp16 problems where there are none of fp16") {
    AttentionProblem half = tuned_problem();
    half.dtype = DataType::fp16;
    const Database bf16 = database_of({record(v1, 0.9)});
    CHECK(chosen(bf16, {}, half).config == v1);
    CHECK(chosen(bf16, database_of({record(v3, 0.9, half)}), half).config == v3);
}

TEST_CASE("a stale record is not wrong but gives way to a fresh one of the same bucket") {
    const Database stale = database_of({with(record(v1, 0.1), "before")});
    Choice choice = chosen(stale, {});
    CHECK(choice.config == v1);
    CHECK(choice.stale);
    choice = chosen(stale, database_of({record(v3, 0.9)}));
    CHECK(choice.config == v3);
    CHECK(!choice.stale);
    const Database both = database_of({with(record(v1, 0.1), "before"), record(v2, 0.9)});
    CHECK(chosen(both, {}).config == v2);
}

TEST_CASE("a record that was not checked or is not legal here is not used") {
    Record screened = record(v1, 0.1);
    screened.checked = false;
    CHECK(chosen(database_of({screened, record(v2, 0.9)}), {}).config == v2);
    // 96 is in the bucket of 128, but no multiple of 64.
    const AttentionProblem odd = tuned_problem(96);
    const Choice choice = chosen(database_of({record(v1, 0.1, tuned_problem(128))}), {}, odd);
    CHECK(choice.source == ChoiceSource::heuristic);
}

TEST_CASE("a kernel with constant lengths serves the lengths it was timed at and no others") {
    Record constant = record(v1, 0.5);
    constant.config.sequence_lengths = SequenceLengths::compile_time;
    const Database tuned = database_of({constant, record(v2, 0.8)});
    CHECK(chosen(tuned, {}).config == constant.config);
    CHECK(chosen(tuned, {}, tuned_problem(4096 - 64)).config == v2);
}

TEST_CASE("the fastest wins by its ratio to the baseline of its own run") {
    // On a day when the card ran slower: 2.2 ms beside a baseline of 2 ms.
    Record other_day = record(v1, 2.2);
    other_day.baseline_milliseconds = 2;
    CHECK(chosen(database_of({other_day, record(v2, 1.2)}), {}).config == v1);
    // Where one has no baseline, times are all there is.
    other_day.baseline_milliseconds = 0;
    CHECK(chosen(database_of({other_day, record(v2, 1.2)}), {}).config == v2);
}

TEST_CASE("within the noise the heuristic stays and beyond it the faster wins") {
    for (const std::int64_t seqlen : {4096, 4160}) {
        const AttentionProblem problem = tuned_problem(seqlen);
        const TileConfig usual = heuristic(problem, properties().target);
        const auto choice = [&](double of_v1) {
            return chosen(database_of({record(v1, of_v1, problem), record(usual, 1, problem)}), {},
                          problem)
                .config;
        };
        CHECK(choice(0.997) == usual);
        CHECK(choice(0.98) == v1);
    }
}

TEST_CASE("records of a search without the heuristic's family say nothing about that") {
    const TileConfig wgmma = heuristic(tuned_problem(), properties().target);
    REQUIRE(wgmma.family == KernelFamily::wgmma);
    Record before = record(v1, 0.1);
    for (const std::vector<KernelFamily>& families :
         {std::vector<KernelFamily>{}, std::vector{KernelFamily::mma}}) {
        before.families = families;
        const Database old = database_of({before});
        for (const auto& [tuned, shipped] : {std::pair{old, Database{}}, {Database{}, old}}) {
            const Choice choice = chosen(tuned, shipped);
            CHECK(choice.config == wgmma);
            CHECK(choice.source == ChoiceSource::heuristic);
        }
        // A card that has no wgmma: the heuristic is of another family there.
        const device::DeviceProperties card = properties("Test card", "sm_120a");
        Record geforce = before;
        geforce.card = card_of(card);
        CHECK(chosen(database_of({geforce}), {}, tuned_problem(), card).config ==
              heuristic(tuned_problem(), card.target));
        geforce.families = {KernelFamily::mma, KernelFamily::mma_resident};
        CHECK(chosen(database_of({geforce}), {}, tuned_problem(), card).config == v1);
    }
}

TEST_CASE("one search with the family lets all records of its bucket compete, and of no other") {
    Record before = record(v1, 0.5);
    before.families = {};
    Record of_wgmma = record(kernel_preset("wgmma"), 0.6);
    of_wgmma.families = {};
    CHECK(chosen(database_of({before, of_wgmma}), {}).config == v1);
    of_wgmma.samples_milliseconds.assign(20, 0.4);
    CHECK(chosen(database_of({before, of_wgmma}), {}).config == kernel_preset("wgmma"));
    // Where wgmma failed, as where its gradients were wrong, there is no record of it.
    CHECK(chosen(database_of({before, record(v2, 0.7)}), {}).config == v1);
    // Neither another bucket nor another layer covers this one.
    of_wgmma.problem = tuned_problem(512);
    Choice choice = chosen(database_of({before, of_wgmma}), {});
    CHECK(choice.config == kernel_preset("wgmma"));
    CHECK(choice.distance == 12);
    of_wgmma.problem = tuned_problem();
    choice = chosen(database_of({before}), database_of({of_wgmma}));
    CHECK(choice.config == kernel_preset("wgmma"));
    CHECK(choice.source == ChoiceSource::shipped);
}

TEST_CASE("where the heuristic's kernels cannot be had, any record that can serves") {
    Record before = record(v1, 0.5);
    before.families = {};
    const Database old = database_of({before});
    const std::array<DatabaseLayer, 1> layers = {{{&old, ChoiceSource::shipped}}};
    const auto choice_where = [&](const IsUsable& is_usable) {
        return choose(tuned_problem(), properties(), layers, is_fresh, is_usable).config;
    };
    CHECK(choice_where(
              [](const TileConfig& config) { return config.family == KernelFamily::mma; }) == v1);
    CHECK(choice_where([](const TileConfig&) { return true; }).family == KernelFamily::wgmma);
}

TEST_CASE("on the H200 wgmma is chosen at any length") {
    const auto device = properties("NVIDIA H200");
    for (const std::int64_t head_dim : {64, 128}) {
        for (const bool causal : {true, false}) {
            for (std::int64_t seqlen = 512; seqlen <= 16384; seqlen *= 2) {
                const auto problem = tuned_problem(seqlen, head_dim, causal);
                CAPTURE(to_string(problem));
                CHECK(chosen({}, shipped_database(), problem, device).config.family ==
                      KernelFamily::wgmma);
                const Choice odd = chosen({}, shipped_database(),
                                          tuned_problem(seqlen - 64, head_dim, causal), device);
                CHECK(odd.config.family == KernelFamily::wgmma);
                CHECK(odd.source == ChoiceSource::heuristic);
            }
        }
    }
}

TEST_CASE("records whose kernels cannot be had count no more than if they were not there") {
    const Database user = database_of({record(v1, 0.5), record(v2, 0.9)});
    const std::array<DatabaseLayer, 1> layers = {{{&user, ChoiceSource::tuned}}};
    const auto choice_where = [&](const IsUsable& is_usable) {
        return choose(tuned_problem(), properties(), layers, is_fresh, is_usable);
    };
    CHECK(choice_where({}).config == v1);
    CHECK(choice_where([](const TileConfig& config) { return config != v1; }).config == v2);
    CHECK(choice_where([](const TileConfig&) { return false; }).source == ChoiceSource::heuristic);
}

TEST_CASE("what is prebuilt for every length has the best configuration for each on the H200") {
    const auto device = properties("NVIDIA H200");
    const std::array<DatabaseLayer, 1> layers = {{{&shipped_database(), ChoiceSource::shipped}}};
    compiler::KernelStore store({.nvrtc_path = real_nvrtc_path()});
    tool::ConfigurationChoice prebuilt({}, store);
    for (const std::int64_t head_dim : {64, 128}) {
        for (const bool causal : {true, false}) {
            const auto configs =
                prebuilt.configs_for({.head_dim = head_dim, .causal = causal}, device.target);
            const auto is_there = [&](const TileConfig& config) {
                return std::ranges::count(configs, config, &tool::NamedConfig::config) > 0;
            };
            for (std::int64_t seqlen = 512; seqlen <= 16384; seqlen *= 2) {
                const auto problem = tuned_problem(seqlen, head_dim, causal);
                CAPTURE(to_string(problem));
                CHECK(is_there(choose(problem, device, layers, is_fresh).config));
                const auto odd = tuned_problem(seqlen - 64, head_dim, causal);
                CHECK(is_there(choose(odd, device, layers, is_fresh).config));
            }
        }
    }
}
