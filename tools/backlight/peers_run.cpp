#include "peers_run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <span>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "backlight/error.hpp"
#include "external_program.hpp"

namespace backlight::tool {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* script_name = "bench_peers.py";
constexpr const char* bridge_name = "libbacklight_peers.so";

// Relative to the folder of the command, of an installation and of a build.
constexpr std::array script_folders = {BACKLIGHT_INSTALLED_PEERS_SCRIPTS,
                                       BACKLIGHT_BUILT_PEERS_SCRIPTS};
constexpr std::array bridge_folders = {BACKLIGHT_INSTALLED_PEERS_BRIDGE, "."};

/// Tells what there is in one line of JSON, in any Python 3.
constexpr const char* probe =
    "import json, sys\n"
    "found = {'python': '.'.join(map(str, sys.version_info[:3]))}\n"
    "try:\n"
    "    import torch\n"
    "    found['torch'] = torch.__version__\n"
    "    found['cuda'] = torch.version.cuda\n"
    "    found['gpu'] = torch.cuda.is_available()\n"
    "except Exception as error:\n"
    "    found['problem'] = type(error).__name__ + ': ' + str(error)\n"
    "found['recent'] = sys.version_info >= (3, 10)\n"
    "print(json.dumps(found))\n";

/// The last lines of what a program said: its error, after its progress.
std::string last_lines(const std::string& text) {
    constexpr int most_lines = 12;
    const std::size_t end = text.find_last_not_of('\n') + 1;
    std::size_t begin = end;
    for (int line = 0; line < most_lines && begin > 0; ++line) {
        // Its own end, then that of the line before; nothing before the first.
        begin = begin > 1 ? text.rfind('\n', begin - 2) + 1 : 0;
    }
    return text.substr(begin, end - begin);
}

/// The last line that is a JSON object: libraries may say something of their own before it.
Json object_in(const std::string& text) {
    std::istringstream lines(text);
    Json found;
    for (std::string line; std::getline(lines, line);) {
        Json parsed = Json::parse(line, nullptr, false);
        if (parsed.is_object()) {
            found = std::move(parsed);
        }
    }
    return found;
}

using Folders = std::span<const char* const>;

/// The file that the option names; else the first that is there, or nothing.
fs::path find_file(const char* option, const std::string& asked, const fs::path& program_folder,
                   Folders folders, const char* name) {
    std::error_code failure;
    if (!asked.empty()) {
        if (!fs::is_regular_file(asked, failure)) {
            throw Error(ErrorCode::invalid_argument,
                        fmt::format("{} is '{}': it must be the file {}", option, asked, name));
        }
        return asked;
    }
    for (const char* folder : folders) {
        fs::path file = (program_folder / folder / name).lexically_normal();
        if (fs::is_regular_file(file, failure)) {
            return file;
        }
    }
    return {};
}

/// `folders` as places to look in, for a person.
std::string places(const fs::path& program_folder, Folders folders) {
    std::vector<std::string> all;
    all.reserve(folders.size());
    for (const char* folder : folders) {
        all.push_back((program_folder / folder).lexically_normal().string());
    }
    return fmt::format("{}", fmt::join(all, ", "));
}

/// Empty where none is named and none is on the PATH.
fs::path find_python(const PeersOptions& options) {
    const auto named = [](const char* option, const std::string& asked) {
        const bool is_path = asked.find('/') != std::string::npos;
        std::string file = is_path ? asked : found_on_path(asked);
        if (!is_executable(file)) {
            throw Error(ErrorCode::invalid_argument,
                        fmt::format("{} is '{}': it must be a Python, by its path or a name on "
                                    "the PATH",
                                    option, asked));
        }
        return file;
    };
    if (!options.python.empty()) {
        return named("python", options.python);
    }
    const char* const variable = std::getenv("BACKLIGHT_PYTHON");
    if (variable != nullptr && *variable != '\0') {
        return named("BACKLIGHT_PYTHON", variable);
    }
    return found_on_path("python3");
}

/// What the Python lacks, or nothing; fills in the versions.
std::string problem_of_python(PeersTools& tools) {
    constexpr const char* another = "--python or BACKLIGHT_PYTHON names another";
    const std::string python = tools.python.string();
    const ProgramResult result = run_program({python, "-c", probe});
    const Json found = object_in(result.output);
    if (!found.is_object() || !found.contains("python")) {
        return fmt::format("{} does not run as a Python 3 ({}); {}", python,
                           last_lines(result.output), another);
    }
    for (const char* name : {"python", "torch", "cuda"}) {
        tools.versions[name] = found.value(name, Json());
    }
    const auto version = found.value("python", std::string());
    if (!found.value("recent", false)) {
        return fmt::format("{} is Python {}: 3.10 or newer is needed; {}", python, version,
                           another);
    }
    if (found.contains("problem")) {
        return fmt::format(
            "{} (Python {}) has no PyTorch that can be used: {}; get one built for CUDA (in a "
            "virtual environment: python3 -m venv DIR, DIR/bin/pip install torch), or {}",
            python, version, found.value("problem", std::string()), another);
    }
    const std::string torch = found.value("torch", std::string("?"));
    if (!found.value("cuda", Json()).is_string()) {
        return fmt::format(
            "{} has PyTorch {}, which is built without CUDA: get one built for "
            "CUDA, or {}",
            python, torch, another);
    }
    if (!found.value("gpu", false)) {
        return fmt::format(
            "{} has PyTorch {}, built for CUDA {}, which sees no GPU: the driver "
            "must be new enough for that CUDA; or {}",
            python, torch, found["cuda"].get<std::string>(), another);
    }
    return {};
}

}  // namespace

