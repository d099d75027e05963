#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace gradus {

/// A tree of plain values and tensors: what `optimizer.pt`, `scheduler.pt` and the like hold.
///
/// It is what `torch.save` can write of built-in Python types, no more: None, bool, int, float,
/// str, bytes, Tensor, list, tuple and dict with int or str keys in insertion order.
/// `formats/torch_file.h` reads and writes it.
class StateTree {
 public:
  using Key = std::variant<int64_t, std::string>;
  struct Bytes {
    std::string data;
  };
  struct List {
    std::vector<StateTree> items;
  };
  struct Tuple {
    std::vector<StateTree> items;
  };
  struct Dict {
    std::vector<std::pair<Key, StateTree>> items;
  };

  StateTree() = default;  // None
  StateTree(bool value) : value_(value) {}
  StateTree(int value) : value_(int64_t{value}) {}
  StateTree(int64_t value) : value_(value) {}
  StateTree(double value) : value_(value) {}
  StateTree(const char* value) : value_(std::string(value)) {}
  StateTree(std::string value) : value_(std::move(value)) {}
  StateTree(torch::Tensor value) : value_(std::move(value)) {}
  StateTree(Bytes value) : value_(std::move(value)) {}
  StateTree(List value) : value_(std::move(value)) {}
  StateTree(Tuple value) : value_(std::move(value)) {}
  StateTree(Dict value) : value_(std::move(value)) {}

  static StateTree dict() { return Dict{}; }
  static StateTree list() { return List{}; }

  bool is_none() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  bool is_double() const { return std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_bytes() const { return std::holds_alternative<Bytes>(value_); }
  bool is_tensor() const { return std::holds_alternative<torch::Tensor>(value_); }
  bool is_list() const { return std::holds_alternative<List>(value_); }
  bool is_tuple() const { return std::holds_alternative<Tuple>(value_); }
  bool is_dict() const { return std::holds_alternative<Dict>(value_); }

  /// Typed access. Throws `Error` G-STATE-1 that names the type found when it is another one.
  bool as_bool() const;
  int64_t as_int() const;
  double as_double() const;  ///< also from an int or a one-element tensor
  const std::string& as_string() const;
  const torch::Tensor& as_tensor() const;
  const std::vector<StateTree>& items() const;                    ///< of a list or tuple
  const std::vector<std::pair<Key, StateTree>>& entries() const;  ///< of a dict

  /// Dict access. `at` throws G-STATE-2 with the missing key and those present; `find` gives null.
  const StateTree& at(const Key& key) const;
  const StateTree* find(const Key& key) const;
  bool contains(const Key& key) const { return find(key) != nullptr; }
  /// Sets a dict entry (replacing one of that key), appends to a list.
  StateTree& set(Key key, StateTree value);
  StateTree& push(StateTree value);

  /// "dict", "list", "tensor" …, for messages.
  std::string type_name() const;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Bytes, torch::Tensor, List,
               Tuple, Dict>
      value_;
};

}  // namespace gradus
