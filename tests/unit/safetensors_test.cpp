#include "verification/safetensors.hpp"

#include <doctest/doctest.h>

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "backlight/error.hpp"

using backlight::Error;
using backlight::ErrorCode;
using backlight::verification::read_safetensors;
using backlight::verification::SafeTensor;
using backlight::verification::SafetensorsFile;
using backlight::verification::write_safetensors;

namespace {

/// A file name of this process in the temporary folder, removed at the end of the test.
class TemporaryFile {
  public:
    TemporaryFile()
        : path_(std::filesystem::temp_directory_path() /
                ("backlight_safetensors_test_" + std::to_string(::getpid()) + ".safetensors")) {}
    ~TemporaryFile() {
        std::error_code ignored;
        std::filesystem::remove(path_, ignored);
    }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;

    const std::filesystem::path& path() const { return path_; }

    void write(std::string_view bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
    std::string read() const {
        std::ifstream stream(path_, std::ios::binary);
        return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
    }

  private:
    std::filesystem::path path_;
};

std::vector<std::byte> bytes(std::string_view text) {
    std::vector<std::byte> result;
    for (const char c : text) {
        result.push_back(static_cast<std::byte>(c));
    }
    return result;
}

/// The eight little-endian bytes that a file begins with.
std::string length_prefix(std::uint64_t length) {
    std::string prefix;
    for (int i = 0; i < 8; ++i) {
        prefix += static_cast<char>((length >> (8 * i)) & 0xff);
    }
    return prefix;
}

std::string file_bytes(std::string_view header, std::string_view data) {
    return length_prefix(header.size()) + std::string(header) + std::string(data);
}

/// The message of the `file_error` that reading these bytes gives; it must name the file.
std::string refusal(std::string_view content) {
    const TemporaryFile file;
    file.write(content);
    try {
        read_safetensors(file.path());
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::file_error);
        std::string message = error.what();
        CHECK(message.find(file.path().string()) == 0);
        return message;
    }
    return "accepted";
}

std::string write_refusal(const SafetensorsFile& content) {
    const TemporaryFile file;
    try {
        write_safetensors(file.path(), content);
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::file_error);
        CHECK_FALSE(std::filesystem::exists(file.path()));
        return error.what();
    }
    return "accepted";
}

void check_contains(const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
}

const std::string one_tensor = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

}  // namespace

TEST_CASE("safetensors: a file written by hand, byte for byte, is read") {
    const std::string golden =
        std::string("\x90\0\0\0\0\0\0\0", 8) +
        R"({"__metadata__":{"format":"pt"},"lse":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
        R"("q":{"dtype":"BF16","shape":[1,2],"data_offsets":[4,8]}})" +
        std::string(" ") + std::string("\x00\x00\x80\x3f\x80\x3f\x00\xc0", 8);
    const TemporaryFile file;
    file.write(golden);
    const SafetensorsFile read = read_safetensors(file.path());
    CHECK(read.metadata == std::map<std::string, std::string>{{"format", "pt"}});
    REQUIRE(read.tensors.size() == 2);
    CHECK(read.tensors.at("lse") ==
          SafeTensor{.dtype = "F32",
                     .shape = {1},
                     .data = bytes(std::string_view("\x00\x00\x80\x3f", 4))});
    CHECK(read.tensors.at("q") ==
          SafeTensor{.dtype = "BF16",
                     .shape = {1, 2},
                     .data = bytes("\x80\x3f" + std::string("\x00\xc0", 2))});
}

TEST_CASE("safetensors: what is written is this, byte for byte") {
    const TemporaryFile file;
    write_safetensors(file.path(),
                      {.tensors = {{"a", {.dtype = "BF16", .shape = {1}, .data = bytes("xy")}},
                                   {"b", {.dtype = "F32", .shape = {}, .data = bytes("1234")}}},
                       .metadata = {}});
    const std::string header = R"({"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                               R"("a":{"dtype":"BF16","shape":[1],"data_offsets":[4,6]}})";
    const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
    CHECK(file.read() == file_bytes(padded, "1234xy"));
}

TEST_CASE("safetensors: a round trip keeps tensors, shapes, types and metadata") {
    SafetensorsFile content;
    content.metadata = {{"format", "pt"}, {"quote\"d", "line\nbreak, ü"}};
    content.tensors["q"] = {.dtype = "BF16", .shape = {1, 2, 1}, .data = bytes("abcd")};
    content.tensors["scalar"] = {.dtype = "F64", .shape = {}, .data = bytes("12345678")};
    content.tensors["empty"] = {.dtype = "F16", .shape = {3, 0}, .data = {}};
    content.tensors["ünïcode \"name\""] = {.dtype = "U8", .shape = {3}, .data = bytes("xyz")};
    const TemporaryFile file;
    write_safetensors(file.path(), content);
    CHECK(read_safetensors(file.path()) == content);

    write_safetensors(file.path(), {});
    CHECK(read_safetensors(file.path()) == SafetensorsFile{});
}

