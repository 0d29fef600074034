#include "emulation/machine_table.hpp"

#include <bit>

#include "emulation/block.hpp"
#include "emulation/half_type.hpp"
#include "half_types.hpp"

namespace backlight::emulation {

namespace {

/// A Machine call that is a call of the running block's.
template <auto method, typename... Arguments>
auto forward(Arguments... arguments) {
    return (Block::current().*method)(arguments...);
}

unsigned pack(ElementType type, float low, float high) {
    return static_cast<unsigned>(to_bits(half_type(type), static_cast<double>(low))) |
           static_cast<unsigned>(to_bits(half_type(type), static_cast<double>(high))) << 16;
}

void unpack(ElementType type, unsigned packed, float* low, float* high) {
    *low = from_bits(half_type(type), static_cast<std::uint16_t>(packed));
    *high = from_bits(half_type(type), static_cast<std::uint16_t>(packed >> 16));
}

constexpr Machine table = {
    .position = [] { return Block::current().position(); },

    .block_barrier = forward<&Block::block_barrier>,
    .warp_barrier = forward<&Block::warp_barrier>,
    .shuffle = forward<&Block::shuffle>,
    .ballot = forward<&Block::ballot>,
    .elect = forward<&Block::elect>,
    .set_registers = forward<&Block::set_registers>,

    .mbarrier_initialise = forward<&Block::mbarrier_initialise>,
    .mbarrier_initialisation_fence = forward<&Block::mbarrier_initialisation_fence>,
    .mbarrier_arrive = [](unsigned barrier,
                          Site site) { Block::current().mbarrier_arrive(barrier, 0, site); },
    .mbarrier_arrive_expect_bytes = forward<&Block::mbarrier_arrive>,
    .mbarrier_wait = forward<&Block::mbarrier_wait>,
    .mbarrier_try_wait = forward<&Block::mbarrier_try_wait>,

    .proxy_fence = forward<&Block::proxy_fence>,
    .store_shared = forward<&Block::store_shared>,
    .load_shared = forward<&Block::load_shared>,
    .ldmatrix = forward<&Block::ldmatrix>,
    .stmatrix = forward<&Block::stmatrix>,
    .shared_address = forward<&Block::shared_address>,

    .mma_m16n8k16 = forward<&Block::mma>,
    .read_register = [](Register* used) { Block::current().read_register(*used); },
    .write_register = [](Register* used) { Block::current().write_register(*used); },
    .wgmma = [](const WarpgroupProduct& product,
                Site site) { Block::current().wgmma(product, site); },
    .wgmma_fence = forward<&Block::wgmma_fence>,
    .wgmma_commit = forward<&Block::wgmma_commit>,
    .wgmma_wait = forward<&Block::wgmma_wait>,
    .wgmma_fences = [] { return Block::current().wgmma_fences(); },

    .tensor_load = [](const TensorCopy& copy, unsigned barrier,
                      Site site) { Block::current().tensor_load(copy, barrier, site); },
    .tensor_store = [](const TensorCopy& copy,
                       Site site) { Block::current().tensor_write(copy, false, site); },
    .tensor_reduce_add = [](const TensorCopy& copy,
                            Site site) { Block::current().tensor_write(copy, true, site); },
    .bulk_load = forward<&Block::bulk_load>,
    .bulk_store =
        [](void* destination, unsigned source, int bytes, Site site) {
            Block::current().bulk_write(destination, source, bytes, std::nullopt, site);
        },
    .bulk_reduce_add =
        [](void* destination, unsigned source, int bytes, ElementType type, Site site) {
            Block::current().bulk_write(destination, source, bytes, type, site);
        },
    .bulk_commit = forward<&Block::bulk_commit>,
    .bulk_wait = forward<&Block::bulk_wait>,
    .async_copy = forward<&Block::async_copy>,
    .async_copy_commit = forward<&Block::async_copy_commit>,
    .async_copy_wait = forward<&Block::async_copy_wait>,

    .set_tensor_map_address = forward<&Block::set_tensor_map_address>,
    .set_tensor_map_extent = forward<&Block::set_tensor_map_extent>,
    .publish_tensor_map = forward<&Block::publish_tensor_map>,
    .acquire_tensor_map = forward<&Block::acquire_tensor_map>,

    .reduce_add_global = forward<&Block::reduce_add_global>,
    .add_global_counter = forward<&Block::add_global_counter>,
    .load_global_counter = forward<&Block::load_global_counter>,
    .wait_for_global_counter = forward<&Block::wait_for_global_counter>,

    .wait_for_previous_kernel = forward<&Block::wait_for_previous_kernel>,
    .allow_next_kernel = forward<&Block::allow_next_kernel>,

    .pack = pack,
    .unpack = unpack,
};

}  // namespace

const Machine& machine_table() noexcept {
    return table;
}

}  // namespace backlight::emulation
