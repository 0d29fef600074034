// wgmma: products of a warpgroup on operands in shared memory, asynchronous.
//
// Values are computed when the last thread asks for the product; until a thread has waited for the
// product's group, its accumulators are not to be touched, nor A's registers changed, and a write
// to a source in shared memory is a fault unless the writer knows of such a wait: hardware might
// read the source before or after.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "emulation/block.hpp"
#include "emulation/block_collective.hpp"
#include "emulation/half_type.hpp"
#include "emulation/matrix_descriptor.hpp"
#include "emulation/matrix_fragments.hpp"
#include "emulation/register_tag.hpp"

namespace backlight::emulation {

namespace {

constexpr std::uint32_t piece_bytes = 16;

}  // namespace

void Block::wgmma(const WarpgroupProduct& product, Site site) {
    if (!launch_.has_wgmma) {
        throw FaultFound{FaultKind::unavailable_instruction,
                         fmt::format("{}: the emulated device has no wgmma: compute capability 9.0 "
                                     "alone has it",
                                     to_string(site))};
    }
    WarpgroupProduct mine = product;
    collective("wgmma.mma_async", warpgroup_threads, whole_warp, site, &mine,
               [&](Collective& all) { execute_wgmma(all, site); });
}

void Block::execute_wgmma(Collective& all, Site site) {
    const WarpgroupProduct& first = *static_cast<WarpgroupProduct*>(all.payloads[0]);
    const int n = first.columns;
    const auto accumulators = static_cast<std::size_t>(n) / 2;
    const bool a_in_registers = first.a != nullptr;
    const std::size_t leader = running_;
    const auto require_fenced = [&](const Thread& thread, const Register& used, const char* what) {
        if (used.fences >= thread.wgmma_fences) {
            throw FaultFound{FaultKind::missing_wgmma_fence,
                             fmt::format("{}: thread {} changed {} of this wgmma after its last "
                                         "wgmma.fence",
                                         to_string(site), thread.position.thread, what)};
        }
    };
    std::vector<std::array<std::uint32_t, 4>> a_registers(a_in_registers ? warpgroup_threads : 0);
    std::vector<float> sums(warpgroup_threads * accumulators);
    std::array<float*, warpgroup_threads> sums_of_threads{};
    for (std::size_t i = 0; i < warpgroup_threads; ++i) {
        const auto& payload = *static_cast<WarpgroupProduct*>(all.payloads[i]);
        if (payload.a_descriptor != first.a_descriptor ||
            payload.b_descriptor != first.b_descriptor || payload.accumulate != first.accumulate ||
            payload.columns != n || (payload.a != nullptr) != a_in_registers) {
            throw FaultFound{FaultKind::divergent_collective,
                             fmt::format("{}: thread {} brings other descriptors, shape or "
                                         "scale-d to the wgmma than thread {}",
                                         to_string(site), all.first + i, all.first)};
        }
        running_ = all.first + i;
        for (std::size_t j = 0; j < accumulators; ++j) {
            Register& sum = payload.accumulators[j];
            const RegisterTag tag = RegisterTag::of(sum.tag);
            if (tag.kind != RegisterTag::Kind::warpgroup_result) {
                if (sum.tag != 0) {
                    write_register(sum);
                }
                require_fenced(running(), sum, "an accumulator");
            }
            sums[i * accumulators + j] = std::bit_cast<float>(sum.bits);
        }
        for (std::size_t j = 0; a_in_registers && j < 4; ++j) {
            // The tag changes, the value does not.
            auto& operand = const_cast<Register&>(payload.a[j]);
            if (operand.tag != 0) {
                read_register(operand);
            }
            require_fenced(running(), operand, "a register of A");
            a_registers[i][j] = operand.bits;
        }
        sums_of_threads[i] = sums.data() + i * accumulators;
    }
    running_ = leader;

    Warp& group = warps_[all.first / warp_lanes];
    if (!group.warpgroup_component) {
        group.warpgroup_component = order_.add_component();
    }
    const std::uint32_t number = ++group.warpgroup_products;
    const HappensBefore::Event end{*group.warpgroup_component, number};
    const DataType type = half_type(first.type);
    const WgmmaMatrixA a =
        a_in_registers ? widen_registers(
                             type, std::span<const std::array<std::uint32_t, 4>, warpgroup_threads>(
                                       a_registers.data(), warpgroup_threads))
                       : fetch_a(type,
                                 source_of_wgmma(first.a_descriptor, first.a_major, wgmma_m,
                                                 Operand::a, all.first, end, site),
                                 first.a_major, memory_.window());
    auto b = std::make_unique<WgmmaMatrixB>();
    fetch_b(type,
            source_of_wgmma(first.b_descriptor, first.b_major, n, Operand::b, all.first, end, site),
            first.b_major, n, memory_.window(), *b);
    multiply_m64nNk16(n, sums_of_threads, a, *b, {.accumulate = first.accumulate});

    const RegisterTag result{RegisterTag::Kind::warpgroup_result, number};
    const RegisterTag source{RegisterTag::Kind::warpgroup_source, number};
    for (std::size_t i = 0; i < warpgroup_threads; ++i) {
        const auto& payload = *static_cast<WarpgroupProduct*>(all.payloads[i]);
        for (std::size_t j = 0; j < accumulators; ++j) {
            payload.accumulators[j] = {std::bit_cast<std::uint32_t>(sums[i * accumulators + j]),
                                       result.bits(), 0};
        }
        for (std::size_t j = 0; a_in_registers && j < 4; ++j) {
            const_cast<Register&>(payload.a[j]).tag = source.bits();
        }
        threads_[all.first + i].wgmma_uncommitted = number;
    }
}

MatrixDescriptor Block::source_of_wgmma(std::uint64_t bits, Major major, int outer, Operand operand,
                                        std::size_t first_thread, HappensBefore::Event end,
                                        Site site) {
    const std::string refusal = validate_descriptor(bits, major, outer, memory_.window(),
                                                    operand == Operand::a ? "A" : "B");
    if (!refusal.empty()) {
        throw FaultFound{FaultKind::invalid_descriptor,
                         fmt::format("{}: {}", to_string(site), refusal)};
    }
    const MatrixDescriptor descriptor = decode_descriptor(bits);
    const std::vector<std::uint32_t> pieces = piece_addresses(descriptor, major, outer);
    for (std::size_t number = 0; number < pieces.size(); ++number) {
        // Of A each warp reads the 16 rows that its accumulators belong to, of B all: the threads
        // that read must know of what they read.
        const std::size_t row = major == Major::k ? number / 2 : number / 16 * 8;
        for (std::size_t warp = 0; warp < warpgroup_threads / warp_lanes; ++warp) {
            if (operand == Operand::a && row / 16 != warp) {
                continue;
            }
            for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
                memory_.read_by_proxy(static_cast<int>(first_thread + warp * warp_lanes + lane),
                                      pieces[number], piece_bytes, site);
            }
        }
        memory_.note_asynchronous_read(end, pieces[number], site);
    }
    return descriptor;
}

