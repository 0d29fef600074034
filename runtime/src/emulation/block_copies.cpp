// Asynchronous copies: TMA, bulk and cp.async; and reductions in global memory.
//
// A copy into shared memory takes effect when nothing else can happen, or at a random moment
// before; it reads its source then. A copy out of shared memory reads its source as late as the
// wait for its group allows: what a wait finds overwritten is a fault.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "backlight/error.hpp"
#include "emulation/block.hpp"

namespace backlight::emulation {

namespace {

constexpr std::uint32_t bulk_unit = 16;

void require(const std::string& refusal, FaultKind kind, Site site) {
    if (!refusal.empty()) {
        throw FaultFound{kind, fmt::format("{}: {}", to_string(site), refusal)};
    }
}

}  // namespace

TensorMapContent Block::tensor_map_at(const void* map, const TensorCopy& copy, Site site) const {
    TensorMapContent content;
    try {
        content = decode(map);
    } catch (const Error& error) {
        throw FaultFound{FaultKind::invalid_tensor_map,
                         fmt::format("{}: {}", to_string(site), error.what())};
    }
    if (content.published && std::ranges::count(running().tensor_maps_acquired, map) == 0) {
        throw FaultFound{FaultKind::missing_proxy_fence,
                         fmt::format("{}: a copy by a tensor map that a kernel has published, and "
                                     "that the thread has not acquired: {} it may have another "
                                     "content yet",
                                     to_string(site), launch_.memory->place(map))};
    }
    if (content.rank != copy.rank) {
        throw FaultFound{FaultKind::invalid_tensor_map,
                         fmt::format("{}: a copy of {} dimensions with a tensor map of {}",
                                     to_string(site), copy.rank, content.rank)};
    }
    require(check_shared_address(content, copy.shared_address, memory_.window()),
            copy.shared_address % 128 != 0 ? FaultKind::misaligned : FaultKind::invalid_tensor_map,
            site);
    require(check_coordinates(
                content, std::span(copy.coordinates).first(static_cast<std::size_t>(copy.rank))),
            FaultKind::misaligned, site);
    return content;
}

// --- Into shared memory --------------------------------------------------------------------------

void Block::tensor_load(const TensorCopy& copy, std::uint32_t barrier, Site site) {
    maybe_yield();
    const TensorMapContent content = tensor_map_at(copy.tensor_map, copy, site);
    add_load({.pieces = copy_pieces(
                  content, std::span(copy.coordinates).first(static_cast<std::size_t>(copy.rank)),
                  copy.shared_address),
              .destination = copy.shared_address,
              .shared_bytes = static_cast<std::uint32_t>(shared_bytes(content)),
              .announced_bytes = static_cast<std::uint32_t>(box_bytes(content)),
              .barrier = barrier,
              .site = site},
             site);
}

void Block::bulk_load(std::uint32_t destination, const void* source, int bytes,
                      std::uint32_t barrier, Site site) {
    maybe_yield();
    const auto size = static_cast<std::uint32_t>(bytes);
    require(check_bulk(destination, source, size, memory_.window()), FaultKind::misaligned, site);
    add_load({.pieces = bulk_pieces(destination, static_cast<std::byte*>(const_cast<void*>(source)),
                                    size),
              .destination = destination,
              .shared_bytes = size,
              .announced_bytes = size,
              .barrier = barrier,
              .site = site},
             site);
}

void Block::add_load(PendingLoad load, Site site) {
    MBarrier& barrier = mbarrier_at(load.barrier, site);
    barrier.require_visible(site);
    for (const CopyPiece& piece : load.pieces) {
        if (piece.global != nullptr) {
            require(launch_.memory->check(piece.global, piece.bytes), FaultKind::out_of_bounds,
                    site);
        }
    }
    memory_.begin_copy(running_index(), load.destination, load.shared_bytes, site);
    overwrite_unbound_reads(load.destination, load.shared_bytes, site);
    barrier.begin_copy();
    pending_loads_.push_back(std::move(load));
}

void Block::complete_load(std::size_t index) {
    const PendingLoad load = std::move(pending_loads_[index]);
    pending_loads_.erase(pending_loads_.begin() + static_cast<std::ptrdiff_t>(index));
    emulation::load(load.pieces, memory_.window());
    refusals_ = 0;
    MBarrier& barrier = mbarriers_.at(load.barrier);
    memory_.finish_copy(load.destination, load.shared_bytes, barrier.copy_completion());
    if (barrier.finish_copy(load.announced_bytes)) {
        wake_waiting_for(load.barrier);
    }
}

// --- Out of shared memory ------------------------------------------------------------------------

void Block::tensor_write(const TensorCopy& copy, bool reduce, Site site) {
    maybe_yield();
    const TensorMapContent content = tensor_map_at(copy.tensor_map, copy, site);
    for (int dimension = 0; dimension < copy.rank; ++dimension) {
        if (copy.coordinates[dimension] < 0) {
            throw FaultFound{
                FaultKind::out_of_bounds,
                fmt::format("{}: the box starts at {} along dimension {}: only a load may start "
                            "before a tensor, a store or reduction is stopped there as an illegal "
                            "instruction",
                            to_string(site), copy.coordinates[dimension], dimension)};
        }
    }
    add_bulk_write(
        {.pieces = copy_pieces(
             content, std::span(copy.coordinates).first(static_cast<std::size_t>(copy.rank)),
             copy.shared_address),
         .reduce = reduce ? std::optional(content.type) : std::nullopt,
         .source_versions = {},
         .data = {},
         .site = site},
        copy.shared_address, static_cast<std::uint32_t>(shared_bytes(content)));
}

void Block::bulk_write(void* destination, std::uint32_t source, int bytes,
                       std::optional<ElementType> reduce, Site site) {
    maybe_yield();
    const auto size = static_cast<std::uint32_t>(bytes);
    require(check_bulk(source, destination, size, memory_.window()), FaultKind::misaligned, site);
    add_bulk_write({.pieces = bulk_pieces(source, static_cast<std::byte*>(destination), size),
                    .reduce = reduce,
                    .source_versions = {},
                    .data = {},
                    .site = site},
                   source, size);
}

void Block::add_bulk_write(BulkWrite write, std::uint32_t source, std::uint32_t bytes) {
    for (const CopyPiece& piece : write.pieces) {
        if (piece.global != nullptr) {
            require(launch_.memory->check(piece.global, piece.bytes), FaultKind::out_of_bounds,
                    write.site);
        }
    }
    memory_.read_by_proxy(running_index(), source, bytes, write.site);
    write.source_versions.emplace_back(source, memory_.versions(source, bytes));
    running().bulk_uncommitted.push_back(std::move(write));
}

void Block::read_source(BulkWrite& write) {
    if (write.source_read) {
        return;
    }
    write.source_read = true;
    const std::string reader = fmt::format("the copy out of it at {}", to_string(write.site));
    for (const auto& [address, versions] : write.source_versions) {
        memory_.require_unchanged(address, versions, reader);
        memory_.note_read(running_index(), address,
                          static_cast<std::uint32_t>(versions.size() * sizeof(std::uint32_t)),
                          write.site);
    }
    for (const CopyPiece& piece : write.pieces) {
        const std::byte* const from = memory_.at(piece.shared_address);
        write.data.insert(write.data.end(), from, from + piece.bytes);
    }
}

void Block::write_result(BulkWrite& write) const {
    if (write.written) {
        return;
    }
    write.written = true;
    // The pieces again, out of what was read: packed one after the other from address 0 on.
    std::vector<CopyPiece> pieces = write.pieces;
    std::uint32_t offset = 0;
    for (CopyPiece& piece : pieces) {
        piece.shared_address = offset;
        offset += piece.bytes;
    }
    const SharedWindow read{.base = 0, .bytes = write.data};
    if (write.reduce) {
        reduce_add(*write.reduce, pieces, read);
    } else {
        store(pieces, read);
    }
}

void Block::bulk_commit(Site /*site*/) {
    Thread& thread = running();
    thread.bulk_groups.push_back(std::exchange(thread.bulk_uncommitted, {}));
}

void Block::bulk_wait(int groups_pending, bool read, Site /*site*/) {
    maybe_yield();
    Thread& thread = running();
    const std::size_t groups = thread.bulk_groups.size();
    const auto pending = static_cast<std::size_t>(groups_pending);
    for (std::size_t group = 0; group + pending < groups; ++group) {
        for (BulkWrite& write : thread.bulk_groups[group]) {
            read_source(write);
            // Having been read, it may be written at any time up to the wait for that.
            if (!read || random_.one_in(2)) {
                write_result(write);
            }
        }
    }
    while (thread.bulk_groups.size() > pending &&
           std::ranges::all_of(thread.bulk_groups.front(),
                               [](const BulkWrite& write) { return write.written; })) {
        thread.bulk_groups.erase(thread.bulk_groups.begin());
    }
}

void Block::finish_bulk_writes() {
    for (Thread& thread : threads_) {
        for (auto& group : thread.bulk_groups) {
            for (BulkWrite& write : group) {
                write_result(write);
            }
        }
    }
}

void Block::require_copies_finished(const Thread& thread) const {
    const auto fail = [&](const char* what, Site site) {
        throw FaultFound{FaultKind::unfinished_copies,
                         fmt::format("{}: thread {} ended without waiting for {}", to_string(site),
                                     thread.position.thread, what)};
    };
    if (!thread.bulk_uncommitted.empty()) {
        fail("this copy, which it did not commit", thread.bulk_uncommitted.front().site);
    }
    for (const auto& group : thread.bulk_groups) {
        for (const BulkWrite& write : group) {
            if (!write.source_read) {
                fail("this copy to have read shared memory", write.site);
            }
        }
    }
    // A group without copies leaves nothing to wait for.
    if (!thread.async_uncommitted.empty() ||
        std::ranges::any_of(thread.async_groups,
                            [](const auto& group) { return !group.empty(); })) {
        fail("its cp.async", thread.site);
    }
    if (thread.wgmma_uncommitted != 0 ||
        std::ranges::any_of(thread.wgmma_groups, [](std::uint32_t last) { return last != 0; })) {
        fail("its wgmma groups", thread.site);
    }
}

// --- cp.async ------------------------------------------------------------------------------------

void Block::async_copy(std::uint32_t destination, const void* source, int bytes, int source_bytes,
                       Site site) {
    maybe_yield();
    const auto size = static_cast<std::uint32_t>(bytes);
    const auto taken = static_cast<std::uint32_t>(source_bytes);
    memory_.require_range(destination, size, size, site);
    if (source_bytes < 0 || source_bytes > bytes) {
        throw FaultFound{
            FaultKind::out_of_bounds,
            fmt::format("{}: cp.async of {} bytes, {} of them from its source: it must "
                        "be 0 to {}",
                        to_string(site), bytes, source_bytes, bytes)};
    }
    if (source_bytes > 0) {
        if (reinterpret_cast<std::uintptr_t>(source) % size != 0) {
            throw FaultFound{FaultKind::misaligned,
                             fmt::format("{}: cp.async of {} bytes from {} it must "
                                         "be a multiple of the size",
                                         to_string(site), bytes, launch_.memory->place(source))};
        }
        require(launch_.memory->check(source, taken), FaultKind::out_of_bounds, site);
    }
    memory_.begin_thread_copy(running_index(), destination, size, site);
    running().async_uncommitted.push_back({.destination = destination,
                                           .source = static_cast<const std::byte*>(source),
                                           .bytes = size,
                                           .source_bytes = taken});
}

void Block::async_copy_commit(Site /*site*/) {
    Thread& thread = running();
    thread.async_groups.push_back(std::exchange(thread.async_uncommitted, {}));
}

void Block::async_copy_wait(int groups_pending, Site /*site*/) {
    maybe_yield();
    Thread& thread = running();
    while (thread.async_groups.size() > static_cast<std::size_t>(groups_pending)) {
        for (const AsyncCopy& copy : thread.async_groups.front()) {
            std::memset(memory_.at(copy.destination), 0, copy.bytes);
            std::memcpy(memory_.at(copy.destination), copy.source, copy.source_bytes);
            memory_.finish_thread_copy(running_index(), copy.destination, copy.bytes);
        }
        thread.async_groups.erase(thread.async_groups.begin());
    }
}

// --- Global memory -------------------------------------------------------------------------------

void Block::reduce_add_global(float* address, const float* values, int count, Site site) {
    maybe_yield();
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
    if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) {
        throw FaultFound{FaultKind::misaligned,
                         fmt::format("{}: a reduction of {} bytes at {} it must be a "
                                     "multiple of the size",
                                     to_string(site), bytes, launch_.memory->place(address))};
    }
    require(launch_.memory->check(address, bytes), FaultKind::out_of_bounds, site);
    for (int i = 0; i < count; ++i) {
        std::atomic_ref<float>(address[i]).fetch_add(values[i], std::memory_order_relaxed);
    }
}

unsigned Block::add_global_counter(unsigned* counter, Site site) {
    maybe_yield();
    require(launch_.memory->check(counter, sizeof(*counter)), FaultKind::out_of_bounds, site);
    const unsigned before =
        std::atomic_ref<unsigned>(*counter).fetch_add(1, std::memory_order_acq_rel);
    launch_.counters->count();
    return before;
}

unsigned Block::load_global_counter(const unsigned* counter, Site site) {
    maybe_yield();
    require(launch_.memory->check(counter, sizeof(*counter)), FaultKind::out_of_bounds, site);
    return std::atomic_ref<unsigned>(*const_cast<unsigned*>(counter))
        .load(std::memory_order_acquire);
}

unsigned Block::wait_for_global_counter(const unsigned* counter, unsigned value, Site site) {
    unsigned reached = load_global_counter(counter, site);
    while (reached < value) {
        wait(Waiting::global_counter, site);
        reached = load_global_counter(counter, site);
    }
    return reached;
}

}  // namespace backlight::emulation
