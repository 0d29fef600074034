// The command `run`: from a safetensors file to a safetensors file.
#include "run.hpp"
#include "gpu_test_support.hpp"
#include "run_files.hpp"
#include "temporary_directory.hpp"
#include "verification/safetensors.hpp"

namespace backlight::test {

namespace {

using tool::Layout;
using verification::SafetensorsFile;
using Operand = tool::ProblemData::Operand;

TEST_CASE(
    "run computes the gradients of a file, in its type and layout, with o and lse or without") {
    const TemporaryDirectory folder;
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
                options.in = (folder.path() / "in.safetensors").string();
                options.out = (folder.path() / "out.safetensors").string();
                options.kernel = "v2";
                options.causal = true;
                options.layout = layout;
                verification::write_safetensors(options.in, file);
                CHECK(tool::run_file(options) == 0);
                gpu.make_current();
                const SafetensorsFile out = verification::read_safetensors(options.out);
                CHECK(out.tensors.size() == 3);
                CHECK(out.tensors.at("dk") == file_tensor(data, Operand::d_k));
                CHECK(out.tensors.at("dv") == file_tensor(data, Operand::d_v));
                CHECK(out.tensors.at("dq").shape == file.tensors.at("q").shape);
                CHECK(out.tensors.at("dq").data.size() == file.tensors.at("q").data.size());
            }
        }
    }
}

}  // namespace

}  // namespace backlight::test
