#include "small_kernels.hpp"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "session/device_buffer.hpp"

namespace backlight::test {

namespace {

/// As the kernels declare it.
struct SmallArguments {
    kernel::TensorMap map;
    const void* source;
    void* out;
};

constexpr std::uint64_t seeds_of_unchanged_kernel = 50;

std::string difference(const std::vector<std::uint32_t>& actual,
                       const std::vector<std::uint32_t>& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
        if (actual[i] != expected[i]) {
            return fmt::format("word {} is {:#010x}, not {:#010x}", i, actual[i], expected[i]);
        }
    }
    return {};
}

}  // namespace

Words counted(std::size_t count, std::uint32_t first) {
    Words words(count);
    std::iota(words.begin(), words.end(), first);
    return words;
}

Words neighbours_swapped(Words words) {
    for (std::size_t i = 0; i < words.size(); i += 2) {
        std::swap(words[i], words[i + 1]);
    }
    return words;
}

tensor_map::Request fp32_rows(std::int64_t rows) {
    return {.type = tensor_map::ElementType::fp32,
            .rank = 2,
            .extents = {4, rows},
            .strides = {4},
            .box = {4, 8},
            .swizzle = tensor_map::Swizzle::none};
}

const std::string_view small_kernel_preamble = R"(
#include "arguments/attention_backward.h"
#include "primitives/async_copy.cuh"
#include "primitives/bulk_copy.cuh"
#include "primitives/ldmatrix.cuh"
#include "primitives/matrix_descriptor.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/mma.cuh"
#include "primitives/named_barrier.cuh"
#include "primitives/proxy_fence.cuh"
#include "primitives/register_allocation.cuh"
#include "primitives/shared_memory.cuh"
#include "primitives/tma.cuh"
#include "primitives/wgmma.cuh"
namespace backlight::kernel {
struct SmallArguments {
    TensorMap map;
    const uint32_t* source;
    uint32_t* out;
};
extern "C" __global__ void small_kernel(const __grid_constant__ SmallArguments arguments) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const uint32_t shared = shared_address(shared_memory);
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
)";

Outcome run_small_kernel(EmulatedSession& session, const SmallKernel& kernel, std::uint64_t seeds,
                         const AcceptOutcome& accept) {
    const std::string text =
        std::string(small_kernel_preamble) + std::string(kernel.text) + "}\n}\n";
    const auto loaded = session.kernel(kernel.name, "small_kernel", text, kernel.shared_bytes);
    tool::DeviceBuffer source(session.session(), kernel.source.size() * sizeof(std::uint32_t));
    const tool::DeviceBuffer out(session.session(), kernel.expected.size() * sizeof(std::uint32_t));
    source.upload(kernel.source);
    SmallArguments arguments{.map = {}, .source = source.data(), .out = out.data()};
    if (kernel.map.rank != 0) {
        tensor_map::Request request = kernel.map;
        request.address = kernel.map_of_output ? out.data() : source.data();
        tensor_map::check(request, "map");
        session.device().encode(request, arguments.map);
    }
    const device::LaunchShape shape{.threads = kernel.threads,
                                    .dynamic_shared_bytes = kernel.shared_bytes};
    Outcome outcome;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        session.reseed(seed);
        outcome = outcome_of([&] {
            out.fill(0xff, session.session().stream());
            loaded->launch(shape, &arguments, session.session().stream());
            session.session().synchronise();
            return difference(out.download_all<std::uint32_t>(), kernel.expected);
        });
        outcome.seed = seed;
        if (accept(outcome)) {
            break;
        }
    }
    return outcome;
}

void require_found(const SmallKernel& kernel, std::span<const SmallFault> faults) {
    EmulatedSession unchanged;
    const Outcome clean = run_small_kernel(unchanged, kernel, seeds_of_unchanged_kernel);
    CHECK_MESSAGE(clean.passed(), kernel.name << " unchanged: " << to_string(clean));
    for (const SmallFault& fault : faults) {
        std::vector<SourceEdit> edits;
        for (const auto& [from, to] : fault.edits) {
            edits.push_back({kernel.name, from, to});
        }
        EmulatedSession session(one_thread(), std::move(edits));
        const Outcome outcome =
            run_small_kernel(session, kernel, fault.seeds, found_by(fault.reports));
        CHECK_MESSAGE(found_by(fault.reports)(outcome), fault.name << ": " << to_string(outcome));
    }
}

}  // namespace backlight::test
