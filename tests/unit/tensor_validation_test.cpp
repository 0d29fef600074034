// Of tensors: attention/validation.hpp.
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "attention/zero_gradients.hpp"
#include "device/cuda_device.hpp"
#include "validation_test_support.hpp"

using namespace backlight;
using namespace backlight::test::validation;
using attention::validate;
using test::check_refused;
using test::tensors_at;

namespace {

struct NamedInput {
    const char* name;
    ConstTensorView BackwardTensors::*view;
};
constexpr NamedInput inputs[] = {{"q", &BackwardTensors::q},
                                 {"k", &BackwardTensors::k},
                                 {"v", &BackwardTensors::v},
                                 {"o", &BackwardTensors::o},
                                 {"d_o", &BackwardTensors::d_o}};

struct NamedOutput {
    const char* name;
    TensorView BackwardTensors::*view;
};
constexpr NamedOutput outputs[] = {
    {"d_q", &BackwardTensors::d_q}, {"d_k", &BackwardTensors::d_k}, {"d_v", &BackwardTensors::d_v}};

/// Applies a change to each tensor in turn: the refusal must name that tensor.
template <typename Change>
void each_tensor_refused(Change&& change, std::initializer_list<std::string_view> fragments) {
    const auto check = [&](const std::string& name, const BackwardTensors& tensors) {
        check_refused(ErrorCode::invalid_argument, {name + "."},
                      [&] { validate(tensors, good_problem); });
        refused(tensors, good_problem, fragments);
    };
    for (const NamedInput& input : inputs) {
        BackwardTensors tensors = good_tensors();
        change(tensors.*input.view);
        check(input.name, tensors);
    }
    for (const NamedOutput& output : outputs) {
        BackwardTensors tensors = good_tensors();
        change(tensors.*output.view);
        check(output.name, tensors);
    }
}

template <typename Pointer>
Pointer moved(Pointer pointer, std::uintptr_t bytes) {
    return reinterpret_cast<Pointer>(reinterpret_cast<std::uintptr_t>(pointer) + bytes);
}

}  // namespace

TEST_CASE("tensors in either layout are accepted, and so are slices of packed ones") {
    CHECK_NOTHROW(validate(tensors_at(good_problem, test::tensor_base), good_problem));
    CHECK_NOTHROW(
        validate(tensors_at(good_problem, test::tensor_base, test::Layout::bshd), good_problem));
    // Q, K, V of one (batch, seqlen, 3, heads, head_dim) tensor, and their gradients of another.
    BackwardTensors packed = good_tensors();
    const std::int64_t row = 3 * good_problem.heads * good_problem.head_dim;
    const auto slice = [&](std::uintptr_t base, std::uintptr_t part) {
        return TensorView{reinterpret_cast<void*>(
                              base + part * static_cast<std::uintptr_t>(good_problem.heads *
                                                                        good_problem.head_dim * 2)),
                          good_problem.seqlen_q * row, good_problem.head_dim, row};
    };
    packed.q = slice(0x100000, 0);
    packed.k = slice(0x100000, 1);
    packed.v = slice(0x100000, 2);
    packed.d_q = slice(0x9000000, 0);
    packed.d_k = slice(0x9000000, 1);
    packed.d_v = slice(0x9000000, 2);
    CHECK_NOTHROW(validate(packed, good_problem));
}

TEST_CASE("inputs may share memory: keys that are also values, broadcast row sums") {
    BackwardTensors tensors = good_tensors();
    tensors.v = tensors.k;
    tensors.lse.stride_head = 0;
    tensors.lse.stride_batch = 0;
    CHECK_NOTHROW(validate(tensors, good_problem));
}

TEST_CASE("a null tensor is refused by its name") {
    each_tensor_refused([](auto& view) { view.data = nullptr; }, {"data is null"});
    BackwardTensors tensors = good_tensors();
    tensors.lse.data = nullptr;
    refused(tensors, good_problem, {"lse.data is null"});
}

TEST_CASE("a tensor that is not aligned to 16 bytes is refused with its address") {
    for (const std::uintptr_t bytes : {1U, 2U, 8U}) {
        each_tensor_refused([&](auto& view) { view.data = moved(view.data, bytes); },
                            {"data is 0x", "multiple of 16 bytes"});
    }
    BackwardTensors tensors = good_tensors();
    tensors.lse.data = moved(tensors.lse.data, 2);
    refused(tensors, good_problem, {"lse.data is 0x", "multiple of 4 bytes"});
    tensors.lse.data = moved(tensors.lse.data, 2);
    CHECK_NOTHROW(validate(tensors, good_problem));
}

