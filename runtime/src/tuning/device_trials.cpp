#include "tuning/device_trials.hpp"

#include <algorithm>
#include <span>
#include <thread>

#include "attention/kernels.hpp"
#include "logging.hpp"
#include "tuning/gradient_check.hpp"
#include "tuning/kernel_digest.hpp"

namespace backlight::tuning {

namespace {

constexpr std::size_t element_bytes = 2;
constexpr std::array gradient_names = {"dQ", "dK", "dV"};

std::size_t count(std::int64_t elements) {
    return static_cast<std::size_t>(elements);
}

ConstTensorView contiguous(const void* data, const AttentionProblem& problem, std::int64_t seqlen) {
    const auto strides = bhsd_strides(problem.heads, seqlen, problem.head_dim);
    return {data, strides[0], strides[1], strides[2]};
}

TensorView contiguous(void* data, const AttentionProblem& problem, std::int64_t seqlen) {
    const auto strides = bhsd_strides(problem.heads, seqlen, problem.head_dim);
    return {data, strides[0], strides[1], strides[2]};
}

}  // namespace

DeviceTrials::DeviceTrials(attention::KernelLoader& loader, const AttentionProblem& problem,
                           Stream stream)
    : loader_(loader),
      problem_(problem),
      stream_(stream),
      kernels_(loader.store(), loader.device(), stream) {
    const std::int64_t rows_q = problem.batch * problem.heads * problem.seqlen_q;
    const std::int64_t rows_kv = problem.batch * problem.heads * problem.seqlen_kv;
    const auto tensor = [&](std::int64_t rows) {
        return ScratchMemory(device(), count(rows * problem.head_dim) * element_bytes);
    };
    q_ = tensor(rows_q);
    k_ = tensor(rows_kv);
    v_ = tensor(rows_kv);
    o_ = tensor(rows_q);
    d_o_ = tensor(rows_q);
    lse_ = floats(rows_q);
    gradients_ = {tensor(rows_q), tensor(rows_kv), tensor(rows_kv)};
    if (const std::size_t l2 = device().properties().l2_bytes; l2 > 0) {
        constexpr std::size_t least = std::size_t{256} << 20U;
        flush_ = ScratchMemory(device(), std::max(2 * l2, least));
    }
    std::uint64_t seed = 1;
    for (const ScratchMemory* input : {&q_, &k_, &v_, &d_o_}) {
        kernels_.fill_normal(input->as(), input->bytes() / element_bytes, problem.dtype, seed++);
    }
    compute_forward();
}

DeviceTrials::~DeviceTrials() {
    // Memory is freed that enqueued work may still use; what it did wrong was told before.
    try {
        device().synchronise(stream_);
    } catch (const std::exception& error) {
        logger().error("found while the tuner's memory was released: {}", error.what());
    }
}

ScratchMemory DeviceTrials::floats(std::int64_t elements) const {
    return {device(), count(elements) * sizeof(float)};
}

AttentionProblem DeviceTrials::slice_problem(const Slice& slice) const {
    AttentionProblem part = problem_;
    part.batch = 1;
    part.heads = slice.heads;
    return part;
}

ScratchMemory DeviceTrials::widened(const ScratchMemory& tensor, std::int64_t seqlen,
                                    const Slice& slice) {
    const std::int64_t head_elements = seqlen * problem_.head_dim;
    const AttentionProblem part = slice_problem(slice);
    ScratchMemory wide = floats(slice.heads * head_elements);
    const void* const first = tensor.as<std::uint16_t>() + count(slice.first_head * head_elements);
    kernels_.to_float(contiguous(first, part, seqlen), wide.as<float>(), part, seqlen);
    return wide;
}

void DeviceTrials::compute_forward() {
    const Slice all{.heads = problem_.batch * problem_.heads};
    const ScratchMemory q = widened(q_, problem_.seqlen_q, all);
    const ScratchMemory k = widened(k_, problem_.seqlen_kv, all);
    const ScratchMemory v = widened(v_, problem_.seqlen_kv, all);
    const ScratchMemory o =
        floats(problem_.batch * problem_.heads * problem_.seqlen_q * problem_.head_dim);
    kernel::ReferenceArguments arguments{};
    arguments.q = q.as<float>();
    arguments.k = k.as<float>();
    arguments.v = v.as<float>();
    arguments.o = o.as<float>();
    arguments.lse = lse_.as<float>();
    kernels_.reference_forward(problem_, arguments);
    kernels_.from_float(o.as<float>(), contiguous(o_.as<void>(), problem_, problem_.seqlen_q),
                        problem_, problem_.seqlen_q);
    // The buffers are freed on return.
    device().synchronise(stream_);
}

void DeviceTrials::compute_reference(Slice& slice) {
    const AttentionProblem part = slice_problem(slice);
    const ScratchMemory q = widened(q_, part.seqlen_q, slice);
    const ScratchMemory k = widened(k_, part.seqlen_kv, slice);
    const ScratchMemory v = widened(v_, part.seqlen_kv, slice);
    const ScratchMemory o = widened(o_, part.seqlen_q, slice);
    const ScratchMemory d_o = widened(d_o_, part.seqlen_q, slice);
    const std::int64_t query_elements = slice.heads * part.seqlen_q * part.head_dim;
    const std::int64_t key_elements = slice.heads * part.seqlen_kv * part.head_dim;
    const std::array<ScratchMemory, 3> results = {floats(query_elements), floats(key_elements),
                                                  floats(key_elements)};
    kernel::ReferenceArguments arguments{};
    arguments.q = q.as<float>();
    arguments.k = k.as<float>();
    arguments.v = v.as<float>();
    arguments.o = o.as<float>();
    arguments.lse = lse_.as<float>() + slice.first_head * part.seqlen_q;
    arguments.d_o = d_o.as<float>();
    arguments.d_q = results[0].as<float>();
    arguments.d_k = results[1].as<float>();
    arguments.d_v = results[2].as<float>();
    kernels_.reference_backward(part, arguments);
    device().synchronise(stream_);
    for (std::size_t i = 0; i < results.size(); ++i) {
        slice.reference[i].resize(results[i].bytes() / sizeof(float));
        device().copy_to_host(std::as_writable_bytes(std::span(slice.reference[i])),
                              results[i].as());
    }
}

void DeviceTrials::make_references() {
    // The first and the last heads: all of a small problem, seconds less than all of a large one.
    constexpr std::int64_t most_elements = std::int64_t{1} << 20;
    const std::int64_t heads = problem_.batch * problem_.heads;
    const std::int64_t head_elements =
        std::max(problem_.seqlen_q, problem_.seqlen_kv) * problem_.head_dim;
    const std::int64_t slice_heads =
        std::clamp<std::int64_t>(most_elements / head_elements, 1, heads);
    slices_.push_back({.first_head = 0, .heads = slice_heads});
    if (slice_heads < heads) {
        slices_.push_back({.first_head = heads - slice_heads, .heads = slice_heads});
    }
    for (Slice& slice : slices_) {
        compute_reference(slice);
    }
}

const BackwardPlan& DeviceTrials::plan(const TileConfig& config) {
    const auto found =
        std::ranges::find_if(plans_, [&](const auto& kept) { return kept->config() == config; });
    if (found != plans_.end()) {
        return **found;
    }
    plans_.push_back(std::make_shared<attention::ChainPlan>(
        problem_, config, loader_, std::make_shared<attention::ChainPlan::Counters>()));
    if (const std::size_t bytes = plans_.back()->workspace_bytes(); bytes > workspace_.bytes()) {
        device().synchronise(stream_);
        workspace_ = ScratchMemory(device(), bytes);
    }
    return *plans_.back();
}

void DeviceTrials::run(const BackwardPlan& plan) {
    const BackwardTensors tensors{
        .q = contiguous(q_.as<void>(), problem_, problem_.seqlen_q),
        .k = contiguous(k_.as<void>(), problem_, problem_.seqlen_kv),
        .v = contiguous(v_.as<void>(), problem_, problem_.seqlen_kv),
        .o = contiguous(o_.as<void>(), problem_, problem_.seqlen_q),
        .d_o = contiguous(d_o_.as<void>(), problem_, problem_.seqlen_q),
        .lse = {.data = lse_.as<float>(),
                .stride_batch = problem_.heads * problem_.seqlen_q,
                .stride_head = problem_.seqlen_q},
        .d_q = contiguous(gradients_[0].as<void>(), problem_, problem_.seqlen_q),
        .d_k = contiguous(gradients_[1].as<void>(), problem_, problem_.seqlen_kv),
        .d_v = contiguous(gradients_[2].as<void>(), problem_, problem_.seqlen_kv)};
    plan.run(tensors, workspace_.as<void>(), workspace_.bytes(), stream_);
}

std::string DeviceTrials::kernel_digest(const TileConfig& config) {
    return main_kernel_digest(loader_.store(), problem_, config, device().properties().target);
}

KernelResources DeviceTrials::compile(const TileConfig& config) {
    const auto chain = attention::backward_chain(problem_, config, device().properties().target);
    return attention::kernel_resources(chain[1], loader_.store().get(chain[1].request));
}

double DeviceTrials::time(const TileConfig& config, bool rested) {
    const BackwardPlan& chain = plan(config);
    if (rested) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (flush_.bytes() > 0) {
        device().fill(flush_.as(), flush_byte_++, flush_.bytes(), stream_);
    }
    // Keeps the device busy until all is enqueued, so that the host's time is no part of it. A
    // device that tells no clock has none to wait by.
    if (device().properties().clock_khz > 0) {
        constexpr double milliseconds = 2;
        kernels_.spin(milliseconds);
    }
    return device().time(stream_, [&] { run(chain); });
}

std::string DeviceTrials::check(const TileConfig& config) {
    if (slices_.empty()) {
        make_references();
    }
    // NaN, wherever a kernel fails to write.
    constexpr std::uint8_t every_bit = 0xff;
    for (const ScratchMemory& gradient : gradients_) {
        device().fill(gradient.as(), every_bit, gradient.bytes(), stream_);
    }
    device().fill(workspace_.as(), every_bit, workspace_.bytes(), stream_);
    run(plan(config));
    device().synchronise(stream_);
    for (const Slice& slice : slices_) {
        for (std::size_t i = 0; i < gradients_.size(); ++i) {
            if (std::string fault = compare(slice, i); !fault.empty()) {
                return std::string(gradient_names[i]) + ": " + fault;
            }
        }
    }
    return {};
}

std::string DeviceTrials::compare(const Slice& slice, std::size_t gradient) const {
    const std::int64_t seqlen = gradient == 0 ? problem_.seqlen_q : problem_.seqlen_kv;
    std::vector<std::uint16_t> bits(slice.reference[gradient].size());
    device().copy_to_host(
        std::as_writable_bytes(std::span(bits)),
        gradients_[gradient].as<std::uint16_t>() + slice.first_head * seqlen * problem_.head_dim);
    return gradient_fault(problem_, bits, slice.reference[gradient]);
}

void DeviceTrials::release(const TileConfig& config) {
    // Unloading waits for no kernel.
    device().synchronise(stream_);
    std::erase_if(plans_, [&](const auto& kept) { return kept->config() == config; });
}

double DeviceTrials::seconds() const {
    const auto since_boot = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(since_boot).count();
}

}  // namespace backlight::tuning
