#include <doctest/doctest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "backlight/cache/single_flight.hpp"

using backlight::cache::SingleFlight;

namespace {

constexpr int threads_in_all = 8;

/// Long enough for every thread to have asked.
void wait_a_little() {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

template <typename Body>
void on_all_threads(Body&& body) {
    std::barrier start(threads_in_all);
    std::vector<std::thread> threads;
    for (int i = 0; i < threads_in_all; ++i) {
        threads.emplace_back([&] {
            start.arrive_and_wait();
            body();
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

}  // namespace

TEST_CASE("threads that want the same thing at the same time have it made once and share it") {
    SingleFlight<std::shared_ptr<int>> flights;
    std::atomic<int> made = 0;
    std::atomic<int> told_made = 0;
    std::atomic<int> right = 0;
    on_all_threads([&] {
        const auto outcome = flights.run("kernel", [&] {
            wait_a_little();
            return std::make_shared<int>(++made);
        });
        told_made += outcome.made ? 1 : 0;
        right += *outcome.result == 1 ? 1 : 0;
    });
    CHECK(made == 1);
    CHECK(told_made == 1);
    CHECK(right == threads_in_all);
    CHECK(flights.in_flight() == 0);
}

TEST_CASE("a failure reaches every thread that waits and is then forgotten") {
    SingleFlight<int> flights;
    std::atomic<int> tries = 0;
    std::atomic<int> told = 0;
    on_all_threads([&] {
        try {
            flights.run("kernel", [&]() -> int {
                wait_a_little();
                ++tries;
                throw std::runtime_error("does not compile");
            });
        } catch (const std::runtime_error& error) {
            told += std::string(error.what()) == "does not compile" ? 1 : 0;
        }
    });
    CHECK(tries == 1);
    CHECK(told == threads_in_all);
    CHECK(flights.in_flight() == 0);
    const auto outcome = flights.run("kernel", [] { return 7; });
    CHECK(outcome.result == 7);
    CHECK(outcome.made);
}

TEST_CASE("different things are made at the same time") {
    SingleFlight<int> flights;
    // Either waits for the other to have begun, so one after the other would never end.
    std::barrier both(2);
    std::vector<std::thread> threads;
    std::atomic<int> made = 0;
    for (const char* name : {"one", "other"}) {
        threads.emplace_back([&, name] {
            made += flights
                        .run(name,
                             [&] {
                                 both.arrive_and_wait();
                                 return 1;
                             })
                        .result;
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(made == 2);
}
