#pragma once

#include <torch/types.h>

#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace gradus {

/// One cell of a data set: null, tensor, int, float, bool, text, a list of one of int/float/text,
/// or nested JSON (lists of lists, structs, chat messages).
class Value {
 public:
  using Ints = std::vector<int64_t>;
  using Floats = std::vector<double>;
  using Strings = std::vector<std::string>;

  Value() = default;  // null
  Value(std::nullptr_t) {}
  Value(bool value) : value_(value) {}
  Value(int value) : value_(int64_t{value}) {}
  Value(int64_t value) : value_(value) {}
  Value(double value) : value_(value) {}
  Value(const char* value) : value_(std::string(value)) {}
  Value(std::string value) : value_(std::move(value)) {}
  Value(torch::Tensor value) : value_(std::move(value)) {}
  Value(Ints value) : value_(std::move(value)) {}
  Value(Floats value) : value_(std::move(value)) {}
  Value(Strings value) : value_(std::move(value)) {}
  static Value nested(nlohmann::json value);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  bool is_double() const { return std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_tensor() const { return std::holds_alternative<torch::Tensor>(value_); }
  bool is_ints() const { return std::holds_alternative<Ints>(value_); }
  bool is_floats() const { return std::holds_alternative<Floats>(value_); }
  bool is_strings() const { return std::holds_alternative<Strings>(value_); }
  bool is_nested() const { return std::holds_alternative<Nested>(value_); }

  /// Typed access; throws `Error` G-DATA-2 naming the type found and the one asked for.
  bool boolean() const;
  int64_t integer() const;  ///< also from a bool
  double number() const;    ///< also from an int
  const std::string& str() const;
  const torch::Tensor& tensor() const;
  const Ints& ints() const;
  const Floats& floats() const;
  const Strings& strings() const;
  const nlohmann::json& json() const;  ///< of a nested value

  /// A number, list or tensor as a tensor (int64, float32 for floats, bool); throws G-DATA-2 for
  /// text and null.
  torch::Tensor to_tensor() const;
  /// "int", "list of int", "text", "tensor" …
  std::string type_name() const;

 private:
  using Nested = std::shared_ptr<const nlohmann::json>;
  std::variant<std::monostate, bool, int64_t, double, std::string, torch::Tensor, Ints, Floats,
               Strings, Nested>
      value_;
};

/// One row of a data set: an ordered map from column name to value.
class Example {
 public:
  using Entry = std::pair<std::string, Value>;

  Example() = default;
  Example(std::initializer_list<Entry> entries) : entries_(entries) {}

  bool contains(std::string_view name) const { return find(name) != nullptr; }
  const Value* find(std::string_view name) const;
  /// Throws `Error` G-DATA-1 with the missing column and those there are.
  const Value& at(std::string_view name) const;
  const Value& operator[](std::string_view name) const { return at(name); }
  /// Adds or replaces; a replaced column keeps its place.
  void set(std::string name, Value value);
  /// Removes a column if it is there; says whether it was.
  bool erase(std::string_view name);

  size_t size() const { return entries_.size(); }
  std::vector<std::string> names() const;
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
};

}  // namespace gradus
