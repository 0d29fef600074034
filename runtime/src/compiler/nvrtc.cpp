#include "compiler/nvrtc.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <system_error>

#include "backlight/error.hpp"
#include "compiler/exit_guard.hpp"
#include "device/shared_library.hpp"

namespace backlight::compiler {

namespace {

std::vector<std::string> candidate_paths(const std::string& path) {
    if (!path.empty()) {
        return {path};
    }
    std::vector<std::string> candidates;
    static constexpr const char* names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    static constexpr const char* folders[] = {"", "/usr/local/cuda/lib64/",
                                              "/usr/local/cuda/targets/x86_64-linux/lib/",
                                              "/usr/local/cuda/lib/", "/opt/cuda/lib64/"};
    for (const char* folder : folders) {
        for (const char* name : names) {
            candidates.push_back(std::string(folder) + name);
        }
    }
    return candidates;
}

/// The folder in which the file itself lies, whatever links lead to it.
std::string real_folder(const std::string& file) {
    std::error_code failure;
    const std::filesystem::path real = std::filesystem::canonical(file, failure);
    return (failure ? std::filesystem::path(file) : real).parent_path().string();
}

/// The version with its build, out of the comment that opens every PTX text:
/// "// Cuda compilation tools, release 13.0, V13.0.88".
std::string version_in(std::string_view ptx) {
    const std::size_t at = ptx.find(", V");
    if (at == std::string_view::npos) {
        return {};
    }
    const std::string_view rest = ptx.substr(at + 3);
    return std::string(rest.substr(0, rest.find_first_not_of("0123456789.")));
}

}  // namespace

/// An nvrtcProgram from creation to destruction.
class Nvrtc::Program {
  public:
    Program(const Nvrtc& nvrtc, const CompileRequest& request) : nvrtc_(nvrtc) {
        std::vector<std::string> names;
        std::vector<std::string> texts;
        for (const Header& header : request.headers) {
            names.emplace_back(header.name);
            texts.emplace_back(header.text);
        }
        const std::string source(request.source);
        const std::vector<const char*> name_pointers = pointers(names);
        const std::vector<const char*> text_pointers = pointers(texts);
        check(nvrtc_.nvrtcCreateProgram_(&program_, source.c_str(), request.name.c_str(),
                                         static_cast<int>(names.size()), text_pointers.data(),
                                         name_pointers.data()),
              "create a program");
        std::vector<std::string> options(request.options.begin(), request.options.end());
        const std::vector<const char*> option_pointers = pointers(options);
        const nvrtcResult result = nvrtc_.nvrtcCompileProgram_(
            program_, static_cast<int>(options.size()), option_pointers.data());
        if (result != NVRTC_SUCCESS) {
            const std::string reason = nvrtc_.nvrtcGetErrorString_(result);
            std::string text;
            try {
                text = log();
            } catch (const Error& error) {
                text = error.what();
            }
            nvrtc_.nvrtcDestroyProgram_(&program_);
            throw Error(ErrorCode::compile_failed,
                        fmt::format("NVRTC could not compile {}: {}\n  library: {} (version {})\n"
                                    "  options: {}\n  log:\n{}",
                                    request.name, reason, nvrtc_.path(), nvrtc_.version(),
                                    fmt::join(options, " "), text));
        }
    }
    ~Program() { nvrtc_.nvrtcDestroyProgram_(&program_); }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    std::string log() const {
        std::size_t size = 0;
        check(nvrtc_.nvrtcGetProgramLogSize_(program_, &size), "read the size of the log");
        std::string text(size, '\0');
        check(nvrtc_.nvrtcGetProgramLog_(program_, text.data()), "read the log");
        while (!text.empty() && text.back() == '\0') {
            text.pop_back();
        }
        return text;
    }

    std::vector<std::byte> cubin() const {
        std::size_t size = 0;
        check(nvrtc_.nvrtcGetCUBINSize_(program_, &size), "read the size of the cubin");
        std::vector<std::byte> bytes(size);
        check(nvrtc_.nvrtcGetCUBIN_(program_, reinterpret_cast<char*>(bytes.data())),
              "read the cubin");
        return bytes;
    }

    std::string ptx() const {
        std::size_t size = 0;
        check(nvrtc_.nvrtcGetPTXSize_(program_, &size), "read the size of the PTX");
        std::string text(size, '\0');
        check(nvrtc_.nvrtcGetPTX_(program_, text.data()), "read the PTX");
        return text;
    }

