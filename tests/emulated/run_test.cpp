// The command `run`: from a safetensors file to a safetensors file.
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "backlight/error.hpp"
#include "emulated_test_support.hpp"
#include "run.hpp"
#include "run_files.hpp"
#include "temporary_directory.hpp"

namespace backlight::test {

namespace {

using verification::SafetensorsFile;
using Operand = tool::ProblemData::Operand;

/// On the emulated device, with the cache of kernels that the tests share.
tool::RunOptions emulated_run(const TemporaryDirectory& folder) {
    ::setenv("BACKLIGHT_CACHE_PATH", BACKLIGHT_EMULATED_CACHE_DIR, 1);
    tool::RunOptions options;
    options.device.emulation = one_thread();
    options.in = (folder.path() / "in.safetensors").string();
    options.out = (folder.path() / "out.safetensors").string();
    return options;
}

TEST_CASE("run without a kernel named gives the gradients of the default kernel") {
    const TemporaryDirectory folder;
    EmulatedSession session;
    const AttentionProblem problem = square_problem(1, 1, 64, 64, true).problem;
    tool::ProblemData data(session.kernels(), problem);
    data.randomise(3);
    data.run(*session.runtime().backward(problem));

    tool::RunOptions options = emulated_run(folder);
    options.causal = true;
    verification::write_safetensors(options.in, input_file(data));
    REQUIRE(tool::run_file(options) == 0);
    const SafetensorsFile out = verification::read_safetensors(options.out);
    CHECK(out.tensors.size() == 3);
    CHECK(out.tensors.at("dq") == file_tensor(data, Operand::d_q));
    CHECK(out.tensors.at("dk") == file_tensor(data, Operand::d_k));
    CHECK(out.tensors.at("dv") == file_tensor(data, Operand::d_v));
}

TEST_CASE("run refuses files whose tensors do not fit together, and names the tensor") {
    const TemporaryDirectory folder;
    EmulatedSession session;
    tool::SupportKernels& kernels = session.kernels();
    tool::ProblemData data(kernels, square_problem(1, 2, 64, 64, true).problem);
    data.randomise(2);
    SafetensorsFile good = input_file(data);
    add_forward(good, data);

    struct Refusal {
        const char* what;
        void (*spoil)(SafetensorsFile&);
        const char* message;
    };
    constexpr Refusal refusals[] = {
        {"no v", [](SafetensorsFile& f) { f.tensors.erase("v"); }, "no tensor \"v\""},
        {"another type", [](SafetensorsFile& f) { f.tensors["k"].dtype = "F16"; }, "k is F16"},
        {"fp32 q",
         [](SafetensorsFile& f) {
             f.tensors["q"].dtype = "F32";
             f.tensors["q"].data.resize(2 * f.tensors["q"].data.size());
         },
         "q is F32"},
        {"three dimensions",
         [](SafetensorsFile& f) {
             f.tensors["q"].shape = {2, 64, 64};
         },
         "q has shape (2, 64, 64)"},
        {"heads that differ",
         [](SafetensorsFile& f) {
             f.tensors["k"].shape = {2, 1, 64, 64};
         },
         "k has shape (2, 1, 64, 64)"},
        {"v unlike k",
         [](SafetensorsFile& f) {
             f.tensors["v"].shape = {1, 2, 32, 128};
         },
         "v has shape (1, 2, 32, 128)"},
        {"do unlike q",
         [](SafetensorsFile& f) {
             f.tensors["do"].shape = {1, 1, 128, 64};
         },
         "do has shape (1, 1, 128, 64)"},
        {"o alone", [](SafetensorsFile& f) { f.tensors.erase("lse"); }, "there is o but no lse"},
        {"lse alone", [](SafetensorsFile& f) { f.tensors.erase("o"); }, "there is lse but no o"},
        {"lse of another shape",
         [](SafetensorsFile& f) {
             f.tensors["lse"].shape = {2, 1, 64};
         },
         "lse has shape (2, 1, 64)"},
    };
    tool::RunOptions options = emulated_run(folder);
    options.causal = true;
    for (const Refusal& refusal : refusals) {
        CAPTURE(refusal.what);
        SafetensorsFile file = good;
        refusal.spoil(file);
        verification::write_safetensors(options.in, file);
        try {
            tool::run_file(options);
            FAIL_CHECK("the file was accepted");
        } catch (const Error& error) {
            CHECK(error.code() == ErrorCode::invalid_argument);
            CAPTURE(error.what());
            CHECK(std::string_view(error.what()).find(refusal.message) != std::string_view::npos);
        }
        CHECK_FALSE(std::filesystem::exists(options.out));
    }
    verification::write_safetensors(options.in, good);
    CHECK(tool::run_file(options) == 0);
}

}  // namespace

}  // namespace backlight::test
