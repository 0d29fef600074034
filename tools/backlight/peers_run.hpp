#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace backlight::tool {

/// Where a command line says that the peers' parts are; empty: where they are looked for.
struct PeersOptions {
    /// Program, by path or name; else BACKLIGHT_PYTHON, else python3.
    std::string python;
    /// bench_peers.py.
    std::string script;
    /// libbacklight_peers.so, which the script loads.
    std::string bridge;
    bool wanted = true;
};

/// What it takes to measure beside other libraries, which PyTorch has.
struct PeersTools {
    std::filesystem::path python;
    std::filesystem::path script;
    std::filesystem::path bridge;
    /// Versions of Python, of PyTorch and of its CUDA, as far as they are known.
    nlohmann::ordered_json versions;
    /// Why there can be no measurement and what to do about it; empty where there can.
    std::string problem;
};

/// What to measure in the peers' process.
struct PeersRequest {
    int device = 0;
    /// "8_16_4096_128_causal".
    std::string cell;
    std::vector<std::string> kernels;
    std::vector<std::string> peers;
    std::string regime;
    int repeats = 0;
};

struct PeersRun {
    std::vector<std::string> command;
    nlohmann::ordered_json versions;
    /// What bench_peers.py has written; null where it has not.
    nlohmann::ordered_json document;
    /// Why there is no document, or not all of it; empty where all went well.
    std::string problem;
};

/// The folder of the running program.
std::filesystem::path executable_folder();

/// Looks for the parts, in an installation and in a build around `program_folder`, and asks
/// Python for PyTorch and its GPU. Throws `invalid_argument` where an option names what is not
/// there.
PeersTools find_peers(const PeersOptions& options, const std::filesystem::path& program_folder);

/// Runs bench_peers.py to its end. Where the tools have a problem, that is the answer.
PeersRun run_peers(const PeersTools& tools, const PeersRequest& request);

}  // namespace backlight::tool
