#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "backlight/problem.hpp"
#include "session/device_buffer.hpp"
#include "session/gpu.hpp"
#include "support_kernels.hpp"

namespace backlight::tool {

/// The cuBLAS library as it was found, or why not.
struct CublasLibrary {
    bool opened = false;
    std::string path;
    /// Every place that was tried with the loader's reason.
    std::string failure;
};

/// Opens cuBLAS: BACKLIGHT_CUBLAS_PATH where that is set, else the loader's own places, else the
/// usual folders of CUDA.
CublasLibrary find_cublas();

/// A large product of square matrices by cuBLAS, with sums in fp32: what the card really gives to
/// matrix products, measured beside the kernels.
class MatmulPeak {
  public:
    static constexpr std::int64_t size = 8192;

    /// Throws `unsupported` where cuBLAS cannot be had or refuses to start.
    MatmulPeak(const Gpu& gpu, SupportKernels& support, DataType dtype);
    ~MatmulPeak();
    MatmulPeak(const MatmulPeak&) = delete;
    MatmulPeak& operator=(const MatmulPeak&) = delete;

    /// Enqueues one product on the GPU's stream.
    void enqueue() const;

    static double flops() noexcept;
    /// For example "cuBLAS 13.1.0".
    const std::string& library() const noexcept { return library_; }

  private:
    struct Api;

    std::unique_ptr<Api> api_;
    void* handle_ = nullptr;
    DataType dtype_;
    std::string library_;
    DeviceBuffer a_, b_, c_;
};

}  // namespace backlight::tool
