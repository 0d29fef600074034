// The peers' process: what is looked for, what is missing and how that is told, and what comes of
// a run. A shell script stands in for Python.

#include "peers_run.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "command_test_support.hpp"
#include "external_program.hpp"
#include "test_support.hpp"

using namespace backlight;
using namespace backlight::tool;
using test::check_refused;
using test::contains;
using test::Environment;

namespace {

namespace fs = std::filesystem;

constexpr const char* all_well =
    R"({"python": "3.11.2", "torch": "2.11.0", "cuda": "13.0", "gpu": true, "recent": true})";

void make_program(const fs::path& path, const std::string& text) {
    std::ofstream(path) << "#!/bin/sh\n" << text;
    fs::permissions(path, fs::perms::owner_all);
}

/// A Python that answers the question for PyTorch so, and runs a script as `run` does.
std::string stand_in(const std::string& answer, const std::string& run = "") {
    return "if [ \"$1\" = -c ]; then echo 'a warning of some library'; echo '" + answer +
           "'; exit 0; fi\n" + run;
}

/// A folder with a script and a bridge, and a Python of that text.
struct Parts {
    test::TemporaryDirectory directory;
    PeersOptions options;

    explicit Parts(const std::string& python) {
        const auto file = [&](const char* name) { return (directory.path() / name).string(); };
        options = {.python = file("python"),
                   .script = file("bench_peers.py"),
                   .bridge = file("libbacklight_peers.so")};
        std::ofstream(options.script) << "";
        std::ofstream(options.bridge) << "";
        make_program(options.python, python);
    }
    PeersTools find() const { return find_peers(options, directory.path()); }
};

const PeersRequest request{.device = 3,
                           .cell = "1_2_128_64_causal",
                           .kernels = {"v1", "v4"},
                           .peers = {"cudnn", "fa2"},
                           .regime = "hot",
                           .repeats = 20};

}  // namespace

TEST_CASE("a Python with PyTorch and a GPU has no problem and tells its versions") {
    const PeersTools tools = Parts(stand_in(all_well)).find();
    CHECK(tools.problem == "");
    CHECK(tools.versions["python"] == "3.11.2");
    CHECK(tools.versions["torch"] == "2.11.0");
    CHECK(tools.versions["cuda"] == "13.0");
}

TEST_CASE("what a Python lacks is told with what to do about it") {
    const auto problem = [](const char* answer) { return Parts(stand_in(answer)).find().problem; };
    const std::string no_torch =
        problem(R"({"python": "3.11.2", "problem": "No module named torch", "recent": true})");
    CHECK(contains(no_torch, "No module named torch"));
    CHECK(contains(no_torch, "pip install torch"));
    CHECK(contains(no_torch, "--python"));
    CHECK(contains(problem(R"({"python": "3.8.1", "recent": false})"), "3.10 or newer"));
    CHECK(contains(problem(R"({"python": "3.11.2", "torch": "2.1", "cuda": null, "recent": true})"),
                   "without CUDA"));
    CHECK(contains(
        problem(R"({"python": "3", "torch": "2.1", "cuda": "12.1", "gpu": false, "recent": true})"),
        "sees no GPU"));
    CHECK(contains(Parts("echo broken; exit 1\n").find().problem, "broken"));
}

TEST_CASE("the real Python is understood whether it has PyTorch or not") {
    if (found_on_path("python3").empty()) {
        return;
    }
    Parts parts("");
    parts.options.python = "python3";
    CHECK(parts.find().versions["python"].is_string());
}

TEST_CASE("an option that names nothing that is there is refused by name") {
    Parts parts(stand_in(all_well));
    const auto refuses = [&](std::string PeersOptions::*option, const char* name) {
        PeersOptions options = parts.options;
        options.*option = "/nonexistent/part";
        check_refused(ErrorCode::invalid_argument, {name, "'/nonexistent/part'", "must be"},
                      [&] { find_peers(options, parts.directory.path()); });
    };
    refuses(&PeersOptions::python, "python is");
    refuses(&PeersOptions::script, "peers-script is");
    refuses(&PeersOptions::bridge, "peers-bridge is");
    parts.options.python.clear();
    const Environment variable("BACKLIGHT_PYTHON", "/nonexistent/python");
    check_refused(ErrorCode::invalid_argument, {"BACKLIGHT_PYTHON is '/nonexistent/python'"},
                  [&] { parts.find(); });
}

TEST_CASE("parts that are nowhere are missing with the places and the option") {
    Parts parts(stand_in(all_well));
    parts.options.bridge.clear();
    fs::remove(parts.directory.path() / "libbacklight_peers.so");
    CHECK(contains(parts.find().problem, "backlight_peers_bridge"));
    CHECK(contains(parts.find().problem, parts.directory.path().string()));
    parts.options.script.clear();
    CHECK(contains(parts.find().problem, "--peers-script"));
    const Environment no_path("PATH", "/nonexistent");
    Parts without_python(stand_in(all_well));
    without_python.options.python.clear();
    const Environment no_variable("BACKLIGHT_PYTHON", std::nullopt);
    CHECK(contains(without_python.find().problem, "no python3 on the PATH"));
}

TEST_CASE("a bridge beside the command is found without being named") {
    Parts parts(stand_in(all_well));
    const std::string bridge = parts.options.bridge;
    parts.options.bridge.clear();
    const PeersTools tools = parts.find();
    CHECK(tools.problem == "");
    CHECK(tools.bridge == bridge);
}

TEST_CASE("a run passes the cell, the kernels and the device on and brings the document back") {
    const Parts parts(stand_in(all_well,
                               "while [ $# -gt 0 ]; do [ \"$1\" = --output ] && file=$2; "
                               "shift; done\necho '{\"cells\": []}' > \"$file\"\n"));
    const PeersRun run = run_peers(parts.find(), request);
    CHECK(run.problem == "");
    CHECK(run.document["cells"].empty());
    std::string command;
    for (const std::string& word : run.command) {
        command += word + ' ';
    }
    CHECK(contains(command,
                   "--cells 1_2_128_64_causal --kernel v1 --kernel v4 --peers cudnn,fa2 "
                   "--regime hot --repeats 20 --device 3 "));
    CHECK(contains(command, "--bridge " + parts.options.bridge));
}

TEST_CASE("a run that fails tells its last lines and keeps what was written") {
    const std::string fails =
        "while [ $# -gt 0 ]; do [ \"$1\" = --output ] && file=$2; shift; "
        "done\n";
    const Parts nothing(stand_in(all_well, "seq 1 20; echo the device was lost; exit 3\n"));
    const PeersRun lost = run_peers(nothing.find(), request);
    CHECK(lost.document.is_null());
    CHECK(contains(lost.problem, "bench_peers.py failed"));
    CHECK(contains(lost.problem, "19\n20\nthe device was lost"));
    CHECK_FALSE(contains(lost.problem, "7\n8"));
    const Parts half(
        stand_in(all_well, fails + "echo '{\"cells\": []}' > \"$file\"; kill -9 $$\n"));
    const PeersRun kept = run_peers(half.find(), request);
    CHECK(kept.document.is_object());
    CHECK(contains(kept.problem, "failed"));
}

TEST_CASE("peers that are not wanted are not run") {
    Parts parts("exit 9\n");
    parts.options.wanted = false;
    // Nor looked for.
    parts.options.python.clear();
    const Environment variable("BACKLIGHT_PYTHON", "/nonexistent/python");
    const PeersRun run = run_peers(parts.find(), request);
    CHECK(run.command.empty());
    CHECK(contains(run.problem, "--no-peers"));
}
