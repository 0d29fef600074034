#include "emulation/matrix_descriptor.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "half_types.hpp"

using backlight::DataType;
using backlight::to_bits;
using namespace backlight::emulation;
using backlight::tensor_map::Swizzle;

namespace {

// The two highest bits of a descriptor.
constexpr std::uint64_t mode_none = 0;
constexpr std::uint64_t mode_128 = 1;
constexpr std::uint64_t mode_64 = 2;
constexpr std::uint64_t mode_32 = 3;

std::uint64_t bits_of(std::uint32_t start, std::uint32_t leading, std::uint32_t stride,
                      std::uint64_t mode, std::uint64_t base_offset = 0) {
    return std::uint64_t{start >> 4} | (std::uint64_t{leading >> 4} << 16) |
           (std::uint64_t{stride >> 4} << 32) | (base_offset << 49) | (mode << 62);
}

constexpr int width_of(std::uint64_t mode) {
    return mode == mode_128 ? 128 : mode == mode_64 ? 64 : 32;
}

/// The 16-byte chunk where a swizzle puts chunk `chunk` of row `row` of a tile whose pattern starts
/// with its row 0.
int permuted(std::uint64_t mode, int row, int chunk) {
    switch (mode) {
        case mode_128:
            return chunk ^ (row % 8);
        case mode_64:
            return chunk ^ (row / 2 % 4);
        case mode_32:
            return chunk ^ (row / 4 % 2);
        default:
            return chunk;
    }
}

/// An operand in shared memory, by the pictures of the layouts: core matrices of 8 rows of 16 bytes
/// side by side without a swizzle, 8 rows of the swizzle's width with one. `first_k` is where, in a
/// K-major row of the swizzle, the operand begins.
int laid_out(std::uint64_t mode, Major major, int leading, int stride, int outer, int k,
             int first_k = 0) {
    if (mode == mode_none) {
        const int row = major == Major::k ? outer % 8 : k % 8;
        const int column = major == Major::k ? k % 8 : outer % 8;
        return outer / 8 * stride + k / 8 * leading + row * 16 + column * 2;
    }
    const int width = width_of(mode);
    if (major == Major::k) {
        const int row = outer % 8;
        const int column = first_k + k;
        return outer / 8 * stride + row * width + permuted(mode, row, column / 8) * 16 +
               column % 8 * 2;
    }
    const int row = k % 8;
    const int column = outer % (width / 2);
    return outer / (width / 2) * leading + k / 8 * stride + row * width +
           permuted(mode, row, column / 8) * 16 + column % 8 * 2;
}

constexpr std::uint32_t window_base = 2048;

struct Memory {
    std::vector<std::byte> bytes = std::vector<std::byte>(std::size_t{100} * 1024);
    SharedWindow window{.base = window_base, .bytes = bytes};
};

/// A number of its own for each of many neighbouring elements, exact in fp16.
float code(int outer, int k) {
    return static_cast<float>((outer * 16 + k) % 2039);
}

void put(Memory& memory, std::uint32_t address, float value) {
    const std::uint16_t bits = to_bits(DataType::fp16, static_cast<double>(value));
    std::memcpy(memory.window.at(address), &bits, sizeof(bits));
}

struct Offsets {
    int leading;
    int stride;
};

/// Dense and with gaps, along each of the two directions.
std::vector<Offsets> offsets_of(std::uint64_t mode, Major major, int outer) {
    if (mode == mode_none) {
        return {{.leading = 128, .stride = 256},
                {.leading = outer / 8 * 128, .stride = 128},
                {.leading = 48 * 1024, .stride = 1040}};
    }
    const int pattern = 8 * width_of(mode);
    if (major == Major::k) {
        return {{.leading = 16, .stride = pattern}, {.leading = 0, .stride = 3 * pattern}};
    }
    const int atoms = (2 * outer + width_of(mode) - 1) / width_of(mode);
    return {{.leading = pattern, .stride = atoms * pattern},
            {.leading = 2 * pattern, .stride = pattern},
            {.leading = 3 * pattern, .stride = 48 * 1024}};
}

/// Lays an operand out by hand, and finds every element by its address and in the fetched matrix.
void check_operand(std::uint64_t mode, Major major, int outer, const Offsets& offsets) {
    CAPTURE(mode);
    CAPTURE((major == Major::k));
    CAPTURE(outer);
    CAPTURE(offsets.leading);
    CAPTURE(offsets.stride);
    Memory memory;
    const std::uint64_t bits = bits_of(window_base, static_cast<std::uint32_t>(offsets.leading),
                                       static_cast<std::uint32_t>(offsets.stride), mode);
    const MatrixDescriptor descriptor = decode_descriptor(bits);
    REQUIRE(validate_descriptor(bits, major, outer, memory.window, "B") == "");
    int wrong_addresses = 0;
    for (int i = 0; i < outer; ++i) {
        for (int k = 0; k < 16; ++k) {
            const auto address = static_cast<std::uint32_t>(
                window_base + laid_out(mode, major, offsets.leading, offsets.stride, i, k));
            wrong_addresses += element_address(descriptor, major, i, k) == address ? 0 : 1;
            put(memory, address, code(i, k));
        }
    }
    CHECK(wrong_addresses == 0);

    WgmmaMatrixB b{};
    fetch_b(DataType::fp16, descriptor, major, outer, memory.window, b);
    int wrong_values = 0;
    for (std::size_t i = 0; i < wgmma_n_limit; ++i) {
        for (std::size_t k = 0; k < 16; ++k) {
            const float expected =
                static_cast<int>(i) < outer ? code(static_cast<int>(i), static_cast<int>(k)) : 0.0F;
            wrong_values += b[k][i] == expected ? 0 : 1;
        }
    }
    CHECK(wrong_values == 0);
    if (outer == wgmma_m) {
        const WgmmaMatrixA a = fetch_a(DataType::fp16, descriptor, major, memory.window);
        for (std::size_t i = 0; i < wgmma_m; ++i) {
            for (std::size_t k = 0; k < 16; ++k) {
                const float expected = code(static_cast<int>(i), static_cast<int>(k));
                wrong_values += a[i][k] == expected ? 0 : 1;
            }
        }
        CHECK(wrong_values == 0);
    }
}

void check_refused(const std::string& text, std::initializer_list<std::string_view> fragments) {
    for (const std::string_view fragment : fragments) {
        CAPTURE(text);
        CAPTURE(fragment);
        CHECK(text.find(fragment) != std::string::npos);
    }
}

}  // namespace

