#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace gradus {

/// A tree of plain values and tensors: the content of `optimizer.pt`, `scheduler.pt` and so on.
///
/// It holds what `torch.save` can write of Python's built-in types: None, bool, int, float, str,
/// bytes, Tensor, list, tuple, and dict with int or str keys in insertion order.
/// `formats/torch_file.h` reads and writes it.
///
/// A tree is a value: copying it copies the nodes, while tensors share their storage.
/// Thread-safety: as a `std::vector`.
class StateTree {
 public:
  /// A key of a dict.
  using Key = std::variant<int64_t, std::string>;
  /// Python's `bytes`.
  struct Bytes {
    std::string data;  ///< The bytes.
  };
  /// Python's `list`.
  struct List {
    std::vector<StateTree> items;  ///< The elements in order.
  };
  /// Python's `tuple`.
  struct Tuple {
    std::vector<StateTree> items;  ///< The elements in order.
  };
  /// Python's `dict`.
  struct Dict {
    std::vector<std::pair<Key, StateTree>> items;  ///< The entries in insertion order.
  };

  StateTree() = default;                                        ///< None.
  StateTree(bool value) : value_(value) {}                      ///< A bool.
  StateTree(int value) : value_(int64_t{value}) {}              ///< An int.
  StateTree(int64_t value) : value_(value) {}                   ///< An int.
  StateTree(double value) : value_(value) {}                    ///< A float.
  StateTree(const char* value) : value_(std::string(value)) {}  ///< A str.
  StateTree(std::string value) : value_(std::move(value)) {}    ///< A str.
  StateTree(torch::Tensor value) : value_(std::move(value)) {}  ///< A tensor; not copied.
  StateTree(Bytes value) : value_(std::move(value)) {}          ///< A bytes object.
  StateTree(List value) : value_(std::move(value)) {}           ///< A list.
  StateTree(Tuple value) : value_(std::move(value)) {}          ///< A tuple.
  StateTree(Dict value) : value_(std::move(value)) {}           ///< A dict.

  static StateTree dict() { return Dict{}; }  ///< An empty dict.
  static StateTree list() { return List{}; }  ///< An empty list.

  // Which type a node has. Exactly one of these is true.

  /// Whether this is None.
  bool is_none() const { return std::holds_alternative<std::monostate>(value_); }
  /// Whether this is a bool.
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  /// Whether this is an int.
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  /// Whether this is a float.
  bool is_double() const { return std::holds_alternative<double>(value_); }
  /// Whether this is a str.
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  /// Whether this is a bytes object.
  bool is_bytes() const { return std::holds_alternative<Bytes>(value_); }
  /// Whether this is a tensor.
  bool is_tensor() const { return std::holds_alternative<torch::Tensor>(value_); }
  /// Whether this is a list.
  bool is_list() const { return std::holds_alternative<List>(value_); }
  /// Whether this is a tuple.
  bool is_tuple() const { return std::holds_alternative<Tuple>(value_); }
  /// Whether this is a dict.
  bool is_dict() const { return std::holds_alternative<Dict>(value_); }

  // Typed access. For another type each throws `Error` G-STATE-1, which names the type found.

  /// The bool; an int is true unless it is 0.
  bool as_bool() const;
  /// The int; also from a bool or a tensor of one element.
  int64_t as_int() const;
  /// The float; also from an int or a tensor of one element.
  double as_double() const;
  /// The text; also the content of a bytes object.
  const std::string& as_string() const;
  /// The tensor.
  const torch::Tensor& as_tensor() const;
  /// The elements of a list or tuple.
  const std::vector<StateTree>& items() const;
  /// The entries of a dict in insertion order.
  const std::vector<std::pair<Key, StateTree>>& entries() const;

  /// The value of a dict entry. Throws `Error` G-STATE-2 with the missing key and those present.
  const StateTree& at(const Key& key) const;
  /// The value of a dict entry, or null when the key is missing.
  const StateTree* find(const Key& key) const;
  /// Whether a dict has the key.
  bool contains(const Key& key) const { return find(key) != nullptr; }
  /// Sets a dict entry, replacing the value of an existing key. Returns this tree.
  StateTree& set(Key key, StateTree value);
  /// Appends to a list. Returns this tree.
  StateTree& push(StateTree value);

  /// "dict", "list", "tensor" and so on, for messages.
  std::string type_name() const;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Bytes, torch::Tensor, List,
               Tuple, Dict>
      value_;
};

}  // namespace gradus
