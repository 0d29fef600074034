// Tensor maps that kernels change: in shared memory, whence they are published to global memory.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "backlight/error.hpp"
#include "emulation/block.hpp"

namespace backlight::emulation {

namespace {

constexpr std::uint32_t alignment = 128;
/// The widest access of a thread.
constexpr std::uint32_t word_bytes = 16;

template <typename Action>
auto checked(Site site, const Action& action) {
    try {
        return action();
    } catch (const Error& error) {
        throw FaultFound{FaultKind::invalid_tensor_map,
                         fmt::format("{}: {}", to_string(site), error.what())};
    }
}

}  // namespace

TensorMapContent Block::tensor_map_in_shared(std::uint32_t map, Site site) {
    if (map % alignment != 0) {
        throw FaultFound{FaultKind::misaligned,
                         fmt::format("{}: a tensor map at shared address {:#x}: it must be a "
                                     "multiple of {} bytes",
                                     to_string(site), map, alignment)};
    }
    kernel::TensorMap copy;
    for (std::uint32_t offset = 0; offset < sizeof(copy); offset += word_bytes) {
        load_shared(map + offset, copy.opaque + offset, word_bytes, site);
    }
    return checked(site, [&] { return decode(&copy); });
}

void Block::put_tensor_map(std::uint32_t map, const TensorMapContent& content, Site site) {
    kernel::TensorMap copy;
    checked(site, [&] { encode(content, copy); });
    for (std::uint32_t offset = 0; offset < sizeof(copy); offset += word_bytes) {
        store_shared(map + offset, copy.opaque + offset, word_bytes, site);
    }
}

void Block::set_tensor_map_address(std::uint32_t map, const void* address, Site site) {
    TensorMapContent content = tensor_map_in_shared(map, site);
    content.address = static_cast<std::byte*>(const_cast<void*>(address));
    put_tensor_map(map, content, site);
}

void Block::set_tensor_map_extent(std::uint32_t map, int dimension, int extent, Site site) {
    TensorMapContent content = tensor_map_in_shared(map, site);
    if (dimension < 0 || dimension >= content.rank) {
        throw FaultFound{FaultKind::invalid_tensor_map,
                         fmt::format("{}: an extent of dimension {} of a tensor map of {}",
                                     to_string(site), dimension, content.rank)};
    }
    content.extents[static_cast<std::size_t>(dimension)] = extent;
    put_tensor_map(map, content, site);
}

void Block::publish_tensor_map(void* destination, std::uint32_t map, Site site) {
    maybe_yield();
    TensorMapContent content = tensor_map_in_shared(map, site);
    content.published = true;
    if (reinterpret_cast<std::uintptr_t>(destination) % alignment != 0) {
        throw FaultFound{
            FaultKind::misaligned,
            fmt::format("{}: a tensor map is published at {} it must be a multiple of "
                        "{} bytes",
                        to_string(site), launch_.memory->place(destination), alignment)};
    }
    if (const std::string refusal = launch_.memory->check(destination, sizeof(kernel::TensorMap));
        !refusal.empty()) {
        throw FaultFound{FaultKind::out_of_bounds, fmt::format("{}: {}", to_string(site), refusal)};
    }
    kernel::TensorMap published;
    checked(site, [&] { encode(content, published); });
    std::memcpy(destination, &published, sizeof(published));
}

void Block::acquire_tensor_map(const void* map, Site /*site*/) {
    std::vector<const void*>& acquired = running().tensor_maps_acquired;
    if (std::ranges::count(acquired, map) == 0) {
        acquired.push_back(map);
    }
}

}  // namespace backlight::emulation
