// Attention and its backward in plain fp32: the referee of the kernels under test on problems too
// large for the host. It shares no trick with them: no tensor cores, no 16-bit intermediates, no
// base-2 exponential, nothing accumulated by atomics.
//
// A block owns a tile of 32 rows (queries, or keys in the backward of keys), or of 16 where rows
// are long, and walks over the rows of the other kind in tiles of the same size. Sixteen threads
// share a row of the block: with 32 rows each of the 128 threads holds 4 rows × 2 columns of a
// score tile and 4 rows × 8 columns of a result.
#include "arguments/attention_backward.h"
#include "primitives/reduction.cuh"
#include "primitives/types.cuh"
#include "specialisation.cuh"

namespace backlight::kernel {

using specialisation::head_dim_limit;
using specialisation::row_stride;
using specialisation::score_stride;
using specialisation::tile_rows;
constexpr int threads_per_row = 16;
constexpr int rows_per_thread = tile_rows * threads_per_row / reference_threads;
constexpr int scores_per_thread = tile_rows / threads_per_row;
constexpr int vectors_per_thread = head_dim_limit / (4 * threads_per_row);
static_assert(reference_threads / threads_per_row * rows_per_thread == tile_rows, "rows covered");
static_assert(scores_per_thread * threads_per_row == tile_rows, "scores covered");

/// A thread's part of a score tile. Columns lie threads_per_row apart.
struct Scores {
    float value[rows_per_thread][scores_per_thread];
};

/// A thread's part of a tile of results: vectors of four columns.
struct Sums {
    float4 value[rows_per_thread][vectors_per_thread];
};

__device__ __forceinline__ int thread_row() {
    return static_cast<int>(threadIdx.x) / threads_per_row * rows_per_thread;
}

__device__ __forceinline__ int thread_column() {
    return static_cast<int>(threadIdx.x) % threads_per_row;
}

__device__ __forceinline__ int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

__device__ __forceinline__ int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

__device__ __forceinline__ float infinity() {
    return __int_as_float(0x7f800000);
}

__device__ __forceinline__ float minus_infinity() {
    return __int_as_float(0xff800000);
}

/// A tile of rows of a head, from first_row on. What lies outside the tensor becomes 0, so that it
/// adds nothing to any sum.
__device__ __forceinline__ void load_tile(float* tile, const float* head, int first_row, int seqlen,
                                          int head_dim) {
    for (int i = static_cast<int>(threadIdx.x); i < tile_rows * head_dim_limit;
         i += reference_threads) {
        const int row = i / head_dim_limit;
        const int column = i % head_dim_limit;
        const bool inside = first_row + row < seqlen && column < head_dim;
        tile[row * row_stride + column] =
            inside ? head[static_cast<int64_t>(first_row + row) * head_dim + column] : 0.0f;
    }
}

__device__ __forceinline__ float4 load_vector(const float* address) {
    return *reinterpret_cast<const float4*>(address);
}

/// a · bᵀ of two tiles of rows.
__device__ __forceinline__ Scores dot(const float* a, const float* b, int head_dim) {
    Scores scores = {};
    for (int d = 0; d < head_dim; d += 4) {
        float4 x[rows_per_thread];
        float4 y[scores_per_thread];
#pragma unroll
        for (int i = 0; i < rows_per_thread; ++i) {
            x[i] = load_vector(a + (thread_row() + i) * row_stride + d);
        }
#pragma unroll
        for (int j = 0; j < scores_per_thread; ++j) {
            y[j] = load_vector(b + (thread_column() + j * threads_per_row) * row_stride + d);
        }
#pragma unroll
        for (int i = 0; i < rows_per_thread; ++i) {
#pragma unroll
            for (int j = 0; j < scores_per_thread; ++j) {
                float& score = scores.value[i][j];
                score += x[i].x * y[j].x;
                score += x[i].y * y[j].y;
                score += x[i].z * y[j].z;
                score += x[i].w * y[j].w;
            }
        }
    }
    return scores;
}

__device__ __forceinline__ void store_scores(float* tile, const Scores& scores) {
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
#pragma unroll
        for (int j = 0; j < scores_per_thread; ++j) {
            tile[(thread_row() + i) * score_stride + thread_column() + j * threads_per_row] =
                scores.value[i][j];
        }
    }
}

