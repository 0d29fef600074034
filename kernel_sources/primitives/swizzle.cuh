// The layout that TMA gives a tile in shared memory, and the addresses that ldmatrix needs in it.
//
// A tile of 16-bit elements is cut into panels of at most 64 columns (128 bytes), each stored row
// after row. Within a panel the 16-byte chunk c of row r lies where chunk c XOR f(r) would: then
// eight rows of one column of chunks fall into eight different groups of banks, and neither
// ldmatrix nor a fragment's stores conflict.
//
//     128-byte panels:  f(r) = r % 8          (CU_TENSOR_MAP_SWIZZLE_128B)
//      64-byte panels:  f(r) = (r / 2) % 4    (CU_TENSOR_MAP_SWIZZLE_64B)
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

template <int rows, int columns>
struct SwizzledTile {
    static constexpr int element_bytes = 2;
    static constexpr int chunk_columns = 16 / element_bytes;
    static constexpr int panel_columns = columns % 64 == 0 ? 64 : 32;
    static constexpr int panels = columns / panel_columns;
    static constexpr int row_bytes = panel_columns * element_bytes;
    static constexpr int panel_bytes = rows * row_bytes;
    static constexpr int bytes = rows * columns * element_bytes;

    static_assert(columns % panel_columns == 0, "a tile is made of whole panels");
    // The pattern repeats every 1024 (512) bytes: panels must start on such a boundary.
    static_assert(rows % 8 == 0, "the swizzle pattern repeats every eight rows");

    /// Shared address of the first row; aligned to 1024 bytes.
    uint32_t base;

    /// Shared address of the 16-byte chunk that holds (row, column); column is a multiple of 8. The
    /// tile's base is aligned to 1024 bytes.
    __device__ __forceinline__ uint32_t address(int row, int column) const {
        const int panel = column / panel_columns;
        const int chunk = (column % panel_columns) / chunk_columns;
        const int permuted = row_bytes == 128 ? chunk ^ (row % 8) : chunk ^ ((row / 2) % 4);
        return base + panel * panel_bytes + row * row_bytes + permuted * 16;
    }

    /// From the address of a chunk to that of the chunk `rows_down` rows below (a multiple of 8)
    /// and `columns_right` columns to the right: one XOR and a constant, so that a lane keeps a
    /// single address a tile instead of one a chunk. The move must not carry out of the bits that
    /// the start column leaves free: it stays within a span of a power of two columns that the
    /// start opens, or the start opens a panel.
    __device__ __forceinline__ static uint32_t moved(uint32_t address, int rows_down,
                                                     int columns_right) {
        return (address ^ (columns_right % panel_columns * element_bytes)) +
               columns_right / panel_columns * panel_bytes + rows_down * row_bytes;
    }
};

/// Whether a warp's span of `columns` may be walked with `moved`: it fills panels or divides one.
template <typename Tile, int columns>
constexpr bool walkable_span =
    columns % Tile::panel_columns == 0 || Tile::panel_columns % columns == 0;

}  // namespace backlight::kernel