TEST_CASE("a matrix descriptor is decoded field by field") {
    const MatrixDescriptor descriptor = decode_descriptor(bits_of(0x3fff0, 0x3a340, 0x2aab0, 2, 5));
    CHECK(descriptor.start_address == 0x3fff0);
    CHECK(descriptor.leading_offset == 0x3a340);
    CHECK(descriptor.stride_offset == 0x2aab0);
    CHECK(descriptor.base_offset == 5);
    CHECK(descriptor.swizzle == Swizzle::bytes_64);
    CHECK(decode_descriptor(bits_of(0, 0, 0, 0)).swizzle == Swizzle::none);
    CHECK(decode_descriptor(bits_of(0, 0, 0, 1)).swizzle == Swizzle::bytes_128);
    CHECK(decode_descriptor(bits_of(0, 0, 0, 3)).swizzle == Swizzle::bytes_32);
}

TEST_CASE("operands of every major and swizzle are read where their layout puts them") {
    for (const std::uint64_t mode : {mode_none, mode_128, mode_64, mode_32}) {
        for (const Major major : {Major::k, Major::mn}) {
            for (const int outer : {8, 64, 96, 256}) {
                for (const Offsets& offsets : offsets_of(mode, major, outer)) {
                    check_operand(mode, major, outer, offsets);
                }
            }
        }
    }
}

TEST_CASE("a K-major operand advances inside a swizzled row by moving the start address") {
    for (const std::uint64_t mode : {mode_128, mode_64, mode_32}) {
        const int width = width_of(mode);
        for (int first_k = 0; first_k < width / 2; first_k += 16) {
            Memory memory;
            const std::uint64_t bits =
                bits_of(window_base + static_cast<std::uint32_t>(first_k) * 2, 16,
                        static_cast<std::uint32_t>(8 * width), mode);
            CHECK(validate_descriptor(bits, Major::k, 64, memory.window, "A") == "");
            for (int i = 0; i < 64; ++i) {
                for (int k = 0; k < 16; ++k) {
                    CHECK(element_address(decode_descriptor(bits), Major::k, i, k) ==
                          window_base + static_cast<std::uint32_t>(
                                            laid_out(mode, Major::k, 0, 8 * width, i, k, first_k)));
                }
            }
        }
    }
}

