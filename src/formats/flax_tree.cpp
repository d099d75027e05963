#include <gradus/core/error.h>
#include <gradus/formats/flax_msgpack.h>

#include <array>

namespace gradus {
namespace {

[[noreturn]] void not_a(const std::string& wanted, const FlaxTree& tree) {
  throw Error("G-FLAX-4", ErrorKind::model,
              "the Flax tree has a " + tree.type_name() + " where " + wanted + " is expected",
              "Compare the file with the model it should belong to.");
}

}  // namespace

const torch::Tensor& FlaxTree::tensor() const {
  if (const auto* array = std::get_if<torch::Tensor>(&value_)) return *array;
  if (const auto* scalar = std::get_if<Scalar>(&value_)) return scalar->value;
  not_a("an array", *this);
}

const std::vector<std::pair<std::string, FlaxTree>>& FlaxTree::entries() const {
  if (const auto* dict = std::get_if<Dict>(&value_)) return dict->items;
  not_a("a dictionary", *this);
}

const FlaxTree* FlaxTree::find(std::string_view key) const {
  for (const auto& [name, value] : entries())
    if (name == key) return &value;
  return nullptr;
}

const FlaxTree& FlaxTree::at(std::string_view key) const {
  if (const auto* value = find(key)) return *value;
  std::string names;
  for (const auto& [name, value] : entries()) names += (names.empty() ? "'" : ", '") + name + "'";
  throw Error("G-FLAX-4", ErrorKind::model,
              "the Flax tree has no '" + std::string(key) + "'; there are " +
                  (names.empty() ? "no entries" : names),
              "Compare the file with the model it should belong to.");
}

FlaxTree& FlaxTree::set(std::string key, FlaxTree value) {
  auto* dict = std::get_if<Dict>(&value_);
  if (dict == nullptr) not_a("a dictionary", *this);
  for (auto& [name, old] : dict->items)
    if (name == key) return old = std::move(value);
  return dict->items.emplace_back(std::move(key), std::move(value)).second;
}

std::string FlaxTree::type_name() const {
  static constexpr std::array kNames = {"None",  "bool",           "int",  "int",
                                        "float", "complex number", "text", "bytes",
                                        "array", "numpy scalar",   "list", "dict"};
  static_assert(kNames.size() == std::variant_size_v<Value>);
  return kNames[value_.index()];
}

}  // namespace gradus
