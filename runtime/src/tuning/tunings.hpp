#pragma once

#include <filesystem>
#include <mutex>

#include "tuning/choice.hpp"
#include "tuning/database.hpp"

namespace backlight::tuning {

/// The layers of a Runtime: the user's file above what is shipped. The file is read at the first
/// use; one that cannot be read is told once and taken for empty. Safe to use from many threads.
class Tunings {
  public:
    /// Empty: no file, records are kept for the life of the object.
    explicit Tunings(std::filesystem::path file) : file_(std::move(file)) {}

    Choice choose(const AttentionProblem& problem, const device::DeviceProperties& device,
                  const IsFresh& is_fresh, const IsUsable& is_usable = {});

    /// All of the user's records, as they are now.
    Database user();

    /// Adds records to the user's, and to the file; a file that cannot be written is told, and the
    /// records count in this process all the same.
    void add(const Database& additions);

    const std::filesystem::path& file() const noexcept { return file_; }

  private:
    void read_once();

    const std::filesystem::path file_;
    std::mutex mutex_;
    bool read_ = false;
    /// Of the file only the checked records, which are those that a plan may use.
    Database user_;
};

}  // namespace backlight::tuning
