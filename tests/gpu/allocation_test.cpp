// The cost of `run` on the host. The operators below count for this whole test program.
#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "gpu_test_support.hpp"

namespace {

std::atomic<bool> counting{false};
std::atomic<int> allocations{0};

void* counted_allocation(std::size_t bytes) {
    if (counting) {
        ++allocations;
    }
    if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) {
        return memory;
    }
    throw std::bad_alloc();
}

void* counted_allocation(std::size_t bytes, std::align_val_t alignment) {
    if (counting) {
        ++allocations;
    }
    const auto step = static_cast<std::size_t>(alignment);
    // aligned_alloc takes whole multiples of the alignment.
    if (void* memory = std::aligned_alloc(step, (bytes / step + 1) * step)) {
        return memory;
    }
    throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) {
    return counted_allocation(bytes);
}
void* operator new[](std::size_t bytes) {
    return counted_allocation(bytes);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return counted_allocation(bytes, alignment);
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
    return counted_allocation(bytes, alignment);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    return counted_allocation(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
    return counted_allocation(bytes);
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete[](void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}

namespace backlight::test {

namespace {

TEST_CASE("a run allocates nothing on the heap and encodes no tensor map again") {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    const AttentionProblem problem = square_problem(2, 4, 256, 128, true).problem;
    for (const KernelPreset& preset : presets_for(kernels, problem)) {
        const auto plan = gpu.runtime().backward(problem, preset.config);
        tool::ProblemData data(kernels, problem);
        data.randomise(3);
        const BackwardTensors tensors = data.tensors();
        const std::size_t bytes = plan->workspace_bytes();
        void* workspace = data.workspace(bytes);
        plan->run(tensors, workspace, bytes, gpu.stream());
        gpu.synchronise();

        // That the counter counts, else the zero below would say nothing.
        allocations = 0;
        counting = true;
        delete new std::vector<int>(100);
        counting = false;
        REQUIRE(allocations >= 1);

        const std::uint64_t encoded = gpu.runtime().counters().tensor_maps_encoded;
        allocations = 0;
        counting = true;
        for (int run = 0; run < 10; ++run) {
            plan->run(tensors, workspace, bytes, gpu.stream());
        }
        counting = false;
        CHECK(allocations == 0);
        CHECK(gpu.runtime().counters().tensor_maps_encoded == encoded);
        gpu.synchronise();
    }
}

TEST_CASE("asking for the same plan again compiles nothing and gives the same plan") {
    tool::Gpu gpu;
    const AttentionProblem problem = square_problem(2, 4, 256, 128, true).problem;
    const auto plan = gpu.runtime().backward(problem, kernel_preset("v1"));
    const std::uint64_t compiles = gpu.runtime().counters().compiles;
    CHECK(gpu.runtime().backward(problem, kernel_preset("v1")) == plan);
    CHECK(gpu.runtime().counters().compiles == compiles);
}

}  // namespace

}  // namespace backlight::test
