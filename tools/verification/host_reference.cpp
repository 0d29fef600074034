#include "verification/host_reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "backlight/error.hpp"
#include "verification/parallel.hpp"

namespace backlight::verification {
namespace {

/// The extents of one (batch, head) as sizes, and how many there are.
struct HeadShape {
    std::size_t kv_heads;  // batch · heads_kv
    std::size_t group;     // heads of queries to each of them
    std::size_t seqlen_q;
    std::size_t seqlen_kv;
    std::size_t head_dim;
    std::size_t head_dim_v;
    // Rows of a head in the tensors, and of those before the sequence's.
    std::size_t rows_q;
    std::size_t rows_kv;
    std::size_t q_begin;
    std::size_t kv_begin;
    /// From key − query of the first key that a query attends to, to that of the last.
    std::int64_t first_diagonal;
    std::int64_t last_diagonal;
    double scale;

    std::size_t heads() const { return kv_heads * group; }
    std::size_t q_size() const { return rows_q * head_dim; }
    std::size_t k_size() const { return rows_kv * head_dim; }
    std::size_t v_size() const { return rows_kv * head_dim_v; }
    std::size_t o_size() const { return rows_q * head_dim_v; }

    // Where a head's begins.
    std::size_t q_of(std::size_t head) const { return head * q_size() + q_begin * head_dim; }
    std::size_t k_of(std::size_t head) const { return head * k_size() + kv_begin * head_dim; }
    std::size_t v_of(std::size_t head) const { return head * v_size() + kv_begin * head_dim_v; }
    std::size_t o_of(std::size_t head) const { return head * o_size() + q_begin * head_dim_v; }
    std::size_t lse_of(std::size_t head) const { return head * rows_q + q_begin; }

