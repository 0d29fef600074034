// A backward on a stream of the program's own, directly and out of a CUDA graph, with kernels that
// the program carries: nothing is compiled where it runs.

#include <backlight/error.hpp>
#include <backlight/runtime.hpp>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <vector>

#include "backlight_kernels.hpp"
#include "driver.hpp"

namespace {

constexpr std::int64_t heads = 2;
constexpr std::int64_t seqlen = 1024;
constexpr std::int64_t head_dim = 64;
constexpr std::size_t elements = heads * seqlen * head_dim;

std::uint16_t to_bf16(float value) {
    return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + 0x8000U) >> 16U);
}

float from_bf16(std::uint16_t bits) {
    return std::bit_cast<float>(std::uint32_t{bits} << 16U);
}

class DeviceMemory {
  public:
    explicit DeviceMemory(std::size_t bytes) : bytes_(bytes) {
        CUDA(cuMemAlloc, &address_, bytes);
        clear();
    }
    template <typename Element>
    explicit DeviceMemory(const std::vector<Element>& values)
        : DeviceMemory(values.size() * sizeof(Element)) {
        CUDA(cuMemcpyHtoD, address_, values.data(), bytes_);
    }
    ~DeviceMemory() { CUDA(cuMemFree, address_); }
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    void* data() const { return reinterpret_cast<void*>(address_); }
    void clear() {
        CUDA(cuMemsetD8Async, address_, 0, bytes_, nullptr);
        CUDA(cuStreamSynchronize, nullptr);
    }
    std::vector<std::uint16_t> read() const {
        std::vector<std::uint16_t> values(bytes_ / 2);
        CUDA(cuMemcpyDtoH, values.data(), address_, bytes_);
        return values;
    }

  private:
    CUdeviceptr address_ = 0;
    std::size_t bytes_;
};

/// What a forward has left, of a problem whose answer is known: with Q = 0 every query attends
/// alike to all keys up to its own, so that row i of O is the mean of V up to there, and its LSE is
/// log(i + 1). With dO = 1, row j of dV is the sum of 1 / (i + 1) over the queries i ≥ j.
struct Forward {
    std::vector<std::uint16_t> q, k, v, o, d_o;
    std::vector<float> lse;
};

Forward forward() {
    Forward result{.q = std::vector<std::uint16_t>(elements),
                   .k = std::vector<std::uint16_t>(elements),
                   .v = std::vector<std::uint16_t>(elements),
                   .o = std::vector<std::uint16_t>(elements),
                   .d_o = std::vector<std::uint16_t>(elements, to_bf16(1)),
                   .lse = std::vector<float>(heads * seqlen)};
    std::size_t element = 0;
    for (std::int64_t head = 0; head < heads; ++head) {
        std::vector<float> sum(head_dim, 0.0F);
        for (std::int64_t row = 0; row < seqlen; ++row) {
            const auto keys = static_cast<float>(row + 1);
            result.lse[static_cast<std::size_t>(head * seqlen + row)] = std::log(keys);
            for (float& column : sum) {
                const float value = static_cast<float>((element * 7 + element / 61) % 17) / 8 - 1;
                column += value;
                result.v[element] = to_bf16(value);
                result.k[element] = to_bf16(-value);
                result.o[element] = to_bf16(column / keys);
                ++element;
            }
        }
    }
    return result;
}

bool is_right(const std::vector<std::uint16_t>& d_v) {
    for (std::int64_t head = 0; head < heads; ++head) {
        float expected = 0;
        for (std::int64_t row = seqlen - 1; row >= 0; --row) {
            expected += 1 / static_cast<float>(row + 1);
            const auto first = static_cast<std::size_t>((head * seqlen + row) * head_dim);
            // Probabilities and dV are rounded to bf16, by up to 0.4 % each.
            if (std::abs(from_bf16(d_v[first]) - expected) > 0.01F * expected) {
                return false;
            }
        }
    }
    return true;
}

int run() {
    CUDA(cuInit, 0);
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    CUDA(cuDeviceGet, &device, 0);
    CUDA(cuDevicePrimaryCtxRetain, &context, device);
    CUDA(cuCtxSetCurrent, context);
    CUDA(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);

    // A kernel that the program does not carry would be an error here, never a compile.
    backlight::Runtime runtime({.disable_disk_cache = true,
                                .cache_layers = {{.pack = backlight_kernels()}},
                                .compile_policy = backlight::CompilePolicy::forbid});
    // Ready in this context: what is captured may not have to load anything.
    const auto plan = runtime.prepare({.batch = 1,
                                       .heads = heads,
                                       .seqlen_q = seqlen,
                                       .seqlen_kv = seqlen,
                                       .head_dim = head_dim,
                                       .causal = true,
                                       .deterministic = true});

    const Forward values = forward();
    const DeviceMemory q(values.q), k(values.k), v(values.v), o(values.o), d_o(values.d_o);
    const DeviceMemory lse(values.lse);
    DeviceMemory d_q(elements * 2), d_k(elements * 2), d_v(elements * 2);
    const DeviceMemory workspace(plan->workspace_bytes());
    const auto strides = backlight::bhsd_strides(heads, seqlen, head_dim);
    const auto view = [&](const DeviceMemory& memory) {
        return backlight::TensorView{memory.data(), strides[0], strides[1], strides[2]};
    };
    const backlight::BackwardTensors tensors{
        .q = view(q),
        .k = view(k),
        .v = view(v),
        .o = view(o),
        .d_o = view(d_o),
        .lse = {static_cast<const float*>(lse.data()), heads * seqlen, seqlen},
        .d_q = view(d_q),
        .d_k = view(d_k),
        .d_v = view(d_v)};

    plan->run(tensors, workspace.data(), plan->workspace_bytes(), stream);
    CUDA(cuStreamSynchronize, stream);
    const auto direct_d_q = d_q.read();
    const auto direct_d_v = d_v.read();
    d_q.clear();
    d_v.clear();

    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    CUDA(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    plan->run(tensors, workspace.data(), plan->workspace_bytes(), stream);
    CUDA(cuStreamEndCapture, stream, &graph);
    CUDA(cuGraphInstantiateWithFlags, &executable, graph, 0);
    std::cout << "captured a backward of " << plan->resources().size() << " kernels for "
              << runtime.device_name() << ", " << runtime.counters().compiles << " compiled\n";
    for (int step = 0; step < 3; ++step) {
        CUDA(cuGraphLaunch, executable, stream);
    }
    CUDA(cuStreamSynchronize, stream);
    const bool same = d_q.read() == direct_d_q && d_v.read() == direct_d_v;
    const bool right = is_right(direct_d_v);
    std::cout << "dQ and dV of the graph are " << (same ? "" : "not ") << "the bits of the run\n"
              << "dV is " << (right ? "" : "not ") << "what it must be\n";

    CUDA(cuGraphExecDestroy, executable);
    CUDA(cuGraphDestroy, graph);
    CUDA(cuStreamDestroy, stream);
    return same && right ? 0 : 1;
}

}  // namespace

int main() {
    try {
        return run();
    } catch (const NoGpu& missing) {
        std::cout << "no GPU here, nothing was run: " << missing.what() << '\n';
        return 0;
    } catch (const backlight::Error& error) {
        std::cerr << to_string(error.code()) << ": " << error.what() << '\n';
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
    }
    return 1;
}