__device__ __forceinline__ void add_product(float4& sum, float weight, float4 vector) {
    sum.x += weight * vector.x;
    sum.y += weight * vector.y;
    sum.z += weight * vector.z;
    sum.w += weight * vector.w;
}

/// sums += scores · rows.
__device__ __forceinline__ void accumulate(Sums& sums, const float* scores, const float* rows) {
    for (int k = 0; k < tile_rows; k += 4) {
        float4 weights[rows_per_thread];
#pragma unroll
        for (int i = 0; i < rows_per_thread; ++i) {
            weights[i] = load_vector(scores + (thread_row() + i) * score_stride + k);
        }
#pragma unroll
        for (int j = 0; j < vectors_per_thread; ++j) {
            const float* column =
                rows + k * row_stride + 4 * (thread_column() + threads_per_row * j);
            const float4 first = load_vector(column);
            const float4 second = load_vector(column + row_stride);
            const float4 third = load_vector(column + 2 * row_stride);
            const float4 fourth = load_vector(column + 3 * row_stride);
#pragma unroll
            for (int i = 0; i < rows_per_thread; ++i) {
                add_product(sums.value[i][j], weights[i].x, first);
                add_product(sums.value[i][j], weights[i].y, second);
                add_product(sums.value[i][j], weights[i].z, third);
                add_product(sums.value[i][j], weights[i].w, fourth);
            }
        }
    }
}

/// Writes factor[i] · sums to the rows from first_row on.
__device__ __forceinline__ void store_sums(float* head, const Sums& sums,
                                           const float (&factor)[rows_per_thread], int first_row,
                                           int seqlen, int head_dim) {
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
        const int row = first_row + thread_row() + i;
        if (row >= seqlen) {
            continue;
        }
        float* out = head + static_cast<int64_t>(row) * head_dim;
#pragma unroll
        for (int j = 0; j < vectors_per_thread; ++j) {
            const int column = 4 * (thread_column() + threads_per_row * j);
            const float4 sum = sums.value[i][j];
            const float values[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                if (column + c < head_dim) {
                    out[column + c] = factor[i] * values[c];
                }
            }
        }
    }
}

/// delta = rowsum(dO ∘ O) and LSE of the tile's query rows, into shared memory; one warp a row.
__device__ __forceinline__ void load_row_statistics(float* lse, float* delta,
                                                    const ReferenceArguments& arguments,
                                                    int64_t batch_head, int first_query) {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    for (int row = warp; row < tile_rows; row += reference_threads / warp_size) {
        const bool inside = first_query + row < arguments.seqlen_q;
        const int64_t flat_row = batch_head * arguments.rows_q + first_query + row;
        float sum = 0;
        for (int d = lane; inside && d < arguments.head_dim_v; d += warp_size) {
            sum += arguments.o[flat_row * arguments.head_dim_v + d] *
                   arguments.d_o[flat_row * arguments.head_dim_v + d];
        }
        sum = warp_sum<warp_size>(sum);
        if (lane == 0) {
            // A row that attends to nothing has P = 0: exp(S − ∞). Its O may be anything.
            const float given = inside ? arguments.lse[flat_row] : 0.0f;
            const bool nothing = fabsf(given) == infinity();
            lse[row] = nothing ? infinity() : given;
            delta[row] = nothing ? 0.0f : sum;
        }
    }
}

__device__ __forceinline__ bool visible(const ReferenceArguments& arguments, int query, int key) {
    return query < arguments.seqlen_q && key < arguments.seqlen_kv &&
           key - query >= arguments.first_diagonal && key - query <= arguments.last_diagonal;
}

/// Rows of the other kind that a tile has to do with, from the first of a tile on.
struct RowRange {
    int first;
    int end;

