#include "matmul_peak.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "backlight/error.hpp"
#include "device/shared_library.hpp"

namespace backlight::tool {

namespace {

// cuBLAS's headers are a package of their own; these few values and functions are all we need, and
// part of its binary interface.
constexpr int cublas_success = 0;
constexpr int operation_none = 0;
constexpr int operation_transpose = 1;
constexpr int type_fp16 = 2;           // CUDA_R_16F
constexpr int type_bf16 = 14;          // CUDA_R_16BF
constexpr int compute_fp32 = 68;       // CUBLAS_COMPUTE_32F
constexpr int algorithm_default = -1;  // CUBLAS_GEMM_DEFAULT

std::vector<std::string> candidate_paths() {
    const char* given = std::getenv("BACKLIGHT_CUBLAS_PATH");
    if (given != nullptr && *given != '\0') {
        return {given};
    }
    std::vector<std::string> candidates;
    for (const char* folder :
         {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/targets/x86_64-linux/lib/",
          "/usr/local/cuda/lib/", "/opt/cuda/lib64/"}) {
        for (const char* name : {"libcublas.so.13", "libcublas.so.12"}) {
            candidates.push_back(std::string(folder) + name);
        }
    }
    return candidates;
}

struct Opened {
    std::unique_ptr<device::SharedLibrary> library;
    std::string failure;
};

Opened open_cublas() {
    Opened result;
    for (const std::string& candidate : candidate_paths()) {
        const std::filesystem::path path(candidate);
        if (path.has_parent_path()) {
            // The loader may not look beside cuBLAS for what it needs; opened first, it is found
            // by name. If it is not there, opening cuBLAS tells.
            std::string name = path.filename().string();
            if (const auto at = name.find("cublas"); at != std::string::npos) {
                name.insert(at + std::string_view("cublas").size(), "Lt");
            }
            const std::vector<std::string> beside = {(path.parent_path() / name).string()};
            const device::SharedLibrary opened_for_cublas(beside);
        }
        const std::vector<std::string> names = {candidate};
        auto library = std::make_unique<device::SharedLibrary>(names);
        if (library->opened()) {
            result.library = std::move(library);
            return result;
        }
        result.failure += library->failure();
    }
    return result;
}

}  // namespace

CublasLibrary find_cublas() {
    const Opened opened = open_cublas();
    if (opened.library == nullptr) {
        return {.opened = false, .path = {}, .failure = opened.failure};
    }
    return {.opened = true, .path = opened.library->path(), .failure = {}};
}

struct MatmulPeak::Api {
    int (*create)(void**) = nullptr;
    int (*destroy)(void*) = nullptr;
    int (*set_stream)(void*, CUstream) = nullptr;
    int (*get_version)(void*, int*) = nullptr;
    int (*gemm)(void* handle, int operation_a, int operation_b, int m, int n, int k,
                const void* alpha, const void* a, int type_a, int stride_a, const void* b,
                int type_b, int stride_b, const void* beta, void* c, int type_c, int stride_c,
                int compute_type, int algorithm) = nullptr;
};

MatmulPeak::MatmulPeak(const Gpu& gpu, SupportKernels& support, DataType dtype)
    : api_(std::make_unique<Api>()), dtype_(dtype) {
    const Opened opened = open_cublas();
    if (opened.library == nullptr) {
        throw Error(ErrorCode::unsupported,
                    "cuBLAS could not be opened; set BACKLIGHT_CUBLAS_PATH to libcublas.so.13 or "
                    "libcublas.so.12:" +
                        opened.failure);
    }
    const auto load = [&](auto& function, const char* name) {
        function = reinterpret_cast<std::decay_t<decltype(function)>>(opened.library->symbol(name));
        if (function == nullptr) {
            throw Error(ErrorCode::unsupported,
                        fmt::format("the library {} has no {}", opened.library->path(), name));
        }
    };
    load(api_->create, "cublasCreate_v2");
    load(api_->destroy, "cublasDestroy_v2");
    load(api_->set_stream, "cublasSetStream_v2");
    load(api_->get_version, "cublasGetVersion_v2");
    load(api_->gemm, "cublasGemmEx");

    const auto elements = static_cast<std::size_t>(size * size);
    constexpr std::size_t element_bytes = 2;
    for (DeviceBuffer* buffer : {&a_, &b_, &c_}) {
        *buffer = DeviceBuffer(gpu, elements * element_bytes);
    }
    support.fill_normal(a_.data(), elements, dtype, 1);
    support.fill_normal(b_.data(), elements, dtype, 2);

    if (const int status = api_->create(&handle_); status != cublas_success) {
        throw Error(ErrorCode::unsupported, fmt::format("{} could not be started: status {}",
                                                        opened.library->path(), status));
    }
    int version = 0;
    api_->get_version(handle_, &version);
    library_ = fmt::format("cuBLAS {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
    api_->set_stream(handle_, gpu.stream());
}

MatmulPeak::~MatmulPeak() {
    if (handle_ != nullptr) {
        api_->destroy(handle_);
    }
}

void MatmulPeak::enqueue() const {
    const float alpha = 1;
    const float beta = 0;
    const int type = dtype_ == DataType::bf16 ? type_bf16 : type_fp16;
    constexpr int n = static_cast<int>(size);
    const int status = api_->gemm(handle_, operation_transpose, operation_none, n, n, n, &alpha,
                                  a_.data(), type, n, b_.data(), type, n, &beta, c_.data(), type, n,
                                  compute_fp32, algorithm_default);
    if (status != cublas_success) {
        throw Error(ErrorCode::driver_failed,
                    fmt::format("{} refused a product of {}³: status {}", library_, size, status));
    }
}

double MatmulPeak::flops() noexcept {
    const auto n = static_cast<double>(size);
    return 2.0 * n * n * n;
}

}  // namespace backlight::tool
