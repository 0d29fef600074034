#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "conformance.hpp"
#include "harness.hpp"
#include "kernels/arguments.h"

namespace backlight::conformance {

namespace {

constexpr std::size_t lanes = 32;

void check_pipeline(Runtime& runtime, bool move_registers) {
    const std::size_t consumers = move_registers ? 256 : 128;
    const ConformanceKernel kernel(runtime, pipeline(move_registers));
    // Fewer tiles than stages, whole turns of the ring, and a part of one.
    for (const std::size_t tiles : {1, 3, 11}) {
        const std::vector<float> source = small_integers(tiles * consumers, 1);
        const DeviceArray source_device(runtime, source);
        const DeviceArray out(runtime, std::vector<float>(consumers, -1.0F));
        const DeviceArray last(runtime, std::vector<float>(consumers, -1.0F));
        kernel.run(1, static_cast<std::uint32_t>(consumers + 128),
                   kernel::PipelineArguments{.source = source_device.data<float>(),
                                             .out = out.data<float>(),
                                             .last = last.data<float>(),
                                             .tiles = static_cast<int>(tiles)});
        std::vector<float> sums(consumers, 0);
        for (std::size_t i = 0; i < source.size(); ++i) {
            sums[i % consumers] += source[i];
        }
        check_equal(out.read<float>(), sums, fmt::format("sums of {} tiles", tiles));
        check_equal(
            last.read<float>(),
            std::vector<float>(source.end() - static_cast<std::ptrdiff_t>(consumers), source.end()),
            fmt::format("last of {} tiles", tiles));
    }
}

}  // namespace

void check_named_barriers(Runtime& runtime) {
    constexpr std::size_t rounds = 9;
    std::vector<std::uint32_t> source(rounds * lanes);
    std::iota(source.begin(), source.end(), 1000U);
    std::vector<std::uint32_t> expected(source.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] = source[i / lanes * lanes + (lanes - 1 - i % lanes)];
    }
    const ConformanceKernel kernel(runtime, named_barriers());
    const DeviceArray source_device(runtime, source);
    const DeviceArray out(runtime, std::vector<std::uint32_t>(source.size()));
    kernel.run(1, 2 * lanes,
               kernel::HandoverArguments{.source = source_device.data<unsigned>(),
                                         .out = out.data<unsigned>(),
                                         .rounds = static_cast<int>(rounds)});
    check_equal(out.read<std::uint32_t>(), expected, "values handed over");
}

void check_pipeline(Runtime& runtime) {
    check_pipeline(runtime, false);
}

void check_warp_specialisation(Runtime& runtime) {
    check_pipeline(runtime, true);
}

void check_warp_collectives(Runtime& runtime) {
    constexpr auto results = static_cast<std::size_t>(kernel::collective_results);
    const ConformanceKernel kernel(runtime, warp_collectives());
    for (const bool with_seven : {false, true}) {
        std::vector<std::uint32_t> values(lanes);
        for (std::uint32_t lane = 0; lane < lanes; ++lane) {
            values[lane] = 100 + scrambled(lane) % 100000;
        }
        if (with_seven) {
            values[13] = 7;
        }
        const DeviceArray source(runtime, values);
        const DeviceArray out(runtime, std::vector<std::uint32_t>(lanes * results, 77));
        kernel.run(1, lanes,
                   kernel::CollectivesArguments{.values = source.data<unsigned>(),
                                                .out = out.data<unsigned>()});
        std::uint32_t ballot = 0;
        for (std::uint32_t lane = 0; lane < lanes; ++lane) {
            ballot |= values[lane] % 3 == 0 ? 1U << lane : 0;
        }
        std::vector<std::uint32_t> got = out.read<std::uint32_t>();
        std::vector<std::uint32_t> expected(got.size());
        std::uint32_t elected = 0;
        for (std::uint32_t lane = 0; lane < lanes; ++lane) {
            std::uint32_t sum = 0;
            for (std::uint32_t i = lane / 8 * 8; i < lane / 8 * 8 + 8; ++i) {
                sum += values[i] % 1000;
            }
            std::uint32_t* row = expected.data() + lane * results;
            row[0] = ballot;
            row[1] = with_seven ? 1 : 0;
            row[2] = with_seven ? 0 : 1;
            row[3] = values[(lane * 7 + 3) % lanes];
            row[4] = values[lane ^ 5];
            row[5] = lane < 3 ? values[lane] : values[lane - 3];
            row[6] = lane + 6 >= lanes ? values[lane] : values[lane + 6];
            row[7] = sum;
            // Which lane is elected is the device's to choose.
            row[8] = got[lane * results + 8];
            elected += row[8];
        }
        check_equal(got, expected, with_seven ? "a lane has 7" : "no lane has 7");
        CHECK_MESSAGE(elected == 1, "lanes elected: ", elected);
    }
}

