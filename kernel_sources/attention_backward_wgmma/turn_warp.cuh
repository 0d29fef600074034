// Where dQ is summed in one order: the warp that counts turns.
#pragma once

#include "attention_backward_wgmma/layout.cuh"
#include "attention_backward_wgmma/shared_pointer.cuh"
#include "primitives/global_counter.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/types.cuh"

namespace backlight::kernel {

/// The turns that the thread which adds has taken, as it hands them to the turn warp: the release
/// that goes with a count takes long, and would keep the query warpgroup.
class TakenTurns {
  public:
    __device__ __forceinline__ explicit TakenTurns(SharedMemory shared) : shared_(shared) {}

    /// Null after the last.
    __device__ __forceinline__ void post(uint32_t* counter) {
        const int slot = ring_.slot();
        mbarrier_wait(shared_.turn_empty(slot), ring_.parity() ^ 1);
        store_shared_pointer(shared_.turn(slot), counter);
        mbarrier_arrive(shared_.turn_full(slot));
        ring_.advance();
    }

  private:
    SharedMemory shared_;
    CompactRingPosition<turn_slots> ring_;
};

/// One thread. What the other has seen added before it posted a turn comes before the count.
class TurnWarp {
  public:
    __device__ __forceinline__ explicit TurnWarp(SharedMemory shared) : shared_(shared) {}

    __device__ __forceinline__ void work() {
        CompactRingPosition<turn_slots> ring;
        while (true) {
            mbarrier_wait(shared_.turn_full(ring.slot()), ring.parity());
            auto* const counter = load_shared_pointer<uint32_t>(shared_.turn(ring.slot()));
            mbarrier_arrive(shared_.turn_empty(ring.slot()));
            ring.advance();
            if (counter == nullptr) {
                return;
            }
            count_global(counter);
        }
    }

  private:
    SharedMemory shared_;
};

}  // namespace backlight::kernel
