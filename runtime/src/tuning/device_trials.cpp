#include "tuning/device_trials.hpp"

#include <algorithm>
#include <span>
#include <thread>

#include "attention/kernels.hpp"
#include "gradient_values.hpp"
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

TensorView contiguous(void* data, const attention::Extents& extents) {
    const auto strides = bhsd_strides(extents.heads, extents.seqlen, extents.head_dim);
    return {data, strides[0], strides[1], strides[2]};
}

ConstTensorView contiguous(const void* data, const attention::Extents& extents) {
    return contiguous(const_cast<void*>(data), extents);
}

}  // namespace

DeviceTrials::DeviceTrials(attention::KernelLoader& loader, const AttentionProblem& problem,
                           Stream stream)
    : loader_(loader),
      problem_(problem),
      queries_(attention::query_extents(problem)),
      keys_(attention::key_extents(problem)),
      values_(attention::value_extents(problem)),
      outputs_(attention::output_extents(problem)),
      stream_(stream),
      kernels_(loader.store(), loader.device(), stream) {
    const auto tensor = [&](const attention::Extents& extents, std::size_t bytes) {
        return ScratchMemory(device(), count(extents.elements()) * bytes);
    };
    q_ = tensor(queries_, element_bytes);
    k_ = tensor(keys_, element_bytes);
    v_ = tensor(values_, element_bytes);
    o_ = tensor(outputs_, element_bytes);
    d_o_ = tensor(outputs_, element_bytes);
    lse_ = floats(queries_.rows());
    const std::size_t gradient_bytes = gradient_element_bytes(problem);
    gradients_ = {tensor(queries_, gradient_bytes), tensor(keys_, gradient_bytes),
                  tensor(values_, gradient_bytes)};
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
    part.heads = slice.kv_heads * (problem_.heads / keys_.heads);
    part.heads_kv = slice.kv_heads;
    return part;
}

std::int64_t DeviceTrials::first_head(const Slice& slice,
                                      const attention::Extents& whole) const noexcept {
    return slice.first_kv_head * (whole.heads / keys_.heads);
}

ScratchMemory DeviceTrials::widened(const ScratchMemory& tensor, const attention::Extents& whole,
                                    const attention::Extents& part, std::int64_t first_head) {
    ScratchMemory wide = floats(part.elements());
    const void* const first =
        tensor.as<std::uint16_t>() + count(first_head * whole.seqlen * whole.head_dim);
    kernels_.to_float(contiguous(first, part), wide.as<float>(), part, problem_.dtype);
    return wide;
}

void DeviceTrials::compute_forward() {
    const ScratchMemory q = widened(q_, queries_, queries_, 0);
    const ScratchMemory k = widened(k_, keys_, keys_, 0);
    const ScratchMemory v = widened(v_, values_, values_, 0);
    const ScratchMemory o = floats(outputs_.elements());
    kernel::ReferenceArguments arguments{};
    arguments.q = q.as<float>();
    arguments.k = k.as<float>();
    arguments.v = v.as<float>();
    arguments.o = o.as<float>();
    arguments.lse = lse_.as<float>();
    kernels_.reference_forward(problem_, arguments);
    kernels_.from_float(o.as<float>(), contiguous(o_.as<void>(), outputs_), outputs_,
                        problem_.dtype);
    // The buffers are freed on return.
    device().synchronise(stream_);
}

void DeviceTrials::compute_reference(Slice& slice) {
    const AttentionProblem part = slice_problem(slice);
    const auto part_of = [&](const ScratchMemory& tensor, const attention::Extents& whole,
                             const attention::Extents& extents) {
        return widened(tensor, whole, extents, first_head(slice, whole));
    };
    const attention::Extents queries = attention::query_extents(part);
    const attention::Extents keys = attention::key_extents(part);
    const attention::Extents values = attention::value_extents(part);
    const attention::Extents outputs = attention::output_extents(part);
    const ScratchMemory q = part_of(q_, queries_, queries);
    const ScratchMemory k = part_of(k_, keys_, keys);
    const ScratchMemory v = part_of(v_, values_, values);
    const ScratchMemory o = part_of(o_, outputs_, outputs);
    const ScratchMemory d_o = part_of(d_o_, outputs_, outputs);
    const std::array<ScratchMemory, 3> results = {
        floats(queries.elements()), floats(keys.elements()), floats(values.elements())};
    kernel::ReferenceArguments arguments{};
    arguments.q = q.as<float>();
    arguments.k = k.as<float>();
    arguments.v = v.as<float>();
    arguments.o = o.as<float>();
    arguments.lse = lse_.as<float>() + first_head(slice, queries_) * part.seqlen_q;
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
    const std::int64_t kv_heads = keys_.batch * keys_.heads;
    const std::int64_t elements_a_kv_head =
        std::max(problem_.seqlen_q * (queries_.heads / keys_.heads), problem_.seqlen_kv) *
        std::max(queries_.head_dim, values_.head_dim);
    const std::int64_t slice_heads =
        std::clamp<std::int64_t>(most_elements / elements_a_kv_head, 1, kv_heads);
    slices_.push_back({.first_kv_head = 0, .kv_heads = slice_heads});
    if (slice_heads < kv_heads) {
        slices_.push_back({.first_kv_head = kv_heads - slice_heads, .kv_heads = slice_heads});
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
    const BackwardTensors tensors{.q = contiguous(q_.as<void>(), queries_),
                                  .k = contiguous(k_.as<void>(), keys_),
                                  .v = contiguous(v_.as<void>(), values_),
                                  .o = contiguous(o_.as<void>(), outputs_),
                                  .d_o = contiguous(d_o_.as<void>(), outputs_),
                                  .lse = {.data = lse_.as<float>(),
                                          .stride_batch = problem_.heads * problem_.seqlen_q,
                                          .stride_head = problem_.seqlen_q},
                                  .d_q = contiguous(gradients_[0].as<void>(), queries_),
                                  .d_k = contiguous(gradients_[1].as<void>(), keys_),
                                  .d_v = contiguous(gradients_[2].as<void>(), values_)};
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
    const BackwardPlan& chain = plan(config);  // which may enlarge the workspace
    // NaN, wherever a kernel fails to write. What is added to must be zero, which hides nothing
    // here: a gradient that lacks an element's sum is told by the comparison.
    constexpr std::uint8_t every_bit = 0xff;
    for (const ScratchMemory& gradient : gradients_) {
        device().fill(gradient.as(), problem_.accumulate_gradients ? 0 : every_bit,
                      gradient.bytes(), stream_);
    }
    device().fill(workspace_.as(), every_bit, workspace_.bytes(), stream_);
    run(chain);
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
    const std::array<attention::Extents, 3> wholes = {queries_, keys_, values_};
    const attention::Extents& whole = wholes[gradient];
    const std::vector<float>& reference = slice.reference[gradient];
    const std::size_t bytes = gradient_element_bytes(problem_);
    std::vector<std::byte> part(reference.size() * bytes);
    device().copy_to_host(
        std::span(part),
        gradients_[gradient].as<std::byte>() +
            count(first_head(slice, whole) * whole.seqlen * whole.head_dim) * bytes);
    return gradient_fault(problem_, gradient_values(problem_, part), reference, whole.head_dim);
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