TEST_CASE("a stride that is not a multiple of 16 bytes is refused by name and value") {
    each_tensor_refused([](auto& view) { view.stride_seqlen += 4; },
                        {"stride_seqlen is 132", "multiple of 8 elements"});
    each_tensor_refused([](auto& view) { view.stride_head += 1; },
                        {"stride_head is 32769", "multiple of 8 elements"});
    each_tensor_refused([](auto& view) { view.stride_batch += 7; },
                        {"stride_batch is 131079", "multiple of 8 elements"});
}

TEST_CASE("a stride that is negative or 2^39 and more is refused by name and value") {
    for (const std::int64_t bad :
         {std::int64_t{-128}, std::int64_t{1} << 39, largest, -largest - 1}) {
        const std::string value = "is " + std::to_string(bad);
        each_tensor_refused([&](auto& view) { view.stride_seqlen = bad; },
                            {"stride_seqlen", value, "and below 2^39"});
        each_tensor_refused([&](auto& view) { view.stride_head = bad; },
                            {"stride_head", value, "and below 2^39"});
        each_tensor_refused([&](auto& view) { view.stride_batch = bad; },
                            {"stride_batch", value, "and below 2^39"});
    }
}

TEST_CASE("inputs may be broadcast over batch and head and seqlen and outputs may not") {
    BackwardTensors tensors = good_tensors();
    for (const NamedInput& input : inputs) {
        ConstTensorView& view = tensors.*input.view;
        view.stride_batch = view.stride_head = view.stride_seqlen = 0;
    }
    tensors.lse.stride_batch = tensors.lse.stride_head = 0;
    CHECK_NOTHROW(validate(tensors, good_problem));
    for (const NamedInput& input : inputs) {
        (tensors.*input.view).stride_head = -8;
        refused(tensors, good_problem,
                {std::string(input.name) + ".stride_head is -8", "0 or more and below 2^39"});
        (tensors.*input.view).stride_head = 0;
    }
    for (const NamedOutput& output : outputs) {
        for (std::int64_t TensorView::*const stride :
             {&TensorView::stride_batch, &TensorView::stride_head, &TensorView::stride_seqlen}) {
            BackwardTensors wrong = tensors;
            (wrong.*output.view).*stride = 0;
            refused(wrong, good_problem,
                    {std::string(output.name) + ".stride_", "is 0", "positive and below 2^39"});
        }
    }
}

TEST_CASE("a stride over a single index counts for nothing, whatever it is") {
    AttentionProblem single = good_problem;
    single.batch = single.heads = 1;
    for (const std::int64_t stride :
         {std::int64_t{0}, std::int64_t{-3}, std::int64_t{1}, largest}) {
        BackwardTensors tensors = good_tensors(single);
        for (const NamedInput& input : inputs) {
            (tensors.*input.view).stride_batch = (tensors.*input.view).stride_head = stride;
        }
        for (const NamedOutput& output : outputs) {
            (tensors.*output.view).stride_batch = (tensors.*output.view).stride_head = stride;
        }
        tensors.lse.stride_batch = tensors.lse.stride_head = stride;
        CHECK_NOTHROW(validate(tensors, single));
    }
}

TEST_CASE("row sums with negative strides are refused") {
    BackwardTensors tensors = good_tensors();
    tensors.lse.stride_head = -256;
    refused(tensors, good_problem,
            {"lse.stride_head is -256: it must be 0 or more and below 2^39 elements"});
    tensors = good_tensors();
    tensors.lse.stride_batch = -1;
    refused(tensors, good_problem,
            {"lse.stride_batch is -1: it must be 0 or more and below 2^39 elements"});
}

TEST_CASE("an output that overlaps itself is refused, while an input may") {
    for (const NamedOutput& output : outputs) {
        BackwardTensors tensors = good_tensors();
        (tensors.*output.view).stride_head = 128;  // heads on top of rows
        refused(tensors, good_problem, {output.name, "stride_", "overlap itself"});
        tensors = good_tensors();
        (tensors.*output.view).stride_seqlen = 120;  // rows that share 8 elements
        refused(tensors, good_problem, {output.name, "stride_seqlen is 120", "overlap itself"});
        tensors = good_tensors();
        // One row less than the heads of a batch need.
        (tensors.*output.view).stride_batch -= 128;
        refused(tensors, good_problem, {output.name, "stride_batch is 130944", "overlap itself"});
    }
    BackwardTensors tensors = good_tensors();
    tensors.k.stride_head = 8;
    CHECK_NOTHROW(validate(tensors, good_problem));
}