TEST_CASE("safetensors: the written header is padded with spaces to a multiple of 8") {
    for (const char* name : {"a", "ab", "abc", "abcd", "abcde", "abcdef", "abcdefg", "abcdefgh"}) {
        const TemporaryFile file;
        SafetensorsFile content;
        content.tensors[name] = {.dtype = "U8", .shape = {1}, .data = bytes("!")};
        write_safetensors(file.path(), content);
        const std::string written = file.read();
        const std::size_t length = static_cast<unsigned char>(written.at(0));
        CHECK(length % 8 == 0);
        CHECK(written.size() == 8 + length + 1);
        CHECK(written.back() == '!');
        const std::size_t end = written.find_last_of('}');
        CHECK(8 + length - end <= 8);
        CHECK(written.substr(end + 1, 8 + length - end - 1).find_first_not_of(' ') ==
              std::string::npos);
    }
}

TEST_CASE("safetensors: a missing file, and a folder, are refused by name") {
    const std::filesystem::path missing = "/nonexistent/tensors.safetensors";
    CHECK_THROWS_WITH_AS(read_safetensors(missing),
                         doctest::Contains("/nonexistent/tensors.safetensors: "), Error);
    CHECK_THROWS_WITH_AS(write_safetensors(missing, {}),
                         doctest::Contains("/nonexistent/tensors.safetensors: "), Error);
    CHECK_THROWS_AS(read_safetensors(std::filesystem::temp_directory_path()), Error);
}

TEST_CASE("safetensors: a full disk is reported when writing") {
    if (!std::filesystem::exists("/dev/full")) {
        MESSAGE("skipped: there is no /dev/full");
        return;
    }
    CHECK_THROWS_WITH_AS(write_safetensors("/dev/full", {}), doctest::Contains("to its end"),
                         Error);
    CHECK(std::filesystem::is_character_file("/dev/full"));
}

TEST_CASE("safetensors: a write that fails leaves the file that was there, and no other") {
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / "backlight_safetensors_kept";
    std::filesystem::create_directories(folder);
    const std::filesystem::path path = folder / "kept.safetensors";
    write_safetensors(path, {});
    const auto size = std::filesystem::file_size(path);
    // A folder in the temporary's place: it cannot be opened.
    std::filesystem::create_directories(path.string() + ".partial");
    CHECK_THROWS_AS(write_safetensors(path, {}), Error);
    CHECK(std::filesystem::file_size(path) == size);
    std::filesystem::remove_all(folder);
}

TEST_CASE("safetensors: a truncated file is refused, wherever it ends") {
    const std::string whole = file_bytes(one_tensor, "12345678");
    REQUIRE(refusal(whole) == "accepted");
    for (std::size_t length = 0; length < whole.size(); ++length) {
        check_contains(refusal(std::string_view(whole).substr(0, length)), "truncated");
    }
}

TEST_CASE("safetensors: a header length above the limit is refused before anything is allocated") {
    check_contains(refusal(length_prefix(100'000'001) + "{}"), "at most 100000000");
    check_contains(refusal(length_prefix(~std::uint64_t{0}) + "{}"), "at most 100000000");
    check_contains(refusal(length_prefix(100'000'000) + "{}"), "truncated");
}

