#pragma once

#include <initializer_list>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "backlight/cache/entry.hpp"

namespace backlight::cache {

/// Tells each problem once: a text names the kind of problem and the path.
class Warnings {
  public:
    explicit Warnings(WarningSink sink) : sink_(std::move(sink)) {}

    /// The text is put together inside, so that no caller throws for want of memory.
    void tell_once(std::initializer_list<std::string_view> parts) noexcept;

  private:
    WarningSink sink_;
    std::mutex mutex_;
    std::set<std::string> told_;
};

}  // namespace backlight::cache
