#include "emulation/fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

// AddressSanitizer's interface for fibers (sanitizer/common_interface_defs.h): null in a process
// without it.
extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void** locals, const void* bottom,
                                                          std::size_t size);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void* locals, const void** bottom,
                                                           std::size_t* size);
}

namespace backlight::emulation {

namespace {

// Kernels hold all their registers as locals, and the sanitizer widens each of them.
constexpr std::size_t stack_bytes = std::size_t{256} * 1024;

std::size_t page_bytes() {
    static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return bytes;
}

/// The stacks of host threads that have ended, for those to come: blocks that are held have a host
/// thread each, and mapping hundreds of stacks for each would cost more than running it.
class SpareStacks {
  public:
    ~SpareStacks() {
        for (const boost::context::stack_context& stack : stacks_) {
            ::munmap(static_cast<std::byte*>(stack.sp) - stack.size - page_bytes(),
                     stack.size + page_bytes());
        }
    }

    void add(const std::vector<boost::context::stack_context>& stacks) {
        const std::lock_guard lock(mutex_);
        stacks_.insert(stacks_.end(), stacks.begin(), stacks.end());
    }
    std::optional<boost::context::stack_context> take() {
        const std::lock_guard lock(mutex_);
        if (stacks_.empty()) {
            return std::nullopt;
        }
        const boost::context::stack_context stack = stacks_.back();
        stacks_.pop_back();
        return stack;
    }

  private:
    std::mutex mutex_;
    std::vector<boost::context::stack_context> stacks_;
};

SpareStacks& spare_stacks() {
    static SpareStacks stacks;
    return stacks;
}

/// Hands a pool's stack to Boost.Context and back.
struct PooledStack {
    StackPool* pool;
    void deallocate(boost::context::stack_context& stack) { pool->give_back(stack); }
};

}  // namespace

StackPool::~StackPool() {
    spare_stacks().add(free_);
}

boost::context::stack_context StackPool::take() {
    if (!free_.empty()) {
        const boost::context::stack_context stack = free_.back();
        free_.pop_back();
        return stack;
    }
    if (const auto spare = spare_stacks().take()) {
        return *spare;
    }
    const std::size_t whole = stack_bytes + page_bytes();
    void* memory = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) {
        throw std::bad_alloc();
    }
    if (::mprotect(memory, page_bytes(), PROT_NONE) != 0) {
        ::munmap(memory, whole);
        throw std::bad_alloc();
    }
    boost::context::stack_context stack;
    stack.size = stack_bytes;
    stack.sp = static_cast<std::byte*>(memory) + whole;
    return stack;
}

void StackPool::give_back(boost::context::stack_context stack) {
    free_.push_back(stack);
}

Fiber::Fiber(StackPool& stacks, std::function<void()> body)
    : body_(std::move(body)), stack_(stacks.take()) {
    const boost::context::preallocated place(stack_.sp, stack_.size, stack_);
    fiber_ = boost::context::fiber(std::allocator_arg, place, PooledStack{&stacks},
                                   [this](boost::context::fiber&& resumer) {
                                       resumer_ = std::move(resumer);
                                       enter();
                                       return std::move(resumer_);
                                   });
}

void Fiber::enter() {
    if (__sanitizer_finish_switch_fiber != nullptr) {
        __sanitizer_finish_switch_fiber(nullptr, &resumer_bottom_, &resumer_size_);
    }
    body_();
    if (__sanitizer_start_switch_fiber != nullptr) {
        __sanitizer_start_switch_fiber(nullptr, resumer_bottom_, resumer_size_);
    }
}

void Fiber::resume() {
    if (__sanitizer_start_switch_fiber != nullptr) {
        __sanitizer_start_switch_fiber(
            &resumer_locals_, static_cast<std::byte*>(stack_.sp) - stack_.size, stack_.size);
    }
    fiber_ = std::move(fiber_).resume();
    if (__sanitizer_finish_switch_fiber != nullptr) {
        __sanitizer_finish_switch_fiber(resumer_locals_, nullptr, nullptr);
    }
}

void Fiber::suspend() {
    void* locals = nullptr;
    if (__sanitizer_start_switch_fiber != nullptr) {
        __sanitizer_start_switch_fiber(&locals, resumer_bottom_, resumer_size_);
    }
    resumer_ = std::move(resumer_).resume();
    if (__sanitizer_finish_switch_fiber != nullptr) {
        __sanitizer_finish_switch_fiber(locals, &resumer_bottom_, &resumer_size_);
    }
}

}  // namespace backlight::emulation