TEST_CASE("safetensors: a header that is not a JSON object is refused") {
    check_contains(refusal(file_bytes("", "")), "begin with '{'");
    check_contains(refusal(file_bytes(" {}", "")), "begin with '{'");
    check_contains(refusal(file_bytes("[]", "")), "begin with '{'");
    check_contains(refusal(file_bytes("{", "")), "not valid JSON");
    check_contains(refusal(file_bytes("{}x", "")), "not valid JSON");
    check_contains(refusal(file_bytes("{\"a\":1,}", "")), "not valid JSON");
    check_contains(refusal(file_bytes("{\"\xff\":1}", "")), "not valid JSON");
    check_contains(refusal(file_bytes(std::string(100'000, '{'), "")), "not valid JSON");
}

TEST_CASE("safetensors: deep nesting is refused before it is built") {
    std::string header = R"({"a":)" + std::string(1'000'000, '[');
    check_contains(refusal(file_bytes(header, "")), "deeper");
}

TEST_CASE("safetensors: a name that stands twice is refused, outside and inside a tensor") {
    check_contains(refusal(file_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                                      "x")),
                   "\"a\" twice");
    check_contains(
        refusal(file_bytes(R"({"a":{"dtype":"U8","shape":[2],"shape":[1],"data_offsets":[0,1]}})",
                           "x")),
        "\"shape\" twice");
    // The same name in two tensors is what every file has.
    CHECK(refusal(file_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                             "xy")) == "accepted");
}

TEST_CASE(
    "safetensors: an entry that lacks a field, has another, or has one of another kind is "
    "refused") {
    const auto entry = [](const std::string& fields) {
        return refusal(file_bytes("{\"a\":{" + fields + "}}", "x"));
    };
    REQUIRE(entry(R"("dtype":"U8","shape":[1],"data_offsets":[0,1])") == "accepted");
    check_contains(entry(R"("dtype":"U8","shape":[1])"), "exactly dtype, shape and data_offsets");
    check_contains(entry(R"("dtype":"U8","shape":[1],"offsets":[0,1])"), "exactly dtype");
    check_contains(entry(R"("dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1)"),
                   "exactly dtype");
    check_contains(entry(R"("dtype":"U9","shape":[1],"data_offsets":[0,1])"),
                   "unknown dtype \"U9\"");
    check_contains(entry(R"("dtype":8,"shape":[1],"data_offsets":[0,1])"), "unknown dtype 8");
    check_contains(entry(R"("dtype":"U8","shape":1,"data_offsets":[0,1])"), "shape must be");
    check_contains(entry(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])"), "whole numbers");
    check_contains(entry(R"("dtype":"U8","shape":[1.0],"data_offsets":[0,1])"), "whole numbers");
    check_contains(entry(R"("dtype":"U8","shape":[1e400],"data_offsets":[0,1])"), "JSON");
    check_contains(entry(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1])"),
                   "whole numbers");
    check_contains(entry(R"("dtype":"U8","shape":[1],"data_offsets":[0])"), "two whole numbers");
    check_contains(entry(R"("dtype":"U8","shape":[1],"data_offsets":["0",1])"), "whole numbers");
    check_contains(refusal(file_bytes(R"({"a":1})", "")), "exactly dtype");
}

TEST_CASE("safetensors: offsets that do not match shape times dtype are refused") {
    const auto tensor = [](const std::string& shape, const std::string& offsets) {
        return refusal(file_bytes(
            R"({"a":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
            "12345678"));
    };
    REQUIRE(tensor("[2]", "[0,8]") == "accepted");
    check_contains(tensor("[1]", "[0,8]"), "needs 4");
    check_contains(tensor("[2,2]", "[0,8]"), "needs 16");
    check_contains(tensor("[2]", "[8,0]"), "before they begin");
    // 2^62 · 4 · 4 bytes wraps around to 0, and must not pass for an empty tensor.
    check_contains(tensor("[4611686018427387904,4]", "[0,0]"), "more than 2^64");
}

TEST_CASE("safetensors: tensors out of range, overlapping, with a gap or a rest are refused") {
    const auto two = [](const std::string& first, const std::string& second,
                        std::string_view data) {
        return refusal(file_bytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + first +
                                      R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" +
                                      second + "}}",
                                  data));
    };
    REQUIRE(two("[0,2]", "[2,4]", "wxyz") == "accepted");
    REQUIRE(two("[2,4]", "[0,2]", "wxyz") == "accepted");
    check_contains(two("[0,2]", "[3,5]", "wxyz"), "out of range");
    check_contains(two("[0,2]", "[1,3]", "wxy"), "overlaps");
    check_contains(two("[0,2]", "[0,2]", "wx"), "overlaps");
    check_contains(two("[0,2]", "[3,5]", "vwxyz"), "gap");
    check_contains(two("[1,3]", "[3,5]", "vwxyz"), "gap");
    check_contains(two("[0,2]", "[2,4]", "vwxyz"), "no byte may belong to none");
    check_contains(refusal(file_bytes("{}", "x")), "no byte may belong to none");
}

TEST_CASE("safetensors: metadata that is not an object of strings is refused") {
    check_contains(refusal(file_bytes(R"({"__metadata__":[]})", "")), "object of strings");
    check_contains(refusal(file_bytes(R"({"__metadata__":{"n":1}})", "")), "must be a string");
}

TEST_CASE("safetensors: nothing is written of tensors that do not make a valid file") {
    const auto tensor = [](const std::string& name, const SafeTensor& value) {
        return write_refusal({.tensors = {{name, value}}, .metadata = {}});
    };
    check_contains(tensor("a", {.dtype = "U8", .shape = {2}, .data = bytes("x")}), "do not match");
    check_contains(tensor("a", {.dtype = "U8", .shape = {-1}, .data = bytes("x")}), "do not match");
    check_contains(tensor("a", {.dtype = "float", .shape = {}, .data = bytes("x")}),
                   "unknown dtype");
    check_contains(tensor("__metadata__", {.dtype = "U8", .shape = {}, .data = bytes("x")}),
                   "__metadata__");
    check_contains(tensor("\xff", {.dtype = "U8", .shape = {}, .data = bytes("x")}), "UTF-8");
    check_contains(write_refusal({.tensors = {}, .metadata = {{"a", "\xc3"}}}), "UTF-8");
}
