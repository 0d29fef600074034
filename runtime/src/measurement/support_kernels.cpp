#include "measurement/support_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "backlight/error.hpp"

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
                                          const AttentionProblem& problem, std::int64_t seqlen) {
    return {.strided = const_cast<void*>(strided.data),
            .contiguous = contiguous,
            .strides = {strided.stride_batch, strided.stride_head, strided.stride_seqlen},
            .elements = problem.batch * problem.heads * seqlen * problem.head_dim,
            .heads = static_cast<int>(problem.heads),
            .seqlen = static_cast<int>(seqlen),
            .head_dim = static_cast<int>(problem.head_dim),
            .type = element_type(problem.dtype)};
}

kernel::ReferenceArguments reference_arguments(const AttentionProblem& problem,
                                               const kernel::ReferenceArguments& tensors) {
    if (problem.head_dim > kernel::reference_head_dim_limit) {
        throw Error(ErrorCode::unsupported,
                    fmt::format("head_dim is {}: the reference takes at most {}", problem.head_dim,
                                kernel::reference_head_dim_limit));
    }
    kernel::ReferenceArguments arguments = tensors;
    arguments.softmax_scale = problem.effective_softmax_scale();
    arguments.seqlen_q = static_cast<int>(problem.seqlen_q);
    arguments.seqlen_kv = static_cast<int>(problem.seqlen_kv);
    arguments.head_dim = static_cast<int>(problem.head_dim);
    arguments.causal = problem.causal ? 1 : 0;
    return arguments;
}

std::int64_t reference_blocks(const AttentionProblem& problem, std::int64_t seqlen) {
    return problem.batch * problem.heads * blocks_for(seqlen, kernel::reference_tile_rows);
}

}  // namespace

void SupportKernels::launch(Loaded& kernel, const char* source, const char* entry,
                            std::int64_t blocks, int threads, std::size_t shared_bytes,
                            const void* arguments) {
    if (blocks > std::numeric_limits<std::int32_t>::max()) {
        throw Error(
            ErrorCode::unsupported,
            fmt::format("{} would need {} blocks: a launch takes at most 2^31 - 1", entry, blocks));
    }
    if (!kernel) {
        const compiler::KernelLookup compiled = store_.get({.source = source,
                                                            .entry = entry,
                                                            .specialisation = {},
                                                            .target = device_.properties().target});
        kernel = device_.load(compiled.kernel->cubin, entry, shared_bytes);
        kernel->prepare();
    }
    kernel->launch({.blocks = static_cast<std::uint32_t>(blocks),
                    .threads = static_cast<std::uint32_t>(threads),
                    .dynamic_shared_bytes = static_cast<std::uint32_t>(shared_bytes)},
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
    launch(fill_normal_, measurement_source, "fill_normal",
           blocks_for(arguments.elements, 2 * kernel::measurement_threads),
           kernel::measurement_threads, 0, &arguments);
}

void SupportKernels::to_float(const ConstTensorView& in, float* out,
                              const AttentionProblem& problem, std::int64_t seqlen) {
    const kernel::StridedCopyArguments arguments = strided_copy(in, out, problem, seqlen);
    launch(to_float_, measurement_source, "to_float",
           blocks_for(arguments.elements, kernel::measurement_threads), kernel::measurement_threads,
           0, &arguments);
}

void SupportKernels::from_float(const float* in, const TensorView& out,
                                const AttentionProblem& problem, std::int64_t seqlen) {
    const kernel::StridedCopyArguments arguments =
        strided_copy(out, const_cast<float*>(in), problem, seqlen);
    launch(from_float_, measurement_source, "from_float",
           blocks_for(arguments.elements, kernel::measurement_threads), kernel::measurement_threads,
           0, &arguments);
}

void SupportKernels::count_differences(const void* left, const void* right, std::size_t bytes,
                                       std::uint32_t* differences) {
    const kernel::CountDifferencesArguments arguments{
        .left = static_cast<const std::uint32_t*>(left),
        .right = static_cast<const std::uint32_t*>(right),
        .words = static_cast<long long>(bytes / sizeof(std::uint32_t)),
        .differences = differences};
    launch(count_differences_, measurement_source, "count_differences",
           blocks_for(arguments.words, kernel::measurement_threads), kernel::measurement_threads, 0,
           &arguments);
}

void SupportKernels::spin(double milliseconds) {
    // Kilohertz are cycles a millisecond. Where the device does not say, a clock of today's cards.
    const int khz = device_.properties().clock_khz;
    const double cycles_per_millisecond = khz > 0 ? khz : 2e6;
    const kernel::SpinArguments arguments{
        .cycles = static_cast<long long>(milliseconds * cycles_per_millisecond)};
    launch(spin_, measurement_source, "spin", 1, 1, 0, &arguments);
}

void SupportKernels::reference_forward(const AttentionProblem& problem,
                                       const kernel::ReferenceArguments& tensors) {
    const kernel::ReferenceArguments arguments = reference_arguments(problem, tensors);
    launch(forward_, reference_source, "attention_reference_forward",
           reference_blocks(problem, problem.seqlen_q), kernel::reference_threads,
           kernel::reference_forward_shared_bytes, &arguments);
}

void SupportKernels::reference_backward(const AttentionProblem& problem,
                                        const kernel::ReferenceArguments& tensors) {
    const kernel::ReferenceArguments arguments = reference_arguments(problem, tensors);
    launch(backward_query_, reference_source, "attention_reference_backward_query",
           reference_blocks(problem, problem.seqlen_q), kernel::reference_threads,
           kernel::reference_backward_query_shared_bytes, &arguments);
    launch(backward_key_, reference_source, "attention_reference_backward_key",
           reference_blocks(problem, problem.seqlen_kv), kernel::reference_threads,
           kernel::reference_backward_key_shared_bytes, &arguments);
}

}  // namespace backlight::measurement
