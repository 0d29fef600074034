#include "verification/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "backlight/error.hpp"

namespace backlight::verification {
namespace {

using nlohmann::json;

// Data and the length prefix are copied as they are.
static_assert(std::endian::native == std::endian::little);

constexpr std::string_view metadata_name = "__metadata__";
constexpr std::size_t prefix_bytes = 8;

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& rule) {
    throw Error(ErrorCode::file_error, path.string() + ": " + rule);
}

std::string in_quotes(std::string_view name) {
    std::string text(name);
    text.insert(text.begin(), '"');
    text.push_back('"');
    return text;
}

/// Where a tensor lies in the data section.
struct Entry {
    std::string name;
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
};

struct Header {
    std::vector<Entry> entries;
    std::map<std::string, std::string> metadata;
};

/// Bytes of a tensor, or nothing when the number does not fit.
std::optional<std::uint64_t> tensor_bytes(const std::vector<std::int64_t>& shape,
                                          std::size_t element_size) {
    std::uint64_t bytes = element_size;
    for (const std::int64_t extent : shape) {
        if (extent < 0 ||
            __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes)) {
            return std::nullopt;
        }
    }
    return bytes;
}

/// The JSON value of the header. nlohmann-json keeps the last of two equal names in silence, so
/// they are looked for while it parses.
json parse_json(const std::filesystem::path& path, const std::string& text) {
    // The root object holds tensors, and these hold arrays of numbers: nothing lies deeper.
    constexpr int deepest = 2;
    std::vector<std::set<std::string>> names;
    const auto watch = [&](int depth, json::parse_event_t event, json& value) {
        switch (event) {
            case json::parse_event_t::object_start:
            case json::parse_event_t::array_start:
                if (depth > deepest) {
                    fail(path, "the header nests JSON values deeper than the format does");
                }
                names.emplace_back();
                break;
            case json::parse_event_t::object_end:
            case json::parse_event_t::array_end:
                names.pop_back();
                break;
            case json::parse_event_t::key:
                if (!names.back().insert(value.get<std::string>()).second) {
                    fail(path, "the header has the name " + in_quotes(value.get<std::string>()) +
                                   " twice in one object");
                }
                break;
            case json::parse_event_t::value:
                break;
        }
        return true;
    };
    try {
        return json::parse(text, watch);
    } catch (const json::exception& error) {
        fail(path, std::string("the header is not valid JSON: ") + error.what());
    }
}

std::int64_t parse_number(const std::filesystem::path& path, const std::string& what,
                          const json& value) {
    if (!value.is_number_unsigned() ||
        value.get<std::uint64_t>() >
            static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        fail(path,
             what + " holds " + value.dump() + "; it must hold whole numbers from 0 to 2^63 - 1");
    }
    return value.get<std::int64_t>();
}

Entry parse_entry(const std::filesystem::path& path, const std::string& name, const json& value) {
    const std::string what = "tensor " + in_quotes(name);
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
        !value.contains("shape") || !value.contains("data_offsets")) {
        fail(path, what + " must be an object of exactly dtype, shape and data_offsets");
    }
    const json& dtype = value["dtype"];
    const json& shape = value["shape"];
    const json& offsets = value["data_offsets"];
    if (!dtype.is_string() || safetensors_element_size(dtype.get<std::string>()) == 0) {
        fail(path, what + " has the unknown dtype " + dtype.dump());
    }
    if (!shape.is_array()) {
        fail(path, what + ": shape must be an array of whole numbers");
    }
    if (!offsets.is_array() || offsets.size() != 2) {
        fail(path, what + ": data_offsets must be an array of two whole numbers");
    }

    Entry entry{.name = name, .dtype = dtype.get<std::string>(), .shape = {}};
    for (const json& extent : shape) {
        entry.shape.push_back(parse_number(path, what + ": shape", extent));
    }
    entry.begin =
        static_cast<std::uint64_t>(parse_number(path, what + ": data_offsets", offsets[0]));
    entry.end = static_cast<std::uint64_t>(parse_number(path, what + ": data_offsets", offsets[1]));
    if (entry.begin > entry.end) {
        fail(path, what + ": data_offsets end at " + std::to_string(entry.end) +
                       ", before they begin at " + std::to_string(entry.begin));
    }
    const auto bytes = tensor_bytes(entry.shape, safetensors_element_size(entry.dtype));
    if (!bytes || *bytes != entry.end - entry.begin) {
        fail(path, what + ": data_offsets span " + std::to_string(entry.end - entry.begin) +
                       " bytes; shape " + shape.dump() + " of " + entry.dtype + " needs " +
                       (bytes ? std::to_string(*bytes) : "more than 2^64"));
    }
    return entry;
}

