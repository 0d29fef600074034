#pragma once

#include "emulation/block.hpp"

namespace backlight::emulation {

template <typename Execute>
void Block::collective(const char* name, std::size_t size, std::uint32_t mask, Site site,
                       void* payload, Execute execute) {
    maybe_yield();
    Collective* const mine = join_collective(name, size, mask, site, payload);
    const std::size_t expected =
        static_cast<std::size_t>(std::popcount(mask)) * (size / warp_lanes);
    if (mine->arrived.count() < expected) {
        wait(Waiting::collective, site);
        return;
    }
    execute(*mine);
    finish_collective(*mine);
}

}  // namespace backlight::emulation