    __device__ __forceinline__ RowRange(int64_t first_, int64_t end_, int seqlen) {
        first = static_cast<int>(smaller(larger(first_, 0), seqlen)) / tile_rows * tile_rows;
        end = static_cast<int>(smaller(end_, seqlen));
    }
};

/// Keys that some query of the tile sees.
__device__ __forceinline__ RowRange visible_keys(const ReferenceArguments& arguments,
                                                 int64_t first_query) {
    return {first_query + arguments.first_diagonal,
            first_query + tile_rows + arguments.last_diagonal, arguments.seqlen_kv};
}

/// Queries that see some key of the tile.
__device__ __forceinline__ RowRange seeing_queries(const ReferenceArguments& arguments,
                                                   int64_t first_key) {
    return {first_key - arguments.last_diagonal, first_key + tile_rows - arguments.first_diagonal,
            arguments.seqlen_q};
}

/// The block's head and first row, where `seqlen` rows a head are divided into tiles.
struct OwnedTile {
    int64_t batch_head;
    int first_row;

    __device__ __forceinline__ explicit OwnedTile(int seqlen) {
        const int tiles = (seqlen + tile_rows - 1) / tile_rows;
        batch_head = blockIdx.x / tiles;
        first_row = static_cast<int>(blockIdx.x % tiles) * tile_rows;
    }
};

extern __shared__ __align__(16) unsigned char shared_memory[];

extern "C" __global__ void __launch_bounds__(reference_threads)
    attention_reference_forward(const __grid_constant__ ReferenceArguments arguments) {
    float* q_tile = reinterpret_cast<float*>(shared_memory);
    float* k_tile = q_tile + tile_rows * row_stride;
    float* v_tile = k_tile + tile_rows * row_stride;
    float* p_tile = v_tile + tile_rows * row_stride;

    const OwnedTile owned(arguments.seqlen_q);
    const int head_dim = arguments.head_dim;
    const int head_dim_v = arguments.head_dim_v;
    const int64_t q_row = owned.batch_head * arguments.rows_q;
    const int64_t kv_row = owned.batch_head / arguments.heads_per_kv_head * arguments.rows_kv;
    load_tile(q_tile, arguments.q + q_row * head_dim, owned.first_row, arguments.seqlen_q,
              head_dim);

    // Online softmax: sums are relative to the largest score so far, and rescaled when it grows.
    Sums o = {};
    float largest[rows_per_thread];
    float row_sum[rows_per_thread];
    for (int i = 0; i < rows_per_thread; ++i) {
        largest[i] = minus_infinity();
        row_sum[i] = 0;
    }
    const RowRange keys = visible_keys(arguments, owned.first_row);
    for (int first_key = keys.first; first_key < keys.end; first_key += tile_rows) {
        __syncthreads();  // the tiles of the step before are no longer read
        load_tile(k_tile, arguments.k + kv_row * head_dim, first_key, arguments.seqlen_kv,
                  head_dim);
        load_tile(v_tile, arguments.v + kv_row * head_dim_v, first_key, arguments.seqlen_kv,
                  head_dim_v);
        __syncthreads();
        Scores scores = dot(q_tile, k_tile, head_dim);
#pragma unroll
        for (int i = 0; i < rows_per_thread; ++i) {
            const int query = owned.first_row + thread_row() + i;
            float tile_largest = minus_infinity();
#pragma unroll
            for (int j = 0; j < scores_per_thread; ++j) {
                const int key = first_key + thread_column() + j * threads_per_row;
                float& score = scores.value[i][j];
                score = visible(arguments, query, key) ? arguments.softmax_scale * score
                                                       : minus_infinity();
                tile_largest = fmaxf(tile_largest, score);
            }
            for (int distance = threads_per_row / 2; distance > 0; distance /= 2) {
                tile_largest =
                    fmaxf(tile_largest, __shfl_xor_sync(0xffffffffu, tile_largest, distance));
            }
            const float new_largest = fmaxf(largest[i], tile_largest);
            // A row may see no key, and no difference of infinities may be formed.
            const float base = new_largest == minus_infinity() ? 0.0f : new_largest;
            float tile_sum = 0;
#pragma unroll
            for (int j = 0; j < scores_per_thread; ++j) {
                scores.value[i][j] = expf(scores.value[i][j] - base);
                tile_sum += scores.value[i][j];
            }
            const float rescale = expf(largest[i] - base);
            largest[i] = new_largest;
            row_sum[i] = row_sum[i] * rescale + warp_sum<threads_per_row>(tile_sum);
#pragma unroll
            for (int j = 0; j < vectors_per_thread; ++j) {
                float4& sum = o.value[i][j];
                sum = float4{sum.x * rescale, sum.y * rescale, sum.z * rescale, sum.w * rescale};
            }
        }
        store_scores(p_tile, scores);
        __syncthreads();
        accumulate(o, p_tile, v_tile);
    }

    float factor[rows_per_thread];
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
        factor[i] = row_sum[i] > 0.0f ? 1.0f / row_sum[i] : 0.0f;
        const int query = owned.first_row + thread_row() + i;
        if (query < arguments.seqlen_q && thread_column() == 0) {
            arguments.lse[q_row + query] = largest[i] + logf(row_sum[i]);
        }
    }
    store_sums(arguments.o + q_row * head_dim_v, o, factor, owned.first_row, arguments.seqlen_q,
               head_dim_v);
}

