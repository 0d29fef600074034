#pragma once

#include <utility>

#include "emulation/block.hpp"

namespace backlight::emulation {

template <typename Execute>
void Block::collective(const char* name, std::size_t size, std::uint32_t mask, Site site,
                       void* payload, Execute execute) {
    maybe_yield();
    Collective* mine = join_collective(name, size, mask, site, payload);
    if (mine->arrived.count() < expected_by(*mine)) {
        wait(Waiting::collective, site);
        // Whoever came last has executed it; unless the last one ended instead of coming.
        mine = std::exchange(running().due_collective, nullptr);
        if (mine == nullptr) {
            return;
        }
    }
    execute(*mine);
    finish_collective(*mine);
}

}  // namespace backlight::emulation