TEST_CASE("elements lie where an H200 reads them") {
    // Read back from hardware: with shared memory numbered through and A the identity, wgmma's
    // accumulators are the numbers it read. Addresses relative to a 1024-byte boundary, for k = 0
    // and 9, each for columns 1, 10, 37 and 127 of B.
    struct Measured {
        Major major;
        std::uint32_t mode;
        std::uint32_t base_offset;
        std::uint32_t start;
        std::uint32_t leading;
        std::uint32_t stride;
        std::array<std::uint32_t, 8> addresses;
    };
    static constexpr Measured measured[] = {
        {Major::k, 0, 0, 0, 4096, 256, {16, 288, 1104, 3952, 4114, 4386, 5202, 8050}},
        {Major::k, 0, 0, 0, 4096, 176, {16, 208, 784, 2752, 4114, 4306, 4882, 6850}},
        {Major::mn, 0, 0, 0, 4096, 128, {2, 132, 522, 1934, 4114, 4244, 4634, 6046}},
        {Major::mn, 0, 0, 2048, 256, 512, {2050, 2564, 4106, 9742, 2322, 2836, 4378, 10014}},
        {Major::k, 1, 0, 0, 4096, 1024, {144, 1312, 4816, 16368, 130, 1330, 4802, 16354}},
        {Major::k, 1, 0, 0, 4096, 1280, {144, 1600, 5840, 20176, 130, 1618, 5826, 20162}},
        {Major::k, 1, 0, 8288, 16, 1024, {8432, 9536, 12976, 24464, 8418, 9554, 12962, 24450}},
        {Major::mn, 1, 0, 0, 2048, 1024, {2, 20, 74, 2174, 1170, 1156, 1242, 3310}},
        {Major::mn, 1, 0, 2048, 1024, 16384, {2050, 2068, 2122, 3198, 18578, 18564, 18650, 19694}},
        {Major::k, 1, 3, 384, 2048, 1024, {528, 1696, 5200, 16752, 514, 1714, 5186, 16738}},
        {Major::mn, 1, 3, 384, 2048, 1024, {386, 404, 458, 2558, 1554, 1540, 1626, 3694}},
        {Major::k, 2, 0, 0, 4096, 768, {64, 944, 3424, 11984, 82, 930, 3442, 11970}},
        {Major::k, 2, 0, 8224, 16, 512, {8288, 8880, 10560, 16336, 8306, 8866, 10578, 16322}},
        {Major::mn, 2, 0, 0, 1024, 512, {2, 20, 1034, 3134, 578, 596, 1610, 3710}},
        {Major::k, 2, 3, 384, 1024, 512, {448, 1040, 2784, 8560, 466, 1026, 2802, 8546}},
        {Major::mn, 2, 3, 384, 1024, 512, {386, 404, 1418, 3518, 962, 980, 1994, 4094}},
        {Major::k, 3, 0, 0, 16, 512, {32, 576, 2224, 7920, 50, 594, 2210, 7906}},
        {Major::mn, 3, 0, 2048, 256, 16384, {2050, 2068, 2570, 3870, 18466, 18484, 18986, 20286}},
        {Major::k, 3, 3, 384, 512, 256, {416, 704, 1584, 4464, 434, 722, 1570, 4450}},
        {Major::mn, 3, 3, 384, 512, 256, {386, 404, 1418, 3998, 674, 692, 1706, 4286}},
    };
    for (const Measured& m : measured) {
        const MatrixDescriptor descriptor = decode_descriptor(
            bits_of(window_base + m.start, m.leading, m.stride, m.mode, m.base_offset));
        std::size_t next = 0;
        for (const int k : {0, 9}) {
            for (const int outer : {1, 10, 37, 127}) {
                CAPTURE(m.mode);
                CAPTURE(m.start);
                CAPTURE(k);
                CAPTURE(outer);
                CHECK(element_address(descriptor, m.major, outer, k) - window_base ==
                      m.addresses[next++]);
            }
        }
    }
}

