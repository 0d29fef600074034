#include "verification/host_reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backlight/error.hpp"
#include "verification/parallel.hpp"

namespace backlight::verification {
namespace {

/// The extents of one (batch, head) as sizes.
struct HeadShape {
    std::size_t heads;
    std::size_t seqlen_q;
    std::size_t seqlen_kv;
    std::size_t head_dim;
    bool causal;
    double scale;

    std::size_t visible_keys(std::size_t query) const { return causal ? query + 1 : seqlen_kv; }
};

void check_positive(const char* name, std::int64_t extent) {
    if (extent < 1) {
        throw Error(ErrorCode::invalid_argument, std::string("host reference: ") + name + " is " +
                                                     std::to_string(extent) +
                                                     "; it must be at least 1");
    }
}

HeadShape check_problem(const AttentionProblem& problem) {
    check_positive("batch", problem.batch);
    check_positive("heads", problem.heads);
    check_positive("seqlen_q", problem.seqlen_q);
    check_positive("seqlen_kv", problem.seqlen_kv);
    check_positive("head_dim", problem.head_dim);
    if (problem.causal && problem.seqlen_q != problem.seqlen_kv) {
        throw Error(ErrorCode::invalid_argument,
                    "host reference: seqlen_q is " + std::to_string(problem.seqlen_q) +
                        " and seqlen_kv is " + std::to_string(problem.seqlen_kv) +
                        "; a causal problem needs them equal");
    }
    return {.heads = static_cast<std::size_t>(problem.batch * problem.heads),
            .seqlen_q = static_cast<std::size_t>(problem.seqlen_q),
            .seqlen_kv = static_cast<std::size_t>(problem.seqlen_kv),
            .head_dim = static_cast<std::size_t>(problem.head_dim),
            .causal = problem.causal,
            .scale = static_cast<double>(problem.effective_softmax_scale())};
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
    const std::vector<double> k_transposed = transpose(k, shape.seqlen_kv, d);
    std::vector<double> weights(shape.seqlen_kv);
    for (std::size_t i = 0; i < shape.seqlen_q; ++i) {
        const std::size_t keys = shape.visible_keys(i);
        const auto row = std::span(weights).first(keys);
        std::ranges::fill(row, 0.0);
        add_row_times_matrix(q + i * d, d, k_transposed.data(), shape.seqlen_kv, keys, row.data());
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
        std::fill_n(o + i * d, d, 0.0);
        add_row_times_matrix(row.data(), keys, v, d, d, o + i * d);
    }
}

struct BackwardHead {
    const double *q, *k, *v, *o, *lse, *d_o;
    double *d_q, *d_k, *d_v;
};

void backward_head(const HeadShape& shape, const BackwardHead& head) {
    const std::size_t d = shape.head_dim;
    const std::vector<double> k_transposed = transpose(head.k, shape.seqlen_kv, d);
    const std::vector<double> v_transposed = transpose(head.v, shape.seqlen_kv, d);
    std::vector<double> p(shape.seqlen_kv);
    std::vector<double> d_s(shape.seqlen_kv);
    std::fill_n(head.d_k, shape.seqlen_kv * d, 0.0);
    std::fill_n(head.d_v, shape.seqlen_kv * d, 0.0);
    for (std::size_t i = 0; i < shape.seqlen_q; ++i) {
        const std::size_t keys = shape.visible_keys(i);
        const double* q = head.q + i * d;
        const double* d_o = head.d_o + i * d;
        double* d_q = head.d_q + i * d;

        double delta = 0;
        for (std::size_t c = 0; c < d; ++c) {
            delta += d_o[c] * head.o[i * d + c];
        }

        std::fill_n(p.begin(), keys, 0.0);
        add_row_times_matrix(q, d, k_transposed.data(), shape.seqlen_kv, keys, p.data());
        for (std::size_t j = 0; j < keys; ++j) {
            p[j] = std::exp(shape.scale * p[j] - head.lse[i]);
        }

        // d_s first holds dP = dO·Vᵀ. The scale that dQ and dK share is taken into dS.
        std::fill_n(d_s.begin(), keys, 0.0);
        add_row_times_matrix(d_o, d, v_transposed.data(), shape.seqlen_kv, keys, d_s.data());
        for (std::size_t j = 0; j < keys; ++j) {
            d_s[j] = shape.scale * p[j] * (d_s[j] - delta);
        }

        std::fill_n(d_q, d, 0.0);
        add_row_times_matrix(d_s.data(), keys, head.k, d, d, d_q);
        add_outer_product(d_s.data(), keys, q, d, head.d_k);
        add_outer_product(p.data(), keys, d_o, d, head.d_v);
    }
}

}  // namespace

void reference_forward(const ForwardParameters& parameters) {
    const HeadShape shape = check_problem(parameters.problem);
    const std::size_t rows_size = shape.seqlen_q;
    const std::size_t q_size = shape.seqlen_q * shape.head_dim;
    const std::size_t kv_size = shape.seqlen_kv * shape.head_dim;
    check_size("q", parameters.q.size(), shape.heads * q_size);
    check_size("k", parameters.k.size(), shape.heads * kv_size);
    check_size("v", parameters.v.size(), shape.heads * kv_size);
    check_size("o", parameters.o.size(), shape.heads * q_size);
    check_size("lse", parameters.lse.size(), shape.heads * rows_size);
    parallel_for(static_cast<std::int64_t>(shape.heads), [&](std::int64_t index) {
        const auto head = static_cast<std::size_t>(index);
        forward_head(shape, parameters.q.data() + head * q_size,
                     parameters.k.data() + head * kv_size, parameters.v.data() + head * kv_size,
                     parameters.o.data() + head * q_size, parameters.lse.data() + head * rows_size);
    });
}

void reference_backward(const BackwardParameters& parameters) {
    const HeadShape shape = check_problem(parameters.problem);
    const std::size_t rows_size = shape.seqlen_q;
    const std::size_t q_size = shape.seqlen_q * shape.head_dim;
    const std::size_t kv_size = shape.seqlen_kv * shape.head_dim;
    check_size("q", parameters.q.size(), shape.heads * q_size);
    check_size("k", parameters.k.size(), shape.heads * kv_size);
    check_size("v", parameters.v.size(), shape.heads * kv_size);
    check_size("o", parameters.o.size(), shape.heads * q_size);
    check_size("lse", parameters.lse.size(), shape.heads * rows_size);
    check_size("d_o", parameters.d_o.size(), shape.heads * q_size);
    check_size("d_q", parameters.d_q.size(), shape.heads * q_size);
    check_size("d_k", parameters.d_k.size(), shape.heads * kv_size);
    check_size("d_v", parameters.d_v.size(), shape.heads * kv_size);
    parallel_for(static_cast<std::int64_t>(shape.heads), [&](std::int64_t index) {
        const auto head = static_cast<std::size_t>(index);
        backward_head(shape, {.q = parameters.q.data() + head * q_size,
                              .k = parameters.k.data() + head * kv_size,
                              .v = parameters.v.data() + head * kv_size,
                              .o = parameters.o.data() + head * q_size,
                              .lse = parameters.lse.data() + head * rows_size,
                              .d_o = parameters.d_o.data() + head * q_size,
                              .d_q = parameters.d_q.data() + head * q_size,
                              .d_k = parameters.d_k.data() + head * kv_size,
                              .d_v = parameters.d_v.data() + head * kv_size});
    });
}

}  // namespace backlight::verification