std::map<std::string, std::string> parse_metadata(const std::filesystem::path& path,
                                                  const json& value) {
    std::map<std::string, std::string> metadata;
    if (!value.is_object()) {
        fail(path, "__metadata__ must be an object of strings");
    }
    for (const auto& [name, text] : value.items()) {
        if (!text.is_string()) {
            fail(path, "__metadata__ " + in_quotes(name) + " must be a string");
        }
        metadata.emplace(name, text.get<std::string>());
    }
    return metadata;
}

/// The tensors must tile the data section, without overlap, gap or rest (the format demands it, so
/// that a file cannot hide data).
void check_layout(const std::filesystem::path& path, std::vector<Entry>& entries,
                  std::uint64_t data_bytes) {
    std::ranges::sort(entries, {}, [](const Entry& e) { return std::tuple(e.begin, e.end); });
    std::uint64_t covered = 0;
    for (const Entry& entry : entries) {
        const std::string what = "tensor " + in_quotes(entry.name) + " lies at bytes " +
                                 std::to_string(entry.begin) + " to " + std::to_string(entry.end) +
                                 " of the data";
        if (entry.end > data_bytes) {
            fail(path, what + ", but the file ends after " + std::to_string(data_bytes) +
                           ": it is truncated or the offsets are out of range");
        }
        if (entry.begin < covered) {
            fail(path,
                 what + ", which overlaps the tensor that ends at " + std::to_string(covered));
        }
        if (entry.begin > covered) {
            fail(path, what + ", which leaves a gap after " + std::to_string(covered));
        }
        covered = entry.end;
    }
    if (covered != data_bytes) {
        fail(path, "the tensors end after " + std::to_string(covered) + " of " +
                       std::to_string(data_bytes) + " bytes of data; no byte may belong to none");
    }
}

Header parse_header(const std::filesystem::path& path, const std::string& text,
                    std::uint64_t data_bytes) {
    if (!text.starts_with('{')) {
        fail(path, "the header must begin with '{'");
    }
    const json root = parse_json(path, text);
    Header header;
    for (const auto& [name, value] : root.items()) {
        if (name == metadata_name) {
            header.metadata = parse_metadata(path, value);
        } else {
            header.entries.push_back(parse_entry(path, name, value));
        }
    }
    check_layout(path, header.entries, data_bytes);
    return header;
}

void read_bytes(const std::filesystem::path& path, std::ifstream& stream, void* target,
                std::uint64_t bytes) {
    if (!stream.read(static_cast<char*>(target), static_cast<std::streamsize>(bytes))) {
        fail(path, "could not be read to its end");
    }
}

/// The header's text, padded so that the data that follows it begins at a multiple of 8 bytes.
std::string header_text(const std::filesystem::path& path,
                        const std::vector<std::pair<std::string, const SafeTensor*>>& tensors,
                        const std::map<std::string, std::string>& metadata) {
    // Ordered, so that a reader sees the tensors in the order of their data.
    nlohmann::ordered_json root = nlohmann::ordered_json::object();
    if (!metadata.empty()) {
        root[std::string(metadata_name)] = metadata;
    }
    std::uint64_t offset = 0;
    for (const auto& [name, tensor] : tensors) {
        root[name] = {{"dtype", tensor->dtype},
                      {"shape", tensor->shape},
                      {"data_offsets", {offset, offset + tensor->data.size()}}};
        offset += tensor->data.size();
    }
    std::string text;
    try {
        text = root.dump();
    } catch (const nlohmann::ordered_json::exception& error) {
        fail(path, std::string("a name or text is not valid UTF-8: ") + error.what());
    }
    text.resize((text.size() + 7) / 8 * 8, ' ');
    if (text.size() > safetensors_header_limit) {
        fail(path, "the header would take " + std::to_string(text.size()) +
                       " bytes; at most 100000000 are allowed");
    }
    return text;
}

void check_tensor(const std::filesystem::path& path, const std::string& name,
                  const SafeTensor& tensor) {
    const std::string what = "tensor " + in_quotes(name);
    if (name == metadata_name) {
        fail(path, "no tensor may be called __metadata__");
    }
    const std::size_t element_size = safetensors_element_size(tensor.dtype);
    if (element_size == 0) {
        fail(path, what + " has the unknown dtype " + in_quotes(tensor.dtype));
    }
    const auto bytes = tensor_bytes(tensor.shape, element_size);
    if (!bytes || *bytes != tensor.data.size()) {
        fail(path, what + " has " + std::to_string(tensor.data.size()) +
                       " bytes of data, which do not match its shape and dtype");
    }
}

}  // namespace

