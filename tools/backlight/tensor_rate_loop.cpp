#include "tensor_rate_loop.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "arguments/measurement.h"
#include "attention/kernels.hpp"
#include "bench_report.hpp"
#include "compiler/specialisation.hpp"
#include "emulated_tensor_rate.hpp"

namespace backlight::tool {

namespace {

constexpr int threads = kernel::tensor_rate_warps * 32;
constexpr int schedulers = 4;

}  // namespace

TensorRateLoop::TensorRateLoop(Session& session, DataType dtype, int mma_repeats, int iterations)
    : session_(&session),
      iterations_(iterations),
      blocks_(std::max(session.device().properties().multiprocessors, 1)),
      cycles_(session, static_cast<std::size_t>(blocks_) * sizeof(long long)),
      sums_(session, static_cast<std::size_t>(blocks_) * threads * sizeof(float)) {
    compiler::SpecialisationWriter specialisation("tensor_rate");
    specialisation.type("Element", attention::element_type(dtype));
    attention::write_mma_repeats(specialisation, mma_repeats);
    kernel_ = session.kernel("tensor_rate.cu", "tensor_rate", specialisation.text());
}

void TensorRateLoop::enqueue() const {
    const kernel::TensorRateArguments arguments{
        .cycles = cycles_.as<long long>(), .sums = sums_.as<float>(), .iterations = iterations_};
    kernel_->launch({.blocks = static_cast<std::uint32_t>(blocks_),
                     .threads = static_cast<std::uint32_t>(threads),
                     .dynamic_shared_bytes = 0},
                    &arguments, session_->stream());
}

double TensorRateLoop::flops() const noexcept {
    return static_cast<double>(blocks_) * kernel::tensor_rate_warps * kernel::tensor_rate_products *
           iterations_ * mma_flops;
}

double TensorRateLoop::clocks_per_product() const {
    session_->synchronise();
    std::vector<double> clocks;
    for (const long long cycles : cycles_.download_all<long long>()) {
        clocks.push_back(static_cast<double>(cycles));
    }
    const double products = static_cast<double>(iterations_) * kernel::tensor_rate_products *
                            kernel::tensor_rate_warps / schedulers;
    return median(std::move(clocks)) / products;
}

std::vector<float> TensorRateLoop::sums() const {
    session_->synchronise();
    return sums_.download_all<float>();
}

}  // namespace backlight::tool
