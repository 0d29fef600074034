#include "emulation/mbarrier.hpp"

#include <fmt/format.h>

namespace backlight::emulation {

MBarrier::MBarrier(int arrivals, HappensBefore& order, int thread, Site site)
    : order_(order),
      initialising_thread_(thread),
      initialised_(order.now(thread)),
      site_(site),
      expected_arrivals_(arrivals),
      pending_arrivals_(arrivals),
      component_(order.add_component()),
      seen_(static_cast<std::size_t>(order.threads())) {}

void MBarrier::require_usable(int thread, Site site) const {
    if (!order_.knows(thread, initialised_)) {
        throw FaultFound{
            FaultKind::data_race,
            fmt::format("{}: thread {} uses the mbarrier that thread {} initialised at {}: no "
                        "barrier orders the two",
                        to_string(site), thread, initialising_thread_, to_string(site_))};
    }
}

void MBarrier::require_visible(Site site) const {
    if (!visible_) {
        throw FaultFound{
            FaultKind::missing_proxy_fence,
            fmt::format("{}: a copy is to complete the mbarrier that thread {} initialised at {} "
                        "with no fence.mbarrier_init or fence.proxy.async after it",
                        to_string(site), initialising_thread_, to_string(site_))};
    }
}

bool MBarrier::arrive(int thread, std::int64_t bytes, Site site) {
    if (pending_arrivals_ == 0) {
        throw FaultFound{
            FaultKind::arrival_overflow,
            fmt::format("{}: thread {} arrives at the mbarrier initialised at {}, whose phase {} "
                        "has all its {} arrivals and waits for {} bytes",
                        to_string(site), thread, to_string(site_), phase_, expected_arrivals_,
                        pending_bytes_)};
    }
    pending_bytes_ += bytes;
    --pending_arrivals_;
    order_.release(thread, arriving_);
    return complete_if_due();
}

bool MBarrier::finish_copy(std::int64_t bytes) {
    --copies_in_flight_;
    pending_bytes_ -= bytes;
    return complete_if_due();
}

bool MBarrier::complete_if_due() {
    if (pending_arrivals_ != 0 || pending_bytes_ != 0) {
        return false;
    }
    if (copies_in_flight_ != 0) {
        throw FaultFound{
            FaultKind::transaction_mismatch,
            fmt::format("phase {} of the mbarrier initialised at {} completes while {} copies that "
                        "count on it are under way: fewer bytes were announced than they bring",
                        phase_, to_string(site_), copies_in_flight_)};
    }
    HappensBefore::add(arriving_, copy_completion());
    HappensBefore::join(completed_, arriving_);
    ++phase_;
    pending_arrivals_ = expected_arrivals_;
    return true;
}

bool MBarrier::pass(int thread) {
    auto& seen = seen_[static_cast<std::size_t>(thread)];
    const std::int64_t complete = phase_ - 1;
    const bool repeated = seen == complete;
    seen = complete;
    order_.acquire(thread, completed_);
    return repeated;
}

}  // namespace backlight::emulation
