#pragma once

#include <array>
#include <span>
#include <string_view>

namespace backlight::tool {

/// How the tensors of a problem lie in memory.
enum class Layout {
    /// Each contiguous (batch, heads, seqlen, head_dim).
    bhsd,
    /// Each contiguous (batch, seqlen, heads, head_dim).
    bshd,
    /// Q, K and V are slices of one (batch, seqlen, heads + 2 heads_kv, head_dim), and dQ, dK and
    /// dV of another; O and dO are (batch, seqlen, heads, head_dim). Needs seqlen_q == seqlen_kv
    /// and head_dim_v == head_dim.
    packed_qkv,
    /// Each (batch, heads, seqlen, head_dim) with gaps that hold NaN after every row, head and
    /// batch: what a kernel reads beyond a row's columns or a head's rows shows in its results, and
    /// what it writes there is found as damage. LSE likewise, in strides that are odd.
    padded,
    /// Inputs with strides of 0, as tensors that PyTorch has expanded: Q, O and LSE are those of
    /// one batch, K and V also of one head, and dO is one row; the rest is contiguous (batch,
    /// heads, seqlen, head_dim), and so are dQ, dK and dV.
    broadcast,
};

const char* to_string(Layout layout) noexcept;

/// Each tensor by itself and without gaps: what files hold.
inline constexpr std::array file_layouts = {Layout::bhsd, Layout::bshd};
inline constexpr std::array all_layouts = {Layout::bhsd, Layout::bshd, Layout::packed_qkv,
                                           Layout::padded, Layout::broadcast};
/// The one of these of that name; throws `invalid_argument` with the names there are.
Layout layout_by_name(std::string_view name, std::span<const Layout> among = all_layouts);

}  // namespace backlight::tool