    /// The keys that a query attends to: neighbours, perhaps none.
    struct Keys {
        std::size_t first;
        std::size_t count;
    };
    Keys attended(std::size_t query) const {
        const auto row = static_cast<std::int64_t>(query);
        const auto keys = static_cast<std::int64_t>(seqlen_kv);
        const std::int64_t first = std::clamp<std::int64_t>(row + first_diagonal, 0, keys);
        const std::int64_t end = std::clamp<std::int64_t>(row + last_diagonal + 1, first, keys);
        return {static_cast<std::size_t>(first), static_cast<std::size_t>(end - first)};
    }
};

void check_at_least(std::int64_t least, const char* name, std::int64_t extent) {
    if (extent < least) {
        throw Error(ErrorCode::invalid_argument,
                    std::string("host reference: ") + name + " is " + std::to_string(extent) +
                        "; it must be at least " + std::to_string(least));
    }
}

HeadShape check_problem(const AttentionProblem& problem) {
    const std::int64_t heads_kv = problem.effective_heads_kv();
    check_at_least(1, "batch", problem.batch);
    check_at_least(1, "heads", problem.heads);
    check_at_least(1, "heads_kv", heads_kv);
    check_at_least(0, "seqlen_q", problem.seqlen_q);
    check_at_least(0, "seqlen_kv", problem.seqlen_kv);
    check_at_least(1, "head_dim", problem.head_dim);
    check_at_least(1, "head_dim_v", problem.effective_head_dim_v());
    check_at_least(0, "window_left", problem.window_left.value_or(0));
    check_at_least(0, "window_right", problem.window_right.value_or(0));
    if (problem.heads % heads_kv != 0) {
        throw Error(ErrorCode::invalid_argument,
                    "host reference: heads_kv is " + std::to_string(heads_kv) +
                        "; it must divide heads, which is " + std::to_string(problem.heads));
    }
    // Beyond these every key is reached.
    const std::int64_t reach = problem.seqlen_q + problem.seqlen_kv;
    // Not by the library's own MaskBand: the reference shall not share its mistakes.
    const std::int64_t own = problem.mask_alignment == MaskAlignment::bottom_right
                                 ? problem.seqlen_kv - problem.seqlen_q
                                 : 0;
    const std::int64_t left = std::min(problem.window_left.value_or(reach), reach);
    const std::int64_t right =
        problem.causal ? 0 : std::min(problem.window_right.value_or(reach), reach);
    return {.kv_heads = static_cast<std::size_t>(problem.batch * heads_kv),
            .group = static_cast<std::size_t>(problem.heads / heads_kv),
            .seqlen_q = static_cast<std::size_t>(problem.seqlen_q),
            .seqlen_kv = static_cast<std::size_t>(problem.seqlen_kv),
            .head_dim = static_cast<std::size_t>(problem.head_dim),
            .head_dim_v = static_cast<std::size_t>(problem.effective_head_dim_v()),
            .rows_q = static_cast<std::size_t>(problem.seqlen_q),
            .rows_kv = static_cast<std::size_t>(problem.seqlen_kv),
            .q_begin = 0,
            .kv_begin = 0,
            .first_diagonal = own - left,
            .last_diagonal = own + right,
            .scale = static_cast<double>(problem.effective_softmax_scale())};
}

/// One shape for each sequence: the problem's own, or those of packed ones.
std::vector<HeadShape> check_sequences(const AttentionProblem& problem,
                                       std::span<const PackedSequence> sequences) {
    if (!problem.packed) {
        return {check_problem(problem)};
    }
    std::vector<HeadShape> shapes;
    for (const PackedSequence& sequence : sequences) {
        HeadShape shape = check_problem(problem.of_sequence(sequence.shape));
        shape.rows_q = static_cast<std::size_t>(problem.packed->total_q);
        shape.rows_kv = static_cast<std::size_t>(problem.packed->total_kv);
        shape.q_begin = static_cast<std::size_t>(sequence.q_begin);
        shape.kv_begin = static_cast<std::size_t>(sequence.kv_begin);
        if (shape.q_begin + shape.seqlen_q > shape.rows_q ||
            shape.kv_begin + shape.seqlen_kv > shape.rows_kv) {
            throw Error(
                ErrorCode::invalid_argument,
                "host reference: a sequence ends behind the tensors of " + to_string(problem));
        }
        shapes.push_back(shape);
    }
    if (shapes.empty()) {
        throw Error(ErrorCode::invalid_argument,
                    "host reference: no sequences are given of " + to_string(problem));
    }
    return shapes;
}

void check_size(const char* name, std::size_t size, std::size_t expected) {
    if (size != expected) {
        throw Error(ErrorCode::invalid_argument,
                    std::string("host reference: ") + name + " has " + std::to_string(size) +
                        " elements; the problem's shape needs " + std::to_string(expected));
    }
}

/// sum += row · matrix, for a matrix of rows × columns (row-major, `stride` from row to row). Runs
/// along the columns, so that the compiler vectorises it without reordering any sum; four rows at a
/// time, so that `sum` is loaded and stored a quarter as often.
void add_row_times_matrix(const double* __restrict row, std::size_t rows,
                          const double* __restrict matrix, std::size_t stride, std::size_t columns,
                          double* __restrict sum) {
    std::size_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        const double* __restrict m0 = matrix + r * stride;
        const double* __restrict m1 = m0 + stride;
        const double* __restrict m2 = m1 + stride;
        const double* __restrict m3 = m2 + stride;
        const double w0 = row[r];
        const double w1 = row[r + 1];
        const double w2 = row[r + 2];
        const double w3 = row[r + 3];
        for (std::size_t c = 0; c < columns; ++c) {
            sum[c] += (w0 * m0[c] + w1 * m1[c]) + (w2 * m2[c] + w3 * m3[c]);
        }
    }
    for (; r < rows; ++r) {
        const double* __restrict m = matrix + r * stride;
        for (std::size_t c = 0; c < columns; ++c) {
            sum[c] += row[r] * m[c];
        }
    }
}

/// matrix += column ⊗ row.
void add_outer_product(const double* __restrict column, std::size_t rows,
                       const double* __restrict row, std::size_t columns,
                       double* __restrict matrix) {
    for (std::size_t r = 0; r < rows; ++r) {
        const double weight = column[r];
        double* __restrict m = matrix + r * columns;
        for (std::size_t c = 0; c < columns; ++c) {
            m[c] += weight * row[c];
        }
    }
}

std::vector<double> transpose(const double* matrix, std::size_t rows, std::size_t columns) {
    std::vector<double> transposed(rows * columns);
    for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < columns; ++c) {
            transposed[c * rows + r] = matrix[r * columns + c];
        }
    }
    return transposed;
}

