#include "attention/kernels.hpp"

#include <fmt/format.h>

#include "attention/mask.hpp"
#include "attention/rounds.hpp"
#include "attention/tiles.hpp"
#include "attention/validation.hpp"
#include "backlight/error.hpp"

namespace backlight::attention {

namespace {

void validate_mma_repeats(int mma_repeats, KernelFamily family) {
    if (mma_repeats < 1 || mma_repeats > most_mma_repeats) {
        throw Error(
            ErrorCode::invalid_argument,
            fmt::format("mma_repeats is {}: it must be 1 ... {}", mma_repeats, most_mma_repeats));
    }
    if (mma_repeats > 1 && family == KernelFamily::wgmma) {
        throw Error(ErrorCode::unsupported,
                    fmt::format("mma_repeats is {} and family is {}: only the products of mma and "
                                "mma_resident, by mma.sync, can be repeated",
                                mma_repeats, to_string(family)));
    }
}

void write_band(compiler::SpecialisationWriter& specialisation, const AttentionProblem& problem,
                const TileConfig& config) {
    const MaskBand band(problem);
    if (is_square_causal(problem, config)) {
        return;
    }
    // What a mask cuts off of packed sequences, the lengths of each decide.
    const bool first =
        problem.packed ? problem.window_left.has_value() : band.is_bounded_first(problem);
    const bool last =
        problem.packed ? problem.causal || problem.window_right : band.is_bounded_last(problem);
    // A window has both bounds, even where the second cuts nothing off.
    if (first || last) {
        specialisation.boolean("bounded_last_diagonal", true, "keys after it are hidden");
    }
    if (first) {
        specialisation.boolean("bounded_first_diagonal", true, "keys before it are hidden");
    }
    if (problem.packed && (first || last) &&
        problem.mask_alignment == MaskAlignment::bottom_right) {
        specialisation.boolean("mask_from_end", true, "the last query stands at the last key");
    }
}

}  // namespace

std::vector<KernelPlan> backward_chain(const AttentionProblem& problem, const TileConfig& config,
                                       const device::Target& target, int mma_repeats) {
    validate(problem);
    validate(config, problem, target);
    validate_mma_repeats(mma_repeats, config.family);
    if (problem.is_empty()) {
        return {};
    }
    std::vector<KernelPlan> chain = {delta_kernel(problem, config, target)};
    switch (config.family) {
        case KernelFamily::wgmma:
            chain.push_back(wgmma_kernel(problem, config, target));
            break;
        case KernelFamily::mma_resident:
            chain.push_back(mma_resident_kernel(problem, config, target, mma_repeats));
            break;
        default:
            chain.push_back(mma_kernel(problem, config, target, mma_repeats));
    }
    if (!converts_d_q(config)) {
        chain.push_back(convert_kernel(problem, config, target));
    }
    return chain;
}

void write_mma_repeats(compiler::SpecialisationWriter& specialisation, int mma_repeats) {
    if (mma_repeats != 1) {
        specialisation.integer("mma_repeats", mma_repeats, "for measuring: all but one with zeros");
    }
}

void write_partial_query_tiles(compiler::SpecialisationWriter& specialisation,
                               const AttentionProblem& problem, const TileConfig& config) {
    if (problem.packed || problem.seqlen_q % config.block_q != 0) {
        specialisation.boolean("partial_query_tiles", true,
                               "seqlen_q is no multiple of the main kernel's block_q");
    }
}

void write_packed(compiler::SpecialisationWriter& specialisation, const AttentionProblem& problem,
                  const TileConfig& config) {
    if (problem.packed) {
        specialisation.boolean("packed", true, "sequences of lengths that the device tells")
            .integer("query_tile_rows", config.block_q, "of the main kernel")
            .integer("key_tile_rows", config.block_kv, "of the main kernel");
    }
}

void write_head_dims(compiler::SpecialisationWriter& specialisation,
                     const AttentionProblem& problem) {
    if (problem.head_dim != tile_head_dim(problem)) {
        specialisation.integer("head_dim_qk", problem.head_dim, "columns that Q and K have");
    }
    if (tile_head_dim_v(problem) != tile_head_dim(problem)) {
        specialisation.integer("tile_head_dim_v", tile_head_dim_v(problem),
                               "columns of the tiles of V and O");
    }
    if (problem.effective_head_dim_v() != tile_head_dim_v(problem)) {
        specialisation.integer("head_dim_v", problem.effective_head_dim_v(),
                               "columns that V and O have");
    }
}

void write_gradient_type(compiler::SpecialisationWriter& specialisation,
                         const AttentionProblem& problem) {
    if (problem.gradient_type == GradientType::fp32) {
        specialisation.boolean("fp32_gradients", true, "dQ, dK and dV are not rounded");
    }
    if (problem.accumulate_gradients) {
        specialisation.boolean("accumulates_gradients", true, "they are added to what is there");
    }
}

void write_deterministic(compiler::SpecialisationWriter& specialisation,
                         const AttentionProblem& problem) {
    if (problem.deterministic) {
        specialisation.boolean("deterministic", true, "dQ is summed in one order");
    }
}

bool is_square_causal(const AttentionProblem& problem, const TileConfig& config) {
    const MaskBand band(problem);
    return !has_wide_heads(problem) && !problem.packed && band.last_diagonal == 0 &&
           !band.is_bounded_first(problem) && problem.seqlen_q == problem.seqlen_kv &&
           problem.seqlen_q % config.block_kv == 0 && problem.heads == problem.effective_heads_kv();
}

void write_key_tile_options(compiler::SpecialisationWriter& specialisation,
                            const AttentionProblem& problem, const TileConfig& config) {
    write_partial_query_tiles(specialisation, problem, config);
    if (problem.packed) {
        specialisation.boolean("packed", true, "sequences of lengths that the device tells");
        specialisation.boolean("partial_key_tiles", true, "theirs may be any");
    } else if (problem.seqlen_kv % config.block_kv != 0) {
        specialisation.boolean("partial_key_tiles", true, "seqlen_kv is no multiple of block_kv");
    }
    write_head_dims(specialisation, problem);
    write_gradient_type(specialisation, problem);
    write_deterministic(specialisation, problem);
    write_band(specialisation, problem, config);
    if (problem.heads != problem.effective_heads_kv()) {
        specialisation.boolean("grouped_heads", true, "several of queries use one of keys");
    }
}

MainArguments main_arguments(const AttentionProblem& problem, const TileConfig& config,
                             const BackwardTensors& tensors, const WorkspaceLayout& layout,
                             void* workspace, const EncodeMap& encode) {
    const auto encode_operands = [&](auto& arguments) {
        encode("q", tensors.q, query_extents(problem), config.block_q, arguments.q);
        encode("d_o", tensors.d_o, output_extents(problem), config.block_q, arguments.d_o);
        encode("k", tensors.k, key_extents(problem), config.block_kv, arguments.k);
        encode("v", tensors.v, value_extents(problem), config.block_kv, arguments.v);
    };
    if (config.family == KernelFamily::wgmma) {
        kernel::WgmmaArguments arguments =
            wgmma_arguments(problem, config, tensors, layout, workspace);
        if (problem.packed) {
            return {arguments};  // The delta kernel makes maps of them.
        }
        encode_operands(arguments);
        if (problem.gradient_type == GradientType::fp32) {
            return {arguments};  // Plain stores.
        }
        encode("d_q", tensors.d_q, query_extents(problem), config.block_q, arguments.d_q);
        encode("d_k", tensors.d_k, key_extents(problem), wgmma_keys_per_warpgroup, arguments.d_k);
        encode("d_v", tensors.d_v, value_extents(problem), wgmma_keys_per_warpgroup, arguments.d_v);
        return {arguments};
    }
    if (config.family == KernelFamily::mma_resident) {
        kernel::MmaResidentArguments arguments =
            mma_resident_arguments(problem, config, tensors, layout, workspace);
        if (!problem.packed) {
            encode_operands(arguments);
        }
        return {arguments};
    }
    kernel::MmaArguments arguments = mma_arguments(problem, tensors, layout, workspace);
    encode_operands(arguments);
    return {arguments};
}

KernelResources kernel_resources(const KernelPlan& plan, const compiler::KernelLookup& compiled) {
    const compiler::ResourceUsage& usage = compiled.kernel->resources;
    KernelResources resources;
    resources.kernel = plan.request.entry;
    resources.target = plan.request.target.name;
    resources.registers = usage.registers;
    resources.stack_bytes = usage.stack_bytes;
    resources.spill_store_bytes = usage.spill_store_bytes;
    resources.spill_load_bytes = usage.spill_load_bytes;
    resources.performance_warnings = usage.performance_warnings;
    resources.shared_bytes =
        static_cast<std::size_t>(usage.static_shared_bytes) + plan.shape.dynamic_shared_bytes;
    resources.threads = static_cast<int>(plan.shape.threads);
    resources.blocks_per_multiprocessor = device::resident_blocks(
        plan.request.target, usage.registers, resources.threads, resources.shared_bytes);
    resources.compile_milliseconds = compiled.kernel->compile_milliseconds;
    resources.cached = compiled.cached;
    return resources;
}

std::string_view element_type(DataType type) noexcept {
    return type == DataType::fp16 ? "fp16" : "bf16";
}

}  // namespace backlight::attention