void check_global_reductions(Runtime& runtime) {
    constexpr std::size_t blocks = 5;
    constexpr std::size_t threads = 64;
    constexpr std::size_t groups = 7;
    std::vector<float> pairs = small_integers(2 * groups, 1);
    std::vector<float> quadruples = small_integers(4 * groups, 2);
    const DeviceArray pairs_device(runtime, pairs);
    const DeviceArray quadruples_device(runtime, quadruples);
    const ConformanceKernel kernel(runtime, global_reductions());
    kernel.run(blocks, threads,
               kernel::GlobalReductionArguments{.pairs = pairs_device.data<float>(),
                                                .quadruples = quadruples_device.data<float>(),
                                                .groups = static_cast<int>(groups)});
    for (std::size_t number = 0; number < blocks * threads; ++number) {
        const std::size_t group = number % groups;
        const auto value = static_cast<float>(number);
        pairs[2 * group] += value;
        pairs[2 * group + 1] += 1;
        quadruples[4 * group] += value;
        quadruples[4 * group + 1] += 1;
        quadruples[4 * group + 2] -= value;
        quadruples[4 * group + 3] += 2;
    }
    check_equal(pairs_device.read<float>(), pairs, "pairs");
    check_equal(quadruples_device.read<float>(), quadruples, "quadruples");
}

void check_global_counters(Runtime& runtime) {
    // More blocks than a GPU has multiprocessors, and than the emulated device has host threads.
    constexpr std::uint32_t blocks = 300;
    const ConformanceKernel kernel(runtime, global_counters());
    const DeviceArray ticket_counter(runtime, std::vector<std::uint32_t>(1, 0));
    const DeviceArray links_complete(runtime, std::vector<std::uint32_t>(1, 0));
    const DeviceArray tickets(runtime, std::vector<std::uint32_t>(blocks, ~0U));
    std::vector<std::uint32_t> links((blocks + 1) * lanes, 0);
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
        links[lane] = scrambled(lane);
    }
    const DeviceArray links_device(runtime, links);
    kernel.run(blocks, lanes,
               kernel::GlobalCounterArguments{.ticket_counter = ticket_counter.data<unsigned>(),
                                              .links_complete = links_complete.data<unsigned>(),
                                              .tickets = tickets.data<unsigned>(),
                                              .links = links_device.data<unsigned>()});
    for (std::uint32_t ticket = 0; ticket < blocks; ++ticket) {
        for (std::uint32_t lane = 0; lane < lanes; ++lane) {
            links[(ticket + 1) * lanes + lane] =
                links[ticket * lanes + (lane + 1) % lanes] * 3 + ticket;
        }
    }
    check_equal(links_device.read<std::uint32_t>(), links, "the chain");
    std::vector<std::uint32_t> sorted = tickets.read<std::uint32_t>();
    std::ranges::sort(sorted);
    std::vector<std::uint32_t> dense(blocks);
    std::iota(dense.begin(), dense.end(), 0U);
    check_equal(sorted, dense, "tickets in order");
    check_equal(ticket_counter.read<std::uint32_t>(), {blocks}, "tickets taken");
    check_equal(links_complete.read<std::uint32_t>(), {blocks}, "links counted");
}

}  // namespace backlight::conformance
