#include "doctor.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "backlight/error.hpp"
#include "compiler/nvrtc.hpp"
#include "device/cuda_device.hpp"
#include "emulation/host_compiler.hpp"
#include "emulation/host_compiler_path.hpp"
#include "json_file.hpp"
#include "matmul_peak.hpp"
#include "runtime_implementation.hpp"
#include "version.hpp"

namespace backlight::tool {

namespace {

/// Fills in as much as the device tells before something about it is refused.
void look_at(const std::shared_ptr<const device::DriverApi>& driver, const compiler::Nvrtc* nvrtc,
             FoundGpu& gpu) {
    CUdevice handle = 0;
    driver->check(driver->cuDeviceGet(&handle, gpu.ordinal), "get a device");
    std::array<char, 256> name{};
    driver->check(driver->cuDeviceGetName(name.data(), static_cast<int>(name.size()), handle),
                  "read a device's name");
    gpu.name = name.data();
    const auto attribute = [&](CUdevice_attribute which) {
        int value = 0;
        driver->check(driver->cuDeviceGetAttribute(&value, which, handle),
                      "read a device attribute");
        return value;
    };
    gpu.compute_capability =
        fmt::format("{}.{}", attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                    attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
    driver->check(driver->cuDeviceTotalMem(&gpu.memory_bytes, handle),
                  "read a device's memory size");
    const device::CudaDevice device(driver, gpu.ordinal);
    gpu.target = device.properties().target.name;
    if (nvrtc == nullptr) {
        gpu.problem = "without NVRTC it runs only kernels that are in the cache already";
        return;
    }
    nvrtc->require_target(device.properties().target);
    gpu.usable = true;
}

void look_for_gpus(const RuntimeOptions& options, const compiler::Nvrtc* nvrtc,
                   Diagnosis& diagnosis) {
    std::shared_ptr<const device::DriverApi> driver;
    int count = 0;
    try {
        driver = device::open_driver(options.driver_path);
        int version = 0;
        driver->check(driver->cuDriverGetVersion(&version), "read its version");
        driver->check(driver->cuDeviceGetCount(&count), "count the devices");
        diagnosis.driver = {
            .good = true,
            .path = driver->path,
            .version = fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10)};
    } catch (const Error& error) {
        diagnosis.driver.problem = error.what();
        return;
    }
    if (count == 0) {
        diagnosis.gpu_problem =
            "the driver finds no CUDA device; see CUDA_VISIBLE_DEVICES, and in "
            "a container whether the GPU was passed into it";
    }
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        FoundGpu& gpu = diagnosis.gpus.emplace_back(FoundGpu{.ordinal = ordinal});
        try {
            look_at(driver, nvrtc, gpu);
        } catch (const Error& error) {
            gpu.problem = error.what();
        }
    }
}

std::string finding_line(const char* name, const Finding& finding) {
    std::string text = fmt::format("{:<8} {:<8} ", name, finding.good ? "ok" : "missing");
    text += finding.good ? fmt::format("{}{}{}", finding.path, finding.version.empty() ? "" : ", ",
                                       finding.version)
                         : finding.problem;
    return text + '\n';
}

nlohmann::ordered_json finding_json(const Finding& finding) {
    return {{"ok", finding.good},
            {"path", finding.path},
            {"version", finding.version},
            {"problem", finding.problem}};
}

Finding find_host_compiler() {
    Finding finding;
    if (const auto path = emulation::find_host_compiler()) {
        finding.path = path->string();
    }
    try {
        finding.version = emulation::HostCompiler().version();
        finding.good = true;
    } catch (const Error& error) {
        finding.problem = error.what();
    }
    return finding;
}

/// The last lines: what can be done here.
std::string conclusion(const Diagnosis& diagnosis) {
    std::string text;
    if (diagnosis.can_run()) {
        text = "Kernels can be compiled and run here.\n";
    } else if (diagnosis.can_compile()) {
        text = "Kernels can be compiled here (`backlight inspect`), and not run on a GPU.\n";
    } else {
        text = "Kernels can be neither compiled nor run on a GPU here.\n";
    }
    if (diagnosis.host_compiler.good) {
        text +=
            "The emulated device can execute them on the CPU (`backlight verify --device "
            "emulated`).\n";
    }
    return text;
}

}  // namespace

bool Diagnosis::can_run() const noexcept {
    return std::ranges::any_of(gpus, [](const FoundGpu& gpu) { return gpu.usable; });
}

