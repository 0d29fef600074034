// What a warp does together: shuffles, ldmatrix and stmatrix, products; and plain shared memory.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "emulation/block.hpp"
#include "emulation/block_collective.hpp"
#include "emulation/matrix_fragments.hpp"
#include "emulation/register_tag.hpp"

namespace backlight::emulation {

namespace {

struct ShufflePayload {
    std::uint32_t value;
    int source_lane;
    std::uint32_t result;
};

struct BallotPayload {
    bool predicate;
    std::uint32_t result;
};

struct LoadPayload {
    std::uint32_t address;
    Register* fragment;
};

struct StorePayload {
    std::uint32_t address;
    const std::uint32_t* fragment;
};

/// Lanes of ldmatrix and stmatrix that name a row.
std::size_t addressing_lanes(int matrices) {
    return static_cast<std::size_t>(matrices) * 8;
}

}  // namespace

std::uint32_t Block::shuffle(std::uint32_t mask, std::uint32_t value, int source_lane, Site site) {
    ShufflePayload mine{value, source_lane, 0};
    collective(shuffle_name, warp_lanes, mask, site, &mine, [&](Collective& all) {
        for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
            if (!all.arrived[lane]) {
                continue;
            }
            auto& payload = *static_cast<ShufflePayload*>(all.payloads[lane]);
            const auto source = static_cast<std::size_t>(payload.source_lane);
            if (source < warp_lanes && !all.arrived[source] && (mask >> source & 1U) != 0) {
                throw FaultFound{FaultKind::divergent_collective,
                                 fmt::format("{}: lane {} takes the value of lane {}, which has "
                                             "ended",
                                             to_string(site), lane, source)};
            }
            // What a lane outside of the mask would give is undefined: a NaN.
            payload.result = source < warp_lanes && all.arrived[source]
                                 ? static_cast<ShufflePayload*>(all.payloads[source])->value
                                 : 0xffffffffU;
        }
    });
    return mine.result;
}

std::uint32_t Block::ballot(std::uint32_t mask, bool predicate, Site site) {
    BallotPayload mine{predicate, 0};
    collective(vote_name, warp_lanes, mask, site, &mine, [](Collective& all) {
        std::uint32_t votes = 0;
        for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
            if (all.arrived[lane] && static_cast<BallotPayload*>(all.payloads[lane])->predicate) {
                votes |= 1U << lane;
            }
        }
        for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
            if (all.arrived[lane]) {
                static_cast<BallotPayload*>(all.payloads[lane])->result = votes;
            }
        }
    });
    return mine.result;
}

bool Block::elect(std::uint32_t mask, Site site) {
    collective("elect.sync", warp_lanes, mask, site, nullptr, [](Collective&) {});
    // Which lane it is the hardware does not say, only that it is the same each time.
    Random random(derived_seed(launch_.seed, mask ^ warp_of_running() << 32));
    std::uint32_t lanes = mask;
    for (std::uint32_t skip = random.below(static_cast<std::uint32_t>(std::popcount(mask)));
         skip > 0; --skip) {
        lanes &= lanes - 1;
    }
    return running_ % warp_lanes == static_cast<std::size_t>(std::countr_zero(lanes));
}

void Block::set_registers(int registers, bool increase, Site site) {
    constexpr int fewest = 24;
    constexpr int most = 256;
    const char* const name = increase ? "setmaxnreg.inc" : "setmaxnreg.dec";
    Warp& own = warps_[warp_of_running()];
    if (registers < fewest || registers > most || registers % 8 != 0) {
        throw FaultFound{FaultKind::invalid_register_count,
                         fmt::format("{}: {} {}: it must be a multiple of 8 from {} to {}",
                                     to_string(site), name, registers, fewest, most)};
    }
    if (increase ? registers < own.registers : registers > own.registers) {
        throw FaultFound{FaultKind::invalid_register_count,
                         fmt::format("{}: {} {} of thread {}, which has {}: it must not {}",
                                     to_string(site), name, registers, running_, own.registers,
                                     increase ? "be less" : "be more")};
    }
    const int needed = (registers - own.registers) * warpgroup_threads;
    // The whole warpgroup changes together, and an increase waits for what others give up.
    collective(name, warpgroup_threads, whole_warp, site, nullptr, [](Collective&) {});
    while (increase && own.registers != registers && free_registers_ < needed) {
        running().awaited_registers = registers;
        wait(Waiting::registers, site);
    }
    if (own.registers == registers) {
        return;
    }
    const std::size_t first = warp_of_running() / 4 * 4;
    for (std::size_t warp = first; warp < first + 4; ++warp) {
        warps_[warp].registers = registers;
    }
    free_registers_ -= needed;
    for (std::size_t index = 0; index < threads_.size(); ++index) {
        if (!threads_[index].finished && threads_[index].waiting == Waiting::registers) {
            wake(index);
        }
    }
}

// --- Shared memory -------------------------------------------------------------------------------

void Block::store_shared(std::uint32_t address, const void* data, int bytes, Site site) {
    const auto size = static_cast<std::uint32_t>(bytes);
    memory_.write(running_index(), address, size, size, site);
    std::memcpy(memory_.at(address), data, size);
    count_plain_access(address, size, site);
    maybe_yield();
}

void Block::load_shared(std::uint32_t address, void* data, int bytes, Site site) {
    maybe_yield();
    const auto size = static_cast<std::uint32_t>(bytes);
    memory_.read(running_index(), address, size, size, site);
    std::memcpy(data, memory_.at(address), size);
    count_plain_access(address, size, site);
}