extern "C" __global__ void __launch_bounds__(reference_threads)
    attention_reference_backward_query(const __grid_constant__ ReferenceArguments arguments) {
    float* q_tile = reinterpret_cast<float*>(shared_memory);
    float* d_o_tile = q_tile + tile_rows * row_stride;
    float* k_tile = d_o_tile + tile_rows * row_stride;
    float* v_tile = k_tile + tile_rows * row_stride;
    float* d_s_tile = v_tile + tile_rows * row_stride;
    float* lse = d_s_tile + tile_rows * score_stride;
    float* delta = lse + tile_rows;

    const OwnedTile owned(arguments.seqlen_q);
    const int head_dim = arguments.head_dim;
    const int head_dim_v = arguments.head_dim_v;
    const int64_t q_row = owned.batch_head * arguments.rows_q;
    const int64_t kv_row = owned.batch_head / arguments.heads_per_kv_head * arguments.rows_kv;
    load_tile(q_tile, arguments.q + q_row * head_dim, owned.first_row, arguments.seqlen_q,
              head_dim);
    load_tile(d_o_tile, arguments.d_o + q_row * head_dim_v, owned.first_row, arguments.seqlen_q,
              head_dim_v);
    load_row_statistics(lse, delta, arguments, owned.batch_head, owned.first_row);

    Sums d_q = {};
    const RowRange keys = visible_keys(arguments, owned.first_row);
    for (int first_key = keys.first; first_key < keys.end; first_key += tile_rows) {
        __syncthreads();
        load_tile(k_tile, arguments.k + kv_row * head_dim, first_key, arguments.seqlen_kv,
                  head_dim);
        load_tile(v_tile, arguments.v + kv_row * head_dim_v, first_key, arguments.seqlen_kv,
                  head_dim_v);
        __syncthreads();
        Scores d_s = dot(d_o_tile, v_tile, head_dim_v);
        const Scores scores = dot(q_tile, k_tile, head_dim);
#pragma unroll
        for (int i = 0; i < rows_per_thread; ++i) {
            const int row = thread_row() + i;
#pragma unroll
            for (int j = 0; j < scores_per_thread; ++j) {
                const int key = first_key + thread_column() + j * threads_per_row;
                const float p = visible(arguments, owned.first_row + row, key)
                                    ? expf(arguments.softmax_scale * scores.value[i][j] - lse[row])
                                    : 0.0f;
                d_s.value[i][j] = p * (d_s.value[i][j] - delta[row]);
            }
        }
        store_scores(d_s_tile, d_s);
        __syncthreads();
        accumulate(d_q, d_s_tile, k_tile);
    }
    float factor[rows_per_thread];
    for (int i = 0; i < rows_per_thread; ++i) {
        factor[i] = arguments.softmax_scale;
    }
    store_sums(arguments.d_q + q_row * head_dim, d_q, factor, owned.first_row, arguments.seqlen_q,
               head_dim);
}

