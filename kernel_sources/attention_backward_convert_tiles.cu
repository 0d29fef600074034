// After the wgmma kernel: dQ = softmax_scale · accumulator, rounded to the element type and stored
// with dQ's strides.
//
// The accumulator is made of tiles of 64 queries, these of parts of 64 columns. A part holds, for
// each eight columns of the product that made it, four numbers of each thread of a warpgroup: those
// that wgmma.cuh says. It is read as it lies, and turned into rows by stmatrix. One block a tile.
#include "arguments/attention_backward.h"
#include "primitives/conversion.cuh"
#include "primitives/dependent_launch.cuh"
#include "primitives/shared_memory.cuh"
#include "primitives/stmatrix.cuh"
#include "primitives/types.cuh"
#include "specialisation.cuh"

namespace backlight::kernel {

using specialisation::head_dim;
using Element = specialisation::Element;

constexpr int tile_rows = 64;
constexpr int part_columns = 64;
constexpr int threads = specialisation::threads;
constexpr int warpgroup_size = 128;
constexpr int elements_per_chunk = 8;  // 16 bytes
// Sixteen bytes of padding: eight rows start in different banks.
constexpr int row_elements = head_dim + elements_per_chunk;
constexpr int fragments = tile_rows * head_dim / (4 * threads);
constexpr int chunks = tile_rows * head_dim / (elements_per_chunk * threads);
static_assert(tile_rows * row_elements * 2 == specialisation::shared_bytes,
              "host and kernel count alike");
static_assert(threads % warpgroup_size == 0, "a warp's fragments are those of one warp");

extern "C" __global__ void __launch_bounds__(threads)
    attention_backward_convert_tiles(const __grid_constant__ ConvertArguments arguments) {
    extern __shared__ __align__(16) unsigned char shared_memory[];
    const uint32_t shared = shared_address(shared_memory);
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % warp_size;

    const int tiles = arguments.seqlen_q / tile_rows;
    const int64_t batch_head = arguments.first_head + static_cast<int>(blockIdx.x) / tiles;
    const int first_row = static_cast<int>(blockIdx.x) % tiles * tile_rows;

    // The accumulator is complete when every block of the main kernel has ended.
    wait_for_previous_kernel();

    const float4* source =
        reinterpret_cast<const float4*>(arguments.d_q_accumulator) +
        (batch_head * tiles + first_row / tile_rows) * (tile_rows * head_dim / 4);
    float4 sums[fragments];
#pragma unroll
    for (int i = 0; i < fragments; ++i) {
        sums[i] = source[i * threads + thread];
    }
    const float scale = arguments.softmax_scale;
#pragma unroll
    for (int i = 0; i < fragments; ++i) {
        const int place = i * threads + thread;
        const int thread_of_product = place % warpgroup_size;
        const int group = place / warpgroup_size % (part_columns / 8);
        const int part = place / warpgroup_size / (part_columns / 8);
        const int product_row = thread_of_product / warp_size * 16;
        const OperandRegister halves[2] = {pack<Element>(sums[i].x * scale, sums[i].y * scale),
                                           pack<Element>(sums[i].z * scale, sums[i].w * scale)};
        // A lane names a row of one of the two 8×8 matrices.
        const int matrix_row = lane % 8;
        const int matrix = lane / 8 % 2;
        if constexpr (specialisation::d_q_transposed) {
            const int query = group * 8 + matrix_row;
            const int column = product_row + matrix * 8;
            stmatrix_x2_transposed(shared + 2 * (query * row_elements + column), halves);
        } else {
            const int query = product_row + matrix * 8 + matrix_row;
            const int column = part * part_columns + group * 8;
            stmatrix_x2(shared + 2 * (query * row_elements + column), halves);
        }
    }
    __syncthreads();

    const int64_t batch = batch_head / arguments.heads;
    const int64_t head = batch_head % arguments.heads;
    Element* d_q = static_cast<Element*>(arguments.d_q) + batch * arguments.d_q_strides.batch +
                   head * arguments.d_q_strides.head;
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
        const int place = i * threads + thread;
        const int row = place / (head_dim / elements_per_chunk);
        const int column = place % (head_dim / elements_per_chunk) * elements_per_chunk;
        *reinterpret_cast<uint4*>(d_q + (first_row + row) * arguments.d_q_strides.seqlen + column) =
            load_shared<uint4>(shared + 2 * (row * row_elements + column));
    }
}

}  // namespace backlight::kernel
