#pragma once

#include <torch/types.h>

#include <cstdint>
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
  using Ints = std::vector<int64_t>;         ///< A list of integers.
  using Floats = std::vector<double>;        ///< A list of floats.
  using Strings = std::vector<std::string>;  ///< A list of texts.

  // A value is made of any of its types without a cast.

  /// Null.
  Value() = default;
  /// Null.
  Value(std::nullptr_t) {}
  /// A bool.
  Value(bool value) : value_(value) {}
  /// An integer.
  Value(int value) : value_(int64_t{value}) {}
  /// An integer.
  Value(int64_t value) : value_(value) {}
  /// A number.
  Value(double value) : value_(value) {}
  /// A text.
  Value(const char* value) : value_(std::string(value)) {}
  /// A text.
  Value(std::string value) : value_(std::move(value)) {}
  /// A tensor; not copied.
  Value(torch::Tensor value) : value_(std::move(value)) {}
  /// A list of integers.
  Value(Ints value) : value_(std::move(value)) {}
  /// A list of numbers.
  Value(Floats value) : value_(std::move(value)) {}
  /// A list of texts.
  Value(Strings value) : value_(std::move(value)) {}
  /// JSON that none of the other types can hold. Objects keep the order of their keys.
  static Value nested(nlohmann::ordered_json value);

  // Which type it holds. Exactly one of these is true.

  /// Whether there is no value.
  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  /// Whether it is a bool.
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  /// Whether it is an integer.
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  /// Whether it is a number with a fraction.
  bool is_double() const { return std::holds_alternative<double>(value_); }
  /// Whether it is a text.
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  /// Whether it is a tensor.
  bool is_tensor() const { return std::holds_alternative<torch::Tensor>(value_); }
  /// Whether it is a list of integers.
  bool is_ints() const { return std::holds_alternative<Ints>(value_); }
  /// Whether it is a list of numbers.
  bool is_floats() const { return std::holds_alternative<Floats>(value_); }
  /// Whether it is a list of texts.
  bool is_strings() const { return std::holds_alternative<Strings>(value_); }
  /// Whether it is nested JSON.
  bool is_nested() const { return std::holds_alternative<Nested>(value_); }

  // The value as one type. Each throws `Error` G-DATA-2, which names the type found and the one
  // expected.

  bool boolean() const;                 ///< The bool.
  int64_t integer() const;              ///< The int; a bool is 0 or 1.
  double number() const;                ///< The float; an int is converted.
  const std::string& str() const;       ///< The text.
  const torch::Tensor& tensor() const;  ///< The tensor.
  const Ints& ints() const;             ///< The list of integers.
  const Floats& floats() const;         ///< The list of floats.
  const Strings& strings() const;       ///< The list of texts.
  /// The nested JSON.
  const nlohmann::ordered_json& json() const;

  /// A number, list or tensor as a tensor: int64, float32 for floats, or bool. Throws `Error`
  /// G-DATA-2 for text and null.
  torch::Tensor to_tensor() const;
  /// The type in words, for messages: "int", "list of int", "text", "tensor".
  std::string type_name() const;

 private:
  using Nested = std::shared_ptr<const nlohmann::ordered_json>;
  std::variant<std::monostate, bool, int64_t, double, std::string, torch::Tensor, Ints, Floats,
               Strings, Nested>
      value_;
};

/// One row of a data set: an ordered map from column name to value.
///
/// Thread-safety: as a `std::vector`.
class Example {
 public:
  using Entry = std::pair<std::string, Value>;  ///< A column's name and value.

  /// A row without columns.
  Example() = default;
  /// A row with these columns, in this order.
  Example(std::initializer_list<Entry> entries);

  /// Whether there is a column `name`.
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// The value of a column; null when there is no such column.
  const Value* find(std::string_view name) const;
  /// The value of a column. Throws `Error` G-DATA-1 with the missing name and the names there are.
  const Value& at(std::string_view name) const;
  /// The same as `at`.
  const Value& operator[](std::string_view name) const { return at(name); }
  /// Adds a column, or replaces one in its place. Rows of many columns find them by a hash table,
  /// so that a row of 100,000 columns takes 100,000 steps to build.
  void set(std::string name, Value value);
  /// Replaces the value of column number `place`, which must be below `size()`.
  void set_value(size_t place, Value value) { entries_[place].second = std::move(value); }
  /// Removes a column. Returns whether it was there.
  bool erase(std::string_view name);

  /// Number of columns.
  size_t size() const { return entries_.size(); }
  /// The names of the columns, in order.
  std::vector<std::string> names() const;
  /// Iterates over the columns in order.
  auto begin() const { return entries_.begin(); }
  /// The end of the columns.
  auto end() const { return entries_.end(); }

 private:
  size_t place_of(std::string_view name) const;  // size() when there is none
  void note_place(size_t place);
  void note_all_places();

  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_;  // of a row of many columns: place + 1 by the name's hash, 0: free
};

}  // namespace gradus
