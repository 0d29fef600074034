#pragma once

#include <exception>
#include <future>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace backlight::cache {

/// Makes each thing once however many threads want it at the same time: the first makes it, the
/// others wait and get the same result, or the same exception. Then it is forgotten, so a failure
/// is tried again by whoever asks next, and a result is for the caller to keep: `make` should put
/// it where callers look first, and look there again itself, as a flight may end between a caller's
/// look and its call.
///
/// `make` must not ask for its own name again: it would wait for itself.
template <typename Result>
class SingleFlight {
  public:
    struct Outcome {
        Result result;
        /// Whether this call made it.
        bool made = false;
    };

    template <typename Make>
    Outcome run(const std::string& name, Make&& make) {
        std::promise<Result> promise;
        {
            std::unique_lock lock(mutex_);
            const auto [flight, first] = flights_.try_emplace(name);
            if (!first) {
                const std::shared_future<Result> result = flight->second;
                lock.unlock();
                return {result.get(), false};
            }
            flight->second = promise.get_future().share();
        }
        try {
            Result result = std::forward<Make>(make)();
            promise.set_value(result);
            forget(name);
            return {std::move(result), true};
        } catch (...) {
            promise.set_exception(std::current_exception());
            forget(name);
            throw;
        }
    }

    /// How many are being made now.
    std::size_t in_flight() const {
        const std::lock_guard lock(mutex_);
        return flights_.size();
    }

  private:
    void forget(const std::string& name) {
        const std::lock_guard lock(mutex_);
        flights_.erase(name);
    }

    mutable std::mutex mutex_;
    std::unordered_map<std::string, std::shared_future<Result>> flights_;
};

}  // namespace backlight::cache