std::uint32_t Block::shared_address(const void* pointer, Site site) const {
    const auto first = reinterpret_cast<std::uintptr_t>(launch_.shared_memory.data());
    const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(pointer) - first;
    if (offset > launch_.shared_memory.size()) {
        throw FaultFound{FaultKind::out_of_bounds,
                         fmt::format("{}: an address is taken for one of shared memory, and lies "
                                     "outside of the block's",
                                     to_string(site))};
    }
    return SharedMemory::base + static_cast<std::uint32_t>(offset);
}

void Block::count_plain_access(std::uint32_t address, std::uint32_t bytes, Site site) {
    if (launch_.bank_conflicts == nullptr) {
        return;
    }
    Warp& warp = warps_[warp_of_running()];
    auto found = std::ranges::find_if(warp.plain_accesses, [&](const LaneAccesses& accesses) {
        return accesses.site.line == site.line && accesses.site.file == site.file &&
               accesses.bytes == bytes;
    });
    if (found == warp.plain_accesses.end()) {
        warp.plain_accesses.push_back({.site = site, .bytes = bytes});
        found = warp.plain_accesses.end() - 1;
    }
    const std::uint32_t execution = found->executions[running_ % warp_lanes]++;
    auto& addresses = found->addresses[execution];
    addresses[running_ % warp_lanes] = address;
    if (addresses.size() == static_cast<std::size_t>(std::popcount(warp.live))) {
        count_bank_conflicts(*found, addresses);
        found->addresses.erase(execution);
    }
}

void Block::count_incomplete_accesses() {
    for (const Warp& warp : warps_) {
        for (const LaneAccesses& accesses : warp.plain_accesses) {
            for (const auto& [execution, addresses] : accesses.addresses) {
                count_bank_conflicts(accesses, addresses);
            }
        }
    }
}

void Block::count_bank_conflicts(const LaneAccesses& accesses,
                                 const std::map<std::size_t, std::uint32_t>& by_lane) const {
    std::vector<std::uint32_t> addresses;
    for (const auto& [lane, address] : by_lane) {
        addresses.push_back(address);
    }
    launch_.bank_conflicts->count(accesses.site, addresses, accesses.bytes, true);
}

void Block::ldmatrix(std::uint32_t address, int matrices, bool transposed, Register* fragment,
                     Site site) {
    LoadPayload mine{address, fragment};
    collective("ldmatrix", warp_lanes, whole_warp, site, &mine, [&](Collective& all) {
        Warp& warp = warps_[warp_of_running()];
        UnboundRead read{.number = ++warp.loads, .rows = {}, .site = site};
        std::array<MatrixRow, warp_lanes> rows{};
        for (std::size_t lane = 0; lane < addressing_lanes(matrices); ++lane) {
            const auto& payload = *static_cast<LoadPayload*>(all.payloads[lane]);
            memory_.read(static_cast<int>(all.first + lane), payload.address, matrix_row_bytes,
                         matrix_row_bytes, site);
            std::memcpy(rows[lane].data(), memory_.at(payload.address), matrix_row_bytes);
            read.rows.push_back(payload.address);
        }
        const auto registers =
            load_matrices(std::span(rows).first(addressing_lanes(matrices)), transposed);
        const RegisterTag tag{RegisterTag::Kind::load, read.number};
        for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
            Register* const into = static_cast<LoadPayload*>(all.payloads[lane])->fragment;
            for (std::size_t i = 0; i < static_cast<std::size_t>(matrices); ++i) {
                if (into[i].tag != 0) {
                    write_register(into[i]);
                }
                into[i] = {registers[lane][i], tag.bits(), threads_[all.first + lane].wgmma_fences};
            }
        }
        if (launch_.bank_conflicts != nullptr) {
            for (std::size_t i = 0; i < static_cast<std::size_t>(matrices); ++i) {
                launch_.bank_conflicts->count(site, std::span(read.rows).subspan(i * 8, 8),
                                              matrix_row_bytes, i == 0);
            }
        }
        warp.unbound.push_back(std::move(read));
    });
}

void Block::stmatrix(std::uint32_t address, int matrices, bool transposed,
                     const std::uint32_t* fragment, Site site) {
    StorePayload mine{address, fragment};
    collective("stmatrix", warp_lanes, whole_warp, site, &mine, [&](Collective& all) {
        WarpRegisters<std::uint32_t, 4> registers{};
        for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
            const auto& payload = *static_cast<StorePayload*>(all.payloads[lane]);
            for (std::size_t i = 0; i < static_cast<std::size_t>(matrices); ++i) {
                registers[lane][i] = payload.fragment[i];
            }
        }
        std::array<MatrixRow, warp_lanes> rows{};
        const std::size_t count = addressing_lanes(matrices);
        store_matrices(registers, transposed, std::span(rows).first(count));
        std::array<std::uint32_t, warp_lanes> addresses{};
        for (std::size_t lane = 0; lane < count; ++lane) {
            addresses[lane] = static_cast<StorePayload*>(all.payloads[lane])->address;
            memory_.write(static_cast<int>(all.first + lane), addresses[lane], matrix_row_bytes,
                          matrix_row_bytes, site);
            std::memcpy(memory_.at(addresses[lane]), rows[lane].data(), matrix_row_bytes);
        }
        if (launch_.bank_conflicts != nullptr) {
            for (std::size_t i = 0; i < static_cast<std::size_t>(matrices); ++i) {
                launch_.bank_conflicts->count(site, std::span(addresses).subspan(i * 8, 8),
                                              matrix_row_bytes, i == 0);
            }
        }
    });
}

}  // namespace backlight::emulation
