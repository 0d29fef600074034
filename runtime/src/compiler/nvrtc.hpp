#pragma once

#include <nvrtc.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/resource_usage.hpp"
#include "device/target.hpp"

namespace backlight::compiler {

#define BACKLIGHT_NVRTC_FUNCTIONS(X) \
    X(nvrtcVersion)                  \
    X(nvrtcGetErrorString)           \
    X(nvrtcGetNumSupportedArchs)     \
    X(nvrtcGetSupportedArchs)        \
    X(nvrtcCreateProgram)            \
    X(nvrtcDestroyProgram)           \
    X(nvrtcCompileProgram)           \
    X(nvrtcGetProgramLogSize)        \
    X(nvrtcGetProgramLog)            \
    X(nvrtcGetCUBINSize)             \
    X(nvrtcGetCUBIN)                 \
    X(nvrtcGetPTXSize)               \
    X(nvrtcGetPTX)

/// A text that a program includes by name. Both views must outlive the compilation.
struct Header {
    std::string_view name;
    std::string_view text;
};

struct CompileRequest {
    /// The name that appears in messages, for example "attention_backward_mma.cu".
    std::string name;
    std::string_view source;
    std::span<const Header> headers;
    std::span<const std::string> options;
};

struct CompileResult {
    std::vector<std::byte> cubin;
    std::string log;
    double milliseconds = 0;
};

/// NVRTC, opened at run time. Compilations may run in parallel.
class Nvrtc {
  public:
    /// The first version that takes TMA copies with a `.shared::cta` destination and knows sm_120.
    static constexpr int oldest_major = 12;
    static constexpr int oldest_minor = 8;

    /// Opens `path`, or looks for libnvrtc in the usual places. Throws `nvrtc_not_found` with every
    /// place that was tried, or `nvrtc_too_old`.
    explicit Nvrtc(const std::string& path);

    const std::string& path() const noexcept { return path_; }
    int major() const noexcept { return major_; }
    int minor() const noexcept { return minor_; }
    /// Version with build, for example "13.0.88": two builds of one version may compile
    /// differently.
    const std::string& version() const noexcept { return version_; }

    /// Throws `nvrtc_too_old` where this NVRTC has no such target.
    void require_target(const device::Target& target) const;

    /// Throws `compile_failed` with path, version, options and the whole log.
    CompileResult compile(const CompileRequest& request) const;

    /// As `compile`, up to PTX; for tests and `inspect`.
    std::string compile_to_ptx(const CompileRequest& request) const;

  private:
    class Program;

    std::string path_;
    int major_ = 0;
    int minor_ = 0;
    std::string version_;
#define BACKLIGHT_DECLARE(function) decltype(&::function) function##_ = nullptr;
    BACKLIGHT_NVRTC_FUNCTIONS(BACKLIGHT_DECLARE)
#undef BACKLIGHT_DECLARE
};

}  // namespace backlight::compiler
