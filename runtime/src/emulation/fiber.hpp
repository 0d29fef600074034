#pragma once

#include <boost/context/fiber.hpp>
#include <boost/context/stack_context.hpp>
#include <cstddef>
#include <functional>
#include <vector>

namespace backlight::emulation {

/// Stacks of one size with a guard page below each, kept for the next fiber. For one host thread;
/// those of one that has ended go to the others.
class StackPool {
  public:
    StackPool() = default;
    ~StackPool();
    StackPool(const StackPool&) = delete;
    StackPool& operator=(const StackPool&) = delete;

    boost::context::stack_context take();
    void give_back(boost::context::stack_context stack);

  private:
    std::vector<boost::context::stack_context> free_;
};

/// A flow of control with a stack of its own, resumed from its host thread and suspended from
/// within. Tells AddressSanitizer of every switch, where that is part of the process.
class Fiber {
  public:
    /// `body` must not throw.
    Fiber(StackPool& stacks, std::function<void()> body);
    /// Must have finished, or never have been started.
    ~Fiber() = default;
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    /// Runs until the fiber suspends itself or ends.
    void resume();
    /// Called within the fiber: goes on where `resume` was called.
    void suspend();

  private:
    void enter();

    std::function<void()> body_;
    boost::context::stack_context stack_;
    boost::context::fiber fiber_;
    boost::context::fiber resumer_;
    // AddressSanitizer's own stacks of locals, and where the resumer's stack lies.
    void* resumer_locals_ = nullptr;
    const void* resumer_bottom_ = nullptr;
    std::size_t resumer_size_ = 0;
};

}  // namespace backlight::emulation
