#include <gradus/core/error.h>
#include <gradus/core/nearest.h>
#include <gradus/data/example.h>

#include "data/name_hash.h"
#include "data/nested_tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>

namespace gradus {
namespace {

constexpr size_t kFewColumns = 32;  // are searched one by one, which is faster for so few

[[noreturn]] void throw_type(const Value& value, const char* wanted) {
  throw Error("G-DATA-2", ErrorKind::data,
              fmt::format("a value is {}, expected {}", value.type_name(), wanted),
              "Convert the column, or read it by its own type.");
}

}  // namespace

Value Value::nested(nlohmann::ordered_json value) {
  Value result;
  result.value_ = std::make_shared<const nlohmann::ordered_json>(std::move(value));
  return result;
}

bool Value::boolean() const {
  if (const auto* value = std::get_if<bool>(&value_)) return *value;
  throw_type(*this, "bool");
}

int64_t Value::integer() const {
  if (const auto* value = std::get_if<int64_t>(&value_)) return *value;
  if (const auto* value = std::get_if<bool>(&value_)) return *value;
  throw_type(*this, "int");
}

double Value::number() const {
  if (const auto* value = std::get_if<double>(&value_)) return *value;
  if (const auto* value = std::get_if<int64_t>(&value_)) return static_cast<double>(*value);
  throw_type(*this, "a number");
}

const std::string& Value::str() const {
  if (const auto* value = std::get_if<std::string>(&value_)) return *value;
  throw_type(*this, "text");
}

const torch::Tensor& Value::tensor() const {
  if (const auto* value = std::get_if<torch::Tensor>(&value_)) return *value;
  throw_type(*this, "tensor");
}

const Value::Ints& Value::ints() const {
  if (const auto* value = std::get_if<Ints>(&value_)) return *value;
  throw_type(*this, "list of int");
}

const Value::Floats& Value::floats() const {
  if (const auto* value = std::get_if<Floats>(&value_)) return *value;
  throw_type(*this, "list of float");
}

const Value::Strings& Value::strings() const {
  if (const auto* value = std::get_if<Strings>(&value_)) return *value;
  throw_type(*this, "list of text");
}

const nlohmann::ordered_json& Value::json() const {
  if (const auto* value = std::get_if<Nested>(&value_)) return **value;
  throw_type(*this, "nested");
}

torch::Tensor Value::to_tensor() const {
  if (is_tensor()) return std::get<torch::Tensor>(value_);
  if (is_bool()) return at::scalar_tensor(std::get<bool>(value_), at::kBool);
  if (is_int()) return at::scalar_tensor(std::get<int64_t>(value_), at::kLong);
  if (is_double()) return at::scalar_tensor(std::get<double>(value_), at::kFloat);
  if (is_ints()) return torch::tensor(std::get<Ints>(value_), at::kLong);
  if (is_floats()) {
    const auto& values = std::get<Floats>(value_);
    auto result = at::empty({static_cast<int64_t>(values.size())}, at::kFloat);
    std::copy(values.begin(), values.end(), result.data_ptr<float>());
    return result;
  }
  if (is_nested()) return data::nested_tensor(json());
  throw_type(*this, "a number, a list of numbers or a tensor");
}

std::string Value::type_name() const {
  static constexpr const char* names[] = {"null",         "bool",   "int",         "float",
                                          "text",         "tensor", "list of int", "list of float",
                                          "list of text", "nested"};
  return names[value_.index()];
}

Example::Example(std::initializer_list<Entry> entries) : entries_(entries) {
  if (entries_.size() > kFewColumns) note_all_places();
}

size_t Example::place_of(std::string_view name) const {
  if (slots_.empty()) {
    for (size_t i = 0; i < entries_.size(); ++i)
      if (entries_[i].first == name) return i;
    return entries_.size();
  }
  const auto mask = slots_.size() - 1;
  for (auto slot = data::NameHash()(name) & mask; slots_[slot] != 0; slot = (slot + 1) & mask)
    if (entries_[slots_[slot] - 1].first == name) return slots_[slot] - 1;
  return entries_.size();
}

// The first of two columns with one name is the one that is found, as without a table.
void Example::note_place(size_t place) {
  const auto mask = slots_.size() - 1;
  auto slot = data::NameHash()(entries_[place].first) & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask)
    if (entries_[slots_[slot] - 1].first == entries_[place].first) return;
  slots_[slot] = uint32_t(place + 1);
}

// A table of a power of two of slots, at most half of them taken until the row has doubled.
void Example::note_all_places() {
  slots_.assign(std::bit_ceil(4 * entries_.size()), 0);
  for (size_t i = 0; i < entries_.size(); ++i) note_place(i);
}

const Value* Example::find(std::string_view name) const {
  const auto place = place_of(name);
  return place < entries_.size() ? &entries_[place].second : nullptr;
}

const Value& Example::at(std::string_view name) const {
  if (const auto* value = find(name)) return *value;
  const auto present = names();
  throw Error(
      "G-DATA-1", ErrorKind::data,
      fmt::format("the row has no column '{}'; it has {}", name,
                  present.empty() ? "no columns" : fmt::format("{}", fmt::join(present, ", "))),
      did_you_mean(name, present));
}

void Example::set(std::string name, Value value) {
  if (const auto place = place_of(name); place < entries_.size()) {
    entries_[place].second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(name), std::move(value));
  if (entries_.size() <= kFewColumns) return;
  if (2 * entries_.size() > slots_.size())
    note_all_places();
  else
    note_place(entries_.size() - 1);
}

bool Example::erase(std::string_view name) {
  if (std::erase_if(entries_, [&](const Entry& entry) { return entry.first == name; }) == 0)
    return false;
  slots_.clear();
  if (entries_.size() > kFewColumns) note_all_places();
  return true;
}

std::vector<std::string> Example::names() const {
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const auto& [name, value] : entries_) names.push_back(name);
  return names;
}

}  // namespace gradus