TEST_CASE("the pieces of an operand are its elements in groups of eight") {
    for (const Major major : {Major::k, Major::mn}) {
        const MatrixDescriptor descriptor =
            decode_descriptor(bits_of(window_base, 8192, 1024, mode_128));
        const std::vector<std::uint32_t> pieces = piece_addresses(descriptor, major, 128);
        CHECK(pieces.size() == 256);
        std::set<std::uint32_t> expected;
        for (int i = 0; i < 128; ++i) {
            for (int k = 0; k < 16; ++k) {
                expected.insert(element_address(descriptor, major, i, k) / 16 * 16);
            }
        }
        CHECK(std::set<std::uint32_t>(pieces.begin(), pieces.end()) == expected);
    }
}

TEST_CASE("a descriptor with reserved bits is refused by their name") {
    const Memory memory;
    const std::uint64_t valid = bits_of(window_base, 16, 1024, mode_128);
    CHECK(validate_descriptor(valid, Major::k, 64, memory.window, "A") == "");
    for (const int bit : {14, 15, 30, 31, 46, 48, 52, 61}) {
        check_refused(validate_descriptor(valid | (std::uint64_t{1} << bit), Major::k, 64,
                                          memory.window, "A"),
                      {"of A", "reserved bits", "must be zero"});
    }
}

TEST_CASE("a descriptor that starts inside a swizzle pattern needs the base offset that says so") {
    const Memory memory;
    for (const std::uint64_t mode : {mode_128, mode_64, mode_32}) {
        const auto pattern = static_cast<std::uint32_t>(8 * width_of(mode));
        const std::uint32_t start = window_base + pattern + 128;
        for (const Major major : {Major::k, Major::mn}) {
            const auto validate = [&](std::uint64_t base_offset) {
                return validate_descriptor(bits_of(start, 2 * pattern, pattern, mode, base_offset),
                                           major, 8, memory.window, "B");
            };
            const std::uint32_t right = (start >> 7) & 7;
            CHECK(validate(right) == "");
            check_refused(validate((right + 7) % 8),
                          {"of B", "start address is", "base offset", "repeats every"});
        }
    }
    // Row 1 of a pattern of rows narrower than 128 bytes: no base offset can say that.
    check_refused(validate_descriptor(bits_of(window_base + 64, 16, 512, mode_64), Major::k, 8,
                                      memory.window, "B"),
                  {"start address is 0x840", "64-byte swizzle"});
    check_refused(validate_descriptor(bits_of(window_base, 128, 256, mode_none, 1), Major::k, 64,
                                      memory.window, "A"),
                  {"base offset is 1", "must be 0"});
}

TEST_CASE("a descriptor whose operand leaves its swizzled row is refused") {
    const Memory memory;
    const auto validate = [&](std::uint32_t start, Major major, int outer) {
        return validate_descriptor(bits_of(start, 4096, 1024, mode_128), major, outer,
                                   memory.window, "A");
    };
    CHECK(validate(window_base + 96, Major::k, 64) == "");
    check_refused(validate(window_base + 112, Major::k, 64), {"112 bytes into a row", "must end"});
    CHECK(validate(window_base + 112, Major::mn, 8) == "");
    check_refused(validate(window_base + 112, Major::mn, 16), {"112 bytes into a row", "must end"});
}

TEST_CASE("a descriptor that reaches beyond shared memory or over itself is refused") {
    Memory memory;
    const std::uint32_t end = window_base + static_cast<std::uint32_t>(memory.bytes.size());
    const auto validate = [&](std::uint32_t start, std::uint32_t leading, std::uint32_t stride,
                              Major major, int outer) {
        return validate_descriptor(bits_of(start, leading, stride, mode_128), major, outer,
                                   memory.window, "B");
    };
    CHECK(validate(end - 8192, 16, 1024, Major::k, 64) == "");
    check_refused(validate(end - 8192, 16, 1024, Major::k, 72), {"(64, k = 0)", "shared memory"});
    check_refused(validate(window_base - 1024, 16, 1024, Major::k, 64), {"(0, k = 0)"});
    check_refused(validate(end - 4096, 4096, 1024, Major::mn, 128), {"(64, k = 0)"});

    check_refused(validate(window_base, 16, 512, Major::k, 64), {"stride offset 512", "overlap"});
    check_refused(validate(window_base, 16, 0, Major::k, 16), {"stride offset 0", "overlap"});
    CHECK(validate(window_base, 16, 0, Major::k, 8) == "");
    check_refused(validate(window_base, 1024, 1024, Major::mn, 128), {"leading offset 1024"});
    CHECK(validate(window_base, 0, 1024, Major::mn, 64) == "");
}
