#include "emulation/host_compiler.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <utility>

#include "backlight/cache/key.hpp"
#include "backlight/error.hpp"
#include "compiler/embedded_sources.hpp"
#include "compiler/sources.hpp"
#include "compiler/specialisation.hpp"
#include "emulation/device_headers.hpp"
#include "emulation/host_compiler_path.hpp"
#include "emulation/temporary_folder.hpp"

extern "C" {
extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX has it declared here
/// Part of AddressSanitizer's runtime: null in a process without it.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): its name
__attribute__((weak)) void __asan_init();
}

namespace backlight::emulation {

namespace {

namespace fs = std::filesystem;

// Kernel files and emulated primitives lie apart, so that no kernel file finds a real primitive
// beside itself.
constexpr const char* kernel_folder = "kernel_sources";
constexpr const char* header_folder = "runtime/src/emulation/device_headers";

std::string read_file(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_file(const fs::path& path, std::string_view text) {
    fs::create_directories(path.parent_path());
    std::ofstream file(path, std::ios::binary);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    file.close();
    if (!file) {
        throw Error(ErrorCode::file_error,
                    fmt::format("{} could not be written, for a kernel of the emulated device",
                                path.string()));
    }
}

struct Finished {
    int status;
    std::string output;
};

/// Runs a program to its end; `output` is all that it said.
Finished run_program(const std::vector<std::string>& command, const fs::path& folder) {
    const fs::path log = folder / "log";
    std::vector<char*> arguments;
    arguments.reserve(command.size() + 1);
    for (const std::string& argument : command) {
        arguments.push_back(const_cast<char*>(argument.c_str()));
    }
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    pid_t process = 0;
    const int failure = ::posix_spawn(&process, command.front().c_str(), &actions, nullptr,
                                      arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    int status = -1;
    if (failure != 0 || ::waitpid(process, &status, 0) != process) {
        throw Error(ErrorCode::host_compiler_not_found,
                    fmt::format("the C++ compiler {} could not be started", command.front()));
    }
    return {status, read_file(log)};
}

/// What a compiler said, with the project's files in place of their copies, which are gone by the
/// time that a person reads it.
std::string without_folder(std::string text, const fs::path& folder) {
    const std::string copies = folder.string() + "/";
    for (std::size_t at = 0; (at = text.find(copies, at)) != std::string::npos;) {
        text.erase(at, copies.size());
    }
    return text;
}

/// All texts of a program by name: those of the kernel with the emulated primitives in place of the
/// real ones.
struct ProgramTexts {
    std::map<std::string, std::string> kernel;
    std::map<std::string, std::string> headers;
};

bool is_embedded(std::string_view file) {
    return std::ranges::any_of(
        compiler::embedded_sources(),
        [&](const compiler::EmbeddedSource& source) { return source.name == file; });
}

void apply(const SourceEdit& edit, ProgramTexts& texts) {
    for (auto* files : {&texts.kernel, &texts.headers}) {
        const auto file = files->find(edit.file);
        if (file == files->end()) {
            continue;
        }
        std::string& text = file->second;
        const std::size_t at = text.find(edit.from);
        if (at == std::string::npos || text.find(edit.from, at + 1) != std::string::npos) {
            throw Error(
                ErrorCode::invalid_argument,
                fmt::format("edit of {}: \"{}\" must occur exactly once", edit.file, edit.from));
        }
        text.replace(at, edit.from.size(), edit.to);
        return;
    }
    // A Runtime compiles several kernels: the file may belong to another of them.
    if (!is_embedded(edit.file)) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("edit of {}: there is no such file", edit.file));
    }
}

ProgramTexts texts_of(const compiler::KernelRequest& request,
                      const std::vector<SourceEdit>& edits) {
    ProgramTexts texts;
    for (const compiler::EmbeddedSource& header : device_headers()) {
        texts.headers.emplace(header.name, header.text);
    }
    for (const compiler::Header& file : compiler::source_closure(request.source, request.text)) {
        if (!texts.headers.contains(std::string(file.name))) {
            texts.kernel.emplace(file.name, file.text);
        }
    }
    for (const SourceEdit& edit : edits) {
        apply(edit, texts);
    }
    return texts;
}

cache::Key key_of(const ProgramTexts& texts) {
    cache::Key key;
    for (const auto* files : {&texts.headers, &texts.kernel}) {
        for (const auto& [name, text] : *files) {
            key.add(name, text);
        }
    }
    return key;
}

}  // namespace

device::Target HostCompiler::emulated(device::Target target) {
    target.name = std::string(device::emulated_target_prefix) + target.name;
    return target;
}

const fs::path& HostCompiler::path() {
    const std::lock_guard lock(mutex_);
    if (path_.empty()) {
        const auto found = find_host_compiler();
        if (!found) {
            const char* const asked = std::getenv("BACKLIGHT_CXX");
            throw Error(
                ErrorCode::host_compiler_not_found,
                asked != nullptr
                    ? fmt::format("BACKLIGHT_CXX is '{}': it must be a C++ compiler, by its "
                                  "path or a name on PATH, without options",
                                  asked)
                    : "the emulated device compiles kernels with a C++ compiler, and there "
                      "is none: install g++, or set BACKLIGHT_CXX to one");
        }
        path_ = *found;
    }
    return path_;
}

std::string HostCompiler::version() {
    const std::string compiler = path().string();
    const std::lock_guard lock(mutex_);
    if (version_.empty()) {
        const TemporaryFolder folder;
        const Finished told = run_program({compiler, "--version"}, folder.path());
        const Finished machine = run_program({compiler, "-dumpmachine"}, folder.path());
        if (told.status != 0 || machine.status != 0) {
            throw Error(ErrorCode::host_compiler_not_found,
                        fmt::format("{} does not tell its version: {}", compiler, told.output));
        }
        version_ = told.output.substr(0, told.output.find('\n')) + " for " +
                   machine.output.substr(0, machine.output.find('\n'));
    }
    return version_;
}

std::vector<std::string> HostCompiler::options(const device::Target& /*target*/) const {
    std::vector<std::string> options = {
        "-std=c++20", for_debugger_ ? "-O0" : "-O1", "-g", "-fPIC", "-shared",
        // Only the ways in are seen from outside: the process holds many kernels at a time.
        "-fvisibility=hidden",
        // Sources are CUDA's, with attributes and pragmas that only NVRTC knows.
        "-w"};
    if (__asan_init != nullptr) {
        options.emplace_back("-fsanitize=address");
    }
    return options;
}

std::string HostCompiler::source_digest(const compiler::KernelRequest& request) const {
    return key_of(texts_of(request, edits_)).digest();
}

compiler::CompiledKernel HostCompiler::compile(const compiler::KernelRequest& request) {
    const auto start = std::chrono::steady_clock::now();
    const ProgramTexts texts = texts_of(request, edits_);
    const TemporaryFolder folder;
    const fs::path kernels = folder.path() / kernel_folder;
    const fs::path headers = folder.path() / header_folder;
    for (const auto& [name, text] : texts.kernel) {
        write_file(kernels / name, text);
    }
    for (const auto& [name, text] : texts.headers) {
        write_file(headers / name, text);
    }
    write_file(kernels / compiler::specialisation_header, request.specialisation);
    const fs::path unit = folder.path() / "kernel.cpp";
    write_file(unit, fmt::format("#include \"emulator/cuda.h\"\n"
                                 "#include \"{}\"\n"
                                 "#include \"emulator/entry.h\"\n",
                                 request.source));
    const fs::path object = folder.path() / "kernel.so";

    const std::vector<std::string> chosen = options(request.target);
    cache::Key identity = key_of(texts);
    identity.add("entry", request.entry)
        .add("specialisation", request.specialisation)
        .add("compiler", version())
        .add("options", fmt::format("{}", fmt::join(chosen, " ")));

    std::vector<std::string> command = {path().string()};
    command.insert(command.end(), chosen.begin(), chosen.end());
    command.insert(
        command.end(),
        {"-I" + headers.string(), "-I" + kernels.string(), "-DBACKLIGHT_ENTRY=" + request.entry,
         "-DBACKLIGHT_IDENTITY=\"" + identity.digest() + "\"",
         // Reports and debuggers name the project's files, not those compiled here.
         "-ffile-prefix-map=" + folder.path().string() + "/=", "-o", object.string(),
         unit.string()});
    const Finished compiled = run_program(command, folder.path());
    if (compiled.status != 0) {
        throw Error(ErrorCode::compile_failed,
                    fmt::format("{} ({}) refused {} for the emulated device.\noptions: {}\n{}",
                                path().string(), version(), request.source, fmt::join(chosen, " "),
                                without_folder(compiled.output, folder.path())));
    }
    const std::string bytes = read_file(object);
    if (bytes.empty()) {
        throw Error(
            ErrorCode::compile_failed,
            fmt::format("{} ({}) made no object of {}: BACKLIGHT_CXX must be a C++ compiler, "
                        "and the temporary folder {} must have room",
                        path().string(), version(), request.source, folder.path().string()));
    }
    const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
    const std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - start;
    return {.cubin = {data, data + bytes.size()},
            .resources = {},
            .compile_milliseconds = elapsed.count()};
}

}  // namespace backlight::emulation
