#include "variants.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace backlight::conformance {

namespace {

std::string read_text(const std::string& name) {
    const std::filesystem::path path =
        std::filesystem::path(BACKLIGHT_CONFORMANCE_KERNELS_DIR) / name;
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw std::runtime_error(fmt::format("cannot read {}", path.string()));
    }
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string element(DataType type) {
    return fmt::format("using Element = {};\n", type == DataType::fp16 ? "fp16" : "bf16");
}

/// The constants of synchronisation.cu, which all of its kernels are compiled with.
std::string pipeline_constants(bool move_registers) {
    return fmt::format(
        "constexpr int consumer_warpgroups = {};\n"
        "constexpr bool move_registers = {};\n",
        move_registers ? 2 : 1, move_registers);
}

Variant synchronisation(const std::string& entry, bool move_registers = false) {
    return {.source = "synchronisation.cu",
            .entry = entry,
            .constants = pipeline_constants(move_registers),
            .shared_bytes = 4096};
}

Variant wgmma(const std::string& entry, DataType type, OperandA a, bool all_widths) {
    return {.source = "wgmma.cu",
            .entry = entry,
            .constants = element(type) + fmt::format("constexpr bool a_in_registers = {};\n"
                                                     "constexpr bool a_mn_major = {};\n"
                                                     "constexpr bool all_widths = {};\n",
                                                     a == OperandA::registers,
                                                     a == OperandA::mn_major, all_widths),
            .shared_bytes = std::size_t{41} * 1024};
}

}  // namespace

Variant matrix_round_trip() {
    return {.source = "matrices.cu",
            .entry = "matrix_round_trip",
            .constants = element(DataType::bf16),
            .shared_bytes = 1024};
}

Variant mma_product(DataType type) {
    return {.source = "matrices.cu",
            .entry = "mma_product",
            .constants = element(type),
            .shared_bytes = 1024};
}

Variant wgmma_product(DataType type, OperandA a) {
    // The widths take long to compile, and nothing in them depends on the type.
    return wgmma("wgmma_product", type, a, type == DataType::bf16);
}

Variant wgmma_groups() {
    return wgmma("wgmma_groups", DataType::bf16, OperandA::k_major, false);
}

Variant tensor_copy(const std::string& entry) {
    return {.source = "tensor_copies.cu", .entry = entry, .shared_bytes = std::size_t{33} * 1024};
}

Variant bulk_round_trip() {
    return {.source = "bulk_copies.cu",
            .entry = "bulk_round_trip",
            .shared_bytes = std::size_t{17} * 1024};
}

Variant bulk_relay() {
    return {
        .source = "bulk_copies.cu", .entry = "bulk_relay", .shared_bytes = std::size_t{17} * 1024};
}

Variant async_copies() {
    return {.source = "bulk_copies.cu", .entry = "async_copies", .shared_bytes = 2048};
}

Variant named_barriers() {
    return synchronisation("named_barriers");
}

Variant pipeline(bool move_registers) {
    return synchronisation("pipeline", move_registers);
}

Variant warp_collectives() {
    return synchronisation("warp_collectives");
}

Variant global_reductions() {
    return synchronisation("global_reductions");
}

Variant global_counters() {
    return synchronisation("global_counters");
}

Variant conversions(DataType type) {
    return {.source = "conversions.cu", .entry = "conversions", .constants = element(type)};
}

std::vector<Variant> all_variants(const device::Target& target) {
    std::vector<Variant> variants = {matrix_round_trip(),
                                     mma_product(DataType::bf16),
                                     mma_product(DataType::fp16),
                                     tensor_copy("tensor_load"),
                                     tensor_copy("tensor_store"),
                                     tensor_copy("tensor_reduce_add"),
                                     bulk_round_trip(),
                                     bulk_relay(),
                                     async_copies(),
                                     named_barriers(),
                                     pipeline(false),
                                     pipeline(true),
                                     warp_collectives(),
                                     global_reductions(),
                                     global_counters(),
                                     conversions(DataType::bf16),
                                     conversions(DataType::fp16)};
    if (has_wgmma(target)) {
        variants.push_back(wgmma_groups());
        for (const DataType type : {DataType::bf16, DataType::fp16}) {
            for (const OperandA a : {OperandA::registers, OperandA::k_major, OperandA::mn_major}) {
                variants.push_back(wgmma_product(type, a));
            }
        }
    }
    return variants;
}

bool has_wgmma(const device::Target& target) {
    return target.compute_major == 9;
}

compiler::KernelRequest request_of(const Variant& variant, const device::Target& target) {
    return {.source = variant.source,
            .entry = variant.entry,
            .specialisation =
                read_text("arguments.h") + "\nnamespace backlight::kernel::specialisation {\n\n" +
                variant.constants + "\n}  // namespace backlight::kernel::specialisation\n",
            .target = target,
            .text = read_text(variant.source)};
}

}  // namespace backlight::conformance
