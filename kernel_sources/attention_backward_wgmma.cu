// The attention backward for Hopper: wgmma and TMA, the work divided among specialised warpgroups.
//
// A block works on tiles of block_kv = 128 keys and values of one head, and walks over the queries
// of the heads that use it in tiles of 64. Everything is computed transposed, with keys as rows, so
// that P and dS are fed to the next product from the registers in which they arise:
//
//     Sᵀ  = K Qᵀ         dPᵀ = V dOᵀ
//     P   = exp(scale · S − LSE)
//     dS  = P ∘ (dP − delta)                   dSᵀ alone goes to shared memory
//     dV += Pᵀ dO        dK += dSᵀ Q
//     dQ  = dS K                               summed over key tiles in an fp32 accumulator that
//                                              stays in the L2 cache (accumulator_place in
//                                              work.cuh)
//
// Roles, a warpgroup (128 threads) each:
//
//     key warpgroups 0, 1   own 64 keys each: Sᵀ, dPᵀ, dV, dK
//     query warpgroup       all of dQ, and its way out of the block
//     loader                one thread takes tickets and lets TMA bring tiles; three of its
//                           other warps convert dQ of heads that are complete (where dQ is summed
//                           in one order two, and one tells other blocks of turns)
//
// A step of a key warpgroup, one query tile; Pᵀ of the tile is in registers when it begins, so that
// no product is under way where the loop turns back:
//
//     tensor cores   | dPᵀ(i) | dV(i) |            | dK(i) | Sᵀ(i+1) |
//     other units                      dS(i) … dSᵀ(i) to shared memory  exp → Pᵀ(i+1)
//
// At head_dim 64, Pᵀ(i) is rounded beside dPᵀ(i), and dK(i) begins behind the store of dSᵀ(i).
//
// Nothing in the loop makes the whole block wait, nor the two key warpgroups for each other, so
// that one's arithmetic can lie beside the other's products. Stages go by mbarriers:
//
//     work_full            loader → key, query, converter    what a ticket stands for
//     work_empty           key, query, converter → loader
//     k_full               loader → key, query               K of the tile
//     k_empty              key, query → loader               K has been read
//     v_full               loader → key                      V of the tile
//     v_empty              key → loader                      dV, stored over V, has left
//     q_full               loader → key                      a query tile with its LSE
//     d_o_full             loader → key                      dO of the tile with delta
//     q_empty, d_o_empty   key → loader                      they have been read
//     d_s_full             key → query                       dSᵀ of both key warpgroups is stored
//     d_s_empty            query → key                       and has been read
//     conversion_full      bulk copies → converter           half a part of dQ (see Converter)
//     turn_full            query → turn warp                 a turn has been taken (see TurnWarp)
//     turn_empty           turn warp → query
//
// A ticket is a number drawn from a global counter; it stands for a tile of keys, and a share of a
// head's dQ to be converted (attention_backward_rounds/work.cuh). Blocks wait for each other (see
// DqSum and Converter), but only for lower tickets, whose blocks are running. They visit queries
// from the last to the first: the tiles on the diagonal then come last, and the second key
// warpgroup leaves out the one that sees none of its keys. Where dQ is summed in one order they go
// the other way (attention_backward_rounds/turns.cuh).
//
// That is of equal lengths in whole tiles. Of other masks, lengths and groups of heads the loader
// knows which query tiles are visited and leaves a word for the key warpgroups beside each of them:
// which of their keys it sees, and whether scores are hidden (walk.cuh, posts_steps). They step
// through those that see their keys as above, and leave out the others.
//
// dQ and dK lack the factor softmax_scale until they are stored.
#include "arguments/attention_backward.h"
#include "attention_backward_wgmma/converter.cuh"
#include "attention_backward_wgmma/key_warpgroup.cuh"
#include "attention_backward_wgmma/layout.cuh"
#include "attention_backward_wgmma/loader.cuh"
#include "attention_backward_wgmma/query_warpgroup.cuh"
#include "attention_backward_wgmma/turn_warp.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/register_allocation.cuh"
#include "primitives/shared_memory.cuh"

namespace backlight::kernel {

extern "C" __global__ void __launch_bounds__(threads, 1)
    attention_backward_wgmma(const __grid_constant__ WgmmaArguments arguments) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const SharedMemory shared{shared_address(shared_memory)};
    const int thread = static_cast<int>(threadIdx.x);
    // The same in all lanes, which the compiler cannot know.
    const int warpgroup = __shfl_sync(0xffffffffu, thread / warpgroup_size, 0);
    const int thread_in_warpgroup = thread % warpgroup_size;

    if (thread == 0) {
        for (int buffer = 0; buffer < kv_buffers; ++buffer) {
            mbarrier_initialise(shared.k_full(buffer), 1);
            mbarrier_initialise(shared.k_empty(buffer), key_warps + warps_per_warpgroup);
            mbarrier_initialise(shared.v_full(buffer), 1);
            mbarrier_initialise(shared.v_empty(buffer), key_warpgroups);
        }
        for (int stage = 0; stage < stages; ++stage) {
            mbarrier_initialise(shared.q_full(stage), 1);
            mbarrier_initialise(shared.q_empty(stage), key_warps);
            mbarrier_initialise(shared.d_o_full(stage), 1);
            mbarrier_initialise(shared.d_o_empty(stage), key_warps);
        }
        for (int buffer = 0; buffer < d_s_buffers; ++buffer) {
            mbarrier_initialise(shared.d_s_full(buffer), key_warps);
            mbarrier_initialise(shared.d_s_empty(buffer), warps_per_warpgroup);
        }
        for (int slot = 0; slot < work_slots; ++slot) {
            mbarrier_initialise(shared.work_full(slot), 1);
            mbarrier_initialise(shared.work_empty(slot), working_warps);
        }
        for (int buffer = 0; buffer < conversion_buffers; ++buffer) {
            mbarrier_initialise(shared.conversion_full(buffer), 1);
        }
        for (int slot = 0; deterministic && slot < turn_slots; ++slot) {
            mbarrier_initialise(shared.turn_full(slot), 1);
            mbarrier_initialise(shared.turn_empty(slot), 1);
        }
        mbarrier_initialisation_fence();
    }
    __syncthreads();

    if (warpgroup == loader_warpgroup) {
        decrease_registers<loader_registers>();
        if (thread_in_warpgroup == 0) {
            Loader(arguments, shared).work();
        } else if (deterministic && thread_in_warpgroup >= warp_size + conversion_threads) {
            if (thread_in_warpgroup == warp_size + conversion_threads) {
                TurnWarp(shared).work();
            }
        } else if (thread_in_warpgroup >= warp_size) {
            Converter(arguments, shared, thread_in_warpgroup - warp_size).work();
        }
    } else if (warpgroup == query_warpgroup) {
        decrease_registers<query_registers>();
        QueryWarpgroup(arguments, shared, thread_in_warpgroup).work();
    } else {
        increase_registers<key_registers>();
        KeyWarpgroup(arguments, shared, warpgroup, thread_in_warpgroup).work();
    }
}

}  // namespace backlight::kernel
