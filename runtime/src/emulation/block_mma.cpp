// mma: products of a warp, and the registers that products and ldmatrix fill.
//
// Values are computed at once. What is late is the reading of shared memory behind them: an
// ldmatrix counts as unbound, its rows not yet read, until the result of a product that takes its
// fragment, or of a later product, has been used (products of a warp finish in order), or all lanes
// have passed a proxy fence. A copy into the rows of an unbound read is a fault.
#include <fmt/format.h>

#include <bit>

#include "emulation/block.hpp"
#include "emulation/block_collective.hpp"
#include "emulation/half_type.hpp"
#include "emulation/matrix_fragments.hpp"
#include "emulation/register_tag.hpp"

namespace backlight::emulation {

namespace {

struct ProductPayload {
    Register* c;
    const Register* a;
    const Register* b0;
    const Register* b1;
};

}  // namespace

void Block::mma(ElementType type, Register* c, const Register* a, const Register* b0,
                const Register* b1, Site site) {
    ProductPayload mine{c, a, b0, b1};
    collective("mma.m16n8k16", warp_lanes, whole_warp, site, &mine, [&](Collective& all) {
        Warp& warp = warps_[warp_of_running()];
        const std::uint32_t number = ++warp.products;
        WarpRegisters<float, 4> sums{};
        WarpRegisters<std::uint32_t, 4> left{};
        WarpRegisters<std::uint32_t, 2> right{};
        const auto take = [&](const Register& operand) {
            if (RegisterTag::of(operand.tag).kind == RegisterTag::Kind::load) {
                note_consumer(warp, operand, number);
            } else if (operand.tag != 0) {
                read_register(const_cast<Register&>(operand));
            }
            return operand.bits;
        };
        for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
            const auto& payload = *static_cast<ProductPayload*>(all.payloads[lane]);
            for (std::size_t i = 0; i < 4; ++i) {
                Register& sum = payload.c[i];
                if (sum.tag != 0 && RegisterTag::of(sum.tag).kind != RegisterTag::Kind::product) {
                    read_register(sum);
                }
                sums[lane][i] = std::bit_cast<float>(sum.bits);
                left[lane][i] = take(payload.a[i]);
            }
            right[lane] = {take(*payload.b0), take(*payload.b1)};
        }
        multiply_m16n8k16(half_type(type), sums, left, right);
        const RegisterTag tag{RegisterTag::Kind::product, number};
        for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
            Register* const into = static_cast<ProductPayload*>(all.payloads[lane])->c;
            for (std::size_t i = 0; i < 4; ++i) {
                into[i] = {std::bit_cast<std::uint32_t>(sums[lane][i]), tag.bits(),
                           threads_[all.first + lane].wgmma_fences};
            }
        }
    });
}

void Block::note_consumer(Warp& warp, const Register& operand, std::uint32_t product) {
    const std::uint32_t number = RegisterTag::of(operand.tag).number;
    for (auto read = warp.unbound.rbegin(); read != warp.unbound.rend(); ++read) {
        if (read->number == number) {
            if (read->consumer == 0) {
                read->consumer = product;
            }
            return;
        }
    }
}

void Block::bind_load(Warp& warp, std::uint32_t number) {
    bind_reads(warp, [&](const UnboundRead& read) { return read.number == number; });
}

void Block::bind_product(Warp& warp, std::uint32_t number) {
    bind_reads(warp, [&](const UnboundRead& read) {
        return read.consumer != 0 && read.consumer <= number;
    });
}

template <typename IsBound>
void Block::bind_reads(Warp& warp, IsBound is_bound) {
    for (const UnboundRead& read : warp.unbound) {
        if (!read.overwritten.empty() && is_bound(read)) {
            throw FaultFound{FaultKind::source_overwritten, read.overwritten};
        }
    }
    std::erase_if(warp.unbound, is_bound);
}

void Block::read_register(Register& used) {
    const RegisterTag tag = RegisterTag::of(used.tag);
    Warp& warp = warps_[warp_of_running()];
    switch (tag.kind) {
        case RegisterTag::Kind::none:
            return;
        case RegisterTag::Kind::load:
            bind_load(warp, tag.number);
            break;
        case RegisterTag::Kind::product:
            bind_product(warp, tag.number);
            break;
        case RegisterTag::Kind::warpgroup_result:
            if (tag.number > running().wgmma_done) {
                throw FaultFound{
                    FaultKind::register_in_flight,
                    fmt::format("thread {} uses a register that wgmma number {} fills, "
                                "with no wgmma.wait_group for it",
                                running_, tag.number)};
            }
            // The next product that adds to it must come after the read.
            used.fences = running().wgmma_fences;
            break;
        case RegisterTag::Kind::warpgroup_source:
            // A register that is only read may be read by others too.
            return;
    }
    used.tag = 0;
}

void Block::write_register(Register& used) {
    const RegisterTag tag = RegisterTag::of(used.tag);
    if (tag.kind == RegisterTag::Kind::warpgroup_source) {
        if (tag.number > running().wgmma_done) {
            throw FaultFound{FaultKind::register_in_flight,
                             fmt::format("thread {} changes a register that wgmma number {} still "
                                         "reads, with no wgmma.wait_group for it",
                                         running_, tag.number)};
        }
        used.tag = 0;
        return;
    }
    if (tag.kind == RegisterTag::Kind::product) {
        // Its value is not asked for.
        used.tag = 0;
        return;
    }
    if (tag.kind == RegisterTag::Kind::load) {
        std::erase_if(warps_[warp_of_running()].unbound,
                      [&](const UnboundRead& read) { return read.number == tag.number; });
        used.tag = 0;
        return;
    }
    read_register(used);
}

void Block::overwrite_unbound_reads(std::uint32_t address, std::uint32_t bytes, Site site) {
    for (std::size_t warp = 0; warp < warps_.size(); ++warp) {
        for (UnboundRead& read : warps_[warp].unbound) {
            for (const std::uint32_t row : read.rows) {
                if (row < address + bytes && address < row + matrix_row_bytes) {
                    read.overwritten = fmt::format(
                        "{}: the copy may overwrite shared address {:#x} before the ldmatrix of "
                        "warp {} at {} has read it: nothing had used the product of its fragment "
                        "by then, and no proxy fence stands between",
                        to_string(site), row, warp, to_string(read.site));
                }
            }
        }
    }
}

}  // namespace backlight::emulation
