#include "c_api/structs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "c_api/guard.hpp"

namespace backlight::c_api {

namespace {

std::size_t checked_size(const void* given, std::string_view name, std::string_view init,
                         std::size_t least_bytes) {
    if (given == nullptr) {
        refuse_null(name);
    }
    const std::size_t size = struct_size_of(given);
    check_size(size, name, init, least_bytes);
    return size;
}

}  // namespace

std::size_t struct_size_of(const void* given) {
    std::size_t size = 0;
    std::memcpy(&size, given, sizeof(size));
    return size;
}

void check_size(std::size_t size, std::string_view name, std::string_view init,
                std::size_t least_bytes) {
    // No field lies across a multiple of 8, so that none is taken by half.
    if (size < least_bytes || size > most_struct_bytes || size % 8 != 0) {
        refuse(
            fmt::format("{}.struct_size is {}: it must be the size of the struct, a multiple of "
                        "8 from {} to {}; {} sets it",
                        name, size, least_bytes, most_struct_bytes, init));
    }
}

void read_struct(const void* given, std::string_view name, std::string_view init,
                 std::size_t least_bytes, void* known, std::size_t bytes) {
    const std::size_t size = checked_size(given, name, init, least_bytes);
    const auto* begin = static_cast<const unsigned char*>(given);
    const auto* unknown = std::find_if(begin + std::min(size, bytes), begin + size,
                                       [](unsigned char byte) { return byte != 0; });
    if (unknown != begin + size) {
        refuse(
            fmt::format("{}.struct_size is {} and byte {} is {}: what is beyond the {} bytes that "
                        "version {} of the library knows must be 0",
                        name, size, unknown - begin, *unknown, bytes, BACKLIGHT_VERSION_STRING));
    }
    std::memcpy(known, given, std::min(size, bytes));
}

std::size_t fillable_size(const void* given, std::string_view name, std::string_view init,
                          std::size_t least_bytes) {
    return checked_size(given, name, init, least_bytes);
}

void fill_struct(void* given, std::size_t struct_size, const void* known, std::size_t bytes) {
    std::memcpy(given, known, std::min(struct_size, bytes));
    if (struct_size > bytes) {
        std::memset(static_cast<unsigned char*>(given) + bytes, 0, struct_size - bytes);
    }
}

bool boolean(std::string_view field, std::int32_t value) {
    if (value != 0 && value != 1) {
        refuse(fmt::format("{} is {}: it must be 0 or 1", field, value));
    }
    return value == 1;
}

void refuse_value(std::string_view field, std::int32_t value,
                  std::initializer_list<const char*> names) {
    std::string allowed;
    for (std::size_t i = 0; i < names.size(); ++i) {
        const char* separator = i == 0 ? "" : i + 1 < names.size() ? ", " : " or ";
        allowed += fmt::format("{}{} ({})", separator, i, names.begin()[i]);
    }
    refuse(fmt::format("{} is {}: it must be {}", field, value, allowed));
}

}  // namespace backlight::c_api
