// Packed sequences as a problem: what is refused, what is counted, which kernels serve them, and
// the references that tell what they should give.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "attention/kernels.hpp"
#include "attention/validation.hpp"
#include "attention/workspace.hpp"
#include "test_support.hpp"
#include "verification/host_reference.hpp"
#include "verification/packing.hpp"

using namespace backlight;
using test::check_refused;
using test::tensors_at;

namespace {

const AttentionProblem packed{.batch = 3,
                              .heads = 4,
                              .seqlen_q = 256,
                              .seqlen_kv = 300,
                              .head_dim = 64,
                              .causal = true,
                              .packed = PackedSequences{.total_q = 500, .total_kv = 600}};

AttentionProblem with_totals(std::int64_t total_q, std::int64_t total_kv) {
    AttentionProblem problem = packed;
    problem.packed = PackedSequences{.total_q = total_q, .total_kv = total_kv};
    return problem;
}

const device::Target& blackwell() {
    static const device::Target target = device::target_by_name("sm_120a");
    return target;
}

/// Addresses that nobody reads.
BackwardTensors packed_tensors() {
    BackwardTensors tensors = tensors_at(packed, test::tensor_base, test::Layout::bshd);
    const auto array = [](std::uintptr_t address) {
        return reinterpret_cast<const std::int32_t*>(address);  // NOLINT
    };
    tensors.cu_seqlens_q = array(0x500);
    tensors.cu_seqlens_kv = array(0x600);
    tensors.seqused_kv = array(0x704);
    return tensors;
}

}  // namespace

TEST_CASE("packed sequences are part of what a problem is, in text and equality and hash") {
    const AttentionProblem other = with_totals(500, 601);
    CHECK(to_string(packed).ends_with(" packed total_q=500 total_kv=600"));
    CHECK(mask_text(packed) == "causal bottom_right");
    CHECK(packed != other);
    CHECK(AttentionProblemHash{}(packed) != AttentionProblemHash{}(other));
    CHECK(packed.of_sequence({.seqlen_q = 7, .seqlen_kv = 9}) ==
          AttentionProblem{
              .heads = 4, .seqlen_q = 7, .seqlen_kv = 9, .head_dim = 64, .causal = true});
}

TEST_CASE("operations of packed sequences are those of each, and at most those of the largest") {
    const std::vector<SequenceShape> shapes = {{256, 300}, {0, 40}, {100, 100}};
    double sum = 0;
    for (const SequenceShape& shape : shapes) {
        sum += backward_flops(packed.of_sequence(shape));
    }
    CHECK(backward_flops(packed, shapes) == doctest::Approx(sum));
    CHECK(backward_flops(packed) ==
          doctest::Approx(3 * backward_flops(packed.of_sequence({256, 300}))));
    CHECK(backward_flops(packed) > backward_flops(packed, shapes));
    // Q, dQ, O and dO with 500 rows, K, dK, V and dV with 600, and LSE.
    CHECK(backward_bytes(packed) == 4 * (4 * 64 * 2 * (500 + 600) + 4 * 500));
}

TEST_CASE("totals and numbers of packed sequences beyond what kernels count are refused") {
    check_refused(ErrorCode::invalid_argument, {"packed.total_q is -1", "0"},
                  [] { attention::validate(with_totals(-1, 600)); });
    check_refused(ErrorCode::invalid_argument, {"packed.total_kv is 1073741825", "1073741824"},
                  [] { attention::validate(with_totals(500, (1 << 30) + 1)); });
    AttentionProblem many = packed;
    many.batch = 65537;
    check_refused(ErrorCode::invalid_argument, {"batch is 65537", "65536"},
                  [&] { attention::validate(many); });
    many.batch = 65536;
    CHECK_NOTHROW(attention::validate(many));
}

