// The command `run`: from a safetensors file to a safetensors file.
#include <unistd.h>

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backlight/error.hpp"
#include "gpu_test_support.hpp"
#include "run.hpp"
#include "verification/safetensors.hpp"

namespace backlight::test {

namespace {

using tool::Layout;
using verification::SafeTensor;
using verification::SafetensorsFile;
using Operand = tool::ProblemData::Operand;

/// Files of a test, removed with it.
class Folder {
  public:
    Folder()
        : path_(std::filesystem::temp_directory_path() /
                ("backlight-run-test-" + std::to_string(getpid()))) {
        std::filesystem::create_directories(path_);
    }
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;

    std::string file(const char* name) const { return (path_ / name).string(); }

  private:
    std::filesystem::path path_;
};

SafeTensor tensor(const tool::ProblemData& data, Operand operand) {
    const AttentionProblem& problem = data.problem();
    const std::int64_t seqlen = problem.seqlen_q;
    SafeTensor made;
    made.dtype = problem.dtype == DataType::bf16 ? "BF16" : "F16";
    made.shape = data.layout() == Layout::bhsd
                     ? std::vector{problem.batch, problem.heads, seqlen, problem.head_dim}
                     : std::vector{problem.batch, seqlen, problem.heads, problem.head_dim};
    made.data = data.download(operand);
    return made;
}

SafetensorsFile input_file(const tool::ProblemData& data) {
    SafetensorsFile file;
    file.tensors["q"] = tensor(data, Operand::q);
    file.tensors["k"] = tensor(data, Operand::k);
    file.tensors["v"] = tensor(data, Operand::v);
    file.tensors["do"] = tensor(data, Operand::d_o);
    return file;
}

void add_forward(SafetensorsFile& file, const tool::ProblemData& data) {
    const AttentionProblem& problem = data.problem();
    const std::vector<float> lse = data.download_lse();
    file.tensors["o"] = tensor(data, Operand::o);
    SafeTensor& statistics = file.tensors["lse"];
    statistics.dtype = "F32";
    statistics.shape = {problem.batch, problem.heads, problem.seqlen_q};
    const auto bytes = std::as_bytes(std::span(lse));
    statistics.data.assign(bytes.begin(), bytes.end());
}

TEST_CASE(
    "run computes the gradients of a file, in its type and layout, with o and lse or without") {
    const Folder folder;
    for (const DataType dtype : {DataType::bf16, DataType::fp16}) {
        for (const Layout layout : {Layout::bhsd, Layout::bshd}) {
            tool::Gpu gpu;
            tool::SupportKernels kernels(gpu);
            const AttentionProblem problem = square_problem(2, 3, 128, 64, true, dtype).problem;
            tool::ProblemData data(kernels, problem, layout);
            data.randomise(21);
            data.run(*gpu.runtime().backward(problem, kernel_preset("v2")));

            for (const bool with_forward : {false, true}) {
                SafetensorsFile file = input_file(data);
                if (with_forward) {
                    add_forward(file, data);
                }
                tool::RunOptions options;
                options.in = folder.file("in.safetensors");
                options.out = folder.file("out.safetensors");
                options.kernel = "v2";
                options.causal = true;
                options.layout = layout;
                verification::write_safetensors(options.in, file);
                CHECK(tool::run_file(options) == 0);
                gpu.make_current();
                const SafetensorsFile out = verification::read_safetensors(options.out);
                CHECK(out.tensors.size() == 3);
                CHECK(out.tensors.at("dk") == tensor(data, Operand::d_k));
                CHECK(out.tensors.at("dv") == tensor(data, Operand::d_v));
                CHECK(out.tensors.at("dq").shape == file.tensors.at("q").shape);
                CHECK(out.tensors.at("dq").data.size() == file.tensors.at("q").data.size());
            }
        }
    }
}

TEST_CASE("run refuses files whose tensors do not fit together, and names the tensor") {
    const Folder folder;
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
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
    tool::RunOptions options;
    options.in = folder.file("in.safetensors");
    options.out = folder.file("out.safetensors");
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
        gpu.make_current();
        CHECK_FALSE(std::filesystem::exists(options.out));
    }
    verification::write_safetensors(options.in, good);
    CHECK(tool::run_file(options) == 0);
}

}  // namespace

}  // namespace backlight::test