TEST_CASE("strides so large that their sum passes 64 bits are judged right") {
    AttentionProblem problem = good_problem;
    problem.causal = false;
    problem.seqlen_q = std::int64_t{1} << 30;
    problem.seqlen_kv = 256;
    problem.batch = 2;
    problem.heads = 1;
    BackwardTensors tensors = good_tensors(problem);
    tensors.d_q.stride_seqlen = std::int64_t{1} << 38;  // the rows reach 2^68 elements far
    tensors.d_q.stride_batch = (std::int64_t{1} << 38) + 128;
    refused(tensors, problem, {"d_q.stride_batch is 274877907072", "overlap itself"});
}

TEST_CASE("outputs that start at the same address as another tensor are refused with both names") {
    const BackwardTensors tensors = good_tensors();
    for (const NamedOutput& output : outputs) {
        for (const NamedInput& input : inputs) {
            BackwardTensors aliased = tensors;
            (aliased.*output.view).data = const_cast<void*>((tensors.*input.view).data);
            refused(aliased, good_problem,
                    {std::string(output.name) + ".data", std::string(input.name) + ".data",
                     "memory of its own"});
        }
        for (const NamedOutput& other : outputs) {
            if (other.view == output.view) {
                continue;
            }
            BackwardTensors aliased = tensors;
            (aliased.*output.view).data = (tensors.*other.view).data;
            refused(aliased, good_problem, {output.name, other.name, "memory of its own"});
        }
    }
}

TEST_CASE("an output at the address of the row sums is refused with both names") {
    for (const NamedOutput& output : outputs) {
        BackwardTensors aliased = good_tensors();
        (aliased.*output.view).data = const_cast<float*>(aliased.lse.data);
        refused(aliased, good_problem, {output.name, "lse", "memory of its own"});
    }
}

TEST_CASE("a tensor that starts in the workspace is refused by name") {
    const BackwardTensors tensors = good_tensors();
    constexpr std::size_t bytes = 4096;
    for (const NamedOutput& output : outputs) {
        BackwardTensors inside = tensors;
        constexpr std::uintptr_t address = std::uintptr_t{1} << 50U;
        auto* const workspace = reinterpret_cast<void*>(address);
        (inside.*output.view).data = reinterpret_cast<void*>(address + bytes - 256);
        check_refused(
            ErrorCode::invalid_argument,
            {std::string(output.name) + ".data", "within the workspace"},
            [&] { attention::validate_workspace(inside, workspace, bytes, bytes, good_problem); });
        (inside.*output.view).data = reinterpret_cast<void*>(address + bytes);
        CHECK_NOTHROW(attention::validate_workspace(inside, workspace, bytes, bytes, good_problem));
    }
}

TEST_CASE(
    "tensors of grouped heads and of values of another head dimension have their own extents") {
    AttentionProblem problem = good_problem;
    problem.heads_kv = 1;
    problem.head_dim_v = 64;
    BackwardTensors tensors = good_tensors(problem);
    // There is one head of keys, so its stride may be anything; rows of values are shorter.
    for (ConstTensorView* view : {&tensors.k, &tensors.v}) {
        view->stride_head = 3;
    }
    tensors.d_k.stride_head = tensors.d_v.stride_head = 0;
    tensors.d_v.stride_seqlen = 64;
    CHECK_NOTHROW(validate(tensors, problem));
    tensors.d_k.stride_seqlen = 64;
    refused(tensors, problem, {"d_k.stride_seqlen is 64", "overlap itself"});
    tensors.d_k.stride_seqlen = 128;
    tensors.o.stride_head = 3;
    refused(tensors, problem, {"o.stride_head is 3", "multiple of 8"});
}

TEST_CASE("strides of fp32 gradients are multiples of 4 elements and of inputs still 8") {
    AttentionProblem problem = good_problem;
    problem.gradient_type = GradientType::fp32;
    BackwardTensors tensors = good_tensors(problem);
    for (const NamedOutput& output : outputs) {
        TensorView& view = tensors.*output.view;
        view.stride_seqlen = 132;
        view.stride_head = 132 * 256;
        view.stride_batch = 132 * 256 * 4;
    }
    CHECK_NOTHROW(validate(tensors, problem));
    tensors.d_v.stride_seqlen = 130;
    refused(tensors, problem, {"d_v.stride_seqlen is 130", "multiple of 4 elements (16 bytes)"});
    tensors.d_v.stride_seqlen = 132;
    tensors.v.stride_seqlen = 132;
    refused(tensors, problem, {"v.stride_seqlen is 132", "multiple of 8 elements (16 bytes)"});
}