TEST_CASE("mma alone takes no packed sequences, whose lengths are no constants") {
    CHECK_NOTHROW(attention::validate(kernel_preset("v5"), packed, blackwell()));
    check_refused(ErrorCode::unsupported, {"packed is given", "it must be left out", "mma"},
                  [] { attention::validate(kernel_preset("v3"), packed, blackwell()); });
    TileConfig config = kernel_preset("v5");
    config.sequence_lengths = SequenceLengths::compile_time;
    check_refused(ErrorCode::invalid_argument,
                  {"sequence_lengths is compile_time", "it must be run_time"},
                  [&] { attention::validate(config, packed, blackwell()); });
}

TEST_CASE("arrays of sequences are demanded of packed problems and refused of others") {
    CHECK_NOTHROW(attention::validate(packed_tensors(), packed));
    BackwardTensors lacking = packed_tensors();
    lacking.cu_seqlens_kv = nullptr;
    check_refused(ErrorCode::invalid_argument, {"cu_seqlens_kv is null", "batch + 1 = 4"},
                  [&] { attention::validate(lacking, packed); });
    BackwardTensors odd = packed_tensors();
    odd.seqused_q = reinterpret_cast<const std::int32_t*>(0x502);  // NOLINT
    check_refused(ErrorCode::invalid_argument, {"seqused_q is 0x502", "4 bytes"},
                  [&] { attention::validate(odd, packed); });
    BackwardTensors written = packed_tensors();
    written.cu_seqlens_q = static_cast<const std::int32_t*>(written.d_k.data);
    check_refused(ErrorCode::invalid_argument, {"d_k.data and cu_seqlens_q are both"},
                  [&] { attention::validate(written, packed); });
    AttentionProblem dense = packed;
    dense.packed = std::nullopt;
    BackwardTensors given = tensors_at(dense, test::tensor_base);
    given.seqused_kv = packed_tensors().seqused_kv;
    check_refused(ErrorCode::invalid_argument, {"seqused_kv is 0x704", "not packed"},
                  [&] { attention::validate(given, dense); });
}

TEST_CASE("batch strides of packed tensors and row sums have no meaning and head strides have") {
    BackwardTensors tensors = packed_tensors();
    tensors.q.stride_batch = tensors.d_k.stride_batch = tensors.lse.stride_batch = -5;
    CHECK_NOTHROW(attention::validate(tensors, packed));
    tensors.lse.stride_head = -7;
    check_refused(ErrorCode::invalid_argument, {"lse.stride_head is -7: it must be 0 or more"},
                  [&] { attention::validate(tensors, packed); });
}

TEST_CASE("an array of sequences within the workspace is refused by its name") {
    BackwardTensors tensors = packed_tensors();
    auto* const workspace = reinterpret_cast<void*>(0x600);  // NOLINT
    check_refused(ErrorCode::invalid_argument,
                  {"cu_seqlens_kv is 0x600, within the workspace of 1048576 bytes"}, [&] {
                      attention::validate_workspace(tensors, workspace, 1 << 20, 1 << 20, packed);
                  });
}

TEST_CASE("one set of kernels serves every number and every total of packed sequences") {
    AttentionProblem other = with_totals(100'000, 70'000);
    other.batch = 900;
    other.seqlen_q = 1000;
    for (const char* preset : {"v4", "v5"}) {
        const auto chain = attention::backward_chain(packed, kernel_preset(preset), blackwell());
        const auto again = attention::backward_chain(other, kernel_preset(preset), blackwell());
        REQUIRE(chain.size() == again.size());
        for (std::size_t i = 0; i < chain.size(); ++i) {
            CHECK(chain[i].request.specialisation == again[i].request.specialisation);
        }
    }
}

TEST_CASE("tickets of packed sequences follow the totals and not the largest length alone") {
    AttentionProblem problem = with_totals(1 << 15, 1 << 15);
    problem.batch = 16;
    problem.seqlen_q = problem.seqlen_kv = 1 << 15;
    const TileConfig config = kernel_preset("v4");
    const auto chain = attention::backward_chain(problem, config, blackwell());
    // Four heads of 512 tiles, and one more a sequence for those that are cut.
    CHECK(chain[1].shape.blocks == 4 * (512 + 16));
    CHECK(attention::WorkspaceLayout(problem, config).rows == 4 * ((1 << 15) + 16 * 32));
}