Finding diagnose_cache(const std::string& directory) {
    Finding finding;
    finding.path = directory;
    if (directory.empty()) {
        finding.problem =
            "no directory is known: set BACKLIGHT_CACHE_PATH or HOME; until then every process "
            "compiles anew";
        return finding;
    }
    // The nearest that exists: the cache makes the rest when it stores its first entry.
    std::error_code failure;
    std::filesystem::path existing = std::filesystem::absolute(directory, failure);
    while (existing.has_relative_path() && !std::filesystem::exists(existing, failure)) {
        existing = existing.parent_path();
    }
    const auto refuse = [&](const std::string& reason) {
        finding.problem = fmt::format(
            "'{}' cannot be written to: {} is {}; every process compiles anew until it can, or set "
            "BACKLIGHT_CACHE_PATH",
            directory, existing.string(), reason);
    };
    if (!std::filesystem::is_directory(existing, failure)) {
        refuse("no directory");
    } else if (access(existing.c_str(), W_OK | X_OK) != 0) {
        refuse(fmt::format("closed to this user ({})", std::strerror(errno)));
    } else if (const auto space = std::filesystem::space(existing, failure);
               !failure && space.available == 0) {
        refuse("on a full disk");
    } else {
        finding.good = true;
        finding.version = existing == std::filesystem::absolute(directory, failure)
                              ? "there"
                              : "to be made by the first compilation";
    }
    return finding;
}

Diagnosis diagnose() {
    Diagnosis diagnosis;
    const RuntimeOptions options = with_environment({});
    std::optional<compiler::Nvrtc> nvrtc;
    try {
        nvrtc.emplace(options.nvrtc_path);
        diagnosis.nvrtc = {.good = true, .path = nvrtc->path(), .version = nvrtc->version()};
    } catch (const Error& error) {
        diagnosis.nvrtc.problem = error.what();
    }
    look_for_gpus(options, nvrtc ? &*nvrtc : nullptr, diagnosis);
    diagnosis.cache = diagnose_cache(options.cache_directory.string());
    const CublasLibrary cublas = find_cublas();
    diagnosis.cublas = {.good = cublas.opened, .path = cublas.path};
    if (!cublas.opened) {
        diagnosis.cublas.problem =
            "cuBLAS could not be opened; only `bench` asks for it, to measure what the card gives "
            "to matrix products: install it, or set BACKLIGHT_CUBLAS_PATH to libcublas.so.13 or "
            "libcublas.so.12:" +
            cublas.failure;
    }
    diagnosis.host_compiler = find_host_compiler();
    return diagnosis;
}

std::string format_diagnosis(const Diagnosis& diagnosis) {
    std::string text = fmt::format("backlight {} ({})\n\n", version(), git_revision());
    text += finding_line("driver", diagnosis.driver);
    text += finding_line("NVRTC", diagnosis.nvrtc);
    if (!diagnosis.gpu_problem.empty()) {
        text += fmt::format("{:<8} {:<8} {}\n", "GPU", "missing", diagnosis.gpu_problem);
    }
    for (const FoundGpu& gpu : diagnosis.gpus) {
        text += fmt::format("{:<8} {:<8} ", fmt::format("GPU {}", gpu.ordinal),
                            gpu.usable ? "ok" : "unusable");
        if (!gpu.name.empty()) {
            text += fmt::format("{}, compute capability {}, {:.1f} GiB", gpu.name,
                                gpu.compute_capability,
                                static_cast<double>(gpu.memory_bytes) / (1U << 30U));
        }
        if (!gpu.problem.empty()) {
            text += fmt::format("{}{}", gpu.name.empty() ? "" : ": ", gpu.problem);
        }
        text += '\n';
    }
    text += finding_line("cache", diagnosis.cache);
    text += finding_line("cuBLAS", diagnosis.cublas);
    text += finding_line("emulated", diagnosis.host_compiler);
    return text + '\n' + conclusion(diagnosis);
}

nlohmann::ordered_json to_json(const Diagnosis& diagnosis) {
    nlohmann::ordered_json gpus = nlohmann::ordered_json::array();
    for (const FoundGpu& gpu : diagnosis.gpus) {
        gpus.push_back({{"ordinal", gpu.ordinal},
                        {"name", gpu.name},
                        {"compute_capability", gpu.compute_capability},
                        {"memory_bytes", gpu.memory_bytes},
                        {"target", gpu.target},
                        {"usable", gpu.usable},
                        {"problem", gpu.problem}});
    }
    return {{"backlight", {{"version", version()}, {"git_revision", git_revision()}}},
            {"driver", finding_json(diagnosis.driver)},
            {"nvrtc", finding_json(diagnosis.nvrtc)},
            {"gpus", std::move(gpus)},
            {"gpu_problem", diagnosis.gpu_problem},
            {"cache", finding_json(diagnosis.cache)},
            {"cublas", finding_json(diagnosis.cublas)},
            {"host_compiler", finding_json(diagnosis.host_compiler)},
            {"can_run", diagnosis.can_run()},
            {"can_compile", diagnosis.can_compile()},
            {"can_emulate", diagnosis.host_compiler.good}};
}

int exit_code(const Diagnosis& diagnosis) noexcept {
    if (diagnosis.can_run()) {
        return doctor_can_run;
    }
    return diagnosis.can_compile() ? doctor_can_compile : doctor_can_do_neither;
}

int doctor(const std::string& json, std::ostream& out) {
    const Diagnosis diagnosis = diagnose();
    if (json != "-") {
        out << format_diagnosis(diagnosis);
    }
    if (!json.empty()) {
        write_json(json, to_json(diagnosis), out);
    }
    return exit_code(diagnosis);
}

}  // namespace backlight::tool