fs::path executable_folder() {
    std::error_code failure;
    return fs::read_symlink("/proc/self/exe", failure).parent_path();
}

PeersTools find_peers(const PeersOptions& options, const fs::path& program_folder) {
    PeersTools tools;
    if (!options.wanted) {
        tools.problem = "left out by --no-peers";
        return tools;
    }
    tools.python = find_python(options);
    tools.script =
        find_file("peers-script", options.script, program_folder, script_folders, script_name);
    tools.bridge =
        find_file("peers-bridge", options.bridge, program_folder, bridge_folders, bridge_name);
    if (tools.script.empty()) {
        tools.problem = fmt::format("{} is in none of {}: --peers-script names it", script_name,
                                    places(program_folder, script_folders));
    } else if (tools.bridge.empty()) {
        tools.problem = fmt::format(
            "{} is in none of {}: the build's target backlight_peers_bridge makes it, and "
            "--peers-bridge names it",
            bridge_name, places(program_folder, bridge_folders));
    } else if (tools.python.empty()) {
        tools.problem =
            "there is no python3 on the PATH: install Python 3.10 or newer with a "
            "PyTorch built for CUDA, or name one by --python or BACKLIGHT_PYTHON";
    } else {
        tools.problem = problem_of_python(tools);
    }
    return tools;
}

PeersRun run_peers(const PeersTools& tools, const PeersRequest& request) {
    PeersRun run{
        .command = {}, .versions = tools.versions, .document = {}, .problem = tools.problem};
    if (!tools.problem.empty()) {
        return run;
    }
    const TemporaryFile output("peers");
    run.command = {tools.python.string(), tools.script.string(), "--cells", request.cell};
    for (const std::string& kernel : request.kernels) {
        run.command.insert(run.command.end(), {"--kernel", kernel});
    }
    run.command.insert(
        run.command.end(),
        {"--peers", fmt::format("{}", fmt::join(request.peers, ",")), "--regime", request.regime,
         "--repeats", std::to_string(request.repeats), "--device", std::to_string(request.device),
         "--bridge", tools.bridge.string(), "--output", output.path()});
    const ProgramResult result = run_program(run.command);
    Json document = Json::parse(std::ifstream(output.path()), nullptr, false);
    if (!result.succeeded || !document.is_object()) {
        const std::string said = last_lines(result.output);
        run.problem = fmt::format("{} failed: {}", script_name, said.empty() ? "no word" : said);
    }
    run.document = document.is_object() ? std::move(document) : Json();
    return run;
}

}  // namespace backlight::tool