extern "C" __global__ void __launch_bounds__(reference_threads)
    attention_reference_backward_key(const __grid_constant__ ReferenceArguments arguments) {
    float* k_tile = reinterpret_cast<float*>(shared_memory);
    float* v_tile = k_tile + tile_rows * row_stride;
    float* q_tile = v_tile + tile_rows * row_stride;
    float* d_o_tile = q_tile + tile_rows * row_stride;
    float* p_tile = d_o_tile + tile_rows * row_stride;
    float* d_s_tile = p_tile + tile_rows * score_stride;
    float* lse = d_s_tile + tile_rows * score_stride;
    float* delta = lse + tile_rows;

    const OwnedTile owned(arguments.seqlen_kv);  // of a head of keys and values
    const int head_dim = arguments.head_dim;
    const int head_dim_v = arguments.head_dim_v;
    const int64_t kv_row = owned.batch_head * arguments.rows_kv;
    load_tile(k_tile, arguments.k + kv_row * head_dim, owned.first_row, arguments.seqlen_kv,
              head_dim);
    load_tile(v_tile, arguments.v + kv_row * head_dim_v, owned.first_row, arguments.seqlen_kv,
              head_dim_v);

    // Scores are computed transposed, a row a key, so that the products with dO and Q are the same
    // as in the other kernels.
    Sums d_k = {};
    Sums d_v = {};
    const RowRange queries = seeing_queries(arguments, owned.first_row);
    for (int member = 0; member < arguments.heads_per_kv_head; ++member) {
        const int64_t head = owned.batch_head * arguments.heads_per_kv_head + member;
        const int64_t q_row = head * arguments.rows_q;
        for (int first_query = queries.first; first_query < queries.end; first_query += tile_rows) {
            __syncthreads();
            load_tile(q_tile, arguments.q + q_row * head_dim, first_query, arguments.seqlen_q,
                      head_dim);
            load_tile(d_o_tile, arguments.d_o + q_row * head_dim_v, first_query, arguments.seqlen_q,
                      head_dim_v);
            load_row_statistics(lse, delta, arguments, head, first_query);
            __syncthreads();
            Scores p = dot(k_tile, q_tile, head_dim);
            Scores d_s = dot(v_tile, d_o_tile, head_dim_v);
#pragma unroll
            for (int i = 0; i < rows_per_thread; ++i) {
                const int key = owned.first_row + thread_row() + i;
#pragma unroll
                for (int j = 0; j < scores_per_thread; ++j) {
                    const int row = thread_column() + j * threads_per_row;
                    float& weight = p.value[i][j];
                    weight = visible(arguments, first_query + row, key)
                                 ? expf(arguments.softmax_scale * weight - lse[row])
                                 : 0.0f;
                    d_s.value[i][j] = weight * (d_s.value[i][j] - delta[row]);
                }
            }
            store_scores(p_tile, p);
            store_scores(d_s_tile, d_s);
            __syncthreads();
            accumulate(d_v, p_tile, d_o_tile);
            accumulate(d_k, d_s_tile, q_tile);
        }
    }
    float scale[rows_per_thread];
    float one[rows_per_thread];
    for (int i = 0; i < rows_per_thread; ++i) {
        scale[i] = arguments.softmax_scale;
        one[i] = 1.0f;
    }
    store_sums(arguments.d_k + kv_row * head_dim, d_k, scale, owned.first_row, arguments.seqlen_kv,
               head_dim);
    store_sums(arguments.d_v + kv_row * head_dim_v, d_v, one, owned.first_row, arguments.seqlen_kv,
               head_dim_v);
}

}  // namespace backlight::kernel
