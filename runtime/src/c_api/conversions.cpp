// Structs of C as the C++ values that they stand for, and back.

#include <fmt/format.h>

#include <chrono>
#include <string>

#include "c_api/guard.hpp"
#include "c_api/structs.hpp"

namespace backlight::c_api {

namespace {

#define BACKLIGHT_SAME(c_name, cpp_name) static_assert((c_name) == static_cast<int>(cpp_name))
BACKLIGHT_SAME(BACKLIGHT_BF16, DataType::bf16);
BACKLIGHT_SAME(BACKLIGHT_FP16, DataType::fp16);
BACKLIGHT_SAME(BACKLIGHT_TOP_LEFT, MaskAlignment::top_left);
BACKLIGHT_SAME(BACKLIGHT_BOTTOM_RIGHT, MaskAlignment::bottom_right);
BACKLIGHT_SAME(BACKLIGHT_GRADIENT_INPUT, GradientType::input);
BACKLIGHT_SAME(BACKLIGHT_GRADIENT_FP32, GradientType::fp32);
BACKLIGHT_SAME(BACKLIGHT_COMPILE_ALLOW, CompilePolicy::allow);
BACKLIGHT_SAME(BACKLIGHT_COMPILE_WARN, CompilePolicy::warn);
BACKLIGHT_SAME(BACKLIGHT_COMPILE_FORBID, CompilePolicy::forbid);
BACKLIGHT_SAME(BACKLIGHT_FAMILY_MMA, KernelFamily::mma);
BACKLIGHT_SAME(BACKLIGHT_FAMILY_WGMMA, KernelFamily::wgmma);
BACKLIGHT_SAME(BACKLIGHT_FAMILY_MMA_RESIDENT, KernelFamily::mma_resident);
BACKLIGHT_SAME(BACKLIGHT_LENGTHS_RUN_TIME, SequenceLengths::run_time);
BACKLIGHT_SAME(BACKLIGHT_LENGTHS_COMPILE_TIME, SequenceLengths::compile_time);
#undef BACKLIGHT_SAME

// The layout is the interface: a size that changes here breaks who was compiled before.
static_assert(sizeof(backlight_runtime_options) == 80);
static_assert(sizeof(backlight_cache_layer) == 40);
static_assert(sizeof(backlight_counters) == 96);
static_assert(sizeof(backlight_problem) == 136);
static_assert(sizeof(backlight_tile_config) == 48);
static_assert(sizeof(backlight_kernel_resources) == 72);
static_assert(sizeof(backlight_tensors) == 320);
static_assert(sizeof(backlight_tune_progress) == 48);
static_assert(sizeof(backlight_tune_options) == 64);
static_assert(sizeof(backlight_tune_result) == 48);

std::optional<std::int64_t> optional_of(std::int64_t value) {
    return value == BACKLIGHT_NOT_GIVEN ? std::nullopt : std::optional(value);
}

void require_zero(std::string_view field, std::int64_t value) {
    if (value != 0) {
        refuse(fmt::format("{} is {}: it must be 0", field, value));
    }
}

void set(std::filesystem::path& path, const char* text) {
    if (text != nullptr) {
        path = text;
    }
}

std::string text_of(const char* text) {
    return text != nullptr ? text : "";
}

CacheLayer layer_of(const backlight_runtime_options& options, std::size_t index) {
    // Elements are as large as the caller's header has them.
    const std::size_t size = struct_size_of(options.cache_layers);
    const auto* first = reinterpret_cast<const unsigned char*>(options.cache_layers);
    const auto* given = reinterpret_cast<const backlight_cache_layer*>(first + index * size);
    const std::string name = fmt::format("cache_layers[{}]", index);
    // Before anything is read by it: only the first one's size was ever checked against memory.
    if (const std::size_t own = struct_size_of(given); own != size) {
        refuse(fmt::format("{}.struct_size is {}: it must be that of cache_layers[0], {}", name,
                           own, size));
    }
    const backlight_cache_layer layer = read(given, name);
    if (layer.pack == nullptr && layer.pack_bytes != 0) {
        refuse(fmt::format("{}.pack is null and pack_bytes is {}: it must be 0", name,
                           layer.pack_bytes));
    }
    CacheLayer result{.name = text_of(layer.name),
                      .pack = {static_cast<const std::byte*>(layer.pack), layer.pack_bytes}};
    set(result.path, layer.path);
    return result;
}

TensorView view_of(const backlight_tensor& tensor) {
    return {tensor.data, tensor.stride_batch, tensor.stride_head, tensor.stride_seqlen};
}

ConstTensorView view_of(const backlight_const_tensor& tensor) {
    return {tensor.data, tensor.stride_batch, tensor.stride_head, tensor.stride_seqlen};
}

}  // namespace

AttentionProblem problem_of(const backlight_problem* given) {
    const backlight_problem c = read(given, "problem");
    require_zero("problem.reserved", c.reserved);
    AttentionProblem problem{
        .batch = c.batch,
        .heads = c.heads,
        .heads_kv = optional_of(c.heads_kv),
        .seqlen_q = c.seqlen_q,
        .seqlen_kv = c.seqlen_kv,
        .head_dim = c.head_dim,
        .head_dim_v = optional_of(c.head_dim_v),
        .causal = boolean("causal", c.causal),
        .mask_alignment = enumerator("mask_alignment", c.mask_alignment,
                                     {MaskAlignment::top_left, MaskAlignment::bottom_right}),
        .window_left = optional_of(c.window_left),
        .window_right = optional_of(c.window_right),
        .dtype = enumerator("dtype", c.dtype, {DataType::bf16, DataType::fp16}),
        .gradient_type =
            enumerator("gradient_type", c.gradient_type, {GradientType::input, GradientType::fp32}),
        .accumulate_gradients = boolean("accumulate_gradients", c.accumulate_gradients),
        .deterministic = boolean("deterministic", c.deterministic)};
    // A value that would be passed over in silence is a mistake.
    if (boolean("has_softmax_scale", c.has_softmax_scale)) {
        problem.softmax_scale = c.softmax_scale;
    } else if (!(c.softmax_scale == 0)) {
        refuse(
            fmt::format("softmax_scale is {} and has_softmax_scale is 0: it must be 1, or "
                        "softmax_scale 0",
                        c.softmax_scale));
    }
    if (boolean("packed", c.packed)) {
        problem.packed = PackedSequences{.total_q = c.total_q, .total_kv = c.total_kv};
    } else if (c.total_q != 0 || c.total_kv != 0) {
        refuse(
            fmt::format("total_q is {}, total_kv is {} and packed is 0: it must be 1, or the "
                        "totals 0",
                        c.total_q, c.total_kv));
    }
    return problem;
}

backlight_problem problem_in_c(const AttentionProblem& problem) {
    backlight_problem c = BACKLIGHT_PROBLEM_INIT;
    c.batch = problem.batch;
    c.heads = problem.heads;
    c.heads_kv = problem.heads_kv.value_or(BACKLIGHT_NOT_GIVEN);
    c.seqlen_q = problem.seqlen_q;
    c.seqlen_kv = problem.seqlen_kv;
    c.head_dim = problem.head_dim;
    c.head_dim_v = problem.head_dim_v.value_or(BACKLIGHT_NOT_GIVEN);
    c.dtype = static_cast<backlight_data_type>(problem.dtype);
    c.causal = problem.causal ? 1 : 0;
    c.mask_alignment = static_cast<backlight_mask_alignment>(problem.mask_alignment);
    c.deterministic = problem.deterministic ? 1 : 0;
    c.window_left = problem.window_left.value_or(BACKLIGHT_NOT_GIVEN);
    c.window_right = problem.window_right.value_or(BACKLIGHT_NOT_GIVEN);
    c.gradient_type = static_cast<backlight_gradient_type>(problem.gradient_type);
    c.accumulate_gradients = problem.accumulate_gradients ? 1 : 0;
    c.has_softmax_scale = problem.softmax_scale ? 1 : 0;
    c.softmax_scale = problem.softmax_scale.value_or(0.0F);
    c.packed = problem.packed ? 1 : 0;
    if (problem.packed) {
        c.total_q = problem.packed->total_q;
        c.total_kv = problem.packed->total_kv;
    }
    return c;
}

std::optional<TileConfig> config_of(const backlight_tile_config* given) {
    if (given == nullptr) {
        return std::nullopt;
    }
    const backlight_tile_config c = read(given, "config");
    require_zero("config.reserved", c.reserved);
    return TileConfig{
        .family = enumerator("family", c.family,
                             {KernelFamily::mma, KernelFamily::wgmma, KernelFamily::mma_resident}),
        .block_q = c.block_q,
        .block_kv = c.block_kv,
        .warps = c.warps,
        .stages = c.stages,
        .heads_per_group = c.heads_per_group,
        .converts_d_q = boolean("converts_d_q", c.converts_d_q),
        .sequence_lengths = enumerator("sequence_lengths", c.sequence_lengths,
                                       {SequenceLengths::run_time, SequenceLengths::compile_time}),
        .programmatic_dependent_launch =
            boolean("programmatic_dependent_launch", c.programmatic_dependent_launch)};
}

backlight_tile_config config_in_c(const TileConfig& config) {
    backlight_tile_config c = BACKLIGHT_TILE_CONFIG_INIT;
    c.family = static_cast<backlight_kernel_family>(config.family);
    c.block_q = config.block_q;
    c.block_kv = config.block_kv;
    c.warps = config.warps;
    c.stages = config.stages;
    c.heads_per_group = config.heads_per_group;
    c.converts_d_q = config.converts_d_q ? 1 : 0;
    c.sequence_lengths = static_cast<backlight_sequence_lengths>(config.sequence_lengths);
    c.programmatic_dependent_launch = config.programmatic_dependent_launch ? 1 : 0;
    return c;
}

RuntimeOptions options_of(const backlight_runtime_options* given) {
    if (given == nullptr) {
        return {};
    }
    const backlight_runtime_options c = read(given, "options");
    RuntimeOptions options{
        .device = c.device,
        .driver_path = text_of(c.driver_path),
        .nvrtc_path = text_of(c.nvrtc_path),
        .disable_disk_cache = boolean("disable_disk_cache", c.disable_disk_cache),
        .cache_byte_limit = c.cache_byte_limit,
        .compile_policy =
            enumerator("compile_policy", c.compile_policy,
                       {CompilePolicy::allow, CompilePolicy::warn, CompilePolicy::forbid}),
        .compile_threads = c.compile_threads};
    set(options.cache_directory, c.cache_directory);
    set(options.tuning_database, c.tuning_database);
    if (c.cache_layers == nullptr && c.cache_layer_count != 0) {
        refuse(fmt::format("cache_layers is null and cache_layer_count is {}: it must be 0",
                           c.cache_layer_count));
    }
    for (std::size_t i = 0; i < c.cache_layer_count; ++i) {
        options.cache_layers.push_back(layer_of(c, i));
    }
    return options;
}

BackwardTensors tensors_of(const backlight_tensors* given) {
    const backlight_tensors c = read(given, "tensors");
    return {.q = view_of(c.q),
            .k = view_of(c.k),
            .v = view_of(c.v),
            .o = view_of(c.o),
            .d_o = view_of(c.d_o),
            .lse = {c.lse.data, c.lse.stride_batch, c.lse.stride_head},
            .d_q = view_of(c.d_q),
            .d_k = view_of(c.d_k),
            .d_v = view_of(c.d_v),
            .cu_seqlens_q = c.cu_seqlens_q,
            .cu_seqlens_kv = c.cu_seqlens_kv,
            .seqused_q = c.seqused_q,
            .seqused_kv = c.seqused_kv};
}

TuneOptions tune_options_of(const backlight_tune_options* given) {
    if (given == nullptr) {
        return {};
    }
    const backlight_tune_options c = read(given, "options");
    require_zero("options.reserved", c.reserved);
    // Here, for the field of C++ has another name.
    if (!(c.budget_seconds > 0)) {
        refuse(fmt::format("budget_seconds is {}: it must be above 0", c.budget_seconds));
    }
    TuneOptions options{.kernel_family = text_of(c.kernel_family),
                        .budget = std::chrono::duration<double>(c.budget_seconds),
                        .compile_threads = c.compile_threads,
                        .repeats = c.repeats,
                        .retime = boolean("retime", c.retime),
                        .stream = c.stream};
    if (c.progress != nullptr) {
        options.progress = [call = c.progress, user = c.user](const TuneProgress& progress) {
            const backlight_tune_progress told{.struct_size = sizeof(told),
                                               .stage = progress.stage,
                                               .done = progress.done,
                                               .total = progress.total,
                                               .elapsed_seconds = progress.elapsed_seconds,
                                               .best_milliseconds = progress.best_milliseconds};
            call(&told, user);
        };
    }
    return options;
}

}  // namespace backlight::c_api