void Block::wgmma_fence(Site site) {
    collective("wgmma.fence", warp_lanes, whole_warp, site, nullptr, [](Collective&) {});
    ++running().wgmma_fences;
}

void Block::wgmma_commit(Site site) {
    collective("wgmma.commit_group", warp_lanes, whole_warp, site, nullptr, [](Collective&) {});
    Thread& thread = running();
    thread.wgmma_groups.push_back(std::exchange(thread.wgmma_uncommitted, 0));
}

void Block::wgmma_wait(int groups_pending, Site site) {
    collective("wgmma.wait_group", warp_lanes, whole_warp, site, nullptr, [](Collective&) {});
    Thread& thread = running();
    while (thread.wgmma_groups.size() > static_cast<std::size_t>(groups_pending)) {
        thread.wgmma_done = std::max(thread.wgmma_done, thread.wgmma_groups.front());
        thread.wgmma_groups.erase(thread.wgmma_groups.begin());
    }
    // The whole warpgroup's products have ended, whichever of its threads waits.
    const Warp& group = warps_[running_ / warpgroup_threads * (warpgroup_threads / warp_lanes)];
    if (group.warpgroup_component) {
        order_.learn(running_index(), {*group.warpgroup_component, thread.wgmma_done});
    }
}

}  // namespace backlight::emulation