void forward_head(const HeadShape& shape, const double* q, const double* k, const double* v,
                  double* o, double* lse) {
    const std::size_t d = shape.head_dim;
    const std::size_t d_v = shape.head_dim_v;
    const std::vector<double> k_transposed = transpose(k, shape.seqlen_kv, d);
    std::vector<double> weights(shape.seqlen_kv);
    for (std::size_t i = 0; i < shape.seqlen_q; ++i) {
        const auto [first, keys] = shape.attended(i);
        std::fill_n(o + i * d_v, d_v, 0.0);
        if (keys == 0) {
            lse[i] = -std::numeric_limits<double>::infinity();
            continue;
        }
        const auto row = std::span(weights).first(keys);
        std::ranges::fill(row, 0.0);
        add_row_times_matrix(q + i * d, d, k_transposed.data() + first, shape.seqlen_kv, keys,
                             row.data());
        for (double& weight : row) {
            weight *= shape.scale;
        }
        const double maximum = *std::ranges::max_element(row);
        double sum = 0;
        for (double& weight : row) {
            weight = std::exp(weight - maximum);
            sum += weight;
        }
        for (double& weight : row) {
            weight /= sum;
        }
        lse[i] = maximum + std::log(sum);
        add_row_times_matrix(row.data(), keys, v + first * d_v, d_v, d_v, o + i * d_v);
    }
}

/// One head of queries; dK and dV are those of the head of keys and values that it uses.
struct BackwardHead {
    const double *q, *k, *v, *o, *lse, *d_o;
    double *d_q, *d_k, *d_v;
};

/// Writes dQ and adds to dK and dV.
void backward_head(const HeadShape& shape, const BackwardHead& head) {
    const std::size_t d = shape.head_dim;
    const std::size_t d_v = shape.head_dim_v;
    const std::vector<double> k_transposed = transpose(head.k, shape.seqlen_kv, d);
    const std::vector<double> v_transposed = transpose(head.v, shape.seqlen_kv, d_v);
    std::vector<double> p(shape.seqlen_kv);
    std::vector<double> d_s(shape.seqlen_kv);
    for (std::size_t i = 0; i < shape.seqlen_q; ++i) {
        const auto [first, keys] = shape.attended(i);
        const double* q = head.q + i * d;
        const double* d_o = head.d_o + i * d_v;
        double* d_q = head.d_q + i * d;
        std::fill_n(d_q, d, 0.0);
        if (keys == 0 || std::isinf(head.lse[i])) {
            continue;  // P is 0.
        }

        double delta = 0;
        for (std::size_t c = 0; c < d_v; ++c) {
            delta += d_o[c] * head.o[i * d_v + c];
        }

        std::fill_n(p.begin(), keys, 0.0);
        add_row_times_matrix(q, d, k_transposed.data() + first, shape.seqlen_kv, keys, p.data());
        for (std::size_t j = 0; j < keys; ++j) {
            p[j] = std::exp(shape.scale * p[j] - head.lse[i]);
        }

        // d_s first holds dP = dO·Vᵀ. The scale that dQ and dK share is taken into dS.
        std::fill_n(d_s.begin(), keys, 0.0);
        add_row_times_matrix(d_o, d_v, v_transposed.data() + first, shape.seqlen_kv, keys,
                             d_s.data());
        for (std::size_t j = 0; j < keys; ++j) {
            d_s[j] = shape.scale * p[j] * (d_s[j] - delta);
        }

        add_row_times_matrix(d_s.data(), keys, head.k + first * d, d, d, d_q);
        add_outer_product(d_s.data(), keys, q, d, head.d_k + first * d);
        add_outer_product(p.data(), keys, d_o, d_v, head.d_v + first * d_v);
    }
}

}  // namespace

