#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

namespace backlight::tool {

/// One thing that was looked for.
struct Finding {
    bool good = false;
    /// Where and what it is.
    std::string path;
    std::string version;
    /// Why it cannot be used, and what to do about it.
    std::string problem;
};

struct FoundGpu {
    int ordinal = 0;
    std::string name;
    std::string compute_capability;
    std::size_t memory_bytes = 0;
    std::string target;
    /// Kernels can be compiled for it and run on it.
    bool usable = false;
    std::string problem;
};

struct Diagnosis {
    Finding driver;
    Finding nvrtc;
    std::vector<FoundGpu> gpus;
    /// Where the driver works and there is no GPU.
    std::string gpu_problem;
    Finding cache;
    Finding cublas;
    /// The compiler that the emulated device needs.
    Finding host_compiler;

    bool can_run() const noexcept;
    bool can_compile() const noexcept { return nvrtc.good; }
};

/// Exit codes of `doctor`, on a GPU: kernels can be compiled and run; only compiled; neither.
inline constexpr int doctor_can_run = 0;
inline constexpr int doctor_can_compile = 1;
inline constexpr int doctor_can_do_neither = 3;

/// Looks at the machine as a Runtime would, with the same environment variables. Makes no file.
Diagnosis diagnose();

/// Whether the cache's directory can be written to, or made.
Finding diagnose_cache(const std::string& directory);

std::string format_diagnosis(const Diagnosis& diagnosis);
nlohmann::ordered_json to_json(const Diagnosis& diagnosis);
int exit_code(const Diagnosis& diagnosis) noexcept;

/// Diagnoses and tells. `json`: file, "-" for `out` (and no text then), or empty.
int doctor(const std::string& json, std::ostream& out);

}  // namespace backlight::tool
