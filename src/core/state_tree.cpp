#include <gradus/core/error.h>
#include <gradus/core/state_tree.h>

#include <array>

namespace gradus {
namespace {

std::string key_text(const StateTree::Key& key) {
  if (const auto* number = std::get_if<int64_t>(&key)) return std::to_string(*number);
  return "'" + std::get<std::string>(key) + "'";
}

[[noreturn]] void wrong_type(const StateTree& tree, const std::string& expected) {
  throw Error(
      "G-STATE-1", ErrorKind::checkpoint,
      "a saved state holds a " + tree.type_name() + " where a " + expected + " was expected",
      "The file was written by another program or version, or is damaged.");
}

}  // namespace

std::string StateTree::type_name() const {
  constexpr std::array kNames = {"None",  "bool",   "int",  "float", "str",
                                 "bytes", "tensor", "list", "tuple", "dict"};
  return kNames.at(value_.index());
}

bool StateTree::as_bool() const {
  if (is_int()) return std::get<int64_t>(value_) != 0;
  if (!is_bool()) wrong_type(*this, "bool");
  return std::get<bool>(value_);
}

int64_t StateTree::as_int() const {
  if (is_bool()) return std::get<bool>(value_) ? 1 : 0;
  if (is_tensor() && as_tensor().numel() == 1) return as_tensor().item<int64_t>();
  if (!is_int()) wrong_type(*this, "int");
  return std::get<int64_t>(value_);
}

double StateTree::as_double() const {
  if (is_int()) return double(std::get<int64_t>(value_));
  if (is_tensor() && as_tensor().numel() == 1) return as_tensor().item<double>();
  if (!is_double()) wrong_type(*this, "float");
  return std::get<double>(value_);
}

const std::string& StateTree::as_string() const {
  if (is_bytes()) return std::get<Bytes>(value_).data;
  if (!is_string()) wrong_type(*this, "str");
  return std::get<std::string>(value_);
}

const torch::Tensor& StateTree::as_tensor() const {
  if (!is_tensor()) wrong_type(*this, "tensor");
  return std::get<torch::Tensor>(value_);
}

const std::vector<StateTree>& StateTree::items() const {
  if (is_tuple()) return std::get<Tuple>(value_).items;
  if (!is_list()) wrong_type(*this, "list");
  return std::get<List>(value_).items;
}

const std::vector<std::pair<StateTree::Key, StateTree>>& StateTree::entries() const {
  if (!is_dict()) wrong_type(*this, "dict");
  return std::get<Dict>(value_).items;
}

const StateTree* StateTree::find(const Key& key) const {
  for (const auto& [name, value] : entries())
    if (name == key) return &value;
  return nullptr;
}

const StateTree& StateTree::at(const Key& key) const {
  if (const auto* found = find(key)) return *found;
  std::string present;
  for (const auto& entry : entries())
    present += (present.empty() ? "" : ", ") + key_text(entry.first);
  throw Error("G-STATE-2", ErrorKind::checkpoint,
              "a saved state has no entry " + key_text(key) + "; it has " +
                  (present.empty() ? "none" : present),
              "The file was written by another program or version, or is damaged.");
}

StateTree& StateTree::set(Key key, StateTree value) {
  if (!is_dict()) wrong_type(*this, "dict");
  auto& items = std::get<Dict>(value_).items;
  for (auto& [name, old] : items) {
    if (name == key) {
      old = std::move(value);
      return *this;
    }
  }
  items.emplace_back(std::move(key), std::move(value));
  return *this;
}

StateTree& StateTree::push(StateTree value) {
  if (!is_list()) wrong_type(*this, "list");
  std::get<List>(value_).items.push_back(std::move(value));
  return *this;
}

}  // namespace gradus
