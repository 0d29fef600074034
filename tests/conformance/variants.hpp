#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "backlight/problem.hpp"
#include "compiler/backend.hpp"
#include "device/target.hpp"

namespace backlight::conformance {

/// A kernel of tests/conformance/kernels with the constants that it is compiled with.
struct Variant {
    std::string source;
    std::string entry;
    /// Lines of the specialisation.
    std::string constants = {};
    std::size_t shared_bytes = 0;
};

/// Where wgmma's A lies.
enum class OperandA { registers, k_major, mn_major };

Variant matrix_round_trip();
Variant mma_product(DataType type);
/// For n of 32, 64, 96, 128, 192 and 256 with bf16, of 64 with fp16.
Variant wgmma_product(DataType type, OperandA a);
Variant wgmma_groups();
/// `entry` is tensor_load, tensor_store or tensor_reduce_add.
Variant tensor_copy(const std::string& entry);
Variant bulk_round_trip();
Variant bulk_relay();
Variant async_copies();
Variant named_barriers();
/// With two consumer warpgroups that take over registers of the producer's, or with one.
Variant pipeline(bool move_registers);
Variant warp_collectives();
Variant global_reductions();
Variant global_counters();
Variant conversions(DataType type);

/// All that the tests run on a device of that target.
std::vector<Variant> all_variants(const device::Target& target);

/// Whether a target has wgmma.
bool has_wgmma(const device::Target& target);

/// What a Runtime's kernel store is asked for.
compiler::KernelRequest request_of(const Variant& variant, const device::Target& target);

}  // namespace backlight::conformance
