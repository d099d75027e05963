#include "data/nested_tensor.h"

#include <gradus/core/error.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gradus::data {
namespace {

struct Leaves {
  std::vector<double> numbers;
  std::vector<int64_t> integers;
  bool any_float = false;
  bool all_bool = true;
};

std::vector<int64_t> shape_of(const nlohmann::ordered_json& value) {
  std::vector<int64_t> shape;
  for (const auto* level = &value; level->is_array(); level = &level->front()) {
    shape.push_back(static_cast<int64_t>(level->size()));
    if (level->empty()) break;
  }
  return shape;
}

void collect(const nlohmann::ordered_json& value, std::span<const int64_t> shape, Leaves& leaves) {
  if (shape.empty()) {
    if (!value.is_number() && !value.is_boolean()) {
      throw Error(
          "G-DATA-2", ErrorKind::data,
          fmt::format("a nested value holds {}, expected numbers",
                      value.is_array() ? "lists of differing depth" : value.type_name()),
          "Only lists of numbers can become a tensor. Remove the column or convert it with map().");
    }
    leaves.any_float |= value.is_number_float();
    leaves.all_bool &= value.is_boolean();
    leaves.integers.push_back(value.is_boolean()        ? value.get<bool>()
                              : value.is_number_float() ? 0
                                                        : value.get<int64_t>());
    leaves.numbers.push_back(value.is_boolean() ? value.get<bool>() : value.get<double>());
    return;
  }
  if (!value.is_array() || static_cast<int64_t>(value.size()) != shape.front()) {
    throw Error(
        "G-DATA-7", ErrorKind::data,
        fmt::format("nested lists differ in length: expected {}, received {}", shape.front(),
                    value.is_array() ? fmt::format("{}", value.size()) : value.type_name()),
        "Pad the column to one length with map(), or use a collator that pads.");
  }
  for (const auto& item : value) collect(item, shape.subspan(1), leaves);
}

}  // namespace

torch::Tensor nested_tensor(const nlohmann::ordered_json& value) {
  const auto shape = shape_of(value);
  Leaves leaves;
  collect(value, shape, leaves);
  if (leaves.any_float || leaves.numbers.empty()) {
    auto result = at::empty(shape, at::kFloat);
    std::copy(leaves.numbers.begin(), leaves.numbers.end(), result.data_ptr<float>());
    return result;
  }
  auto result = at::empty(shape, at::kLong);
  std::copy(leaves.integers.begin(), leaves.integers.end(), result.data_ptr<int64_t>());
  return leaves.all_bool ? result.to(at::kBool) : result;
}

}  // namespace gradus::data
