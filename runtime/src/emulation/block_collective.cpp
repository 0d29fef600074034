// Instructions that a warp or a warpgroup executes together: who has come, who is missing, who went
// elsewhere.
#include "emulation/block_collective.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace backlight::emulation {

Block::Collective* Block::join_collective(const char* name, std::size_t size, std::uint32_t mask,
                                          Site site, void* payload) {
    const std::size_t first = running_ / size * size;
    const std::uint32_t bit = 1U << running_ % warp_lanes;
    if ((mask & bit) == 0) {
        throw FaultFound{FaultKind::divergent_collective,
                         fmt::format("{}: {} by thread {} with the mask {:#010x}, which lacks it",
                                     to_string(site), name, running_, mask)};
    }
    if (size > warp_lanes && first + size > threads_.size()) {
        throw FaultFound{FaultKind::divergent_collective,
                         fmt::format("{}: {} by thread {}, whose warpgroup is not whole",
                                     to_string(site), name, running_)};
    }
    Collective* mine = nullptr;
    // A warpgroup's are kept by its first warp; every warp of it must be looked at.
    const std::size_t first_warp = running_ / warpgroup_threads * (warpgroup_threads / warp_lanes);
    for (std::size_t warp = first_warp;
         warp < std::min(first_warp + warpgroup_threads / warp_lanes, warps_.size()); ++warp) {
        for (const auto& pending : warps_[warp].collectives) {
            const bool expects_me = running_ >= pending->first &&
                                    running_ < pending->first + pending->size &&
                                    (pending->mask & bit) != 0;
            if (!expects_me) {
                continue;
            }
            const bool same_place =
                pending->site.line == site.line && pending->site.file == site.file;
            // Only the mask must agree at a barrier of the warp.
            if (pending->size == size && pending->mask == mask && pending->name == name &&
                (same_place || name == warp_barrier_name)) {
                mine = pending.get();
                continue;
            }
            // The warps of a warpgroup may come to its instructions at different times.
            const std::size_t warp_begin = running_ / warp_lanes * warp_lanes;
            bool own_warp_waits = false;
            for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
                own_warp_waits |= pending->arrived[warp_begin + lane - pending->first];
            }
            if (!own_warp_waits) {
                continue;
            }
            throw FaultFound{
                FaultKind::divergent_collective,
                fmt::format("{}: thread {} comes to {} while others of its warp wait for it in {} "
                            "at {}",
                            to_string(site), running_, name, pending->name,
                            to_string(pending->site))};
        }
    }
    if (mine == nullptr) {
        auto fresh = std::make_unique<Collective>();
        fresh->name = name;
        fresh->site = site;
        fresh->mask = mask;
        fresh->first = first;
        fresh->size = size;
        fresh->without_ended =
            name == warp_barrier_name || name == shuffle_name || name == vote_name;
        mine = fresh.get();
        warps_[first / warp_lanes].collectives.push_back(std::move(fresh));
    }
    mine->arrived.set(running_ - first);
    mine->payloads[running_ - first] = payload;
    return mine;
}

void Block::finish_collective(Collective& done) {
    for (std::size_t i = 0; i < done.size; ++i) {
        if (done.arrived[i] && done.first + i != running_) {
            wake(done.first + i);
        }
    }
    std::erase_if(warps_[done.first / warp_lanes].collectives,
                  [&](const auto& pending) { return pending.get() == &done; });
}

std::size_t Block::expected_by(const Collective& collective) const {
    const std::uint32_t present =
        collective.without_ended ? warps_[collective.first / warp_lanes].live : whole_warp;
    return static_cast<std::size_t>(std::popcount(collective.mask & present)) *
           (collective.size / warp_lanes);
}

void Block::leave_collectives(std::size_t index) {
    warps_[index / warp_lanes].live &= ~(1U << index % warp_lanes);
    for (const Warp& warp : warps_) {
        for (const auto& pending : warp.collectives) {
            if (index < pending->first || index >= pending->first + pending->size ||
                (pending->mask >> index % warp_lanes & 1U) == 0) {
                continue;
            }
            if (!pending->without_ended) {
                throw FaultFound{
                    FaultKind::divergent_collective,
                    fmt::format("{}: thread {} ended while others of its warp wait for "
                                "it in {}",
                                to_string(pending->site), index, pending->name)};
            }
            if (pending->arrived.count() == expected_by(*pending)) {
                std::size_t first = 0;
                while (!pending->arrived[first]) {
                    ++first;
                }
                threads_[pending->first + first].due_collective = pending.get();
                wake(pending->first + first);
            }
        }
    }
}

}  // namespace backlight::emulation
