#include "measurement/support_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "attention/mask.hpp"
#include "attention/validation.hpp"
#include "backlight/error.hpp"
#include "compiler/specialisation.hpp"

namespace backlight::measurement {

namespace {

constexpr const char* measurement_source = "measurement.cu";
constexpr const char* reference_source = "attention_reference.cu";

kernel::ElementType element_type(DataType type) {
    return type == DataType::bf16 ? kernel::element_bf16 : kernel::element_fp16;
}

std::int64_t blocks_for(std::int64_t items, std::int64_t items_per_block) {
    return (items + items_per_block - 1) / items_per_block;
}

kernel::StridedCopyArguments strided_copy(const ConstTensorView& strided, float* contiguous,
                                          const attention::Extents& extents, DataType type) {
    return {.strided = const_cast<void*>(strided.data),
            .contiguous = contiguous,
            .strides = {strided.stride_batch, strided.stride_head, strided.stride_seqlen},
            .elements = extents.elements(),
            .heads = static_cast<int>(extents.heads),
            .seqlen = static_cast<int>(extents.seqlen),
            .head_dim = static_cast<int>(extents.head_dim),
            .type = element_type(type)};
}

kernel::ReferenceArguments reference_arguments(const AttentionProblem& problem,
                                               const kernel::ReferenceArguments& tensors) {
    attention::validate(problem);
    const attention::MaskBand band(problem);
    kernel::ReferenceArguments arguments = tensors;
    arguments.softmax_scale = problem.effective_softmax_scale();
    arguments.heads_per_kv_head = static_cast<int>(problem.heads / problem.effective_heads_kv());
    arguments.seqlen_q = static_cast<int>(problem.seqlen_q);
    arguments.seqlen_kv = static_cast<int>(problem.seqlen_kv);
    // Other sequences may lie between a head's rows and the next one's.
    if (arguments.rows_q == 0 && arguments.rows_kv == 0) {
        arguments.rows_q = arguments.seqlen_q;
        arguments.rows_kv = arguments.seqlen_kv;
    }
    arguments.head_dim = static_cast<int>(problem.head_dim);
    arguments.head_dim_v = static_cast<int>(problem.effective_head_dim_v());
    arguments.first_diagonal = static_cast<int>(band.first_diagonal);
    arguments.last_diagonal = static_cast<int>(band.last_diagonal);
    return arguments;
}

}  // namespace

std::size_t SupportKernels::Reference::shared_bytes(int row_tiles, int score_tiles,
                                                    int row_numbers) const noexcept {
    const int floats =
        tile_rows * (row_tiles * row_stride() + score_tiles * score_stride() + row_numbers);
    return sizeof(float) * static_cast<std::size_t>(floats);
}

SupportKernels::Reference& SupportKernels::reference_for(const AttentionProblem& problem) noexcept {
    const std::int64_t longest = std::max(problem.head_dim, problem.effective_head_dim_v());
    return longest <= short_rows_.head_dim_limit ? short_rows_ : long_rows_;
}

SupportKernels::Launch SupportKernels::reference_launch(const char* entry,
                                                        const Reference& reference,
                                                        std::int64_t heads,
                                                        std::int64_t seqlen) const {
    compiler::SpecialisationWriter specialisation("attention_reference");
    specialisation.integer("tile_rows", reference.tile_rows)
        .integer("head_dim_limit", reference.head_dim_limit)
        .integer("row_stride", reference.row_stride(),
                 "16-byte loads of neighbouring rows lie on different banks")
        .integer("score_stride", reference.score_stride());
    return {.source = reference_source,
            .entry = entry,
            .specialisation = specialisation.text(),
            .blocks = heads * blocks_for(seqlen, reference.tile_rows),
            .threads = kernel::reference_threads};
}

void SupportKernels::launch(Loaded& kernel, const Launch& launch, const void* arguments) {
    if (launch.blocks == 0) {
        return;
    }
    if (launch.blocks > std::numeric_limits<std::int32_t>::max()) {
        throw Error(ErrorCode::unsupported,
                    fmt::format("{} would need {} blocks: a launch takes at most 2^31 - 1",
                                launch.entry, launch.blocks));
    }
    if (!kernel) {
        const compiler::KernelLookup compiled = store_.get({.source = launch.source,
                                                            .entry = launch.entry,
                                                            .specialisation = launch.specialisation,
                                                            .target = device_.properties().target});
        kernel = device_.load(compiled.kernel->cubin, launch.entry, launch.shared_bytes);
        kernel->prepare();
    }
    kernel->launch({.blocks = static_cast<std::uint32_t>(launch.blocks),
                    .threads = static_cast<std::uint32_t>(launch.threads),
                    .dynamic_shared_bytes = static_cast<std::uint32_t>(launch.shared_bytes)},
                   arguments, stream_);
}

void SupportKernels::fill_normal(void* out, std::size_t elements, DataType type, std::uint64_t seed,
                                 float scale) {
    const kernel::FillNormalArguments arguments{.out = out,
                                                .elements = static_cast<long long>(elements),
                                                .seed = seed,
                                                .scale = scale,
                                                .type = element_type(type)};
    // A thread makes two numbers.
    launch(fill_normal_,
           {.source = measurement_source,
            .entry = "fill_normal",
            .blocks = blocks_for(arguments.elements, 2 * kernel::measurement_threads),
            .threads = kernel::measurement_threads},
           &arguments);
}

void SupportKernels::to_float(const ConstTensorView& in, float* out,
                              const attention::Extents& extents, DataType type) {
    const kernel::StridedCopyArguments arguments = strided_copy(in, out, extents, type);
    launch(to_float_,
           {.source = measurement_source,
            .entry = "to_float",
            .blocks = blocks_for(arguments.elements, kernel::measurement_threads),
            .threads = kernel::measurement_threads},
           &arguments);
}

void SupportKernels::from_float(const float* in, const TensorView& out,
                                const attention::Extents& extents, DataType type) {
    const kernel::StridedCopyArguments arguments =
        strided_copy(out, const_cast<float*>(in), extents, type);
    launch(from_float_,
           {.source = measurement_source,
            .entry = "from_float",
            .blocks = blocks_for(arguments.elements, kernel::measurement_threads),
            .threads = kernel::measurement_threads},
           &arguments);
}

void SupportKernels::count_differences(const void* left, const void* right, std::size_t bytes,
                                       std::uint32_t* differences) {
    const kernel::CountDifferencesArguments arguments{
        .left = static_cast<const std::uint32_t*>(left),
        .right = static_cast<const std::uint32_t*>(right),
        .words = static_cast<long long>(bytes / sizeof(std::uint32_t)),
        .differences = differences};
    launch(count_differences_,
           {.source = measurement_source,
            .entry = "count_differences",
            .blocks = blocks_for(arguments.words, kernel::measurement_threads),
            .threads = kernel::measurement_threads},
           &arguments);
}

void SupportKernels::spin(double milliseconds) {
    // Kilohertz are cycles a millisecond. Where the device does not say, a clock of today's cards.
    const int khz = device_.properties().clock_khz;
    const double cycles_per_millisecond = khz > 0 ? khz : 2e6;
    const kernel::SpinArguments arguments{
        .cycles = static_cast<long long>(milliseconds * cycles_per_millisecond)};
    launch(spin_, {.source = measurement_source, .entry = "spin", .blocks = 1, .threads = 1},
           &arguments);
}

void SupportKernels::reference_forward(const AttentionProblem& problem,
                                       const kernel::ReferenceArguments& tensors) {
    const kernel::ReferenceArguments arguments = reference_arguments(problem, tensors);
    Reference& reference = reference_for(problem);
    Launch forward = reference_launch("attention_reference_forward", reference,
                                      problem.batch * problem.heads, problem.seqlen_q);
    forward.shared_bytes = reference.shared_bytes(3, 1, 0);  // Q, K, V; P
    launch(reference.forward, forward, &arguments);
}

void SupportKernels::reference_backward(const AttentionProblem& problem,
                                        const kernel::ReferenceArguments& tensors) {
    const kernel::ReferenceArguments arguments = reference_arguments(problem, tensors);
    Reference& reference = reference_for(problem);
    Launch query = reference_launch("attention_reference_backward_query", reference,
                                    problem.batch * problem.heads, problem.seqlen_q);
    query.shared_bytes = reference.shared_bytes(4, 1, 2);  // Q, dO, K, V; dS; LSE, delta
    launch(reference.backward_query, query, &arguments);
    Launch key = reference_launch("attention_reference_backward_key", reference,
                                  problem.batch * problem.effective_heads_kv(), problem.seqlen_kv);
    key.shared_bytes = reference.shared_bytes(4, 2, 2);  // K, V, Q, dO; P, dS; LSE, delta
    launch(reference.backward_key, key, &arguments);
}

}  // namespace backlight::measurement
