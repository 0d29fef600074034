#include "verification/accuracy.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "backlight/error.hpp"

using backlight::Error;
using backlight::verification::Accuracy;
using backlight::verification::ElementIndex;
using backlight::verification::measure_accuracy;
using backlight::verification::RowIndex;
using backlight::verification::TensorShape;

namespace {

constexpr TensorShape shape{.batch = 2, .heads = 3, .rows = 50, .columns = 8};
constexpr std::size_t elements = std::size_t{2} * 3 * 50 * 8;

/// Values of about 1 that floats hold exactly.
std::vector<float> some_values() {
    std::vector<float> values(elements);
    for (std::size_t i = 0; i < elements; ++i) {
        values[i] = (i % 2 == 0 ? 1.0F : -1.0F) * (1.0F + static_cast<float>(i % 7) / 8);
    }
    return values;
}

Accuracy measure(const std::vector<float>& actual, const std::vector<float>& reference,
                 double minimum_rms = 0) {
    return measure_accuracy(actual, std::span<const float>(reference), shape,
                            {.minimum_rms = minimum_rms});
}

std::size_t offset(std::size_t batch, std::size_t head, std::size_t row, std::size_t column) {
    return ((batch * 3 + head) * 50 + row) * 8 + column;
}

}  // namespace

TEST_CASE("an exact tensor has no error, against floats and against doubles") {
    const std::vector<float> values = some_values();
    const std::vector<double> doubles(values.begin(), values.end());
    for (const Accuracy& accuracy :
         {measure(values, values),
          measure_accuracy(values, std::span<const double>(doubles), shape)}) {
        CHECK(accuracy.finite);
        CHECK_FALSE(accuracy.first_non_finite);
        CHECK(accuracy.relative_l2 == 0);
        CHECK(accuracy.worst_row == 0);
    }
}

TEST_CASE("a double reference is not rounded to float before it is compared") {
    const std::vector<float> actual(elements, 1.0F);
    const std::vector<double> reference(elements, 1.0 + 1e-9);
    CHECK(measure_accuracy(actual, std::span<const double>(reference), shape).relative_l2 ==
          doctest::Approx(1e-9).epsilon(1e-3));
}

TEST_CASE("a uniform relative error is the relative L2 and that of every row") {
    const std::vector<float> reference = some_values();
    std::vector<float> actual = reference;
    for (float& value : actual) {
        value *= 1.0F + 0x1p-10F;
    }
    const Accuracy accuracy = measure(actual, reference);
    CHECK(accuracy.relative_l2 == doctest::Approx(0x1p-10));
    CHECK(accuracy.worst_row == doctest::Approx(0x1p-10));
}

TEST_CASE("one bad row is found and named though the tensor's relative L2 is small") {
    const std::vector<float> reference = some_values();
    std::vector<float> actual = reference;
    for (std::size_t column = 0; column < 8; ++column) {
        actual[offset(1, 2, 17, column)] *= 1.125F;
    }
    const Accuracy accuracy = measure(actual, reference);
    CHECK(accuracy.relative_l2 < 0.01);
    CHECK(accuracy.worst_row == doctest::Approx(0.125));
    CHECK(accuracy.worst_row_index == RowIndex{.batch = 1, .head = 2, .row = 17});
    CHECK(to_string(accuracy).find("1.2e-01 at (batch 1, head 2, row 17)") != std::string::npos);
}

TEST_CASE("a NaN or infinity is reported with its place, and no tolerance accepts it") {
    const std::vector<float> reference = some_values();
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        std::vector<float> actual = reference;
        actual[offset(1, 0, 3, 5)] = bad;
        actual[offset(1, 2, 0, 0)] = bad;
        const Accuracy accuracy = measure(actual, reference);
        CHECK_FALSE(accuracy.finite);
        REQUIRE(accuracy.first_non_finite);
        CHECK(*accuracy.first_non_finite ==
              ElementIndex{.batch = 1, .head = 0, .row = 3, .column = 5});
        CHECK(accuracy.relative_l2 > 1e30);
        CHECK(accuracy.worst_row > 1e30);
        CHECK(to_string(accuracy) == "not finite, first at (batch 1, head 0, row 3, column 5)");
    }
}

TEST_CASE("a reference that is not finite is reported too, even where the tensor agrees") {
    std::vector<float> values = some_values();
    values[offset(0, 1, 0, 0)] = std::numeric_limits<float>::infinity();
    CHECK_FALSE(measure(values, values).finite);
    CHECK_FALSE(measure(some_values(), values).finite);
}

TEST_CASE("a row that is tiny in the reference is measured against a floor") {
    std::vector<float> reference = some_values();
    for (std::size_t column = 0; column < 8; ++column) {
        reference[offset(0, 0, 4, column)] = 1e-12F;
    }
    std::vector<float> actual = reference;
    for (std::size_t column = 0; column < 8; ++column) {
        actual[offset(0, 0, 4, column)] = 1e-6F;
    }
    const Accuracy accuracy = measure(actual, reference);
    CHECK(accuracy.worst_row_index == RowIndex{.batch = 0, .head = 0, .row = 4});
    // Against its own norm the error would be a million.
    CHECK(accuracy.worst_row > 1e-5);
    CHECK(accuracy.worst_row < 1e-4);
}

TEST_CASE("against a zero reference only zero is right, unless a least size is given") {
    const std::vector<float> zero(elements, 0.0F);
    const std::vector<float> small(elements, 1e-6F);
    CHECK(measure(zero, zero).relative_l2 == 0);
    CHECK(measure(zero, zero).worst_row == 0);
    CHECK(std::isinf(measure(small, zero).relative_l2));
    CHECK(std::isinf(measure(small, zero).worst_row));
    CHECK(measure(small, zero, 1e-3).relative_l2 == doctest::Approx(1e-3));
    CHECK(measure(small, zero, 1e-3).worst_row == doctest::Approx(1e-3));
}

TEST_CASE("a tensor that does not fit the shape is refused") {
    const std::vector<float> values = some_values();
    const std::vector<float> shorter(values.begin(), values.end() - 1);
    CHECK_THROWS_AS(measure(shorter, values), Error);
    CHECK_THROWS_AS(measure(values, shorter), Error);
    CHECK_THROWS_AS(measure_accuracy(values, std::span<const float>(values),
                                     {.rows = -1, .columns = -static_cast<int>(elements)}),
                    Error);
}
