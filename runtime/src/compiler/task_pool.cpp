#include "compiler/task_pool.hpp"

#include <memory>
#include <system_error>
#include <utility>

namespace backlight::compiler {

void TaskPool::submit(std::function<void()> task) {
    {
        const std::lock_guard lock(mutex_);
        // Not while the pool ends: no thread but those that are waited for may run a task.
        if (waiting_.size() >= idle_ && threads_.size() < limit_ && !finishing_) {
            try {
                threads_.emplace_back([this] { serve(); });
            } catch (const std::system_error&) {
                // The system gives no further thread: those that there are serve it.
            }
        }
        if (!threads_.empty()) {
            waiting_.push_back(std::move(task));
            changed_.notify_one();
            return;
        }
    }
    task();
}

void TaskPool::serve() {
    std::unique_lock lock(mutex_);
    while (true) {
        ++idle_;
        changed_.wait(lock, [this] { return finishing_ || !waiting_.empty(); });
        --idle_;
        if (waiting_.empty()) {
            return;
        }
        const std::function<void()> task = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        task();
        lock.lock();
    }
}

void TaskPool::run_all(std::size_t count, const std::function<void(std::size_t)>& work) {
    // Shared, as a helper may come when all is done and the caller is gone.
    struct Batch {
        std::mutex mutex;
        std::condition_variable ended;
        std::size_t next = 0;
        std::size_t running = 0;
    };
    const auto batch = std::make_shared<Batch>();
    const auto take_part = [batch, count, &work] {
        std::unique_lock lock(batch->mutex);
        while (batch->next < count) {
            const std::size_t index = batch->next++;
            ++batch->running;
            lock.unlock();
            work(index);
            lock.lock();
            --batch->running;
        }
        batch->ended.notify_all();
    };
    for (std::size_t helper = 1; helper < count; ++helper) {
        submit(take_part);
    }
    take_part();
    std::unique_lock lock(batch->mutex);
    batch->ended.wait(lock, [&] { return batch->running == 0; });
}

void TaskPool::finish() noexcept {
    {
        const std::lock_guard lock(mutex_);
        finishing_ = true;
    }
    changed_.notify_all();
    // None is added any more.
    for (std::thread& thread : threads_) {
        if (thread.joinable()) {
            thread.join();
        }
    }
}

}  // namespace backlight::compiler
