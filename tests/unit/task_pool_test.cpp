#include "compiler/task_pool.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <set>
#include <thread>

using backlight::compiler::TaskPool;

TEST_CASE("every task of a pool is run before the pool ends") {
    std::atomic<int> runs = 0;
    {
        TaskPool pool(2);
        for (int i = 0; i < 100; ++i) {
            pool.submit([&] { ++runs; });
        }
    }
    CHECK(runs == 100);
}

TEST_CASE("a pool starts no more threads than it may") {
    std::mutex mutex;
    std::set<std::thread::id> threads;
    {
        TaskPool pool(3);
        for (int i = 0; i < 50; ++i) {
            pool.submit([&] {
                const std::lock_guard lock(mutex);
                threads.insert(std::this_thread::get_id());
            });
        }
    }
    CHECK(threads.size() <= 3);
    CHECK_FALSE(threads.contains(std::this_thread::get_id()));
}

TEST_CASE("work that is shared with a pool is done once each where no thread is free") {
    TaskPool pool(1);
    std::promise<void> end;
    const std::shared_future<void> ended = end.get_future().share();
    pool.submit([ended] { ended.wait(); });
    std::vector<std::atomic<int>> runs(10);
    pool.run_all(runs.size(), [&](std::size_t index) { ++runs[index]; });
    for (const std::atomic<int>& count : runs) {
        CHECK(count == 1);
    }
    end.set_value();
    pool.run_all(0, [](std::size_t) { FAIL_CHECK("there is nothing to do"); });
}

TEST_CASE("work that is shared with a pool runs on its threads too and from within a task") {
    TaskPool pool(2);
    std::promise<bool> result;
    pool.submit([&] {
        // Each of the two waits for the other to have begun.
        std::atomic<int> begun = 0;
        pool.run_all(2, [&](std::size_t) {
            ++begun;
            while (begun < 2) {
                std::this_thread::yield();
            }
        });
        result.set_value(true);
    });
    CHECK(result.get_future().get());
}

TEST_CASE("a pool that ends waits for tasks whose work is shared while it ends") {
    for (int round = 0; round < 20; ++round) {
        std::atomic<int> runs = 0;
        TaskPool pool(3);
        for (int task = 0; task < 10; ++task) {
            pool.submit([&] {
                pool.run_all(3, [&](std::size_t) {
                    std::this_thread::yield();
                    ++runs;
                });
            });
        }
        pool.finish();
        CHECK(runs == 30);
    }
}
