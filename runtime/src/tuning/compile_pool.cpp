#include "tuning/compile_pool.hpp"

#include <algorithm>
#include <utility>

namespace backlight::tuning {

CompilePool::CompilePool(std::vector<TileConfig> configs, int threads, Compile compile)
    : configs_(std::move(configs)), compile_(std::move(compile)), results_(configs_.size()) {
    constexpr unsigned most_threads = 16;  // Each may take hundreds of megabytes.
    const auto wanted = threads > 0
                            ? static_cast<std::size_t>(threads)
                            : std::clamp(std::thread::hardware_concurrency(), 1U, most_threads);
    const std::size_t count = std::min(wanted, configs_.size());
    threads_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        threads_.emplace_back([this] { work(); });
    }
}

CompilePool::~CompilePool() {
    next_ = configs_.size();
    for (std::thread& thread : threads_) {
        thread.join();
    }
}

void CompilePool::work() {
    while (true) {
        const std::size_t index = next_++;
        if (index >= configs_.size()) {
            return;
        }
        try {
            results_[index].set_value(compile_(configs_[index]));
        } catch (...) {
            results_[index].set_exception(std::current_exception());
        }
    }
}

}  // namespace backlight::tuning