std::size_t safetensors_element_size(std::string_view dtype) noexcept {
    constexpr std::array<std::pair<std::string_view, std::size_t>, 17> sizes{{
        {"BOOL", 1},
        {"U8", 1},
        {"I8", 1},
        {"F8_E4M3", 1},
        {"F8_E5M2", 1},
        {"F8_E8M0", 1},
        {"I16", 2},
        {"U16", 2},
        {"F16", 2},
        {"BF16", 2},
        {"I32", 4},
        {"U32", 4},
        {"F32", 4},
        {"F64", 8},
        {"I64", 8},
        {"U64", 8},
        {"C64", 8},
    }};
    const auto* found =
        std::ranges::find(sizes, dtype, [](const auto& size) { return size.first; });
    return found == sizes.end() ? 0 : found->second;
}

SafetensorsFile read_safetensors(const std::filesystem::path& path) {
    std::error_code code;
    const std::uint64_t file_bytes = std::filesystem::file_size(path, code);
    if (code) {
        fail(path, "cannot be read: " + code.message());
    }
    std::ifstream stream(path, std::ios::binary);
    if (!stream) {
        fail(path, "cannot be opened for reading");
    }
    if (file_bytes < prefix_bytes) {
        fail(path, "the file has " + std::to_string(file_bytes) +
                       " bytes; the length of the header alone takes 8: it is truncated");
    }
    std::uint64_t header_bytes = 0;
    read_bytes(path, stream, &header_bytes, prefix_bytes);
    // Before anything is allocated: the number may be anything.
    if (header_bytes > safetensors_header_limit) {
        fail(path, "the header claims " + std::to_string(header_bytes) +
                       " bytes; at most 100000000 are allowed");
    }
    if (header_bytes > file_bytes - prefix_bytes) {
        fail(path, "the header claims " + std::to_string(header_bytes) + " bytes, but only " +
                       std::to_string(file_bytes - prefix_bytes) +
                       " follow its length: the file is truncated");
    }
    std::string text(header_bytes, '\0');
    read_bytes(path, stream, text.data(), header_bytes);

    Header header = parse_header(path, text, file_bytes - prefix_bytes - header_bytes);
    SafetensorsFile file{.tensors = {}, .metadata = std::move(header.metadata)};
    // In the order of their data, which has no gaps: the stream never needs to seek.
    for (Entry& entry : header.entries) {
        SafeTensor& tensor = file.tensors[entry.name];
        tensor.dtype = std::move(entry.dtype);
        tensor.shape = std::move(entry.shape);
        tensor.data.resize(entry.end - entry.begin);
        read_bytes(path, stream, tensor.data.data(), tensor.data.size());
    }
    return file;
}

void write_safetensors(const std::filesystem::path& path, const SafetensorsFile& file) {
    std::vector<std::pair<std::string, const SafeTensor*>> tensors;
    for (const auto& [name, tensor] : file.tensors) {
        check_tensor(path, name, tensor);
        tensors.emplace_back(name, &tensor);
    }
    // Wide elements first, so that each tensor is aligned to its own element.
    std::ranges::stable_sort(tensors, std::greater{}, [](const auto& entry) {
        return safetensors_element_size(entry.second->dtype);
    });
    const std::string text = header_text(path, tensors, file.metadata);

    // Beside its place first: a file that is there now is not lost to a full disk. A pipe or a
    // device is written to as it is.
    std::error_code failure;
    const bool in_place =
        std::filesystem::exists(path, failure) && !std::filesystem::is_regular_file(path, failure);
    const std::filesystem::path target =
        in_place ? path : std::filesystem::path(path.string() + ".partial");
    std::ofstream stream(target, std::ios::binary | std::ios::trunc);
    if (!stream) {
        fail(path, "cannot be opened for writing");
    }
    const std::uint64_t header_bytes = text.size();
    stream.write(reinterpret_cast<const char*>(&header_bytes), prefix_bytes);
    stream.write(text.data(), static_cast<std::streamsize>(text.size()));
    for (const auto& [name, tensor] : tensors) {
        stream.write(reinterpret_cast<const char*>(tensor->data.data()),
                     static_cast<std::streamsize>(tensor->data.size()));
    }
    stream.close();
    failure.clear();
    if (stream && !in_place) {
        std::filesystem::rename(target, path, failure);
    }
    if (!stream || failure) {
        if (!in_place) {
            std::error_code ignored;
            std::filesystem::remove(target, ignored);
        }
        fail(path, "could not be written to its end");
    }
}

}  // namespace backlight::verification
