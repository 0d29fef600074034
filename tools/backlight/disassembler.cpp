#include "disassembler.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "backlight/error.hpp"
#include "external_program.hpp"

namespace backlight::tool {

namespace {

constexpr std::array programs = {"nvdisasm", "cuobjdump"};
constexpr std::array folders = {"/usr/local/cuda/bin", "/opt/cuda/bin"};
constexpr const char* variable = "BACKLIGHT_DISASSEMBLER_PATH";

std::string named_file(const std::string& name, const std::string& file) {
    if (!is_executable(file)) {
        throw Error(ErrorCode::file_error,
                    fmt::format("{} is '{}': it must be the file of nvdisasm or cuobjdump, which "
                                "may be executed",
                                name, file));
    }
    return file;
}

std::string found_file() {
    for (const char* program : programs) {
        if (std::string file = found_on_path(program); !file.empty()) {
            return file;
        }
    }
    for (const char* folder : folders) {
        for (const char* program : programs) {
            if (std::string file = fmt::format("{}/{}", folder, program); is_executable(file)) {
                return file;
            }
        }
    }
    throw Error(ErrorCode::file_error,
                fmt::format("no disassembler was found: instructions are counted in what nvdisasm "
                            "or cuobjdump of the CUDA toolkit prints; install one of them (Python "
                            "package nvidia-cuda-nvdisasm), or name its file with --disassembler "
                            "or {}; neither is on the PATH or in {}",
                            variable, fmt::join(folders, ", ")));
}

}  // namespace

Disassembler::Disassembler(const std::string& path) {
    const char* const environment = std::getenv(variable);
    if (!path.empty()) {
        path_ = named_file("disassembler", path);
    } else if (environment != nullptr && *environment != '\0') {
        path_ = named_file(variable, environment);
    } else {
        path_ = found_file();
    }
}

std::string Disassembler::listing(std::span<const std::byte> cubin) const {
    const TemporaryFile file("cubin");
    std::ofstream stream(file.path(), std::ios::binary);
    stream.write(reinterpret_cast<const char*>(cubin.data()),
                 static_cast<std::streamsize>(cubin.size()));
    stream.close();
    if (!stream) {
        throw Error(ErrorCode::file_error,
                    fmt::format("'{}': the file could not be written", file.path()));
    }
    const bool is_cuobjdump =
        std::filesystem::path(path_).filename().string().find("cuobjdump") != std::string::npos;
    ProgramResult result = run_program({path_, is_cuobjdump ? "--dump-sass" : "-c", file.path()});
    if (!result.succeeded) {
        throw Error(ErrorCode::file_error,
                    fmt::format("{} failed; it must be of a CUDA toolkit as new as NVRTC: {}",
                                path_, result.output));
    }
    return std::move(result.output);
}

}  // namespace backlight::tool