  private:
    static std::vector<const char*> pointers(const std::vector<std::string>& strings) {
        std::vector<const char*> result;
        result.reserve(strings.size());
        for (const std::string& string : strings) {
            result.push_back(string.c_str());
        }
        return result;
    }

    void check(nvrtcResult result, std::string_view call) const {
        if (result != NVRTC_SUCCESS) {
            throw Error(ErrorCode::compile_failed,
                        fmt::format("NVRTC {} failed to {}: {}", nvrtc_.path(), call,
                                    nvrtc_.nvrtcGetErrorString_(result)));
        }
    }

    // First, so that it is the last to go.
    ExitGuard guard_;
    const Nvrtc& nvrtc_;
    nvrtcProgram program_ = nullptr;
};

Nvrtc::Nvrtc(const std::string& path) {
    const device::SharedLibrary library(candidate_paths(path));
    if (!library.opened()) {
        throw Error(
            ErrorCode::nvrtc_not_found,
            fmt::format("NVRTC could not be opened; install the CUDA toolkit {}.{} or newer "
                        "or the Python package nvidia-cuda-nvrtc, or set "
                        "BACKLIGHT_NVRTC_PATH to libnvrtc.so:{}",
                        oldest_major, oldest_minor, library.failure()));
    }
    path_ = library.path();
#define BACKLIGHT_LOAD(function)                                                                \
    function##_ = reinterpret_cast<decltype(function##_)>(library.symbol(#function));           \
    if (function##_ == nullptr) {                                                               \
        throw Error(ErrorCode::nvrtc_not_found,                                                 \
                    fmt::format("the library {} has no {}: it is not NVRTC, or too old", path_, \
                                #function));                                                    \
    }
    BACKLIGHT_NVRTC_FUNCTIONS(BACKLIGHT_LOAD)
#undef BACKLIGHT_LOAD
    if (nvrtcVersion_(&major_, &minor_) != NVRTC_SUCCESS) {
        throw Error(ErrorCode::nvrtc_not_found,
                    fmt::format("NVRTC {} does not tell its version", path_));
    }
    version_ = fmt::format("{}.{}", major_, minor_);
    if (major_ < oldest_major || (major_ == oldest_major && minor_ < oldest_minor)) {
        throw Error(ErrorCode::nvrtc_too_old,
                    fmt::format("NVRTC {} is version {}: it must be {}.{} or newer", path_,
                                version_, oldest_major, oldest_minor));
    }
    // NVRTC opens this one by its bare name at the first compilation, and the loader may not look
    // beside NVRTC (the Python wheels name no run path): opened once by its path, it is found.
    const std::vector<std::string> builtins = {
        fmt::format("{}/libnvrtc-builtins.so.{}.{}", real_folder(path_), major_, minor_)};
    const device::SharedLibrary opened_for_nvrtc(builtins);

    // NVRTC tells its build nowhere else.
    const std::string with_build = version_in(
        compile_to_ptx({.name = "version_probe.cu", .source = "", .headers = {}, .options = {}}));
    if (!with_build.empty()) {
        version_ = with_build;
    }
    ExitGuard::wait_at_exit();
}

void Nvrtc::require_target(const device::Target& target) const {
    int count = 0;
    std::vector<int> supported;
    if (nvrtcGetNumSupportedArchs_(&count) == NVRTC_SUCCESS && count > 0) {
        supported.resize(static_cast<std::size_t>(count));
        if (nvrtcGetSupportedArchs_(supported.data()) != NVRTC_SUCCESS) {
            supported.clear();
        }
    }
    const int wanted = target.compute_major * 10 + target.compute_minor;
    if (std::find(supported.begin(), supported.end(), wanted) == supported.end()) {
        throw Error(ErrorCode::nvrtc_too_old,
                    fmt::format("NVRTC {} (version {}) does not compile for {}: it knows the "
                                "compute capabilities {}; install a newer one",
                                path_, version_, target.name, fmt::join(supported, ", ")));
    }
}

CompileResult Nvrtc::compile(const CompileRequest& request) const {
    const auto start = std::chrono::steady_clock::now();
    const Program program(*this, request);
    CompileResult result;
    result.cubin = program.cubin();
    result.log = program.log();
    // The first cubin makes NVRTC register more destructors.
    static std::once_flag registered;
    std::call_once(registered, ExitGuard::wait_at_exit);
    result.milliseconds =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return result;
}

std::string Nvrtc::compile_to_ptx(const CompileRequest& request) const {
    return Program(*this, request).ptx();
}

}  // namespace backlight::compiler