void reference_forward(const ForwardParameters& parameters) {
    const std::vector<HeadShape> shapes = check_sequences(parameters.problem, parameters.sequences);
    const HeadShape& any = shapes.front();
    check_size("q", parameters.q.size(), any.heads() * any.q_size());
    check_size("k", parameters.k.size(), any.kv_heads * any.k_size());
    check_size("v", parameters.v.size(), any.kv_heads * any.v_size());
    check_size("o", parameters.o.size(), any.heads() * any.o_size());
    check_size("lse", parameters.lse.size(), any.heads() * any.rows_q);
    for (const HeadShape& shape : shapes) {
        parallel_for(static_cast<std::int64_t>(shape.heads()), [&](std::int64_t index) {
            const auto head = static_cast<std::size_t>(index);
            const std::size_t kv_head = head / shape.group;
            forward_head(shape, parameters.q.data() + shape.q_of(head),
                         parameters.k.data() + shape.k_of(kv_head),
                         parameters.v.data() + shape.v_of(kv_head),
                         parameters.o.data() + shape.o_of(head),
                         parameters.lse.data() + shape.lse_of(head));
        });
    }
}

void reference_backward(const BackwardParameters& parameters) {
    const std::vector<HeadShape> shapes = check_sequences(parameters.problem, parameters.sequences);
    const HeadShape& any = shapes.front();
    check_size("q", parameters.q.size(), any.heads() * any.q_size());
    check_size("k", parameters.k.size(), any.kv_heads * any.k_size());
    check_size("v", parameters.v.size(), any.kv_heads * any.v_size());
    check_size("o", parameters.o.size(), any.heads() * any.o_size());
    check_size("lse", parameters.lse.size(), any.heads() * any.rows_q);
    check_size("d_o", parameters.d_o.size(), any.heads() * any.o_size());
    check_size("d_q", parameters.d_q.size(), any.heads() * any.q_size());
    check_size("d_k", parameters.d_k.size(), any.kv_heads * any.k_size());
    check_size("d_v", parameters.d_v.size(), any.kv_heads * any.v_size());
    std::ranges::fill(parameters.d_k, 0.0);
    std::ranges::fill(parameters.d_v, 0.0);
    for (const HeadShape& shape : shapes) {
        // The heads of a group add to the same dK and dV, so they are one thread's work.
        parallel_for(static_cast<std::int64_t>(shape.kv_heads), [&](std::int64_t index) {
            const auto kv_head = static_cast<std::size_t>(index);
            for (std::size_t i = 0; i < shape.group; ++i) {
                const std::size_t head = kv_head * shape.group + i;
                backward_head(shape, {.q = parameters.q.data() + shape.q_of(head),
                                      .k = parameters.k.data() + shape.k_of(kv_head),
                                      .v = parameters.v.data() + shape.v_of(kv_head),
                                      .o = parameters.o.data() + shape.o_of(head),
                                      .lse = parameters.lse.data() + shape.lse_of(head),
                                      .d_o = parameters.d_o.data() + shape.o_of(head),
                                      .d_q = parameters.d_q.data() + shape.q_of(head),
                                      .d_k = parameters.d_k.data() + shape.k_of(kv_head),
                                      .d_v = parameters.d_v.data() + shape.v_of(kv_head)});
            }
        });
    }
}

}  // namespace backlight::verification
