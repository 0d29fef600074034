#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace backlight::compiler {

/// A bounded number of threads, started as there is work for them.
class TaskPool {
  public:
    explicit TaskPool(int threads) : limit_(static_cast<std::size_t>(threads)) {}
    ~TaskPool() { finish(); }
    TaskPool(const TaskPool&) = delete;
    TaskPool& operator=(const TaskPool&) = delete;

    /// Runs a task, which must not throw, at some time on one of the threads.
    void submit(std::function<void()> task);

    /// Runs work(0) … work(count − 1), which must not throw, on the calling thread and on those of
    /// the pool that are free; returns when all have ended. The caller does all of it where none is
    /// free, so that tasks of the pool may call it.
    void run_all(std::size_t count, const std::function<void(std::size_t)>& work);

    /// Waits until all tasks have been run, and ends the threads: no one but its own tasks may use
    /// the pool from then on.
    void finish() noexcept;

  private:
    void serve();

    std::size_t limit_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> waiting_;
    std::vector<std::thread> threads_;
    std::size_t idle_ = 0;
    bool finishing_ = false;
};

}  // namespace backlight::compiler