TEST_CASE("packings hold sequences with rows and without, in queries and in keys") {
    AttentionProblem problem = packed;
    problem.batch = 8;
    for (const auto kind : verification::packing_kinds) {
        const verification::Packing packing = verification::make_packing(problem, kind);
        const std::vector<SequenceShape> shapes = packing.shapes();
        REQUIRE(shapes.size() == 8);
        CHECK(shapes[0] == SequenceShape{256, 300});
        const bool mixed = kind != verification::PackingKind::full;
        CHECK((std::ranges::count(shapes, 0, &SequenceShape::seqlen_q) > 0) == mixed);
        const AttentionProblem whole = verification::packed_problem(problem, packing, 2);
        const std::vector<bool> used = verification::used_rows(whole, packing, true);
        std::int64_t rows = 0;
        for (const SequenceShape& shape : shapes) {
            rows += shape.seqlen_q;
        }
        CHECK(std::count(used.begin(), used.end(), true) == rows);
        CHECK(static_cast<std::int64_t>(used.size()) == whole.packed->total_q);
    }
}

TEST_CASE("the host reference of packed sequences is that of each alone") {
    AttentionProblem problem{.batch = 4,
                             .heads = 2,
                             .heads_kv = 1,
                             .seqlen_q = 7,
                             .seqlen_kv = 9,
                             .head_dim = 4,
                             .window_left = 3};
    const verification::Packing packing =
        verification::make_packing(problem, verification::PackingKind::padded);
    problem = verification::packed_problem(problem, packing);
    const auto values = [](std::size_t count, double seed) {
        std::vector<double> all(count);
        for (std::size_t i = 0; i < count; ++i) {
            all[i] = std::sin(seed + 1.7 * static_cast<double>(i));
        }
        return all;
    };
    const auto rows_q = static_cast<std::size_t>(problem.packed->total_q);
    const auto rows_kv = static_cast<std::size_t>(problem.packed->total_kv);
    const std::vector<double> q = values(2 * rows_q * 4, 1);
    const std::vector<double> k = values(rows_kv * 4, 2);
    const std::vector<double> v = values(rows_kv * 4, 3);
    std::vector<double> o(q.size());
    std::vector<double> lse(2 * rows_q);
    verification::reference_forward({.problem = problem,
                                     .q = q,
                                     .k = k,
                                     .v = v,
                                     .o = o,
                                     .lse = lse,
                                     .sequences = packing.sequences()});
    for (const verification::PackedSequence& sequence : packing.sequences()) {
        const auto length = static_cast<std::size_t>(sequence.shape.seqlen_q);
        const auto begin = static_cast<std::size_t>(sequence.q_begin);
        const auto part = [](const std::vector<double>& all, std::int64_t first,
                             std::int64_t rows) {
            return std::vector<double>(all.begin() + first * 4, all.begin() + (first + rows) * 4);
        };
        // Both heads of the sequence, one after the other.
        std::vector<double> own_q = part(q, sequence.q_begin, sequence.shape.seqlen_q);
        const std::vector<double> second =
            part(q, static_cast<std::int64_t>(rows_q) + sequence.q_begin, sequence.shape.seqlen_q);
        own_q.insert(own_q.end(), second.begin(), second.end());
        std::vector<double> own_o(own_q.size());
        std::vector<double> own_lse(2 * length);
        verification::reference_forward({.problem = problem.of_sequence(sequence.shape),
                                         .q = own_q,
                                         .k = part(k, sequence.kv_begin, sequence.shape.seqlen_kv),
                                         .v = part(v, sequence.kv_begin, sequence.shape.seqlen_kv),
                                         .o = own_o,
                                         .lse = own_lse});
        for (std::size_t head = 0; head < 2; ++head) {
            for (std::size_t row = 0; row < length; ++row) {
                CHECK(lse[head * rows_q + begin + row] == own_lse[head * length + row]);
                CHECK(o[(head * rows_q + begin + row) * 4] == own_o[(head * length + row) * 4]);
            }
        }
    }
}
