#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace backlight::verification {

/// Calls body(0) … body(count - 1), shared among all cores. The first exception of a body is thrown
/// again here, once every thread has stopped.
template <typename Body>
void parallel_for(std::int64_t count, const Body& body) {
    std::atomic<std::int64_t> next{0};
    std::exception_ptr failure;
    std::mutex failure_mutex;
    const auto work = [&] {
        try {
            for (std::int64_t i = next++; i < count; i = next++) {
                body(i);
            }
        } catch (...) {
            const std::scoped_lock lock(failure_mutex);
            if (!failure) {
                failure = std::current_exception();
            }
            next = count;
        }
    };
    const std::int64_t cores = std::max(1U, std::thread::hardware_concurrency());
    {
        std::vector<std::jthread> threads;
        for (std::int64_t i = 1; i < std::min(cores, count); ++i) {
            threads.emplace_back(work);
        }
        work();
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
}

}  // namespace backlight::verification
