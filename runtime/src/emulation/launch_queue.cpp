#include "emulation/launch_queue.hpp"

#include <utility>

#include "emulation/grid.hpp"
#include "emulation/random.hpp"

namespace backlight::emulation {

void LaunchQueue::add(Launch launch, Stream stream) {
    const std::lock_guard lock(queues_mutex_);
    launch.number = launches_++;
    queues_[stream].push_back(std::move(launch));
}

void LaunchQueue::keep_failure(std::exception_ptr failure) {
    const std::lock_guard lock(queues_mutex_);
    kept_failure_ = std::move(failure);
}

void LaunchQueue::synchronise(Stream stream) {
    // First: what another host thread has taken out of the queue is to be waited for, too.
    const std::lock_guard execution(execution_mutex_);
    std::vector<Launch> launches;
    {
        const std::lock_guard lock(queues_mutex_);
        if (kept_failure_ != nullptr) {
            std::rethrow_exception(std::exchange(kept_failure_, nullptr));
        }
        if (const auto found = queues_.find(stream); found != queues_.end()) {
            launches = std::move(found->second);
            queues_.erase(found);
        }
    }
    if (!launches.empty()) {
        execute(std::move(launches));
    }
}

void LaunchQueue::synchronise_all() {
    std::vector<Stream> streams;
    {
        const std::scoped_lock lock(execution_mutex_, queues_mutex_);
        for (const auto& [stream, launches] : queues_) {
            streams.push_back(stream);
        }
    }
    for (const Stream stream : streams) {
        synchronise(stream);
    }
}

void LaunchQueue::reseed(std::uint64_t seed) {
    synchronise_all();
    const std::scoped_lock lock(execution_mutex_, queues_mutex_);
    options_.seed = seed;
    launches_ = 0;
}

void LaunchQueue::execute(std::vector<Launch> launches) {
    GridRunner runner(options_, memory_,
                      options_.count_bank_conflicts ? &bank_conflicts_ : nullptr);
    for (std::size_t i = 0; i < launches.size(); ++i) {
        const Launch* const next = i + 1 < launches.size() ? &launches[i + 1] : nullptr;
        runner.run(launches[i], next != nullptr && next->shape.may_start_early ? next : nullptr);
    }
}

}  // namespace backlight::emulation