TEST_CASE("tensors of length 0 are not looked at") {
    AttentionProblem problem = good_problem;
    problem.seqlen_q = 0;
    BackwardTensors tensors = good_tensors(problem);
    tensors.q = tensors.o = tensors.d_o = ConstTensorView{};
    tensors.d_q = {};
    tensors.lse = {};
    CHECK_NOTHROW(validate(tensors, problem));
    CHECK_NOTHROW(attention::validate_workspace(tensors, nullptr, 0, 0, problem));
    tensors.d_k.data = nullptr;
    refused(tensors, problem, {"d_k.data is null"});
    problem = good_problem;
    problem.seqlen_kv = 0;
    tensors = good_tensors(problem);
    tensors.k = tensors.v = ConstTensorView{};
    tensors.d_k = tensors.d_v = {};
    CHECK_NOTHROW(validate(tensors, problem));
}

TEST_CASE("tensors of length 0 may point where an output does, as views of one buffer do") {
    AttentionProblem problem = good_problem;
    problem.seqlen_q = 0;
    BackwardTensors tensors = good_tensors(problem);
    tensors.q.data = tensors.o.data = tensors.d_o.data = tensors.d_q.data = tensors.d_k.data;
    tensors.lse.data = static_cast<const float*>(tensors.d_k.data);
    CHECK_NOTHROW(validate(tensors, problem));
    tensors.v.data = tensors.d_v.data;
    refused(tensors, problem, {"d_v.data", "v.data", "memory of its own"});
    problem = good_problem;
    problem.seqlen_kv = 0;
    tensors = good_tensors(problem);
    tensors.k.data = tensors.v.data = tensors.d_k.data = tensors.d_v.data = tensors.d_q.data;
    CHECK_NOTHROW(validate(tensors, problem));
    tensors.lse.data = static_cast<const float*>(tensors.d_q.data);
    refused(tensors, problem, {"d_q.data and lse.data are both", "memory of its own"});
}

TEST_CASE("zeros reach every element of a gradient and nothing between its rows") {
    test::fresh_driver();
    device::CudaDevice device(device::open_driver(BACKLIGHT_FAKE_DRIVER_PATH), 0);
    const AttentionProblem problem{
        .batch = 2, .heads = 3, .seqlen_q = 5, .seqlen_kv = 0, .head_dim = 8};
    struct Strides {
        std::int64_t batch, head, seqlen;
    };
    // Whole; heads innermost; with gaps after rows, heads, batches, and all of these; heads
    // outermost.
    for (const auto& [batch, head, seqlen] :
         {Strides{120, 40, 8}, Strides{120, 8, 24}, Strides{240, 80, 16}, Strides{144, 48, 8},
          Strides{200, 40, 8}, Strides{1000, 200, 24}, Strides{40, 96, 8}}) {
        CAPTURE(batch);
        CAPTURE(head);
        CAPTURE(seqlen);
        constexpr std::uint16_t untouched = 0xabcd;
        std::vector<std::uint16_t> memory(2000, untouched);
        std::vector<std::uint16_t> expected = memory;
        for (std::int64_t b = 0; b < 2; ++b) {
            for (std::int64_t h = 0; h < 3; ++h) {
                for (std::int64_t row = 0; row < 5; ++row) {
                    std::fill_n(expected.begin() + b * batch + h * head + row * seqlen, 8,
                                std::uint16_t{0});
                }
            }
        }
        BackwardTensors tensors;
        tensors.d_q = {memory.data(), batch, head, seqlen};
        attention::zero_gradients(device, tensors, problem, nullptr);
        CHECK(memory == expected);
    }
}

TEST_CASE("a stride of the row sums is refused from 2^39 elements on") {
    BackwardTensors tensors = good_tensors();
    tensors.lse.stride_batch = (std::int64_t{1} << 39) - 1;
    CHECK_NOTHROW(validate(tensors, good_problem));
    tensors.lse.stride_batch = std::int64_t{1} << 39;
    refused(tensors, good_problem, {"lse.stride_batch is 549755813888", "2^39"});
    tensors = good_tensors();
    tensors.lse.stride_head = std::numeric_limits<std::int64_t>::max();
    refused(tensors, good_problem, {"lse.stride_head is 9223372036854775807", "2^39"});
}
